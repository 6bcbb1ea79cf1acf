//! What a setting is, and the macros that make the types of `table` and what reads them.
//!
//! Must never name a setting: they are all in `table`.

use super::units::{show_bytes, show_time};

/// One setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// The name in the file, with the name of its table before a dot.
    pub name: &'static str,
    /// The value of a setting that the file leaves out.
    pub default: Preset,
    /// The values that the setting takes.
    pub range: Range,
    /// What the setting does, in one sentence.
    pub what: &'static str,
    /// Why the default is what it is.
    pub why: &'static str,
    /// Another good value than the default, without quotation marks.
    pub example: &'static str,
}

/// The value of a setting that the file leaves out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Preset {
    /// This value, written as in the file, but without quotation marks.
    Is(&'static str),
    /// The value of the setting of this name.
    As(&'static str),
    /// No value of the table: these words say what takes its place.
    Otherwise(&'static str),
    /// None: the file has to set it.
    Required,
}

/// The values that a setting takes, both ends included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Range {
    /// A whole number.
    Count(u64, u64),
    /// A number of bytes: `"50MB"`, or a whole number.
    Bytes(u64, u64),
    /// Seconds: `"5m"`, `"1h30m"`.
    Time(u64, u64),
    /// A number.
    Number(f64, f64),
    /// `true` or `false`.
    Flag,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A text of this form, or a list of them.
    Text(&'static str),
}

impl Range {
    /// The unit, for the documentation.
    pub const fn unit(&self) -> &'static str {
        match self {
            Range::Count(..) | Range::Number(..) => "number",
            Range::Bytes(..) => "bytes",
            Range::Time(..) => "time",
            Range::Flag | Range::OneOf(_) => "word",
            Range::Text(_) => "text",
        }
    }

    /// Returns `value` as the file has it: with quotation marks where TOML needs them.
    pub fn quoted(&self, value: &str) -> String {
        let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
        match self {
            Range::Count(..) | Range::Number(..) | Range::Flag => value.into(),
            Range::Bytes(..) | Range::Time(..) if is_number => value.into(),
            Range::Text(_) if value.starts_with('[') && value.ends_with(']') => value.into(),
            _ => format!("{value:?}"),
        }
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Range::Count(low, high) => write!(f, "{low} to {high}"),
            Range::Bytes(low, high) => write!(f, "{} to {}", show_bytes(*low), show_bytes(*high)),
            Range::Time(low, high) => write!(f, "{} to {}", show_time(*low), show_time(*high)),
            Range::Number(low, high) => write!(f, "{low} to {high}"),
            Range::Flag => f.write_str("true or false"),
            Range::OneOf(words) => f.write_str(&words.join(", ")),
            Range::Text(form) => f.write_str(form),
        }
    }
}

/// Makes the type of a table of the file, the list of its settings, and the function that reads it.
///
/// An entry is: what the setting does, as the documentation of its field; `field: Type = default, range, "why",
/// "example";`. The type says how the text of the file becomes a value, see `read::Value`.
macro_rules! settings {
    ($(
        $(#[$about:meta])+
        pub struct $Table:ident in $table:literal {
            $($(#[doc = $what:literal])+ $name:ident: $Type:ty = $default:expr, $range:expr, $why:literal, $example:literal;)+
        }
    )+) => {$(
        $(#[$about])+
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        pub struct $Table {
            $($(#[doc = $what])+ pub $name: $Type,)+
        }

        impl $Table {
            /// The settings of this table, in the order of the documentation.
            pub const SETTINGS: &[Setting] = &[$(Setting {
                name: concat!($table, ".", stringify!($name)),
                default: $default,
                range: $range,
                what: concat!($($what),+),
                why: $why,
                example: $example,
            }),+];

            /// Reads the table. `None` if the file lacks a setting that has no default, which is noted.
            pub(super) fn read(table: &Scope<'_>) -> Option<$Table> {
                $(let $name = Value::read(table, stringify!($name));)+
                Some($Table { $($name: $name?),+ })
            }
        }
    )+};
}

/// Makes an enum of the words that a setting takes.
macro_rules! words {
    ($(
        $(#[$about:meta])+
        pub enum $Enum:ident { $($(#[doc = $what:literal])+ $Variant:ident = $word:literal,)+ }
    )+) => {$(
        $(#[$about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $Enum { $($(#[doc = $what])+ $Variant,)+ }

        impl $Enum {
            /// The words of the file.
            pub const RANGE: Range = Range::OneOf(&[$($word),+]);
        }

        impl Value for $Enum {
            fn read(table: &Scope<'_>, name: &str) -> Option<$Enum> {
                table.word(name, &[$($Enum::$Variant),+])
            }
        }
    )+};
}

pub(super) use {settings, words};
