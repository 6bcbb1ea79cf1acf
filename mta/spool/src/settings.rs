//! The spool's settings.
//!
//! Must never hold a default for product code, nor a value that was not checked: `open` refuses what cannot work.

/// All sizes and bounds of the spool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Size of a segment in bytes. Segments of another size stay readable and are not recycled.
    pub segment_bytes: u32,
    /// Upper bound on the bytes of a batch, unless one group alone is larger.
    pub batch_bytes_max: u32,
    /// Upper bound on the commits of the log that are under way at once. One always works.
    pub commits_in_flight: usize,
    /// Bytes kept for outcomes and retirements when the disk is full.
    pub reserve_bytes: u64,
    /// Bytes of the file system that are left to others.
    pub keep_free_bytes: u64,
    /// Bodies longer than this go to bulk segments.
    pub bulk_body_bytes_min: u32,
    /// Upper bound on the bytes of one chunk of a body.
    pub chunk_bytes_max: u32,
    /// Bytes of log between two snapshots of the index.
    pub snapshot_log_bytes: u64,
    /// Between two snapshots the log also grows by at least this many times the bytes of the last
    /// snapshot, because a snapshot of a long queue is expensive. The log since the last snapshot is
    /// read again when the spool is opened after a crash.
    pub snapshot_log_factor: u64,
    /// Upper bound on the messages in one slice of a snapshot.
    pub snapshot_slice_messages: usize,
    /// Upper bound on the bytes that clients have staged, and on those gathered and not yet written.
    pub staged_bytes_max: u64,
    /// The same for messages of our own (notices), which are counted apart so that they never keep clients
    /// out. Also the upper bound on the length of one.
    pub own_bytes_max: u64,
    /// Number of segments that are kept ready.
    pub spares: usize,
    /// Longest time in milliseconds that an outcome waits for a commit of other messages.
    pub change_delay_ms_max: u64,
    /// Upper bound on the transactions that are remembered after they became durable.
    pub recent_transactions_max: usize,
    /// Bytes that one background step zeroes.
    pub zero_slice_bytes: u32,
    /// A sealed segment is emptied by copying forward if less than one part in this many of it is live,
    /// and copies of one block each would fit into half a segment.
    pub copy_forward_divisor: u32,
    /// Whether a new spool may be made in an empty directory.
    pub create: bool,
}

impl Settings {
    /// The settings that the daemon makes of an empty settings file, for tests of any crate.
    ///
    /// Product code fills every field itself; tidy refuses a call from it.
    pub fn for_tests() -> Settings {
        Settings {
            segment_bytes: 64 << 20,
            batch_bytes_max: 2 << 20,
            commits_in_flight: 2,
            reserve_bytes: 64 << 20,
            keep_free_bytes: 64 << 20,
            bulk_body_bytes_min: 1 << 20,
            chunk_bytes_max: 256 << 10,
            snapshot_log_bytes: 128 << 20,
            snapshot_log_factor: 3,
            snapshot_slice_messages: 4096,
            staged_bytes_max: 256 << 20,
            own_bytes_max: 32 << 20,
            spares: 3,
            change_delay_ms_max: 20,
            recent_transactions_max: 65_536,
            zero_slice_bytes: 1 << 20,
            copy_forward_divisor: 8,
            create: true,
        }
    }
}

/// Size of the smallest segment in bytes.
pub const SEGMENT_BYTES_MIN: u32 = 64 << 10;

impl Settings {
    /// Returns what cannot work about these settings.
    pub fn problem(&self) -> Option<&'static str> {
        let block = crate::format::BLOCK as u32;
        if self.segment_bytes < SEGMENT_BYTES_MIN || !self.segment_bytes.is_multiple_of(block) {
            Some("segment_bytes must be a multiple of 4096 and at least 65536")
        } else if self.segment_bytes > 1 << 30 {
            Some("segment_bytes must be at most 1 GiB")
        } else if self.batch_bytes_max > self.segment_bytes / 4 || self.batch_bytes_max < block {
            Some("batch_bytes_max must be between 4096 and a quarter of segment_bytes")
        } else if self.chunk_bytes_max > self.segment_bytes / 8 || self.chunk_bytes_max == 0 {
            Some("chunk_bytes_max must be between 1 and an eighth of segment_bytes")
        } else if !(1..=64).contains(&self.commits_in_flight) {
            Some("commits_in_flight must be between 1 and 64")
        } else if self.snapshot_slice_messages == 0 || self.zero_slice_bytes < block {
            Some("snapshot_slice_messages and zero_slice_bytes must not be 0")
        } else if self.copy_forward_divisor < 2 || self.spares == 0 {
            Some("copy_forward_divisor must be at least 2 and spares at least 1")
        } else {
            None
        }
    }
}
