//! The faults that a sink is told to make: refusals, dropped connections, delays.
//!
//! Must never be random: which command is hit follows from the count alone, so that runs repeat.

use anyhow::{Context, Result, bail, ensure};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The stages of a conversation.
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

/// The commands at a stage that are hit.
#[derive(Clone, Debug)]
enum Share {
    /// This share of them, evenly spread.
    Part(f64),
    /// Those with an address that contains this text.
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

/// `[STAGE:]MILLISECONDS[:SHARE]`: wait before the reply; at the end of the message where no stage is named.
#[derive(Clone, Debug)]
pub struct Delay {
    stage: Stage,
    time: Duration,
    share: Share,
    seen: Arc<AtomicU64>,
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
    /// `--rate`.
    pub pace: Option<Pace>,
    /// Set once nothing is delayed any more.
    pub hurried: AtomicBool,
}

/// A limit of messages a second.
#[derive(Debug)]
pub struct Pace {
    period: Duration,
    /// The moment at which the next message may end.
    next: Mutex<Instant>,
}

impl Pace {
    /// Messages a second.
    pub fn new(rate: f64) -> Pace {
        let period = Duration::from_secs_f64(1.0 / rate.max(1e-6));
        Pace { period, next: Mutex::new(Instant::now()) }
    }

    /// Returns when a message may end whose last byte came `now`.
    fn turn(&self, now: Instant) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = (*next).max(now);
        *next = turn + self.period;
        turn
    }
}

impl Faults {
    /// Decides about the next command at `stage`, which has these addresses.
    pub fn act(&self, stage: Stage, addresses: &[impl AsRef<str>]) -> Act {
        let drop = self
            .drop
            .iter()
            .find(|rule| rule.stage == stage && rule.share.hits(&rule.seen, addresses));
        if drop.is_some() {
            return Act::Drop;
        }
        let refuse = self
            .refuse
            .iter()
            .find(|rule| rule.stage == stage && rule.share.hits(&rule.seen, addresses));
        refuse.map_or(Act::Go, |rule| Act::Refuse(rule.code))
    }

    /// Returns how long to wait at `stage`.
    pub fn delay(&self, stage: Stage, addresses: &[impl AsRef<str>]) -> Duration {
        if self.hurried.load(Relaxed) {
            return Duration::ZERO;
        }
        let rules = self
            .delay
            .iter()
            .filter(|rule| rule.stage == stage && rule.share.hits(&rule.seen, addresses));
        rules.map(|rule| rule.time).sum()
    }

    /// Returns how long a message waits for its turn.
    pub fn wait(&self) -> Duration {
        match &self.pace {
            Some(pace) if !self.hurried.load(Relaxed) => {
                let now = Instant::now();
                pace.turn(now) - now
            }
            _ => Duration::ZERO,
        }
    }
}

impl Share {
    fn hits(&self, seen: &AtomicU64, addresses: &[impl AsRef<str>]) -> bool {
        match self {
            Share::Matching(text) => {
                addresses.iter().any(|address| address.as_ref().contains(text.as_str()))
            }
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
        ensure!((400..=599).contains(&code), "{code}: a refusal is 400 to 599");
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
        let (stage, rest) = match text.split_once(':') {
            Some((word, rest)) if millis(word).is_err() => (word.parse()?, rest),
            _ => (Stage::End, text),
        };
        let (time, share) = rest.split_once(':').unwrap_or((rest, "1"));
        Ok(Delay { stage, time: millis(time)?, share: share.parse()?, seen: Arc::default() })
    }
}

fn millis(text: &str) -> Result<Duration> {
    Ok(Duration::from_millis(text.strip_suffix("ms").unwrap_or(text).parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: &[&str] = &[];

    #[test]
    fn a_share_hits_evenly_and_a_text_hits_the_addresses_that_have_it() {
        let faults = Faults {
            refuse: vec!["rcpt:550:bad@".parse().unwrap(), "end:451:25%".parse().unwrap()],
            drop: vec!["body:0.5".parse().unwrap()],
            ..Faults::default()
        };
        assert_eq!(faults.act(Stage::Rcpt, &["bad@x"]), Act::Refuse(550));
        assert_eq!(faults.act(Stage::Rcpt, &["good@x"]), Act::Go);
        assert_eq!(faults.act(Stage::Rcpt, &["good@x", "bad@y"]), Act::Refuse(550));
        let hit = (0..100).filter(|_| faults.act(Stage::End, NONE) == Act::Refuse(451)).count();
        assert_eq!(hit, 25);
        let dropped = (0..10).filter(|_| faults.act(Stage::Body, NONE) == Act::Drop).count();
        assert_eq!(dropped, 5);
    }

    #[test]
    fn a_delay_has_a_stage_and_a_share_and_ends_when_the_sink_is_hurried() {
        let delays = ["20", "mail:30ms", "40:slow.test", "end:80:50%"];
        let delay = delays.iter().map(|text| text.parse().unwrap()).collect();
        let faults = Faults { delay, ..Faults::default() };
        let ms = |stage, addresses: &[&str]| faults.delay(stage, addresses).as_millis();
        assert_eq!((ms(Stage::Mail, NONE), ms(Stage::Rcpt, NONE)), (30, 0));
        assert_eq!(ms(Stage::End, &["a@fast.test"]), 20);
        assert_eq!(ms(Stage::End, &["a@fast.test", "a@slow.test"]), 20 + 40 + 80);
        faults.hurried.store(true, Relaxed);
        assert_eq!(ms(Stage::Mail, NONE), 0);
    }

    #[test]
    fn a_pace_gives_turns_of_one_length_and_saves_none_up() {
        let (pace, start) = (Pace::new(100.0), Instant::now());
        let first = pace.turn(start);
        assert_eq!(pace.turn(start) - first, Duration::from_millis(10));
        assert_eq!(pace.turn(start) - first, Duration::from_millis(20));
        let later = start + Duration::from_secs(5);
        assert_eq!(pace.turn(later), later);
    }

    #[test]
    fn a_fault_that_cannot_be_read_is_refused() {
        assert!("rcpt".parse::<Refuse>().is_err());
        assert!("nowhere:550".parse::<Refuse>().is_err());
        assert!("rcpt:250".parse::<Refuse>().is_err());
        assert!("end:2".parse::<Drop>().is_err());
        for text in ["soon", "nowhere:20", "end:", "20:2"] {
            assert!(text.parse::<Delay>().is_err(), "{text}");
        }
    }
}
