//! The scenario `power`, as far as it goes without mounting anything.
//!
//! Must never need root: the cuts themselves are a campaign of their own.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

const LAB: &str = env!("CARGO_BIN_EXE_posthaste-lab");
/// Nobody.
const STRANGER: u32 = 65534;

#[test]
fn without_root_it_says_so_and_touches_nothing() {
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = place.path().join("lab");
    // The build may lie where a stranger cannot go. Another process makes the copy: see the test of durability.
    let copied = Command::new("cp").arg(LAB).arg(&program).status().unwrap();
    assert!(copied.success());
    let work = place.path().join("work");
    let mut command = Command::new(program);
    command.arg("power").arg("--work").arg(&work).current_dir(place.path());
    if rustix::process::geteuid().is_root() {
        command.uid(STRANGER);
    }
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("this needs root"), "{error}");
    assert!(!work.exists());
}

#[test]
fn the_table_of_a_campaign_needs_no_root_and_comes_in_markdown_too() {
    let place = tempfile::tempdir().unwrap();
    let [lines, page] = ["lines", "page"].map(|name| place.path().join(name));
    let line = r#"{"time":0,"fs":"ext4","next_hop":"down","subject":"exim","seed":1,"cut_ms":9,"sessions":1,
        "recipients":1,"message_bytes":1,"promised":30,"late":0,"at_stake":30,"ambiguous":0,"lost":0,"doubled":0,
        "damaged":0,"left":0,"drain_ms":1,"version":"1","kernel":"1","lab":"1"}"#;
    std::fs::write(&lines, line.replace('\n', "") + "\n").unwrap();
    let mut command = Command::new(LAB);
    command.args(["power", "--table", "--out"]).arg(&lines).arg("--markdown").arg(&page);
    let output = command.output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("0 (< 3/30)"));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(
        page.contains("| ext4 | down | exim | 1 | 0 | 0 (< 3/1) | 30 | 30 | 0 (< 3/30) |"),
        "{page}"
    );
}
