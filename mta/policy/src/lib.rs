//! facts in, verdict out.
