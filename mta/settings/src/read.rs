//! Reading values from a parsed file by the table of settings.
//!
//! Must never stop at a problem: `Scope` notes it and goes on with the default.

mod value;

use super::forms;
use super::problem::{Place, Problem, nearest};
use super::setting::{Preset, Range, Setting};
use super::table::settings;
use super::types::{Deliver, ListenAddress, Placed, Rate, SettingOrigin, SocketMode};
use super::units;
use local::Users;
use mail::{Domain, NextHop};
use policy::Pattern;
use scheduler::{ORDERS, Order};
use std::cell::{OnceCell, RefCell};
use std::net::SocketAddr;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
pub(super) use value::Value;
use value::{kind, word};

/// Problems beyond this number are not reported.
const PROBLEMS_MAX: usize = 100;

/// A place in the text, in bytes.
pub(super) type Span = std::ops::Range<usize>;

/// The file, and what is wrong with it so far.
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
    /// The name of this mailer, which stands for `{hostname}`. Set before any table is read.
    pub(super) hostname: OnceCell<Domain>,
    problems: RefCell<Vec<Problem>>,
}

impl<'a> Source<'a> {
    pub(super) fn new(file: &'a str, text: &'a str) -> Source<'a> {
        Source { file, text, hostname: OnceCell::new(), problems: RefCell::new(Vec::new()) }
    }

    fn or_hostname(
        &self,
        text: &str,
        parse: impl Fn(&str) -> Result<Domain, String>,
    ) -> Result<Domain, String> {
        match self.hostname.get() {
            Some(hostname) if text == "{hostname}" => Ok(hostname.clone()),
            _ => parse(text),
        }
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

/// One table of the file. A table that is missing has the defaults only.
#[derive(Clone)]
pub(super) struct Scope<'a> {
    pub(super) source: &'a Source<'a>,
    /// The whole file.
    root: &'a DeTable<'a>,
    table: Option<&'a DeTable<'a>>,
    /// The table whose values take the place of what this one leaves out.
    fallback: Option<&'a DeTable<'a>>,
    /// What stands before the dot in the names of its settings.
    head: &'static str,
    /// The place of the table, for problems with what it lacks.
    span: Option<Span>,
}

impl<'a> Scope<'a> {
    pub(super) fn top(source: &'a Source<'a>, table: &'a DeTable<'a>) -> Scope<'a> {
        let top =
            Scope { source, root: table, table: Some(table), fallback: None, head: "", span: None };
        top.without_unknown()
    }

    /// The table `head` if it is not in the file.
    pub(super) fn absent(&self, head: &'static str) -> Scope<'a> {
        Scope { table: None, fallback: None, head, span: None, ..self.clone() }
    }

    fn present(&self, head: &'static str, table: &'a DeTable<'a>, span: Span) -> Scope<'a> {
        Scope { table: Some(table), span: Some(span), ..self.absent(head) }.without_unknown()
    }

    /// The same table, with the values of `other` in place of what it leaves out.
    pub(super) fn over(self, other: &Scope<'a>) -> Scope<'a> {
        Scope { fallback: other.table, ..self }
    }

    /// The table `[head]` below the top.
    pub(super) fn table(&self, head: &'static str) -> Scope<'a> {
        let found = self
            .get(head)
            .and_then(|value| self.as_table(value, head, || format!("write [{head}]")));
        match found {
            Some((table, span)) => self.present(head, table, span),
            None => self.absent(head),
        }
    }

    /// The tables `[[head]]` below the top.
    pub(super) fn tables(&self, head: &'static str) -> Vec<Scope<'a>> {
        let Some(value) = self.get(head) else { return Vec::new() };
        let Some(entries) = value.get_ref().as_array() else {
            let help = Some(format!("write [[{head}]] above each of them"));
            self.source.note(Some(value.span()), head, "must be a list of tables", help);
            return Vec::new();
        };
        let help = || format!("write [[{head}]]");
        let tables = entries.iter().filter_map(|entry| self.as_table(entry, head, help));
        tables.map(|(table, span)| self.present(head, table, span)).collect()
    }

    /// The tables `[head.NAME]` below the top, with their names.
    pub(super) fn named(&self, head: &'static str) -> Vec<(&'a str, Span, Scope<'a>)> {
        let help = || format!("write [{head}.default], or [{head}.\"NAME\"] for one of them");
        let found = self.get(head).and_then(|value| self.as_table(value, head, help));
        let Some((tables, _)) = found else { return Vec::new() };
        let entries = tables.iter().filter_map(|(name, value)| {
            let (table, span) = self.as_table(value, head, help)?;
            Some((name.get_ref().as_ref(), name.span(), self.present(head, table, span)))
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
            let what = format!("must be a table, not {}", kind(value.get_ref()));
            self.source.note(Some(value.span()), head, what, Some(help()));
        }
        table.map(|table| (table, value.span()))
    }

    fn get(&self, name: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        find(self.table?, name)
    }

    /// Returns the value that takes the place of one that this table does not set.
    fn elsewhere(&self, setting: &Setting, name: &str) -> Option<&'a DeValue<'a>> {
        let found = match setting.default {
            Preset::As(other) => {
                let (head, name) = other.split_once('.')?;
                find(find(self.root, head)?.get_ref().as_table()?, name)
            }
            _ => find(self.fallback?, name),
        };
        found.map(Spanned::get_ref)
    }

    /// Returns the place of `name` for a problem that is found after the file was read.
    pub(super) fn origin(&self, name: &str) -> SettingOrigin {
        let place = self.span(name).map(|span| Place::of(self.source.text, span));
        SettingOrigin { file: self.source.file.into(), place }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns the place of the value of `name`, or of the table if `name` is not set.
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
                let help = meant(name, &known);
                let what = "there is no such setting";
                self.source.note(Some(key.span()), &self.key(name), what, help);
            }
        }
        self
    }

    /// Returns the value of `name` as `parse` has it, or its default if it is not set or wrong, which is noted. `None` if
    /// there is no default.
    pub(super) fn read<T>(
        &self,
        name: &str,
        parse: impl Fn(&DeValue<'_>, &Setting) -> Result<T, String>,
    ) -> Option<T> {
        let setting = setting(&self.key(name)).expect("the types are made from the table");
        match self.get(name).map(|value| parse(value.get_ref(), setting)) {
            Some(Ok(value)) => return Some(value),
            Some(Err(what)) => self.wrong(name, what, None),
            None if setting.default == Preset::Required => {
                let example = setting.range.quoted(setting.example);
                self.wrong(name, "is missing", Some(format!("write {name} = {example}")));
            }
            None => {
                let elsewhere = self.elsewhere(setting, name);
                // If this value is wrong, the problem is noted where it is set.
                if let Some(Ok(value)) = elsewhere.map(|value| parse(value, setting)) {
                    return Some(value);
                }
            }
        }
        preset(setting, parse)
    }

    /// Returns the value that stands in the same place of `values` as the word does in the setting's range.
    pub(super) fn word<T: Copy>(&self, name: &str, values: &[T]) -> Option<T> {
        self.read(name, word).map(|place| values[place])
    }

    pub(super) fn text<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.read(name, |value, _| {
            let text =
                value.as_str().ok_or_else(|| format!("must be a text, not {}", kind(value)))?;
            parse(text)
        })
    }

    /// Returns the good entries of a list of texts. Each wrong entry is noted at its place.
    pub(super) fn list<T>(&self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        let entries = |value: &DeValue<'_>, _: &Setting| {
            let list =
                value.as_array().ok_or_else(|| format!("must be a list, not {}", kind(value)))?;
            let read = |entry: &Spanned<DeValue<'_>>| {
                let text = entry.get_ref().as_str();
                let text = text
                    .ok_or_else(|| format!("must contain texts, not {}", kind(entry.get_ref())));
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

fn find<'a>(table: &'a DeTable<'a>, name: &str) -> Option<&'a Spanned<DeValue<'a>>> {
    table.iter().find(|(key, _)| key.get_ref() == name).map(|(_, value)| value)
}

fn setting(name: &str) -> Option<&'static Setting> {
    settings().find(|setting| setting.name == name)
}

/// Returns the default of the table.
fn preset<T>(
    setting: &Setting,
    parse: impl Fn(&DeValue<'_>, &Setting) -> Result<T, String>,
) -> Option<T> {
    let value = match setting.default {
        Preset::Is(value) => value,
        Preset::As(other) => match self::setting(other)?.default {
            Preset::Is(value) => value,
            _ => return None,
        },
        Preset::Otherwise(_) | Preset::Required => return None,
    };
    let text = format!("default = {}", setting.range.quoted(value));
    let table = DeTable::parse(&text).expect("the defaults of the table are TOML");
    let value = table.get_ref().values().next().expect("one line is one value");
    parse(value.get_ref(), setting).ok()
}

/// Returns the names in a table of the file, and at the top, whose name is empty, those of the tables as well.
fn names_in(table: &str) -> Vec<&'static str> {
    let mut names: Vec<&str> = settings()
        .filter_map(|setting| match setting.name.split_once('.') {
            None => table.is_empty().then_some(setting.name),
            Some((head, _)) if table.is_empty() => Some(head),
            Some((head, name)) => (head == table).then_some(name),
        })
        .collect();
    names.dedup();
    names
}

/// Returns what was probably meant by a name that is not known in its table.
fn meant(name: &str, known: &[&str]) -> Option<String> {
    if let Some(ours) = super::postfix::ours(name) {
        return Some(ours.into());
    }
    if let Some(near) = nearest(name, known.iter().copied()) {
        return Some(format!("did you mean `{near}`?"));
    }
    let found = settings().find(|setting| setting.name.rsplit('.').next() == Some(name))?;
    Some(match found.name.split_once('.') {
        Some((head, _)) => format!("`{name}` is a setting of [{head}]"),
        None => format!("`{name}` belongs at the top of the file, above all tables"),
    })
}
