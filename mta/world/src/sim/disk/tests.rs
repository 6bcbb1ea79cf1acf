//! The contract, clause by clause.

use super::*;
use crate::{Disk as _, Rng as _, sim};
use std::collections::BTreeSet;

fn read(disk: &Disk, bytes: usize) -> Vec<u8> {
    let mut into = vec![0; bytes];
    disk.read_at("a", 0, &mut into).unwrap();
    into
}

fn written(seed: u64) -> Disk {
    let disk = Disk::new(seed);
    disk.create("a").unwrap();
    disk.write_at("a", 0, &[1; 2048]).unwrap();
    disk
}

fn durable(seed: u64) -> Disk {
    let disk = written(seed);
    disk.sync("a").unwrap();
    disk.sync_dir().unwrap();
    disk
}

fn cut_and_on(disk: &Disk) {
    disk.cut();
    disk.power_on();
}

/// The first byte of each sector.
fn sectors(bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.chunks(SECTOR_BYTES).all(|s| s.iter().all(|b| *b == s[0])), "a torn sector");
    bytes.chunks(SECTOR_BYTES).map(|s| s[0]).collect()
}

#[test]
fn what_was_synced_survives_every_cut_and_what_was_not_has_every_fate() {
    let mut fates = BTreeSet::new();
    for seed in 0..200 {
        let disk = durable(seed);
        disk.write_at("a", 0, &[2; 2048]).unwrap();
        disk.cut();
        assert!(disk.write_at("a", 0, b"x").is_err());
        disk.power_on();
        fates.insert(sectors(&read(&disk, 2048)));
    }
    assert_eq!(fates.len(), 16, "each subset of four sectors");
}

#[test]
fn a_synced_file_without_a_synced_name_may_be_gone() {
    let survived = (0..100).filter(|seed| {
        let disk = written(*seed);
        disk.sync("a").unwrap();
        cut_and_on(&disk);
        disk.bytes("a").is_some_and(|bytes| bytes == [1; 2048])
    });
    assert!((1..100).contains(&survived.count()));
}

#[test]
fn s122_a_failed_sync_still_reads_well_and_no_later_sync_brings_it_back() {
    let mut lost = 0;
    for seed in 0..50 {
        let disk = written(seed);
        disk.sync_dir().unwrap();
        disk.fail_nth(Call::Sync, 1, Errno::IO);
        assert_eq!(disk.sync("a").unwrap_err().errno, Errno::IO);
        assert_eq!(read(&disk, 2048), [1; 2048]);
        disk.sync("a").unwrap();
        cut_and_on(&disk);
        lost += usize::from(disk.bytes("a").unwrap() != [1; 2048]);
    }
    assert!(lost > 10, "{lost}");
}

#[test]
fn what_is_written_after_a_failed_sync_is_settled_by_the_next() {
    for seed in 0..50 {
        let disk = durable(seed);
        disk.write_at("a", 0, &[2; 1024]).unwrap();
        disk.fail_nth(Call::Sync, 1, Errno::IO);
        disk.sync("a").unwrap_err();
        disk.write_at("a", 1024, &[3; 1024]).unwrap();
        disk.sync("a").unwrap();
        cut_and_on(&disk);
        assert_eq!(sectors(&read(&disk, 2048))[2..], [3, 3]);
    }
}

#[test]
fn a_full_disk_refuses_and_may_keep_a_part() {
    let disk = written(1);
    disk.set_room(3000);
    assert!(disk.write_at("a", 1024, &[3; 4096]).unwrap_err().is_full());
    assert!(disk.allocate("a", 4096, true).unwrap_err().is_full());
    assert_eq!(disk.free_bytes().unwrap(), 952);
}

#[test]
fn the_power_goes_at_the_step_that_was_named() {
    let disk = written(1);
    disk.cut_at(Some(disk.steps() + 2));
    disk.sync("a").unwrap();
    assert_eq!(disk.sync_dir().unwrap_err().errno, Errno::OFF);
    assert!(disk.is_off());
}

#[test]
fn every_subset_of_what_is_pending_can_be_chosen_and_makes_a_medium_of_its_own() {
    let disk = durable(1);
    disk.write_at("a", 512, &[2; 1024]).unwrap();
    disk.allocate("a", 4096, true).unwrap();
    disk.rename("a", "b").unwrap();
    let pending = disk.pending();
    let what: Vec<_> = pending.iter().map(|pending| (&*pending.name, &pending.what)).collect();
    let expected = [
        ("b", &What::Write { offset: 512, bytes: 1024 }),
        ("b", &What::Extend { bytes: 4096 }),
        ("a", &What::Rename { to: "b".into() }),
    ];
    assert_eq!(what, expected);
    assert_eq!((pending[0].sectors, &*pending[0].telling), (2, &[0, 1][..]));
    let mut media = BTreeSet::new();
    for mask in 0..16u32 {
        let fork = disk.forked(0);
        let keep = |bit: u32| {
            if mask >> bit & 1 == 1 { PowerCutFate::Survives } else { PowerCutFate::Vanishes }
        };
        let torn =
            PowerCutFate::Torn([0, 1].into_iter().filter(|bit| mask >> bit & 1 == 1).collect());
        fork.cut();
        fork.power_on_with(&[torn, keep(2), keep(3)]);
        let name = if mask >> 3 & 1 == 1 { "b" } else { "a" };
        let bytes = fork.bytes(name).unwrap();
        assert_eq!(bytes.len(), if mask >> 2 & 1 == 1 { 4096 } else { 2048 });
        let kept: Vec<_> = (0..2).map(|bit| 1 + (mask >> bit & 1) as u8).collect();
        assert_eq!(sectors(&bytes)[1..3], kept);
        media.insert((name, bytes));
        assert!(fork.pending().is_empty());
    }
    assert_eq!(media.len(), 16);
    assert_eq!(disk.pending(), pending, "a fork's cut is its own");
}

#[test]
fn only_sectors_that_would_differ_on_the_medium_are_telling() {
    let disk = durable(1);
    let mut bytes = [1; 2048];
    bytes[700] = 9;
    disk.write_at("a", 0, &bytes).unwrap();
    assert_eq!(disk.pending()[0].telling, [1]);
    // The same bytes again tell, since the write before may have changed them.
    disk.write_at("a", 512, &[1; 512]).unwrap();
    assert_eq!(disk.pending()[0].telling, [1]);
    assert_eq!(disk.pending()[1].telling, [0]);
    disk.write_at("a", 2048, &[0; 100]).unwrap();
    assert_eq!(disk.pending()[2].telling, [0], "zeros beyond the end make it longer");
}

#[test]
fn a_fork_goes_its_own_way_and_shares_what_neither_writes() {
    let disk = durable(1);
    disk.write_at("a", 0, &[2; 512]).unwrap();
    let fork = disk.forked(2);
    fork.write_at("a", 0, &[3; 512]).unwrap();
    disk.sync("a").unwrap();
    assert_eq!(sectors(&read(&disk, 2048)), [2, 1, 1, 1]);
    assert_eq!(sectors(&read(&fork, 2048)), [3, 1, 1, 1]);
    cut_and_on(&disk);
    assert_eq!(sectors(&read(&disk, 2048)), [2, 1, 1, 1]);
    assert_eq!(fork.pending().len(), 2);
}

#[test]
fn s121_a_short_write_fails_and_leaves_a_part() {
    let mut parts = BTreeSet::new();
    for seed in 0..50 {
        let disk = durable(seed);
        disk.short_nth(1, Errno::IO);
        assert_eq!(disk.write_at("a", 0, &[2; 2048]).unwrap_err().errno, Errno::IO);
        let bytes = read(&disk, 2048);
        let part = bytes.iter().take_while(|byte| **byte == 2).count();
        assert!(part < 2048 && bytes[part..].iter().all(|byte| *byte == 1));
        parts.insert(part);
        disk.write_at("a", 0, &[2; 2048]).unwrap();
    }
    assert!(parts.len() > 20);
}

#[test]
fn s130_a_bad_sector_cannot_be_read_until_it_is_written_whole() {
    let disk = durable(1);
    disk.bad_sector("a", 700);
    let mut into = [0; 512];
    disk.read_at("a", 0, &mut into).unwrap();
    assert_eq!(disk.read_at("a", 500, &mut into).unwrap_err().errno, Errno::IO);
    cut_and_on(&disk);
    assert_eq!(disk.read_at("a", 512, &mut into).unwrap_err().errno, Errno::IO);
    disk.write_at("a", 600, &[5; 100]).unwrap();
    assert!(disk.read_at("a", 512, &mut into).is_err(), "half of it was written");
    disk.write_at("a", 512, &[5; 512]).unwrap();
    disk.read_at("a", 512, &mut into).unwrap();
    assert_eq!(into, [5; 512]);
}

#[test]
fn s130_a_read_with_a_flipped_bit_is_wrong_by_one_bit_and_right_the_next_time() {
    let disk = durable(1);
    disk.flip_nth_read(2);
    assert_eq!(read(&disk, 2048), [1; 2048]);
    let wrong: u32 = read(&disk, 2048).iter().map(|byte| (byte ^ 1).count_ones()).sum();
    assert_eq!(wrong, 1);
    assert_eq!(read(&disk, 2048), [1; 2048]);
}

#[test]
fn a_lost_write_reads_well_is_synced_with_success_and_was_never_on_the_medium() {
    for cut in [false, true] {
        let disk = durable(1);
        disk.lose_nth(1);
        disk.write_at("a", 0, &[2; 512]).unwrap();
        disk.write_at("a", 512, &[3; 512]).unwrap();
        assert_eq!(sectors(&read(&disk, 2048)), [2, 3, 1, 1]);
        disk.sync("a").unwrap();
        assert_eq!(sectors(&read(&disk, 2048)), [2, 3, 1, 1]);
        if cut {
            cut_and_on(&disk);
        } else {
            disk.forget_cache("a").unwrap();
        }
        assert_eq!(sectors(&read(&disk, 2048)), [1, 3, 1, 1]);
    }
}

#[test]
fn s132_a_misdirected_write_reads_well_and_lands_elsewhere_in_this_file_or_another() {
    for (name, expected) in [("a", [1, 1, 2, 1]), ("b", [1, 1, 1, 1])] {
        let disk = durable(1);
        disk.put("b", &[7; 2048]);
        disk.misdirect_nth(1, name, 1024);
        disk.write_at("a", 0, &[2; 512]).unwrap();
        disk.sync("a").unwrap();
        assert_eq!(sectors(&read(&disk, 2048)), [2, 1, 1, 1]);
        assert_eq!(sectors(&disk.bytes("b").unwrap()), [7, 7, 7, 7], "still in the cache");
        disk.forget_cache("b").unwrap();
        let other = if name == "b" { [7, 7, 2, 7] } else { [7; 4] };
        assert_eq!(sectors(&disk.bytes("b").unwrap()), other);
        cut_and_on(&disk);
        assert_eq!(sectors(&read(&disk, 2048)), expected);
        assert_eq!(sectors(&disk.bytes("b").unwrap()), other);
    }
}

/// Two disks, one forked at every step, end alike: a fork disturbs nothing.
#[test]
fn forking_at_every_step_changes_nothing() {
    let run = |forking: bool| {
        let (disk, mut chance) = (Disk::new(5), sim::Rng::seeded(9));
        let mut forks = Vec::new();
        disk.create("a").unwrap();
        for _ in 0..500 {
            let (at, length) = (chance.below(20_000), chance.below(6_000) as usize);
            match chance.below(8) {
                0 => drop(disk.sync("a").unwrap()),
                1 => disk.sync_dir().unwrap(),
                2 => disk.forget_cache("a").unwrap(),
                3 if chance.below(4) == 0 => {
                    disk.fail_nth(Call::Sync, 1, Errno::IO);
                    disk.sync("a").unwrap_err();
                }
                kind => disk.write_at("a", at, &vec![kind as u8; length]).unwrap(),
            }
            if forking {
                let fork = disk.forked(1);
                cut_and_on(&fork);
                forks.push(fork);
            }
        }
        disk.sync_dir().unwrap();
        cut_and_on(&disk);
        disk.bytes("a").unwrap()
    };
    assert_eq!(run(false), run(true));
}
