//! The comparison of old and new counts: what has risen, what has fallen, and what to do about it.
//!
//! Must never pass a path that one side lacks, and never fail a path because the compiler is a different one.

use super::kept::{Counts, FILE, Path};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The path that no change of ours touches.
pub const REFERENCE: &str = "reference";
/// More instructions than this share above the kept ones fail. Two runs differ by 0.05 %.
const RISE_MAX: f64 = 0.05;
/// The same where compiler, tool or libc are others: what it then may be by itself.
const RISE_MAX_ELSEWHERE: f64 = 0.15;
/// With the same tools and the same libc the reference counts the same.
const REFERENCE_DIFFERENCE_MAX: f64 = 0.005;
/// Allocations a message: one more in a hundred messages is a table that grew once more.
const ALLOCATIONS_RISE_MAX: f64 = 0.01;

/// A decision of the scheduler costs the same however many messages wait: the first of a pair may
/// cost so much more than the second.
const FLAT: &[(&str, &str)] = &[
    ("schedule-100000-queued-1-destination", "schedule-10-queued-1-destination"),
    ("schedule-100000-queued-10000-destinations", "schedule-10-queued-1-destination"),
];
const FLAT_RISE_MAX: f64 = 0.10;

/// Everything that can be said of two sets of counts.
#[derive(Debug)]
pub struct Found {
    /// Why the wide gate holds; `None`: the same tools counted.
    elsewhere: Option<String>,
    lines: Vec<Line>,
}

/// One path.
#[derive(Debug)]
struct Line {
    name: String,
    old: Option<Path>,
    new: Option<Path>,
    verdict: Verdict,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    Fell,
    Rose(&'static str),
    /// Only one side has it.
    Unpaired,
}

/// How the two may be compared.
struct Gate {
    /// What the old instructions would be if they were counted here.
    scale: f64,
    rise_max: f64,
    same_compiler: bool,
    compare_instructions: bool,
}

/// Compares.
pub fn judge(old: &Counts, new: &Counts) -> Found {
    let (gate, elsewhere) = gate(old, new);
    let names: BTreeSet<&String> = old.path.keys().chain(new.path.keys()).collect();
    let counts = new;
    let line = |name: &String| {
        let (old, new) = (old.path.get(name).cloned(), new.path.get(name).cloned());
        let verdict = match (&old, &new) {
            (Some(_), Some(_)) if grows(name, &counts.path) => Verdict::Rose("with the queue it"),
            (Some(old), Some(new)) => verdict(name, old, new, &gate),
            _ => Verdict::Unpaired,
        };
        Line { name: name.clone(), old, new, verdict }
    };
    Found { elsewhere, lines: names.into_iter().map(line).collect() }
}

fn gate(old: &Counts, new: &Counts) -> (Gate, Option<String>) {
    let reference = |counts: &Counts| counts.path.get(REFERENCE).map(|path| path.instructions);
    let scale = match (reference(old), reference(new)) {
        (Some(old), Some(new)) if old > 0.0 => new / old,
        _ => 1.0,
    };
    let (then, now) = (&old.tools, &new.tools);
    let same_compiler = then.rustc == now.rustc && then.machine == now.machine;
    let narrow = Gate { scale: 1.0, rise_max: RISE_MAX, same_compiler, compare_instructions: true };
    if then == now && (scale - 1.0).abs() <= REFERENCE_DIFFERENCE_MAX {
        return (narrow, None);
    }
    let share = (scale - 1.0) * 100.0;
    let why = format!(
        "other tools than those of {FILE}: {}, rustc {}, {} there; {}, rustc {}, {} here; \
         the reference differs by {share:+.1} %",
        then.machine, then.rustc, then.valgrind, now.machine, now.rustc, now.valgrind
    );
    let compare_instructions = then.machine == now.machine;
    let gate = Gate { scale, rise_max: RISE_MAX_ELSEWHERE, same_compiler, compare_instructions };
    (gate, Some(why))
}

fn verdict(name: &str, old: &Path, new: &Path, gate: &Gate) -> Verdict {
    // It is the measure itself: where it differs, the wide gate holds for all others.
    if name == REFERENCE {
        return Verdict::Same;
    }
    let allocations_max = match gate.same_compiler {
        true => old.allocations + ALLOCATIONS_RISE_MAX,
        false => old.allocations * (1.0 + RISE_MAX),
    };
    if new.allocations > allocations_max {
        return Verdict::Rose("allocations");
    }
    if new.bytes > old.bytes * (1.0 + RISE_MAX) {
        return Verdict::Rose("bytes");
    }
    let share = new.instructions / (old.instructions * gate.scale) - 1.0;
    match gate.compare_instructions {
        true if share > gate.rise_max => Verdict::Rose("instructions"),
        true if share < -gate.rise_max => Verdict::Fell,
        _ if new.allocations < old.allocations - ALLOCATIONS_RISE_MAX => Verdict::Fell,
        _ => Verdict::Same,
    }
}

/// Whether it costs more than the same at a short queue.
fn grows(name: &str, path: &BTreeMap<String, Path>) -> bool {
    let instructions = |name: &str| path.get(name).map(|path| path.instructions);
    let short = FLAT.iter().find(|(long, _)| *long == name).map(|(_, short)| instructions(short));
    match (instructions(name), short.flatten()) {
        (Some(long), Some(short)) => long > short * (1.0 + FLAT_RISE_MAX),
        _ => false,
    }
}

impl Found {
    /// Nothing has risen, and each path has its pair.
    pub fn passes(&self) -> bool {
        self.lines.iter().all(|line| matches!(line.verdict, Verdict::Same | Verdict::Fell))
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.lines.iter().map(|line| line.name.len()).max().unwrap_or(0);
        writeln!(
            f,
            "{:width$} {:>27}   {:>23}   {:>23}",
            "of one message", "instructions", "allocations", "bytes"
        )?;
        for line in &self.lines {
            writeln!(f, "{:width$} {line}", line.name)?;
        }
        if let Some(why) = &self.elsewhere {
            let percent = RISE_MAX_ELSEWHERE * 100.0;
            writeln!(f, "{why}.\nInstructions are compared by the reference, up to {percent} %.")?;
        }
        if !self.passes() {
            return writeln!(f, "{ADVICE}");
        }
        if self.lines.iter().any(|line| line.verdict == Verdict::Fell) {
            writeln!(f, "Some fell: `cargo xtask counts --keep \"why\"` lets them stay there.")?;
        }
        Ok(())
    }
}

const ADVICE: &str = "\
A message costs more than it did. Where: callgrind_annotate --inclusive=yes on the path's file in
counts/ below the target directory. Make it cheaper, or explain it:
cargo xtask counts --keep \"what costs more, and why it is worth it\", and commit the file.";

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(old), Some(new)) = (&self.old, &self.new) else {
            let where_to = if self.new.is_some() { "is not kept yet" } else { "did not run" };
            return write!(f, "  FAILED: {where_to}");
        };
        cell(f, old.instructions, new.instructions, 10, 0)?;
        write!(f, "  ")?;
        cell(f, old.allocations, new.allocations, 8, 2)?;
        write!(f, "  ")?;
        cell(f, old.bytes, new.bytes, 8, 0)?;
        match &self.verdict {
            Verdict::Same | Verdict::Unpaired => Ok(()),
            Verdict::Fell => write!(f, "  fell"),
            Verdict::Rose(what) => write!(f, "  FAILED: {what} rose"),
        }
    }
}

/// Old, new, percent.
fn cell(
    f: &mut fmt::Formatter<'_>,
    old: f64,
    new: f64,
    width: usize,
    digits: usize,
) -> fmt::Result {
    let percent = if old > 0.0 { (new / old - 1.0) * 100.0 } else { 0.0 };
    write!(f, "{old:width$.digits$} {new:width$.digits$} {percent:+6.1}%")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::kept::Tools;

    fn path(instructions: f64, allocations: f64) -> Path {
        Path { instructions, allocations, bytes: 5_000.0, why: String::new() }
    }

    fn counts() -> Counts {
        let tools = Tools {
            machine: "x86_64".into(),
            rustc: "1.95.0".into(),
            valgrind: "valgrind-3.19.0".into(),
        };
        let paths = [(REFERENCE, path(90_000.0, 49.0)), ("send-reused", path(60_000.0, 65.5))];
        Counts { tools, path: paths.map(|(name, path)| (name.into(), path)).into() }
    }

    /// What is said after a change of the new counts.
    fn after(change: impl FnOnce(&mut Counts)) -> (bool, String) {
        let mut new = counts();
        change(&mut new);
        let found = judge(&counts(), &new);
        (found.passes(), found.to_string())
    }

    fn send(new: &mut Counts) -> &mut Path {
        new.path.get_mut("send-reused").unwrap()
    }

    fn by(new: &mut Counts, factor: f64) {
        new.path.values_mut().for_each(|path| path.instructions *= factor);
    }

    #[test]
    fn a_rise_of_six_percent_fails_and_says_what_to_do() {
        let (passes, said) = after(|new| send(new).instructions *= 1.06);
        assert!(!passes);
        assert!(said.contains("+6.0%") && said.contains("FAILED: instructions rose"), "{said}");
        assert!(said.contains("cargo xtask counts --keep"), "{said}");
    }

    #[test]
    fn a_rise_of_four_percent_and_the_same_again_pass() {
        assert!(after(|new| send(new).instructions *= 1.04).0);
        let (passes, said) = after(|_| ());
        assert!(passes && !said.contains("fell") && !said.contains("FAILED"), "{said}");
    }

    #[test]
    fn a_fall_of_six_percent_passes_and_is_told() {
        let (passes, said) = after(|new| send(new).instructions *= 0.94);
        assert!(passes && said.contains("fell") && said.contains("--keep"), "{said}");
    }

    #[test]
    fn one_more_allocation_in_ten_messages_fails_and_so_do_larger_ones() {
        let (passes, said) = after(|new| send(new).allocations += 0.1);
        assert!(!passes && said.contains("FAILED: allocations rose"), "{said}");
        assert!(after(|new| send(new).allocations += 0.005).0);
        let (passes, said) = after(|new| send(new).bytes *= 1.06);
        assert!(!passes && said.contains("FAILED: bytes rose"), "{said}");
    }

    #[test]
    fn a_decision_that_costs_more_with_a_longer_queue_fails_though_it_always_did() {
        let passes = |long: f64| {
            let mut counts = counts();
            for (name, instructions) in [(FLAT[0].0, long), (FLAT[0].1, 13_000.0)] {
                counts.path.insert(name.into(), path(instructions, 14.0));
            }
            judge(&counts, &counts).passes()
        };
        assert!(passes(14_000.0));
        assert!(!passes(15_000.0));
    }

    #[test]
    fn a_path_that_only_one_side_has_fails() {
        let (passes, said) = after(|new| drop(new.path.remove("send-reused")));
        assert!(!passes && said.contains("did not run"), "{said}");
        let (passes, said) = after(|new| drop(new.path.insert("new".into(), path(1.0, 1.0))));
        assert!(!passes && said.contains("is not kept yet"), "{said}");
    }

    #[test]
    fn with_another_compiler_the_reference_is_the_measure_and_the_gate_is_wider() {
        let other = |new: &mut Counts| new.tools.rustc = "1.99.0".into();
        // Everything, the reference too, costs a fifth more: the compiler's doing.
        let (passes, said) = after(|new| {
            other(new);
            by(new, 1.2);
        });
        assert!(passes && said.contains("other tools"), "{said}");
        let rose = |factor: f64| {
            after(|new| {
                other(new);
                send(new).instructions *= factor;
            })
        };
        assert!(rose(1.14).0);
        assert!(!rose(1.16).0);
    }

    #[test]
    fn with_the_same_tools_and_another_libc_the_reference_is_the_measure() {
        let (passes, said) = after(|new| by(new, 1.06));
        assert!(passes && said.contains("the reference differs by +6.0 %"), "{said}");
        assert!(!after(|new| by(new, 1.004)).1.contains("other tools"));
    }

    #[test]
    fn on_another_kind_of_machine_only_allocations_and_bytes_are_compared() {
        let other = |new: &mut Counts| new.tools.machine = "aarch64".into();
        assert!(
            after(|new| {
                other(new);
                send(new).instructions *= 2.0;
            })
            .0
        );
        assert!(
            !after(|new| {
                other(new);
                send(new).allocations *= 1.06;
            })
            .0
        );
    }
}
