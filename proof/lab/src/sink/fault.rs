//! The faults a sink is told to commit: refusals, dropped connections, delays.
//!
//! Must never draw lots: which of many is hit follows from the count alone, so a run repeats.

use anyhow::{Context, Result, bail};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How far the conversation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Before the greeting.
    Connect,
    /// EHLO, HELO, LHLO.
    Hello,
    /// MAIL.
    Mail,
    /// RCPT.
    Rcpt,
    /// DATA, before the 354.
    Data,
    /// In the middle of the body; only a drop makes sense here.
    Body,
    /// After the last byte, before the reply.
    End,
    /// After the reply to the last byte was sent; only a drop makes sense here.
    After,
}

/// Which of the things at a stage are hit.
#[derive(Clone, Debug)]
enum Share {
    /// This part of them, evenly spread.
    Part(f64),
    /// Those whose address contains this text.
    Matching(String),
}

/// `STAGE:CODE[:SHARE]`: refuse with this reply code.
#[derive(Clone, Debug)]
pub struct Refuse {
    stage: Stage,
    code: u16,
    share: Share,
    seen: Arc<AtomicU64>,
}

/// `STAGE[:SHARE]`: drop the connection without a word.
#[derive(Clone, Debug)]
pub struct Drop {
    stage: Stage,
    share: Share,
    seen: Arc<AtomicU64>,
}

/// `[STAGE:]MILLISECONDS`: wait before the reply; at the end of the message where no stage is named.
#[derive(Clone, Copy, Debug)]
pub struct Delay {
    stage: Stage,
    time: Duration,
}

/// What to do at a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// As usual.
    Go,
    /// Refuse with this code.
    Refuse(u16),
    /// Drop the connection.
    Drop,
}

/// All faults of one sink.
#[derive(Debug, Default)]
pub struct Faults {
    /// `--refuse`.
    pub refuse: Vec<Refuse>,
    /// `--drop`.
    pub drop: Vec<Drop>,
    /// `--delay`.
    pub delay: Vec<Delay>,
    /// From now on nothing is delayed.
    pub hurried: AtomicBool,
}

impl Faults {
    /// What to do with the next thing at `stage`; `address` where it is about one.
    pub fn act(&self, stage: Stage, address: &str) -> Act {
        let drop = self
            .drop
            .iter()
            .find(|rule| rule.stage == stage && rule.share.hits(&rule.seen, address));
        if drop.is_some() {
            return Act::Drop;
        }
        let refuse = self
            .refuse
            .iter()
            .find(|rule| rule.stage == stage && rule.share.hits(&rule.seen, address));
        refuse.map_or(Act::Go, |rule| Act::Refuse(rule.code))
    }

    /// How long to wait at `stage`.
    pub fn delay(&self, stage: Stage) -> Duration {
        if self.hurried.load(Relaxed) {
            return Duration::ZERO;
        }
        self.delay.iter().filter(|rule| rule.stage == stage).map(|rule| rule.time).sum()
    }
}

impl Share {
    fn hits(&self, seen: &AtomicU64, address: &str) -> bool {
        match self {
            Share::Matching(text) => address.contains(text.as_str()),
            Share::Part(part) => {
                let before = seen.fetch_add(1, Relaxed) as f64;
                ((before + 1.0) * part).floor() > (before * part).floor()
            }
        }
    }
}

impl FromStr for Share {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Share> {
        let number = match text.strip_suffix('%') {
            Some(percent) => percent.parse::<f64>().map(|percent| percent / 100.0),
            None => text.parse::<f64>(),
        };
        match number {
            Ok(part) if (0.0..=1.0).contains(&part) => Ok(Share::Part(part)),
            Ok(_) => bail!("{text}: a share is 0 to 1, or 0% to 100%"),
            Err(_) => Ok(Share::Matching(text.into())),
        }
    }
}

impl FromStr for Stage {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Stage> {
        Ok(match text {
            "connect" => Stage::Connect,
            "hello" => Stage::Hello,
            "mail" => Stage::Mail,
            "rcpt" => Stage::Rcpt,
            "data" => Stage::Data,
            "body" => Stage::Body,
            "end" => Stage::End,
            "after" => Stage::After,
            _ => bail!("{text}: one of connect hello mail rcpt data body end after is expected"),
        })
    }
}

impl FromStr for Refuse {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Refuse> {
        let mut words = text.splitn(3, ':');
        let stage = words.next().unwrap_or_default().parse()?;
        let code = words.next().context("STAGE:CODE[:SHARE] is expected")?.parse()?;
        let share = words.next().unwrap_or("1").parse()?;
        Ok(Refuse { stage, code, share, seen: Arc::default() })
    }
}

impl FromStr for Drop {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Drop> {
        let (stage, share) = text.split_once(':').unwrap_or((text, "1"));
        Ok(Drop { stage: stage.parse()?, share: share.parse()?, seen: Arc::default() })
    }
}

impl FromStr for Delay {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Delay> {
        let (stage, time) = text.split_once(':').unwrap_or(("end", text));
        let time = time.strip_suffix("ms").unwrap_or(time);
        Ok(Delay { stage: stage.parse()?, time: Duration::from_millis(time.parse()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_hits_evenly_and_a_text_hits_the_addresses_that_have_it() {
        let faults = Faults {
            refuse: vec!["rcpt:550:bad@".parse().unwrap(), "end:451:25%".parse().unwrap()],
            drop: vec!["body:0.5".parse().unwrap()],
            delay: vec!["20".parse().unwrap(), "mail:30ms".parse().unwrap()],
            hurried: false.into(),
        };
        assert_eq!(faults.act(Stage::Rcpt, "bad@x"), Act::Refuse(550));
        assert_eq!(faults.act(Stage::Rcpt, "good@x"), Act::Go);
        let hit = (0..100).filter(|_| faults.act(Stage::End, "") == Act::Refuse(451)).count();
        assert_eq!(hit, 25);
        let dropped = (0..10).filter(|_| faults.act(Stage::Body, "") == Act::Drop).count();
        assert_eq!(dropped, 5);
        assert_eq!(faults.delay(Stage::End), Duration::from_millis(20));
        assert_eq!(faults.delay(Stage::Mail), Duration::from_millis(30));
        faults.hurried.store(true, Relaxed);
        assert_eq!(faults.delay(Stage::Mail), Duration::ZERO);
    }

    #[test]
    fn a_fault_that_cannot_be_read_is_refused() {
        assert!("rcpt".parse::<Refuse>().is_err());
        assert!("nowhere:550".parse::<Refuse>().is_err());
        assert!("end:2".parse::<Drop>().is_err());
        assert!("soon".parse::<Delay>().is_err());
    }
}
