//! All seeds and all crashes that were ever found, and bytes of chance, through their targets.
//!
//! Must never pass because a folder was not found.

#![allow(clippy::unwrap_used)] // a test

use std::path::{Path, PathBuf};
use world::Rng as _;
use world::sim::Rng;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files
}

#[test]
fn every_seed_holds_in_its_target_and_every_target_has_some() {
    for target in fuzz::TARGETS {
        let files = files(&folder("seeds").join(target.name));
        assert!(!files.is_empty(), "{} has no seeds", target.name);
        for file in files {
            println!("{}", file.display());
            (target.run)(&std::fs::read(&file).unwrap());
        }
    }
}

#[test]
fn every_crash_that_was_ever_found_is_one_no_more() {
    let folders = files(&folder("crashes"));
    assert!(folders.len() >= 5, "the folder of crashes is not there");
    for folder in folders.iter().filter(|path| path.is_dir()) {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let target = fuzz::target(name).unwrap_or_else(|| panic!("there is no target {name}"));
        for file in files(folder) {
            println!("{}", file.display());
            (target.run)(&std::fs::read(&file).unwrap());
        }
    }
}

#[test]
fn bytes_of_chance_and_seeds_with_chance_in_them_hold_in_every_target() {
    for target in fuzz::TARGETS {
        let mut chance = Rng::seeded(1);
        let seeds: Vec<Vec<u8>> = files(&folder("seeds").join(target.name))
            .iter()
            .map(|file| std::fs::read(file).unwrap())
            .collect();
        for round in 0..60 {
            let mut bytes = match round % 3 {
                0 => Vec::new(),
                _ => seeds[chance.below(seeds.len() as u64) as usize].clone(),
            };
            for _ in 0..chance.below(30) {
                let at = chance.below(bytes.len() as u64 + 1) as usize;
                bytes.insert(at, chance.u64() as u8);
            }
            println!("{} {bytes:?}", target.name);
            (target.run)(&bytes);
        }
    }
}
