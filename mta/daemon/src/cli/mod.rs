//! The command line: `posthaste run | check | queue | status | spool`. Never parses mail.
