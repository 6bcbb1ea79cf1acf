//! The settings file: read, checked whole, and handed to every process.
