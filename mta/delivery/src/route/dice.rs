//! The order of hosts with the same preference, which is random (RFC 5321 5.1).
//!
//! Must never prefer one of them.

/// Random numbers made from a seed by splitmix64.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for left in (1..items.len()).rev() {
            items.swap(left, (self.next() % (left as u64 + 1)) as usize);
        }
    }
}
