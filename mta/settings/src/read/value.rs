//! The types of settings: how a value of the file becomes each of them.
//!
//! Must never accept a value outside of the setting's range.

use super::*;

/// The type of a setting: how its value in the file is read.
pub(crate) trait Value: Sized {
    /// Returns the value of `name` in `table`, or its default if it is not set or wrong. A problem is noted. `None` if
    /// there is no default either.
    fn read(table: &Scope<'_>, name: &str) -> Option<Self>;
}

/// Whole numbers, sizes and times in seconds. The range of the setting must fit the type.
macro_rules! whole_values {
    ($($Whole:ty),+) => {$(
        impl Value for $Whole {
            fn read(table: &Scope<'_>, name: &str) -> Option<$Whole> {
                table.read(name, whole)?.try_into().ok()
            }
        }
    )+};
}

/// Texts with a form of their own, and lists of them.
macro_rules! text_values {
    ($($Text:ty: $parse:expr),+) => {$(
        impl Value for $Text {
            fn read(table: &Scope<'_>, name: &str) -> Option<$Text> {
                table.text(name, $parse)
            }
        }
    )+};
}

whole_values!(u8, u32, u64);
text_values!(
    ListenAddress: forms::listen_address,
    SocketMode: forms::mode,
    Deliver: forms::deliver,
    Pattern: forms::pattern,
    NextHop: forms::next_hop,
    Option<Rate>: forms::rate
);

impl Value for Duration {
    fn read(table: &Scope<'_>, name: &str) -> Option<Duration> {
        table.read(name, whole).map(Duration::from_secs)
    }
}

/// A time that 0 turns off.
impl Value for Option<Duration> {
    fn read(table: &Scope<'_>, name: &str) -> Option<Option<Duration>> {
        Duration::read(table, name).map(|time| Some(time).filter(|time| !time.is_zero()))
    }
}

impl Value for Order {
    fn read(table: &Scope<'_>, name: &str) -> Option<Order> {
        table.word(name, &ORDERS.map(|(_, order)| order))
    }
}

impl Value for Users {
    fn read(table: &Scope<'_>, name: &str) -> Option<Users> {
        table.word(name, &[Users::Any, Users::System])
    }
}

impl Value for f64 {
    fn read(table: &Scope<'_>, name: &str) -> Option<f64> {
        table.read(name, decimal)
    }
}

impl Value for bool {
    fn read(table: &Scope<'_>, name: &str) -> Option<bool> {
        table.read(name, |value, _| {
            value.as_bool().ok_or_else(|| format!("must be true or false, not {}", kind(value)))
        })
    }
}

/// `{hostname}` is the name of this mailer.
impl Value for Domain {
    fn read(table: &Scope<'_>, name: &str) -> Option<Domain> {
        table.text(name, |text| table.source.or_hostname(text, forms::host_name))
    }
}

impl Value for Vec<Domain> {
    fn read(table: &Scope<'_>, name: &str) -> Option<Vec<Domain>> {
        Some(table.list(name, |text| table.source.or_hostname(text, forms::domain)))
    }
}

impl Value for Vec<ipnet::IpNet> {
    fn read(table: &Scope<'_>, name: &str) -> Option<Vec<ipnet::IpNet>> {
        Some(table.list(name, forms::network))
    }
}

impl Value for Vec<SocketAddr> {
    fn read(table: &Scope<'_>, name: &str) -> Option<Vec<SocketAddr>> {
        Some(table.list(name, forms::dns_server))
    }
}

/// The name or the number of a group, and its place.
impl Value for Option<Placed<Box<str>>> {
    fn read(table: &Scope<'_>, name: &str) -> Option<Option<Placed<Box<str>>>> {
        let group = table.text(name, forms::group);
        Some(group.map(|value| Placed { value, origin: table.origin(name) }))
    }
}

pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

pub(super) fn integer(value: &DeValue<'_>) -> Option<i128> {
    let integer = value.as_integer()?;
    i128::from_str_radix(integer.as_str(), integer.radix()).ok()
}

pub(super) fn whole(value: &DeValue<'_>, setting: &Setting) -> Result<u64, String> {
    let (low, high, form) = match setting.range {
        Range::Count(low, high) => (low, high, "must be a whole number"),
        Range::Bytes(low, high) => (low, high, "must be a size such as \"50MB\" or \"64KiB\""),
        Range::Time(low, high) => {
            (low, high, "must be a time such as \"90s\", \"5m\" or \"1h30m\"")
        }
        _ => unreachable!("a whole number has a range of whole numbers"),
    };
    let parsed = match (&setting.range, value) {
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
        .ok_or_else(|| format!("is out of range: {}", setting.range))
}

pub(super) fn decimal(value: &DeValue<'_>, setting: &Setting) -> Result<f64, String> {
    let Range::Number(low, high) = setting.range else {
        unreachable!("a number has a range of numbers")
    };
    let parsed = match value {
        DeValue::Float(float) => float.as_str().parse().ok(),
        _ => integer(value).map(|number| number as f64),
    };
    let number: f64 = parsed.ok_or("must be a number")?;
    let within = (low..=high).contains(&number);
    within.then_some(number).ok_or_else(|| format!("is out of range: {}", setting.range))
}

pub(super) fn word(value: &DeValue<'_>, setting: &Setting) -> Result<usize, String> {
    let Range::OneOf(words) = setting.range else { unreachable!("a word has a range of words") };
    let text = value.as_str().ok_or_else(|| format!("must be a text, not {}", kind(value)))?;
    words.iter().position(|word| *word == text).ok_or_else(|| {
        let meant = nearest(text, words.iter().copied());
        let hint = meant.map(|word| format!(": did you mean `{word}`?")).unwrap_or_default();
        format!("must be one of {}, not `{text}`{hint}", words.join(", "))
    })
}
