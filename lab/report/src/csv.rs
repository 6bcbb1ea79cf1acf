//! One row a run, with all its numbers (RFC 4180).
//!
//! Must never leave out a run: one that failed has its reason in place of a value.

use crate::campaign::{Campaign, class_word};
use crate::record::{Factor, Run};
use csv::{Terminator, WriterBuilder};
use std::collections::BTreeSet;

/// The whole campaign. Factors have `factor:` before their names, other values stand under their own.
pub fn csv(campaign: &Campaign) -> String {
    let runs: Vec<&Run> = campaign
        .sections
        .iter()
        .flat_map(|section| section.groups.values())
        .flat_map(|group| &group.runs)
        .collect();
    let factors: BTreeSet<&String> = runs.iter().flat_map(|run| run.cell.keys()).collect();
    let values: BTreeSet<&String> = runs.iter().flat_map(|run| run.values.keys()).collect();
    let heads = HEADS.iter().map(ToString::to_string);
    let heads = heads
        .chain(factors.iter().map(|name| format!("factor:{name}")))
        .chain(values.iter().map(ToString::to_string));
    let mut writer = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(Vec::new());
    let mut write = |row: Vec<String>| writer.write_record(&row).expect("a Vec takes all");
    write(heads.collect());
    for run in runs {
        let number =
            |number: Option<f64>| number.map_or_else(String::new, |number| format!("{number}"));
        let cell = factors.iter().map(|name| {
            run.cell.get(*name).map_or_else(String::new, |factor| match factor {
                Factor::Number(value) => format!("{value}"),
                Factor::Word(word) => word.clone(),
            })
        });
        let values = values.iter().map(|name| number(run.values.get(*name).copied()));
        write(fixed(run).into_iter().chain(cell).chain(values).collect());
    }
    let bytes = writer.into_inner().expect("a Vec takes all");
    String::from_utf8(bytes).expect("all fields are strings")
}

const HEADS: [&str; 25] = [
    "time",
    "scenario",
    "subject",
    "version",
    "ordinal",
    "seed",
    "figure",
    "unit",
    "better",
    "value",
    "failed",
    "warnings",
    "durability",
    "syncs_before_250",
    "settings",
    "lab",
    "cpu",
    "cores",
    "memory_mib",
    "kernel",
    "system",
    "file_system",
    "disk",
    "sync_us",
    "load",
];

fn fixed(run: &Run) -> Vec<String> {
    let better = match run.figure.better {
        crate::record::Better::Higher => "higher",
        crate::record::Better::Lower => "lower",
    };
    let durability = run.durability.as_ref();
    let machine = &run.machine;
    vec![
        run.time.to_string(),
        run.scenario.clone(),
        run.subject.clone(),
        run.version.clone(),
        run.ordinal.to_string(),
        run.seed.to_string(),
        run.figure.name.clone(),
        run.figure.unit.clone(),
        better.into(),
        run.value.map_or_else(String::new, |value| value.to_string()),
        run.failed.clone().unwrap_or_default(),
        run.warnings.join(" "),
        durability.map_or_else(String::new, |found| class_word(found.class).into()),
        durability.map_or_else(String::new, |found| found.syncs_before_250.to_string()),
        run.settings.clone(),
        run.lab.clone(),
        machine.cpu.clone(),
        machine.cores.to_string(),
        machine.memory_mib.to_string(),
        machine.kernel.clone(),
        machine.system.clone(),
        machine.file_system.clone(),
        machine.disk.clone(),
        machine.sync_us.to_string(),
        machine.load.to_string(),
    ]
}
