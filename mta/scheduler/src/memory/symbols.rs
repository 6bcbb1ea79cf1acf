//! Senders and domains: texts that many messages share, each stored once and counted.
//!
//! Must never free a symbol while it is in use.

use super::shards::{Shards, hash_with};
use super::texts::{Texts, cut};
use super::{NONE, Slab};

#[derive(Debug)]
pub(crate) struct Symbols {
    pub texts: Texts,
    entries: Slab<Entry>,
    table: Shards,
}

#[derive(Debug)]
struct Entry {
    text: u32,
    uses: u32,
    /// Of a sender: the number of its groups that are ready or in flight, to tell light senders from heavy ones.
    busy: u32,
    /// Of a domain: the destination that stands for its MX hosts, if there is one.
    destination: u32,
}

impl Default for Entry {
    fn default() -> Self {
        Entry { text: NONE, uses: 0, busy: 0, destination: NONE }
    }
}

impl Symbols {
    pub fn new(seed: u64) -> Self {
        Symbols { texts: Texts::new(), entries: Slab::new(), table: Shards::new(seed) }
    }

    /// Returns the symbol of a text, and counts one use of it.
    pub fn intern(&mut self, text: &str) -> u32 {
        let text = cut(text);
        let hash = self.table.hash(text);
        if let Some(at) = self.find(hash, text) {
            self.entries[at].uses += 1;
            return at;
        }
        let text = self.texts.insert(text);
        let at = self.entries.insert(Entry { text, uses: 1, ..Entry::default() });
        let (entries, texts, seed) = (&self.entries, &self.texts, self.table.seed());
        self.table.insert(hash, at, |at| hash_with(seed, texts.get(entries[at].text)));
        at
    }

    fn find(&self, hash: u64, text: &str) -> Option<u32> {
        self.table.find(hash, |at| self.is(at, text))
    }

    /// Returns true if a symbol stands for this text.
    pub fn is(&self, at: u32, text: &str) -> bool {
        self.texts.bytes(self.entries[at].text) == text.as_bytes()
    }

    /// Returns the destination of a domain.
    pub fn destination(&self, domain: &str) -> Option<u32> {
        self.destination_of(self.find(self.table.hash(domain), domain)?)
    }

    /// Returns the destination of a domain by its symbol.
    pub fn destination_of(&self, domain: u32) -> Option<u32> {
        Some(self.entries[domain].destination).filter(|at| *at != NONE)
    }

    /// Sets the destination of a domain; `NONE` removes it.
    pub fn set_destination(&mut self, at: u32, destination: u32) {
        self.entries[at].destination = destination;
    }

    /// Ends one use of a symbol.
    pub fn release(&mut self, at: u32) {
        if at == NONE {
            return;
        }
        self.entries[at].uses -= 1;
        if self.entries[at].uses == 0 {
            let hash = self.table.hash(self.get(at));
            self.table.remove(hash, at);
            let entry = self.entries.remove(at);
            self.texts.remove(entry.text);
        }
    }

    pub fn get(&self, at: u32) -> &str {
        self.texts.get(self.entries[at].text)
    }

    pub fn is_busy_at_most(&self, at: u32, max: u32) -> bool {
        self.entries[at].busy <= max
    }

    pub fn busy(&mut self, at: u32) -> &mut u32 {
        &mut self.entries[at].busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_symbol_until_its_last_use_ends() {
        let mut symbols = Symbols::new(1);
        let names: Vec<String> = (0..5000).map(|n| format!("name{n}")).collect();
        let all: Vec<u32> = names.iter().map(|name| symbols.intern(name)).collect();
        assert_eq!(symbols.intern("name42"), all[42]);
        symbols.release(all[42]);
        assert_eq!(symbols.get(all[42]), "name42");
        symbols.release(all[42]);
        assert_eq!(symbols.intern("another"), all[42]);
        assert_eq!(symbols.intern("name4999"), all[4999]);
    }
}
