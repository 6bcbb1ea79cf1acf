//! `cargo xtask bounces`: checks that a program that parses bounces finds the right reason in ours.
//!
//! The program is Sisimai (Debian's libsisimai-perl), and the bounces are those that the tests of `mail::bounce` compare
//! byte for byte. Must never judge a bounce itself.

use anyhow::{Result, ensure};
use std::path::Path;
use std::process::Command;

/// The directory of the bounces.
const GOLDEN: &str = "mta/mail/src/bounce/golden";
/// Each bounce with the action, the status and the reason that Sisimai should find.
const EXPECTED: [(&str, &str); 8] = [
    ("delayed.txt", "delayed 4.4.1 expired"),
    ("expired.txt", "failed 5.4.7 expired"),
    ("failed.txt", "failed 5.1.1 userunknown"),
    ("full.txt", "failed 5.2.2 mailboxfull"),
    ("global.txt", "failed 5.6.7 contenterror"),
    ("policy.txt", "failed 5.7.1 policyviolation"),
    ("unknown.txt", "failed 5.0.0 userunknown"),
    ("unreached.txt", "failed 5.4.7 expired"),
];
/// A Perl program that prints what Sisimai finds in a file. It adds the line that precedes a message in an mbox.
const READ: &str = r#"
    local $/; my $text = "Return-Path: <>\n" . <>;
    my $found = Sisimai->make(\$text) or exit;
    print join(" ", map { $found->[0]->$_ } qw(action deliverystatus reason));
"#;

/// Compares all bounces. Without Sisimai, says so and checks nothing.
pub fn run(root: &Path) -> Result<()> {
    let version = Command::new("perl").args(["-MSisimai", "-e", "print Sisimai->version"]).output();
    let version = version.ok().filter(|output| output.status.success());
    let Some(version) = version else {
        println!("SKIPPED: Sisimai is not installed (Debian: libsisimai-perl)");
        return Ok(());
    };
    println!("Sisimai {}", String::from_utf8_lossy(&version.stdout));
    let mut wrong = 0;
    for (name, expected) in EXPECTED {
        let found = reason(&root.join(GOLDEN).join(name))?;
        let mark = if found == expected { "ok" } else { "WRONG" };
        wrong += usize::from(found != expected);
        println!("{mark:5} {name}: {found}, expected {expected}");
    }
    ensure!(wrong == 0, "{wrong} bounces are misunderstood");
    Ok(())
}

fn reason(file: &Path) -> Result<String> {
    let output = Command::new("perl").args(["-MSisimai", "-e", READ]).arg(file).output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {complaint}", file.display());
    Ok(String::from_utf8(output.stdout)?)
}
