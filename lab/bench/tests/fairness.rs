//! Steady mail beside other mail, through a mailer of a few lines, and what is said of its delay.
//!
//! Must never need a mailer of this machine or the network, or assert how long anything took.

#![allow(clippy::unwrap_used)]

mod small;

const SCENARIO: &str = r#"
name = "beside"
title = "A test"
question = "Does it run?"
figure = { name = "delay p99", unit = "ms", better = "lower" }
measure = "fairness"
subjects = ["small"]
[load]
sessions = 2
rate = 40
seconds = 0.5
warm-up = 5
settle = 0
to = ["user@good.test"]
from = "steady@lab.test"
[beside.other]
messages = 20
sessions = 2
per-connection = 0
to = ["user@other.test"]
from = "crowd@lab.test"
[sink]
aside-rate = 1
delay = ["5:good.test"]
[vary]
beside = ["nothing", "other"]
"#;

#[test]
fn a_load_is_measured_beside_other_mail_and_too_few_runs_say_nothing() {
    if !needs::met(&[needs::Need::Root("namespaces"), needs::Need::Room]) {
        return;
    }
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let runs = small::run(place.path(), SCENARIO);
    assert_eq!(runs.len(), 2, "{runs:?}");
    for run in &runs {
        assert!(run["value"].as_f64().is_some_and(|delay| delay > 0.0), "{run}");
        assert_eq!(run["values"]["unaccounted"], 0.0, "{run}");
        assert_eq!(
            (&run["values"]["messages"], &run["values"]["lost"]),
            (&20.0.into(), &0.0.into())
        );
    }
    assert_eq!(runs[1]["values"]["beside_messages"], 20.0, "{}", runs[1]);
    let output = small::lab(place.path(), &["verdicts", "lines.jsonl", "--markdown", "table.md"]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("| beside | small | other | 1 |"), "{table}");
    assert_eq!(std::fs::read_to_string(place.path().join("table.md")).unwrap(), table);
}
