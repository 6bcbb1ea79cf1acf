//! What the statistics promise whatever the samples are: laws, closed forms, and how often chance fools them.
//!
//! Must never need more than a fixed seed: a run that fails fails again.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use stats::{
    Confidence, Distance, Interval, Sameness, Summary, Trend, bootstrap_median,
    bootstrap_median_ratio_of_pairs, bootstrap_ratio_of_medians, dot_plot, equivalent,
    looks_normal, outliers, student, t_quantile, t_tails, welch,
};

/// A simple generator of its own, so that no test leans on the one it tests.
struct Chance(u64);

impl Chance {
    fn uniform(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Near enough to normal: the sum of twelve.
    fn normal(&mut self, mean: f64, deviation: f64) -> f64 {
        mean + deviation * ((0..12).map(|_| self.uniform()).sum::<f64>() - 6.0)
    }

    fn normals(&mut self, n: usize, mean: f64, deviation: f64) -> Vec<f64> {
        (0..n).map(|_| self.normal(mean, deviation)).collect()
    }
}

fn near(value: f64, expected: f64, share: f64) -> bool {
    (value - expected).abs() <= share * expected.abs().max(1e-300)
}

#[test]
fn a_difference_that_is_not_there_is_proven_in_five_of_a_hundred() {
    let mut chance = Chance(7);
    let (mut students, mut welchs, mut unequal_students, mut unequal_welchs) = (0, 0, 0, 0);
    const ROUNDS: i32 = 4000;
    for _ in 0..ROUNDS {
        let (a, b) = (chance.normals(10, 50.0, 4.0), chance.normals(10, 50.0, 4.0));
        students += i32::from(student(&a, &b, Confidence::P95).unwrap().is_proven());
        welchs += i32::from(welch(&a, &b, Confidence::P95).unwrap().is_proven());
        // The small set has the large spread: where Student's test goes wrong.
        let (a, b) = (chance.normals(5, 50.0, 20.0), chance.normals(40, 50.0, 2.0));
        unequal_students += i32::from(student(&a, &b, Confidence::P95).unwrap().is_proven());
        unequal_welchs += i32::from(welch(&a, &b, Confidence::P95).unwrap().is_proven());
    }
    let percent = |count: i32| 100.0 * f64::from(count) / f64::from(ROUNDS);
    println!("Student {}, Welch {} of 100", percent(students), percent(welchs));
    println!(
        "unequal: Student {}, Welch {} of 100",
        percent(unequal_students),
        percent(unequal_welchs)
    );
    assert!((4.0..6.0).contains(&percent(students)) && (3.9..6.0).contains(&percent(welchs)));
    assert!(percent(unequal_students) > 20.0 && (3.5..6.5).contains(&percent(unequal_welchs)));
}

#[test]
fn the_same_is_said_of_different_means_in_at_most_five_of_a_hundred() {
    let mut chance = Chance(8);
    let verdicts = |chance: &mut Chance, mean: f64| {
        let said = (0..2000).filter(|_| {
            let (a, b) = (chance.normals(20, 100.0, 4.0), chance.normals(15, mean, 6.0));
            equivalent(&a, &b, 0.05, Confidence::P95).unwrap().verdict == Sameness::Same
        });
        said.count() as f64 / 20.0
    };
    // At the very margin, outside of it, and where they are the same.
    let (margin, outside, inside) =
        (verdicts(&mut chance, 105.0), verdicts(&mut chance, 95.0), verdicts(&mut chance, 100.0));
    println!("said at +5 %: {margin}, at -5 %: {outside}, at 0: {inside} of 100");
    assert!(margin < 6.0 && outside < 6.0 && inside > 50.0);
}

#[test]
fn with_an_exact_reference_the_interval_is_the_textbooks() {
    let other = [98.0, 101.0, 103.5, 99.0, 100.5, 102.0, 97.5, 101.5, 100.0, 99.5];
    let found = equivalent(&[100.0; 12], &other, 0.03, Confidence::P95).unwrap();
    let summary = Summary::of(&other).unwrap();
    // One-sided 0.95 with 9 degrees, from any table.
    let half = 1.833 * summary.stddev / 10.0_f64.sqrt() / 100.0;
    assert!(near(found.interval.low, summary.mean / 100.0 - 1.0 - half, 0.002), "{found:?}");
    assert!(near(found.interval.high, summary.mean / 100.0 - 1.0 + half, 0.002), "{found:?}");
    assert_eq!(found.verdict, Sameness::Same);
    assert_eq!(
        equivalent(&[100.0; 12], &other, 0.01, Confidence::P95).unwrap().verdict,
        Sameness::NotShown
    );
    assert_eq!(
        equivalent(&[100.0; 9], &other, 0.03, Confidence::P95).unwrap().verdict,
        Sameness::TooFew
    );
    assert_eq!(equivalent(&[-1.0, 1.0, 0.5, 0.0], &other, 0.03, Confidence::P95), None);
}

/// The chance that `n` draws out of `n` hold at least `needed` of the `k` smallest.
fn at_least(n: u32, k: u32, needed: u32) -> f64 {
    let share = f64::from(k) / f64::from(n);
    let choose = |i: u32| (0..i).map(|j| f64::from(n - j) / f64::from(j + 1)).product::<f64>();
    (needed..=n)
        .map(|i| choose(i) * share.powi(i as i32) * (1.0 - share).powi((n - i) as i32))
        .sum()
}

#[test]
fn the_bootstrap_of_a_median_has_its_exact_distribution() {
    // Efron 1979: the median of a redrawn odd set is at most the k-th smallest by a binomial chance.
    let samples: Vec<f64> = (1..=25).map(f64::from).collect();
    for confidence in [Confidence::P80, Confidence::P95] {
        let found = bootstrap_median(&samples, confidence, 3).unwrap();
        let half = 0.5 * confidence.alpha();
        let exact = |tail: f64| (1..=25).find(|k| at_least(25, *k, 13) >= tail).unwrap();
        assert_eq!(found, Interval { low: exact(half).into(), high: exact(1.0 - half).into() });
    }
    assert_eq!(bootstrap_median(&[], Confidence::P95, 3), None);
}

#[test]
fn bootstrapped_ratios_hold_the_truth_and_repeat_with_their_seed() {
    let mut chance = Chance(9);
    const ROUNDS: usize = 100;
    let mut held = 0;
    for _ in 0..ROUNDS {
        let (a, b) = (chance.normals(21, 100.0, 10.0), chance.normals(20, 150.0, 10.0));
        let found = bootstrap_ratio_of_medians(&a, &b, Confidence::P95, 5).unwrap();
        held += usize::from(found.contains(1.5));
    }
    println!("the bootstrap's interval held the truth {held} times of {ROUNDS}");
    assert!((88..=99).contains(&held), "{held}");
    let a = chance.normals(40, 100.0, 10.0);
    let again =
        |seed| bootstrap_ratio_of_medians(&a, &[150.0, 151.0, 170.0], Confidence::P95, seed);
    assert!(again(5) == again(5) && again(5) != again(6));
    // What slows both runs of a pair widens the ratio of medians, and leaves that of the pairs alone.
    let slow: Vec<f64> = (0..40).map(|_| 1.0 + 3.0 * chance.uniform()).collect();
    let pairs: Vec<(f64, f64)> =
        slow.iter().zip(&a).map(|(slow, a)| (slow * 100.0, slow * (a + 10.0))).collect();
    let paired = bootstrap_median_ratio_of_pairs(&pairs, Confidence::P95, 5).unwrap();
    let (first, second): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
    let apart = bootstrap_ratio_of_medians(&first, &second, Confidence::P95, 5).unwrap();
    assert!(
        paired.low > 1.0 && paired.width() < 0.3 * apart.width() && apart.contains(1.0),
        "{paired:?} {apart:?}"
    );
    assert_eq!(bootstrap_median_ratio_of_pairs(&[(0.0, 1.0)], Confidence::P95, 5), None);
}

#[test]
fn outliers_keep_their_place_and_their_distance() {
    // Quarters at 3.25 and 7.75, fences at -3.5 and 14.5, -10.25 and 21.25.
    let samples = [1.0, 22.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 15.0];
    let found: Vec<_> =
        outliers(&samples).iter().map(|found| (found.index, found.value, found.distance)).collect();
    assert_eq!(found, [(1, 22.0, Distance::Extreme), (9, 15.0, Distance::Mild)]);
    assert_eq!(outliers(&[1.0, 1.0, 1000.0]), []);
    assert_eq!(outliers(&[5.0; 9]), []);
}

#[test]
fn a_trend_knows_its_bands() {
    // x 1 to 5, y 2 4 5 4 5: slope 0.6, intercept 2.2, rest 2.4 on 3 degrees; t is 3.182 for 95 %.
    let points = [(1.0, 2.0), (2.0, 4.0), (3.0, 5.0), (4.0, 4.0), (5.0, 5.0)];
    let trend = Trend::of(&points).unwrap();
    let s = 0.8_f64.sqrt();
    for (value, expected) in [
        (trend.slope, 0.6),
        (trend.intercept, 2.2),
        (trend.at(3.0), 4.0),
        (trend.r_squared, 0.6),
        (trend.slope_error, s / 10.0_f64.sqrt()),
        (trend.band(3.0, Confidence::P95), 3.182 * s / 5.0_f64.sqrt()),
        (trend.band(5.0, Confidence::P95), 3.182 * s * 0.6_f64.sqrt()),
        (trend.prediction_band(5.0, Confidence::P95), 3.182 * s * 1.6_f64.sqrt()),
        (trend.slope_interval(Confidence::P95).high, 0.6 + 3.182 * s / 10.0_f64.sqrt()),
    ] {
        assert!(near(value, expected, 0.0005), "{value} for {expected}");
    }
    assert_eq!(Trend::of(&points[..2]), None);
    assert_eq!(Trend::of(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
}

#[test]
fn a_plot_without_span_or_room_says_so() {
    let set = |samples: &[f64]| Summary::of(samples).unwrap();
    assert_eq!(dot_plot(&[set(&[4.0; 3])], 74, false).unwrap(), "[no plot, span is zero width]\n");
    let spread = set(&[1.0, 2.0, 9.0]);
    assert_eq!(dot_plot(&[], 74, false), None);
    assert_eq!(dot_plot(&vec![spread.clone(); 8], 74, false), None);
    assert_eq!(dot_plot(std::slice::from_ref(&spread), 1, false), None);
    // A single sample has no deviation and so no box, but its place.
    let plot = dot_plot(&[spread, set(&[5.0])], 20, true).unwrap();
    assert_eq!(plot.lines().rev().nth(1).unwrap().trim_matches(['|', ' ']), "A");
}

fn samples() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(-1e6..1e6_f64, 3..40)
}

fn anything() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(any::<f64>(), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn turning_the_sets_round_turns_the_sign_and_nothing_else(a in samples(), b in samples()) {
        for test in [student, welch] {
            let (there, back) = (test(&a, &b, Confidence::P95).unwrap(), test(&b, &a, Confidence::P95).unwrap());
            prop_assert_eq!(there.verdict, back.verdict);
            prop_assert_eq!(there.difference, -back.difference);
            prop_assert!(near(there.margin, back.margin, 1e-9) && near(there.p, back.p, 1e-6));
            prop_assert_eq!(there.is_proven(), !there.interval().contains(0.0));
        }
    }

    #[test]
    fn welch_and_student_agree_on_t_where_sizes_are_equal(a in samples(), shift in -1e6..1e6_f64) {
        let b: Vec<f64> = a.iter().map(|value| shift - value).collect();
        let (students, welchs) = (student(&a, &b, Confidence::P95).unwrap(), welch(&a, &b, Confidence::P95).unwrap());
        prop_assert!((students.t - welchs.t).abs() < 1e-6 * students.t.abs().max(1.0));
        prop_assert!((students.degrees - welchs.degrees).abs() < 1e-3);
    }

    #[test]
    fn the_quantile_of_t_undoes_its_tails(tails in 1e-6..0.999_f64, degrees in 0.5..500.0_f64) {
        prop_assert!(near(t_tails(t_quantile(tails, degrees), degrees), tails, 1e-8));
        prop_assert!(t_quantile(tails, degrees) > t_quantile(tails, degrees + 1.0));
        prop_assert!(t_quantile(tails, degrees) > t_quantile(tails, f64::INFINITY));
    }

    #[test]
    fn a_plot_of_one_set_has_a_sign_for_every_sample(a in samples(), width in 2_usize..120) {
        let plot = dot_plot(&[Summary::of(&a).unwrap()], width, false).unwrap();
        prop_assert_eq!(plot.matches('x').count(), a.len());
        prop_assert!(plot.lines().all(|line| line.len() == width + 2));
    }

    #[test]
    fn quantiles_lie_in_order_between_the_ends(a in samples(), q in 0.0..1.0_f64) {
        let summary = Summary::of(&a).unwrap();
        prop_assert!(summary.min <= summary.quantile(q) && summary.quantile(q) <= summary.quantile(q + 0.1));
        prop_assert_eq!(summary.quantile(1.0), summary.max);
    }

    #[test]
    fn no_samples_at_all_make_any_of_it_panic(a in anything(), b in anything(), x in any::<f64>()) {
        let points: Vec<(f64, f64)> = a.iter().copied().zip(b.iter().copied()).collect();
        for test in [student, welch] {
            let _ = test(&a, &b, Confidence::P99_5);
        }
        let _ = (equivalent(&a, &b, x, Confidence::P95), looks_normal(&a), outliers(&a));
        if let Some(trend) = Trend::of(&points) {
            let _ = (trend.band(x, Confidence::P95), trend.slope_p());
        }
        let sets: Vec<Summary> = [&a, &b].into_iter().filter_map(|set| Summary::of(set)).collect();
        let _ = dot_plot(&sets, 40, true);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nor_the_bootstrap(a in anything(), b in anything(), seed in any::<u64>()) {
        let _ = bootstrap_median(&a, Confidence::P95, seed);
        let _ = bootstrap_ratio_of_medians(&a, &b, Confidence::P95, seed);
    }
}
