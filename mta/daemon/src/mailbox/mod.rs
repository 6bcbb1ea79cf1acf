//! Mailbox files: Maildir and mbox, locked, synced, many deliveries a sync.
