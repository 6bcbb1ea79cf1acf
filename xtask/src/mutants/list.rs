//! The list of cargo-mutants, and the sample of it that is tried.
//!
//! Must never choose by the line of a mutant: a line that is added above would change the sample.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::HashMap;

/// One change.
#[derive(Debug, PartialEq)]
pub struct Mutant {
    /// `file:line:column: what`, as cargo-mutants calls it.
    pub name: String,
    /// The same without line and column, numbered where two would be equal.
    pub key: String,
}

#[derive(Deserialize)]
struct Listed {
    name: String,
}

/// The mutants of a list in JSON.
pub fn parse(text: &str) -> Result<Vec<Mutant>> {
    let listed: Vec<Listed> = serde_json::from_str(text).context("cargo-mutants' list")?;
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mutants = listed.into_iter().map(|Listed { name }| {
        let plain = without_place(&name);
        let number = seen.entry(plain.clone()).or_default();
        *number += 1;
        let key = if *number == 1 { plain } else { format!("{plain} #{number}") };
        Mutant { name, key }
    });
    Ok(mutants.collect())
}

/// `a.rs:1:2: what` without its numbers.
fn without_place(name: &str) -> String {
    let mut parts = name.splitn(4, ':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(file), Some(_), Some(_), Some(what)) => format!("{file}:{what}"),
        _ => name.to_string(),
    }
}

/// Up to `count` mutants in an order that only the seed and their keys decide.
pub fn sample(mut all: Vec<Mutant>, seed: u64, count: usize) -> Vec<Mutant> {
    all.sort_by_cached_key(|mutant| (mix(seed, &mutant.key), mutant.key.clone()));
    all.truncate(count);
    all
}

/// FNV-1a with a finish by SplitMix64: the same on every machine and in every version of Rust.
fn mix(seed: u64, text: &str) -> u64 {
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325 ^ seed, fnv);
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutants(names: &[&str]) -> Vec<Mutant> {
        let listed: Vec<_> = names.iter().map(|name| serde_json::json!({ "name": name })).collect();
        parse(&serde_json::to_string(&listed).unwrap()).unwrap()
    }

    #[test]
    fn equal_changes_of_a_file_are_numbered_and_their_place_is_not_in_the_key() {
        let all = mutants(&["a.rs:1:2: replace + with - in f", "a.rs:3:4: replace + with - in f"]);
        assert_eq!(all[0].key, "a.rs: replace + with - in f");
        assert_eq!(all[1].key, "a.rs: replace + with - in f #2");
    }

    #[test]
    fn a_sample_stays_the_same_when_lines_move_and_differs_by_seed() {
        let names = |shift: usize| -> Vec<String> {
            (0..100).map(|at| format!("a.rs:{}:1: replace f{at} with ()", at + shift)).collect()
        };
        let keys = |shift, seed, count| -> Vec<String> {
            let names = names(shift);
            let all = mutants(&names.iter().map(String::as_str).collect::<Vec<_>>());
            sample(all, seed, count).into_iter().map(|mutant| mutant.key).collect()
        };
        assert_eq!(keys(0, 1, 30), keys(500, 1, 30));
        assert_eq!(keys(0, 1, 30)[..10], keys(0, 1, 10));
        assert_ne!(keys(0, 1, 30), keys(0, 2, 30));
        assert_eq!(keys(0, 1, 200).len(), 100);
    }
}
