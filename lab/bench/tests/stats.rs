//! `posthaste-lab stats` against Debian's ministat on twenty data sets, and what it does beyond.
//!
//! Must never pass without ministat: it is one of the packages that `./check` installs.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const LAB: &str = env!("CARGO_BIN_EXE_posthaste-lab");

/// One comparison of the two programs.
struct Case {
    name: &'static str,
    arguments: &'static str,
    /// Whether ministat's plot is whole: it forgets the upper rows of a set when a later one has lower stacks.
    plot: Plot,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Plot {
    /// Every byte is the same.
    Same,
    /// The rows of dots above the lowest are not compared; all else is the same.
    MinistatLosesRows,
}

#[rustfmt::skip]
const CASES: [Case; 20] = [
    lossy("reptiles: ministat's own example", "-s -w 60 reptiles/iguana reptiles/chameleon"),
    lossy("reptiles at 80 %", "-s -w 60 -c 80 reptiles/iguana reptiles/chameleon"),
    case("three samples each", "three/first three/second"),
    case("a thousand each", "thousand/first thousand/second"),
    lossy("equal spread, 99.5 %", "-c 99.5 equal-spread/first equal-spread/second"),
    case("spread 1 and 30, 10 and 40 samples", "unequal-spread/narrow unequal-spread/wide"),
    case("ties", "-w 40 ties/first ties/second"),
    case("negative numbers", "-c 98 negative/first negative/second"),
    case("huge numbers", "huge/first huge/second"),
    case("tiny numbers", "-c 90 tiny/first tiny/second"),
    case("one set constant", "one-constant/varied one-constant/constant"),
    case("both constant", "two-constants/ten two-constants/eleven"),
    case("outliers", "outliers/first outliers/second"),
    lossy("three files", "-c 99 three-files/first three-files/second three-files/third"),
    case("seven files, a line each", "-s seven-files/1 seven-files/2 seven-files/3 seven-files/4 seven-files/5 seven-files/6 seven-files/7"),
    case("3 and 200 samples, 90 %", "-c 90 sizes/three sizes/two-hundred"),
    case("third column, comments", "-A -C 3 columns/runs columns/more-runs"),
    case("other delimiters", "-d ,; -C 3 delimiters/first.csv delimiters/second.csv"),
    case("99.5 %, between the true t and ministat's", "-c 99.5 between/first between/second"),
    lossy("skewed, with CR LF and one file more", "-c 99 skewed/first skewed/second carriage-returns/first"),
];

const fn case(name: &'static str, arguments: &'static str) -> Case {
    Case { name, arguments, plot: Plot::Same }
}

const fn lossy(name: &'static str, arguments: &'static str) -> Case {
    Case { name, arguments, plot: Plot::MinistatLosesRows }
}

fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/stats")
}

fn ministat(arguments: &str) -> Output {
    let output =
        Command::new("ministat").current_dir(data()).args(arguments.split_whitespace()).output();
    output.expect(
        "ministat is not on PATH; ./check installs it, or, as root: apt-get install ministat",
    )
}

fn lab(arguments: &str) -> Output {
    Command::new(LAB)
        .current_dir(data())
        .arg("stats")
        .args(arguments.split_whitespace())
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Ours without the lines that name outliers, which always come last.
fn without_outliers(text: &str) -> String {
    let kept = text.lines().filter(|line| !line.contains("outlier") || line.contains("outliers/"));
    kept.map(|line| format!("{line}\n")).collect()
}

/// Without the rows of dots but the lowest: what stands between the first edge of the plot and its boxes.
fn without_upper_dots(text: &str) -> String {
    let rows: Vec<&str> = text.lines().collect();
    let edges: Vec<usize> = (0..rows.len()).filter(|row| rows[*row].starts_with("+-")).collect();
    let lowest = edges[1] - 2;
    let kept = rows.iter().enumerate().filter(|(row, _)| *row <= edges[0] || *row >= lowest);
    kept.map(|(_, row)| format!("{row}\n")).collect()
}

/// The verdicts of an output: `differs`, or `-` where no difference is proven.
fn verdicts(text: &str) -> Vec<&'static str> {
    let verdict = |line: &str| match line {
        line if line.starts_with("Difference at") => Some("differs"),
        line if line.starts_with("No difference proven at") => Some("-"),
        _ => None,
    };
    text.lines().filter_map(verdict).collect()
}

#[test]
fn twenty_data_sets_have_the_verdicts_and_the_figures_of_ministat() {
    let mut wrong = Vec::new();
    println!("{:<44} {:<42} {:<42} text", "data set", "ministat", "posthaste-lab stats");
    for case in &CASES {
        let theirs = ministat(case.arguments);
        let ours = lab(case.arguments);
        assert!(theirs.status.success() && ours.status.success(), "{}: {ours:?}", case.name);
        let (theirs, ours) = (text(&theirs), without_outliers(&text(&ours)));
        let same = match case.plot {
            Plot::Same => theirs == ours,
            Plot::MinistatLosesRows => {
                without_upper_dots(&theirs) == without_upper_dots(&ours) && theirs != ours
            }
        };
        let how = match (same, case.plot) {
            (false, _) => "DIFFERENT",
            (true, Plot::Same) => "the same",
            (true, Plot::MinistatLosesRows) => "the same but for rows that ministat loses",
        };
        let said = |text: &str| verdicts(text).join(", ");
        println!("{:<44} {:<42} {:<42} {how}", case.name, said(&theirs), said(&ours));
        assert!(!verdicts(&theirs).is_empty(), "{}: nothing was compared", case.name);
        if !same {
            wrong.push(format!("{}\nministat:\n{theirs}\nposthaste-lab stats:\n{ours}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn figures_alone_from_a_pipe_or_a_file_are_those_of_ministat() {
    let alone = "-n alone/latencies thousand/first";
    assert_eq!(text(&ministat(alone)), without_outliers(&text(&lab(alone))));
    for arguments in ["-w 50", "-", "-A - three/first"] {
        let piped = |program: &str, words: &[&str]| {
            let input = File::open(data().join("reptiles/iguana")).unwrap();
            let mut command = Command::new(program);
            command
                .current_dir(data())
                .args(words)
                .args(arguments.split(' '))
                .stdin(Stdio::from(input));
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        let theirs = piped("ministat", &[]);
        assert_eq!(theirs, without_outliers(&piped(LAB, &["stats"])));
        assert!(theirs.contains("<stdin>"));
    }
}

#[test]
fn what_cannot_be_read_ends_as_ministat_ends_and_says_where() {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = place.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_string()
    };
    let (word, few, empty) =
        (file("word", "1\n2\nx3\n4\n"), file("few", "1\n2\n"), file("empty", ""));
    let good = "three/first";
    let eight = [good; 8].join(" ");
    for (arguments, code, said) in [
        (format!("{good} {word}"), 2, "word:3: \"x3\" is not a number"),
        (few.clone(), 2, "3 numbers at least are needed, it has 2"),
        (empty.clone(), 2, "it has 0"),
        ("no-such-file".to_string(), 1, "no-such-file cannot be read"),
        (eight, 2, "8 files are too many, 7 can be compared"),
        (format!("-C 0 {good}"), 2, "columns are counted from 1"),
        (format!("-c x {good}"), 2, "it has to lie between 0 and 100"),
        (format!("-Z {good}"), 2, "unexpected argument"),
    ] {
        let (theirs, ours) = (ministat(&arguments), lab(&arguments));
        assert_eq!(
            (theirs.status.code(), ours.status.code()),
            (Some(code), Some(code)),
            "{arguments}"
        );
        let complaint = String::from_utf8_lossy(&ours.stderr);
        assert!(complaint.contains(said) && ours.stdout.is_empty(), "{arguments}: {complaint}");
    }
}

#[test]
fn ministat_has_no_deviation_for_a_far_off_mean_and_we_have_nists() {
    let theirs = text(&ministat("-n far-off/numacc4"));
    assert!(theirs.trim_end().ends_with("nan"), "ministat has learnt it: {theirs}");
    let ours: Value = serde_json::from_slice(&lab("--json far-off/numacc4").stdout).unwrap();
    let deviation = ours["sets"][0]["stddev"].as_f64().unwrap();
    assert!((deviation - 0.1).abs() < 1e-9, "{deviation}");
}

#[test]
fn at_995_ministat_asks_for_998() {
    // t is 3.25 with 28 degrees: 3.05 would do for 99.5 % on both sides, 3.41 is in ministat's table.
    let ours: Value =
        serde_json::from_slice(&lab("--json -c 99.5 between/first between/second").stdout).unwrap();
    let found = &ours["comparisons"][0];
    assert_eq!(
        (&found["student"]["proven"], &found["welch"]["proven"]),
        (&false.into(), &true.into())
    );
    let p = found["student"]["p"].as_f64().unwrap();
    assert!(0.002 < p && p < 0.005, "{p}");
}

#[test]
fn outliers_are_named_with_their_lines_unless_quiet() {
    let said = text(&lab("-A outliers/first outliers/second"));
    let named: Vec<&str> = said.lines().filter(|line| line.contains("outlier:")).collect();
    assert_eq!(
        named,
        [
            "x extreme outlier: 320.5 in line 5",
            "x outlier: 231.2 in line 16",
            "+ extreme outlier: 90.25 in line 10"
        ]
    );
    let quiet = text(&lab("-q -n outliers/first outliers/second"));
    assert_eq!(quiet.lines().count(), 2, "{quiet}");
}

#[test]
fn the_same_is_said_only_within_a_stated_margin_and_of_ten_runs() {
    for (arguments, said) in [
        ("--same 2% same/first same/second", "+ same within 2%: yes at 95.0% confidence"),
        ("--same 1 same/first same/second", "+ same within 1%: not shown at 95.0% confidence"),
        (
            "--same 90% three/first three/first",
            "+ same within 90%: not said of fewer than ten samples",
        ),
        ("--same 5% negative/first negative/second", "+ same within 5%: cannot be said"),
    ] {
        let output = text(&lab(arguments));
        assert!(output.contains(said), "{arguments}: {output}");
        assert!(output.contains("ifference"), "the difference is told, too: {output}");
    }
}

#[test]
fn welch_bootstrap_and_trend_stand_below_what_ministat_says() {
    let arguments = "unequal-spread/narrow unequal-spread/wide";
    let theirs = text(&ministat(arguments));
    let ours = text(&lab(&format!("--welch --bootstrap {arguments}")));
    let more = ours.strip_prefix(&theirs).expect("ministat's text comes first");
    for part in [
        "+ Welch: No difference proven at 95.0%",
        "degrees = 39.",
        "x median: ",
        "+ ratio of medians: ",
    ] {
        assert!(more.contains(part), "{part} in {more}");
    }
    assert_eq!(
        ours,
        text(&lab(&format!("--welch --bootstrap {arguments}"))),
        "one seed gives one answer"
    );
    let skewed = text(&lab("-A --bootstrap skewed/first skewed/second"));
    assert!(skewed.contains("x does not look normal (Shapiro-Wilk"), "{skewed}");
    let trend = text(&lab("--trend norris"));
    for part in
        ["norris: 36 points", "y = -0.262323 + 1.00212 x", "(error 0.000429797,", "r^2 = 0.999994"]
    {
        assert!(trend.contains(part), "{part} in {trend}");
    }
}
