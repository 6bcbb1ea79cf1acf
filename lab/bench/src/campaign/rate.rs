//! Loads at a share of a subject's greatest rate, which is measured in the same campaign.
//!
//! Must never take a rate from another campaign, another subject or another cell.

use super::schedule::Step;
use anyhow::{Context, Result, ensure};
use report::record::{Cell, Factor, Line};

/// The name of the share in `Load`.
const NAME: &str = "rate-percent";
/// At this share each session sends as fast as it is answered; the result is the greatest rate.
const ALL_PERCENT: f64 = 100.0;

/// Sets the rate of a load that is a share. Fails if the subject's greatest rate is not known yet.
pub fn choose(step: &mut Step, lines: &[Line]) -> Result<()> {
    let percent = step.question.load.rate_percent;
    if percent == ALL_PERCENT {
        return Ok(());
    }
    ensure!(percent > 0.0 && percent < ALL_PERCENT, "{NAME} is above 0 and at most {ALL_PERCENT}");
    let greatest = greatest(step, lines)
        .with_context(|| format!("no run at {NAME} {ALL_PERCENT} of the same has succeeded"))?;
    step.question.load.rate = greatest * percent / ALL_PERCENT;
    Ok(())
}

/// Returns the median of the subject's greatest rates with otherwise equal factors.
fn greatest(step: &Step, lines: &[Line]) -> Option<f64> {
    let mut wanted: Cell = step.question.cell.clone();
    wanted.insert(NAME.into(), Factor::Number(ALL_PERCENT));
    let rate = |line: &Line| match line {
        Line::Run(run) => (run.scenario == step.scenario.name
            && run.subject == step.subject
            && run.cell == wanted)
            .then_some(run.value)
            .flatten(),
        Line::Absent(_) | Line::Settings(_) => None,
    };
    let rates: Vec<f64> = lines.iter().filter_map(rate).filter(|rate| *rate > 0.0).collect();
    stats::Summary::of(&rates).map(|summary| summary.quantile(0.5))
}

#[cfg(test)]
mod tests {
    use super::super::schedule::Schedule;
    use super::*;
    use crate::scenario::Scenario;
    use crate::subject;
    use report::record::Run;

    /// A run of a subject at a share.
    fn line(subject: &str, percent: f64, value: Option<f64>) -> Line {
        let text = serde_json::json!({
            "time": 0, "scenario": "latency", "subject": subject, "version": "1", "ordinal": 0, "seed": 1,
            "cell": { NAME: percent }, "value": value, "settings": "", "lab": "1",
            "figure": { "name": "delivered", "unit": "messages/s", "better": "higher" },
            "machine": report::record::Machine::default(),
        });
        Line::Run(Box::new(serde_json::from_value::<Run>(text).unwrap()))
    }

    fn step<'a>(scenarios: &'a [Scenario], percent: f64) -> Step<'a> {
        let schedule = Schedule::new(scenarios, &subject::builtin(), &[], Some(1)).unwrap();
        let mut steps = schedule.steps();
        let fits =
            |step: &Step| step.subject == "postfix" && step.question.load.rate_percent == percent;
        steps.find(fits).unwrap()
    }

    #[test]
    fn a_share_is_of_the_median_of_what_the_same_subject_did_as_fast_as_it_could() {
        let scenarios = [Scenario::find("latency").unwrap()];
        let lines = [
            line("posthaste", 100.0, Some(9000.0)),
            line("postfix", 100.0, Some(700.0)),
            line("postfix", 100.0, None),
            line("postfix", 50.0, Some(350.0)),
            line("postfix", 100.0, Some(900.0)),
        ];
        let rate = |percent, lines: &[Line]| {
            let mut step = step(&scenarios, percent);
            choose(&mut step, lines).map(|()| step.question.load.rate)
        };
        assert_eq!(rate(90.0, &lines).unwrap(), 720.0);
        assert_eq!(rate(10.0, &lines).unwrap(), 80.0);
        assert_eq!(rate(100.0, &lines).unwrap(), 0.0, "as fast as it is answered");
        assert!(rate(50.0, &lines[..1]).unwrap_err().to_string().contains("rate-percent 100"));
    }

    #[test]
    fn the_greatest_rate_is_asked_for_before_its_shares() {
        let scenarios = [Scenario::find("latency").unwrap()];
        let schedule = Schedule::new(&scenarios, &subject::builtin(), &[], Some(1)).unwrap();
        let shares: Vec<f64> =
            schedule.steps().map(|step| step.question.load.rate_percent).collect();
        assert_eq!(shares, [100.0, 100.0, 10.0, 10.0, 50.0, 50.0, 90.0, 90.0]);
    }
}
