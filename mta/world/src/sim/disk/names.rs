//! The directory: the names that lookups show, the durable names, and the pending changes.
//!
//! Must never let a pending change become durable except by a fate.

use super::fate::{PowerCutFate, What};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Names and the numbers of their files. Clones share unchanged parts.
#[derive(Clone, Default)]
pub(super) struct FileNames {
    shown: Arc<BTreeMap<String, usize>>,
    durable: Arc<BTreeMap<String, usize>>,
    pub pending: Vec<NameChange>,
}

#[derive(Clone)]
pub(super) enum NameChange {
    Create(String, usize),
    Remove(String),
    Rename(String, String),
}

impl FileNames {
    pub fn get(&self, name: &str) -> Option<usize> {
        self.shown.get(name).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, usize)> {
        self.shown.iter().map(|(name, at)| (name, *at))
    }

    /// A name of the file, if it has one.
    pub fn name_of(&self, file: usize) -> String {
        self.iter().find(|(_, at)| *at == file).map(|(name, _)| name.clone()).unwrap_or_default()
    }

    pub fn change(&mut self, change: NameChange) {
        change.apply(Arc::make_mut(&mut self.shown));
        self.pending.push(change);
    }

    /// Adds a durable name.
    pub fn put(&mut self, name: &str, file: usize) {
        Arc::make_mut(&mut self.shown).insert(name.into(), file);
        Arc::make_mut(&mut self.durable).insert(name.into(), file);
    }

    pub fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            change.apply(Arc::make_mut(&mut self.durable));
        }
    }

    /// Applies the pending changes after a power cut, each by its fate.
    pub fn settle(&mut self, mut fate: impl FnMut() -> PowerCutFate) {
        for change in std::mem::take(&mut self.pending) {
            if fate().keeps_any() {
                change.apply(Arc::make_mut(&mut self.durable));
            }
        }
        self.shown = self.durable.clone();
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            NameChange::Create(name, at) => {
                names.insert(name.clone(), *at);
            }
            NameChange::Remove(name) => {
                names.remove(name);
            }
            NameChange::Rename(from, to) => {
                if let Some(at) = names.remove(from) {
                    names.insert(to.clone(), at);
                }
            }
        }
    }

    /// The name that the change is about, and what it does.
    pub fn described(&self) -> (String, What) {
        match self {
            NameChange::Create(name, _) => (name.clone(), What::Create),
            NameChange::Remove(name) => (name.clone(), What::Remove),
            NameChange::Rename(from, to) => (from.clone(), What::Rename { to: to.clone() }),
        }
    }
}
