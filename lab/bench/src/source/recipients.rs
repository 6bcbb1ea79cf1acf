//! The recipients that a source names: templates with weights, and numbers in them.
//!
//! Must never build an address anew where a template has no number.

use super::draw::{Purpose, Weighted, draw, part};
use anyhow::{Context, Result, ensure};
use std::io::Write as _;
use std::str::FromStr;

/// `TEMPLATE[:WEIGHT]`.
#[derive(Clone, Debug)]
pub struct Template {
    pieces: Vec<Piece>,
    weight: f64,
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    /// `{n}`: the recipient's number in its message.
    Recipient,
    /// `{m}`: the message's number.
    Message,
    /// `{r}`: drawn below the spread.
    Drawn,
    /// `{d}`: counts through the spread, recipient by recipient.
    Turn,
}

const PIECES: [(&str, Piece); 4] = [
    ("{n}", Piece::Recipient),
    ("{m}", Piece::Message),
    ("{r}", Piece::Drawn),
    ("{d}", Piece::Turn),
];

impl FromStr for Template {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Template> {
        let (mut rest, weight) = match text.rsplit_once(':') {
            Some((address, weight)) if address.contains('@') && !weight.ends_with(']') => {
                (address, weight.parse().with_context(|| format!("{weight}: no weight"))?)
            }
            _ => (text, 1.0),
        };
        ensure!(!rest.contains(['\r', '\n', '<', '>']), "{rest}: not an address");
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let next = PIECES.iter().filter_map(|(name, piece)| Some((rest.find(name)?, piece)));
            let Some((at, piece)) = next.min_by_key(|(at, _)| *at) else {
                pieces.push(Piece::Text(rest.into()));
                break;
            };
            if at > 0 {
                pieces.push(Piece::Text(rest[..at].into()));
            }
            pieces.push(piece.clone());
            rest = &rest[at + 3..];
        }
        Ok(Template { pieces, weight })
    }
}

/// All templates of a run.
pub struct Recipients {
    templates: Weighted<Template>,
    spread: u64,
    seed: u64,
    /// Of each message.
    count: u32,
}

impl Recipients {
    /// `count` for each message.
    pub fn new(templates: &[Template], count: u32, spread: u64, seed: u64) -> Result<Recipients> {
        let templates = Weighted::new(templates.iter().map(|one| (one.clone(), one.weight)))?;
        Ok(Recipients { templates, spread: spread.max(1), seed, count })
    }

    /// Appends recipient `n` of message `number`.
    pub fn write(&self, out: &mut Vec<u8>, number: u64, n: u32) {
        let template = self.templates.only().unwrap_or_else(|| {
            self.templates.choose(part(self.seed, Purpose::Template, number, n))
        });
        for piece in &template.pieces {
            // Writing to a Vec cannot fail.
            let _ = match piece {
                Piece::Text(text) => out.write_all(text.as_bytes()),
                Piece::Recipient => write!(out, "{n}"),
                Piece::Message => write!(out, "{number}"),
                Piece::Drawn => {
                    let drawn = draw(self.seed, Purpose::Spread, number, n) % self.spread;
                    write!(out, "{drawn}")
                }
                Piece::Turn => {
                    let turn = number.wrapping_mul(u64::from(self.count)).wrapping_add(n.into());
                    write!(out, "{}", turn % self.spread)
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn recipients(templates: &[&str], count: u32, spread: u64) -> Recipients {
        let templates: Vec<Template> = templates.iter().map(|one| one.parse().unwrap()).collect();
        Recipients::new(&templates, count, spread, 5).unwrap()
    }

    fn name(recipients: &Recipients, number: u64, n: u32) -> String {
        let mut out = Vec::new();
        recipients.write(&mut out, number, n);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_stand_where_their_letters_stood() {
        let two = recipients(&["u{n}-{m}@d{d}.test"], 3, 4);
        assert_eq!(name(&two, 2, 1), "u1-2@d3.test");
        assert_eq!(name(&two, 0, 2), "u2-0@d2.test");
        assert_eq!(name(&recipients(&["{x}@[IPv6:::1]"], 1, 1), 0, 0), "{x}@[IPv6:::1]");
    }

    #[test]
    fn drawn_numbers_cover_the_spread_and_weights_are_kept() {
        let spread = recipients(&["u@d{r}.test"], 1, 10);
        let all: BTreeSet<String> = (0..500).map(|number| name(&spread, number, 0)).collect();
        assert_eq!(all.len(), 10);
        let two = recipients(&["a@fast.test:98", "a@slow.test:2"], 1, 1);
        let slow = (0..10_000).filter(|number| name(&two, *number, 0).contains("slow")).count();
        assert!(slow.abs_diff(200) < 60, "{slow}");
    }

    #[test]
    fn a_recipient_that_would_break_the_command_line_is_refused() {
        assert!("a@b>\r\nDATA".parse::<Template>().is_err());
        assert!("a@b:many".parse::<Template>().is_err());
    }
}
