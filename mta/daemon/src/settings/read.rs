//! Reading values out of a parsed file by the table of knobs, noting every problem on the way. Must
//! never end at a problem: it notes it and goes on with the default.

use super::knobs::{Knob, Range, knob, names_in};
use super::problem::{Place, Problem, nearest};
use super::units;
use std::cell::RefCell;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// More problems than this are not told.
const PROBLEMS_MAX: usize = 100;

/// A place in the text, in bytes.
pub(super) type Span = std::ops::Range<usize>;

/// The file, and what is wrong with it so far.
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
    problems: RefCell<Vec<Problem>>,
}

impl<'a> Source<'a> {
    pub(super) fn new(file: &'a str, text: &'a str) -> Source<'a> {
        Source { file, text, problems: RefCell::new(Vec::new()) }
    }

    pub(super) fn note(
        &self,
        span: Option<Span>,
        key: &str,
        what: impl Into<String>,
        help: Option<String>,
    ) {
        let mut problems = self.problems.borrow_mut();
        if problems.len() < PROBLEMS_MAX {
            problems.push(Problem {
                file: self.file.into(),
                place: span.map(|span| Place::of(self.text, span)),
                key: key.into(),
                what: what.into(),
                help,
            });
        }
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }
}

/// One table of the file, or none, in which case everything is as by default.
pub(super) struct Scope<'a> {
    pub(super) source: &'a Source<'a>,
    table: Option<&'a DeTable<'a>>,
    /// Before the dot in the names of its knobs.
    head: &'static str,
    /// Where the table is, for problems that concern all of it.
    span: Option<Span>,
}

impl<'a> Scope<'a> {
    pub(super) fn top(source: &'a Source<'a>, table: &'a DeTable<'a>) -> Scope<'a> {
        Scope { source, table: Some(table), head: "", span: None }.without_unknown()
    }

    /// A table that is not in the file.
    pub(super) fn absent(other: &Scope<'a>, head: &'static str) -> Scope<'a> {
        Scope { source: other.source, table: None, head, span: None }
    }

    /// The table `[head]` below the top.
    pub(super) fn table(&self, head: &'static str) -> Scope<'a> {
        let found = self
            .get(head)
            .and_then(|value| self.as_table(value, head, || format!("write [{head}]")));
        let (table, span) = found.map_or((None, None), |(table, span)| (Some(table), Some(span)));
        Scope { source: self.source, table, head, span }.without_unknown()
    }

    /// The tables `[[head]]` below the top.
    pub(super) fn tables(&self, head: &'static str) -> Vec<Scope<'a>> {
        let Some(value) = self.get(head) else { return Vec::new() };
        let Some(entries) = value.get_ref().as_array() else {
            let help = Some(format!("write [[{head}]] above each of them"));
            self.source.note(Some(value.span()), head, "is a list of tables", help);
            return Vec::new();
        };
        let help = || format!("write [[{head}]]");
        let tables = entries.iter().filter_map(|entry| self.as_table(entry, head, help));
        tables
            .map(|(table, span)| {
                Scope { source: self.source, table: Some(table), head, span: Some(span) }
                    .without_unknown()
            })
            .collect()
    }

    /// The tables `[head.NAME]` below the top, with their names.
    pub(super) fn named(&self, head: &'static str) -> Vec<(&'a str, Span, Scope<'a>)> {
        let help = || format!("write [{head}.default], or [{head}.\"NAME\"] for one of them");
        let found = self.get(head).and_then(|value| self.as_table(value, head, help));
        let Some((tables, _)) = found else { return Vec::new() };
        let entries = tables.iter().filter_map(|(name, value)| {
            let (table, span) = self.as_table(value, head, help)?;
            let scope = Scope { source: self.source, table: Some(table), head, span: Some(span) };
            Some((name.get_ref().as_ref(), name.span(), scope.without_unknown()))
        });
        entries.collect()
    }

    fn as_table(
        &self,
        value: &'a Spanned<DeValue<'a>>,
        head: &str,
        help: impl Fn() -> String,
    ) -> Option<(&'a DeTable<'a>, Span)> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            let what = format!("is a table, not {}", kind(value.get_ref()));
            self.source.note(Some(value.span()), head, what, Some(help()));
        }
        table.map(|table| (table, value.span()))
    }

    fn get(&self, name: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table?.iter().find(|(key, _)| key.get_ref() == name).map(|(_, value)| value)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Where `name` is set; where its table is, if it is not.
    pub(super) fn span(&self, name: &str) -> Option<Span> {
        self.get(name).map(|value| value.span()).or_else(|| self.span.clone())
    }

    pub(super) fn key(&self, name: &str) -> String {
        if self.head.is_empty() { name.into() } else { format!("{}.{name}", self.head) }
    }

    /// Notes a problem with `name`.
    pub(super) fn wrong(&self, name: &str, what: impl Into<String>, help: Option<String>) {
        self.source.note(self.span(name), &self.key(name), what, help);
    }

    fn without_unknown(self) -> Scope<'a> {
        let known = names_in(self.head);
        for (key, _) in self.table.iter().flat_map(|table| table.iter()) {
            let name = key.get_ref().as_ref();
            if self.source.problems.borrow().len() >= PROBLEMS_MAX {
                break;
            }
            if !known.contains(&name) {
                let help = self.meant(name, &known);
                let what = "there is no such setting";
                self.source.note(Some(key.span()), &self.key(name), what, help);
            }
        }
        self
    }

    fn meant(&self, name: &str, known: &[&str]) -> Option<String> {
        if let Some(ours) = super::postfix::ours(name) {
            return Some(ours.into());
        }
        if let Some(near) = nearest(name, known.iter().copied()) {
            return Some(format!("did you mean `{near}`?"));
        }
        let elsewhere = |knob: &&Knob| knob.name.rsplit('.').next() == Some(name);
        let found = super::knobs::KNOBS.iter().find(elsewhere)?;
        Some(match found.name.split_once('.') {
            Some((head, _)) => format!("`{name}` is a setting of [{head}]"),
            None => format!("`{name}` stands at the top of the file, above all tables"),
        })
    }

    /// The value of `name` as `parse` has it; its default where it is not set or wrong, which is
    /// noted; `None` where there is no default.
    pub(super) fn read<T>(
        &self,
        name: &str,
        parse: impl Fn(&DeValue<'_>, &Knob) -> Result<T, String>,
    ) -> Option<T> {
        let key = self.key(name);
        let knob = knob(&key).expect("the schema asks for knobs of the table only");
        match self.get(name).map(|value| parse(value.get_ref(), knob)) {
            Some(Ok(value)) => return Some(value),
            Some(Err(what)) => self.wrong(name, what, None),
            None => {}
        }
        if knob.default.is_empty() {
            return None;
        }
        let text = format!("default = {}", knob.default);
        let table = DeTable::parse(&text).expect("the defaults of the table are TOML");
        let value = table.get_ref().values().next().expect("one line is one value");
        parse(value.get_ref(), knob).ok()
    }

    /// A `Count`, `Bytes` or `Time`; `inherited` where it is not set and has no default.
    pub(super) fn whole(&self, name: &str, inherited: u64) -> u64 {
        self.read(name, whole).unwrap_or(inherited)
    }

    /// The same, of a knob whose default is in the table and whose range fits.
    pub(super) fn count(&self, name: &str) -> u32 {
        u32::try_from(self.whole(name, 0)).unwrap_or(u32::MAX)
    }

    pub(super) fn time(&self, name: &str) -> std::time::Duration {
        std::time::Duration::from_secs(self.whole(name, 0))
    }

    pub(super) fn decimal(&self, name: &str) -> f64 {
        self.read(name, decimal).unwrap_or(0.0)
    }

    /// One of the words of the knob, as the value in the same place.
    pub(super) fn word<T: Copy>(&self, name: &str, values: &[T]) -> T {
        let place = self.read(name, word).expect("each word has a default that is one of them");
        values[place]
    }

    /// True or false.
    pub(super) fn flag(&self, name: &str) -> bool {
        let flag = |value: &DeValue<'_>, _: &Knob| {
            value.as_bool().ok_or_else(|| format!("is true or false, not {}", kind(value)))
        };
        self.read(name, flag).unwrap_or(false)
    }

    pub(super) fn text<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.read(name, |value, _| {
            let text = value.as_str().ok_or_else(|| format!("is a text, not {}", kind(value)))?;
            parse(text)
        })
    }

    /// All that can be read of a list of texts; each entry that cannot is noted where it stands.
    pub(super) fn list<T>(&self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        let entries = |value: &DeValue<'_>, _: &Knob| {
            let list = value.as_array().ok_or_else(|| format!("is a list, not {}", kind(value)))?;
            let read = |entry: &Spanned<DeValue<'_>>| {
                let text = entry.get_ref().as_str();
                let text =
                    text.ok_or_else(|| format!("holds texts, not {}", kind(entry.get_ref())));
                text.and_then(&parse).map_err(|what| (entry.span(), what))
            };
            Ok(list.iter().map(read).collect::<Vec<_>>())
        };
        let mut good = Vec::new();
        for entry in self.read(name, entries).unwrap_or_default() {
            match entry {
                Ok(value) => good.push(value),
                Err((span, what)) if self.has(name) => {
                    self.source.note(Some(span), &self.key(name), what, None);
                }
                Err(_) => {}
            }
        }
        good
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

fn integer(value: &DeValue<'_>) -> Option<i128> {
    let integer = value.as_integer()?;
    i128::from_str_radix(integer.as_str(), integer.radix()).ok()
}

fn whole(value: &DeValue<'_>, knob: &Knob) -> Result<u64, String> {
    let (low, high, form) = match knob.range {
        Range::Count(low, high) => (low, high, "is a whole number"),
        Range::Bytes(low, high) => (low, high, "is a size such as \"50MB\" or \"64KiB\""),
        Range::Time(low, high) => (low, high, "is a time such as \"90s\", \"5m\" or \"1h30m\""),
        _ => unreachable!("the schema asks for whole numbers of whole knobs only"),
    };
    let parsed = match (&knob.range, value) {
        (Range::Bytes(..), DeValue::String(text)) => units::bytes(text).map(i128::from),
        (Range::Time(..), DeValue::String(text)) => units::time(text).map(i128::from),
        (Range::Time(..), _) => integer(value).filter(|number| *number == 0),
        (_, DeValue::String(_)) => None,
        _ => integer(value),
    };
    let number = parsed.ok_or_else(|| form.to_string())?;
    u64::try_from(number)
        .ok()
        .filter(|number| (low..=high).contains(number))
        .ok_or_else(|| format!("is out of range: {}", knob.range))
}

fn decimal(value: &DeValue<'_>, knob: &Knob) -> Result<f64, String> {
    let Range::Number(low, high) = knob.range else {
        unreachable!("the schema asks for decimals of number knobs only")
    };
    let parsed = match value {
        DeValue::Float(float) => float.as_str().parse().ok(),
        _ => integer(value).map(|number| number as f64),
    };
    let number: f64 = parsed.ok_or("is a number")?;
    let within = (low..=high).contains(&number);
    within.then_some(number).ok_or_else(|| format!("is out of range: {}", knob.range))
}

fn word(value: &DeValue<'_>, knob: &Knob) -> Result<usize, String> {
    let Range::OneOf(words) = knob.range else {
        unreachable!("the schema asks for words of word knobs only")
    };
    let text = value.as_str().ok_or_else(|| format!("is a text, not {}", kind(value)))?;
    words.iter().position(|word| *word == text).ok_or_else(|| {
        let meant = nearest(text, words.iter().copied());
        let hint = meant.map(|word| format!(": did you mean `{word}`?")).unwrap_or_default();
        format!("is one of {}, not `{text}`{hint}", words.join(", "))
    })
}
