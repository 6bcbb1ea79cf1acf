//! Normal mail before, while and after there is more than a mailer of a few lines can do.
//!
//! Must never need a mailer of this machine or the network, or assert how long anything took.

#![allow(clippy::unwrap_used)]

mod small;

const SCENARIO: &str = r#"
name = "burdened"
title = "A test"
question = "Does it run?"
figure = { name = "recovery", unit = "s", better = "lower" }
measure = "overload"
subjects = ["small"]
[load]
sessions = 2
rate = 10
seconds = 2
warm-up = 5
settle = 0
retry = 0
patience = 10
from = "steady@lab.test"
[vary]
overload = ["senders-3", "sink-30", "idle-20", "slow-20"]
"#;

#[test]
fn each_burden_is_put_on_and_taken_off_and_all_that_was_promised_comes() {
    if !needs::met(&[needs::Need::Root("namespaces"), needs::Need::Room]) {
        return;
    }
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let runs = small::run(place.path(), SCENARIO);
    assert_eq!(runs.len(), 4, "{runs:?}");
    for run in &runs {
        let values = &run["values"];
        assert_eq!((&values["before_messages"], &values["lost"]), (&20.0.into(), &0.0.into()));
        let burden = ["burden_accepted", "burden_held"].map(|name| values[name].as_f64());
        assert!(burden.iter().flatten().sum::<f64>() > 0.0, "{run}");
    }
    let held = |number: usize| runs[number]["values"]["burden_held"].as_f64();
    assert_eq!([held(2), held(3)], [Some(20.0), Some(20.0)]);
    let output = small::lab(place.path(), &["verdicts", "lines.jsonl"]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("| slow-20 | small |"), "{table}");
}
