//! The command `layout`, as a person would give it.
//!
//! Must never leave a file where it was told to write.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::process::Command;

const LAB: &str = env!("CARGO_BIN_EXE_posthaste-lab");

#[test]
fn it_prints_one_line_with_rate_trend_and_plan_and_cleans_up() {
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new(LAB);
    command.args([
        "layout",
        "--directories",
        "5",
        "--writers",
        "3",
        "--messages",
        "300",
        "--seed",
        "4",
    ]);
    command.args(["--no-sync", "--spread", "random", "--in"]).arg(place.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(line["rate"].as_f64().unwrap() > 0.0 && line["slope_us"].is_number(), "{line}");
    assert_eq!((line["messages"].as_u64(), line["plan"]["seed"].as_u64()), (Some(300), Some(4)));
    assert_eq!(line["medians"].as_array().unwrap().len(), 300);
    assert!(line["create_ms"]["p50"].as_f64().unwrap() > 0.0);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn a_plan_that_fails_leaves_nothing_either() {
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new(LAB);
    let output =
        command.args(["layout", "--writers", "0", "--in"]).arg(place.path()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("writers is 0"), "{error}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}
