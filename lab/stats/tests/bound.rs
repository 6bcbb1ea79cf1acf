//! What is said of a bound, and how often chance fools it.

#![allow(clippy::unwrap_used)]

use stats::{Bound, Confidence, Keeping};

fn judge(bound: Bound, samples: &[f64]) -> Keeping {
    bound.judge(samples, Confidence::P99_5).unwrap()
}

/// Ten around a middle, five to each side.
fn around(middle: f64, share: f64) -> Vec<f64> {
    (0..10).map(|index| middle * (1.0 + share * (f64::from(index) - 4.5) / 4.5)).collect()
}

#[test]
fn ten_runs_well_on_one_side_prove_it_and_ten_about_the_bound_prove_nothing() {
    for (bound, kept, broken) in [(Bound::AtLeast(5.0), 6.0, 4.0), (Bound::AtMost(5.0), 4.0, 6.0)] {
        assert_eq!(judge(bound, &around(kept, 0.1)), Keeping::Kept);
        assert_eq!(judge(bound, &around(broken, 0.1)), Keeping::Broken);
    }
    assert_eq!(judge(Bound::AtLeast(5.0), &around(5.05, 0.3)), Keeping::KeptInMedian);
    assert_eq!(judge(Bound::AtLeast(5.0), &around(4.95, 0.3)), Keeping::BrokenInMedian);
}

#[test]
fn nine_runs_prove_nothing_however_far_they_are() {
    assert_eq!(judge(Bound::AtLeast(5.0), &[50.0; 9]), Keeping::KeptInMedian);
    assert_eq!(judge(Bound::AtLeast(5.0), &[0.1; 9]), Keeping::BrokenInMedian);
    assert_eq!(judge(Bound::AtMost(5.0), &around(1.0, 0.1)[..9]), Keeping::KeptInMedian);
    assert_eq!(Bound::AtLeast(5.0).judge(&[], Confidence::P99_5), None);
    assert_eq!(Bound::AtLeast(5.0).judge(&[f64::NAN; 10], Confidence::P99_5), None);
}

#[test]
fn counts_without_spread_and_counts_of_nothing_are_judged_by_their_number_on_each_side() {
    let with = |rest: &[f64]| [&[0.0; 10][..], rest].concat();
    assert_eq!(judge(Bound::AtMost(0.0), &with(&[])), Keeping::Kept);
    assert_eq!(
        judge(Bound::AtMost(0.0), &with(&[1.0])),
        Keeping::KeptInMedian,
        "1 of 11: p = 0.012"
    );
    assert_eq!(
        judge(Bound::AtMost(1.0), &[1.0; 10]),
        Keeping::Kept,
        "the bound itself keeps to it"
    );
    assert_eq!(judge(Bound::AtMost(1.0), &[1.5; 10]), Keeping::Broken);
    assert_eq!(judge(Bound::AtLeast(1.0), &[0.0; 10]), Keeping::Broken);
}

#[test]
fn a_bound_that_is_just_kept_is_called_proven_as_rarely_as_is_promised() {
    let mut state = 7_u64;
    let mut uniform = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut proven = 0;
    for _ in 0..4000 {
        let mut normal = || (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
        let samples: Vec<f64> = (0..10).map(|_| (0.1 * normal()).exp()).collect();
        let found = judge(Bound::AtLeast(1.0), &samples);
        proven += u32::from([Keeping::Kept, Keeping::Broken].contains(&found));
    }
    // 0.5 % of 4,000 are 20, give or take 4.5.
    assert!((5..40).contains(&proven), "{proven}");
}
