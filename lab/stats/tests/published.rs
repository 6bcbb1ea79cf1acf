//! The statistics against published values: NIST's reference data sets, tables of t, textbook examples.
//!
//! Must never take a value from this code: each stands in print elsewhere.

#![allow(clippy::unwrap_used)]

use stats::{Confidence, Summary, Trend, looks_normal, student, t_tails, welch};

/// The digits that agree (NIST's "log relative error").
fn digits(value: f64, certified: f64) -> f64 {
    if value == certified { 16.0 } else { -((value - certified) / certified).abs().log10() }
}

#[test]
fn nist_michelson_has_its_certified_mean_and_deviation() {
    // The velocity of light in air, Dorsey 1944, as thousandths of thousands of km/s over 299,000.
    let above: [u16; 100] = [
        850, 740, 900, 1070, 930, 850, 950, 980, 980, 880, 1000, 980, 930, 650, 760, 810, 1000,
        1000, 960, 960, 960, 940, 960, 940, 880, 800, 850, 880, 900, 840, 830, 790, 810, 880, 880,
        830, 800, 790, 760, 800, 880, 880, 880, 860, 720, 720, 620, 860, 970, 950, 880, 910, 850,
        870, 840, 840, 850, 840, 840, 840, 890, 810, 810, 820, 800, 770, 760, 740, 750, 760, 910,
        920, 890, 860, 880, 720, 840, 850, 850, 780, 890, 840, 780, 810, 760, 810, 790, 810, 820,
        850, 870, 870, 810, 740, 810, 940, 950, 800, 810, 870,
    ];
    let samples: Vec<f64> =
        above.iter().map(|value| f64::from(299_000 + u32::from(*value)) / 1000.0).collect();
    let summary = Summary::of(&samples).unwrap();
    assert!(digits(summary.mean, 299.852_400_000_000) > 14.0, "{}", summary.mean);
    assert!(digits(summary.stddev, 0.079_010_547_819_051_8) > 12.0, "{}", summary.stddev);
}

#[test]
fn nist_numacc4_keeps_the_digits_behind_a_far_off_mean() {
    let samples: Vec<f64> = std::iter::once(10_000_000.2)
        .chain((0..1000).map(|i| if i % 2 == 0 { 10_000_000.1 } else { 10_000_000.3 }))
        .collect();
    let summary = Summary::of(&samples).unwrap();
    assert!(digits(summary.mean, 10_000_000.2) > 15.0, "{}", summary.mean);
    // The samples themselves, as floats, hold no more than eight digits of it.
    assert!(digits(summary.stddev, 0.1) > 8.0, "{}", summary.stddev);
}

#[test]
fn nist_norris_has_its_certified_line() {
    let points = [
        (0.2, 0.1),
        (337.4, 338.8),
        (118.2, 118.1),
        (884.6, 888.0),
        (10.1, 9.2),
        (226.5, 228.1),
        (666.3, 668.5),
        (996.3, 998.5),
        (448.6, 449.1),
        (777.0, 778.9),
        (558.2, 559.2),
        (0.4, 0.3),
        (0.6, 0.1),
        (775.5, 778.1),
        (666.9, 668.8),
        (338.0, 339.3),
        (447.5, 448.9),
        (11.6, 10.8),
        (556.0, 557.7),
        (228.1, 228.3),
        (995.8, 998.0),
        (887.6, 888.8),
        (120.2, 119.6),
        (0.3, 0.3),
        (0.3, 0.6),
        (556.8, 557.6),
        (339.1, 339.3),
        (887.2, 888.0),
        (999.0, 998.5),
        (779.0, 778.9),
        (11.1, 10.2),
        (118.3, 117.6),
        (229.2, 228.9),
        (669.1, 668.4),
        (448.9, 449.2),
        (0.5, 0.2),
    ];
    let trend = Trend::of(&points).unwrap();
    for (name, value, certified) in [
        ("intercept", trend.intercept, -0.262_323_073_774_029),
        ("its error", trend.intercept_error, 0.232_818_234_301_152),
        ("slope", trend.slope, 1.002_116_818_020_45),
        ("its error", trend.slope_error, 0.429_796_848_199_937e-3),
        ("rest", trend.residual_stddev, 0.884_796_396_144_373),
        ("r²", trend.r_squared, 0.999_993_745_883_712),
    ] {
        assert!(digits(value, certified) > 11.0, "{name}: {value} for {certified}");
    }
}

#[test]
fn t_is_that_of_the_printed_tables() {
    for (degrees, row) in [
        (1.0, [3.078, 6.314, 12.706, 31.821, 63.657]),
        (2.0, [1.886, 2.920, 4.303, 6.965, 9.925]),
        (5.0, [1.476, 2.015, 2.571, 3.365, 4.032]),
        (10.0, [1.372, 1.812, 2.228, 2.764, 3.169]),
        (30.0, [1.310, 1.697, 2.042, 2.457, 2.750]),
        (120.0, [1.289, 1.658, 1.980, 2.358, 2.617]),
        (f64::INFINITY, [1.282, 1.645, 1.960, 2.326, 2.576]),
    ] {
        for (confidence, printed) in Confidence::MINISTAT.iter().zip(row) {
            let t = confidence.t(degrees);
            assert!((t - printed).abs() <= 0.000_501, "{confidence} {degrees}: {t} for {printed}");
            assert!((t_tails(t, degrees) / confidence.alpha() - 1.0).abs() < 1e-9);
        }
    }
}

#[test]
fn ministats_column_for_995_is_the_one_for_998() {
    for (degrees, printed) in [
        (4, 7.173),
        (6, 5.208),
        (10, 4.143),
        (13, 3.852),
        (30, 3.385),
        (100, 3.174),
        (101, 3.090),
        (1000, 3.090),
    ] {
        assert_eq!(Confidence::P99_5.t_of_ministat(degrees), Some(printed));
        assert!(Confidence::P99_5.t(degrees as f64) < printed);
    }
    assert_eq!(Confidence::of_percent(97.0).unwrap().t_of_ministat(10), None);
}

/// Hours of sleep gained by two drugs: Cushny and Peebles 1905, the example of Student 1908.
const SLEEP: ([f64; 10], [f64; 10]) = (
    [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0],
    [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4],
);

#[test]
fn students_own_example_gives_the_printed_t_and_p() {
    let found = student(&SLEEP.0, &SLEEP.1, Confidence::P95).unwrap();
    assert!((found.t - 1.8608).abs() < 0.000_05 && found.degrees == 18.0, "{found:?}");
    assert!((found.p - 0.079_19).abs() < 0.000_005 && !found.is_proven(), "{found:?}");
}

#[test]
fn welchs_test_gives_the_printed_t_degrees_p_and_interval() {
    let found = welch(&SLEEP.0, &SLEEP.1, Confidence::P95).unwrap();
    assert!(
        (found.t - 1.8608).abs() < 0.000_05 && (found.degrees - 17.776).abs() < 0.0005,
        "{found:?}"
    );
    assert!((found.p - 0.079_39).abs() < 0.000_005, "{found:?}");
    let interval = found.interval();
    assert!(
        (interval.low + 0.205_483_2).abs() < 1e-7 && (interval.high - 3.365_483_2).abs() < 1e-7,
        "{interval:?}"
    );
}

#[test]
fn welchs_test_knows_unequal_variances_and_sizes() {
    // The second and third example of the English Wikipedia's page on the test.
    let small = [17.2, 20.9, 22.6, 18.1, 21.7, 21.4, 23.5, 24.2, 14.7, 21.8];
    let large = [
        21.5, 22.8, 21.0, 23.0, 21.6, 23.6, 22.5, 20.7, 23.4, 21.8, 20.7, 21.7, 21.5, 22.5, 23.6,
        21.5, 22.5, 23.5, 21.5, 21.8,
    ];
    let narrow = [19.8, 20.4, 19.6, 17.8, 18.5, 18.9, 18.3, 18.9, 19.5, 22.0];
    let wide = [
        28.2, 26.6, 20.1, 23.3, 25.2, 22.1, 17.7, 27.6, 20.6, 13.7, 23.2, 17.5, 20.6, 18.0, 23.9,
        21.6, 24.3, 20.4, 24.0, 13.2,
    ];
    for (reference, other, t, degrees, p) in
        [(&small, &large, 1.57, 9.9, 0.149), (&narrow, &wide, 2.22, 24.5, 0.036)]
    {
        let found = welch(reference, other, Confidence::P95).unwrap();
        assert!((found.t - t).abs() < 0.005 && (found.degrees - degrees).abs() < 0.05, "{found:?}");
        assert!((found.p - p).abs() < 0.0005, "{found:?}");
    }
}

#[test]
fn shapiro_and_wilk_find_the_printed_w_and_p() {
    // Weights of eleven men, from the paper of 1965; plants (Dobson 1983); sleep; cars (Henderson and Velleman 1981).
    let men = [148.0, 154.0, 158.0, 160.0, 161.0, 162.0, 166.0, 170.0, 182.0, 195.0, 236.0];
    let plants = [4.17, 5.58, 5.18, 6.11, 4.50, 4.61, 5.17, 4.53, 5.33, 5.14];
    let sleep = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4];
    let cars = [
        21.0, 21.0, 22.8, 21.4, 18.7, 18.1, 14.3, 24.4, 22.8, 19.2, 17.8, 16.4, 17.3, 15.2, 10.4,
        10.4, 14.7, 32.4, 30.4, 33.9, 21.5, 15.5, 15.2, 13.3, 19.2, 27.3, 26.0, 30.4, 15.8, 19.7,
        15.0, 21.4,
    ];
    let samples: [(&[f64], f64, f64); 4] = [
        (&men, 0.788_81, 0.006_704),
        (&plants, 0.956_68, 0.7475),
        (&sleep, 0.829_87, 0.033_34),
        (&cars, 0.947_56, 0.1229),
    ];
    for (samples, w, p) in samples {
        let found = looks_normal(samples).unwrap();
        assert!(
            (found.w - w).abs() < 0.000_006 && (found.p - p).abs() < 0.000_06,
            "{found:?} for {w} {p}"
        );
        assert_eq!(found.is_plausible(), p >= 0.05);
    }
}
