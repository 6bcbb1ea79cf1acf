//! Drawing: SVG elements, scales with round ticks, axes, and how subjects look.
//!
//! Must never know what is drawn: it is told numbers and words.

mod axes;
mod scale;
mod svg;
mod write;

pub use axes::{Axes, legend};
pub use scale::Scale;
pub use svg::{Anchor, Svg, text_width};
pub use write::{delay_us, exact, number, tick, time_us};

/// Different looks: a colour, a mark and a dash each. More subjects than these begin anew.
pub const LOOKS: usize = 8;

/// How a subject, or whatever else is compared, looks in all figures of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Look {
    /// One of `LOOKS`.
    Subject(usize),
    /// What is no subject: the limit. Grey.
    Ceiling,
}

impl Look {
    /// The class of its colour.
    pub fn class(self) -> String {
        match self {
            Look::Subject(index) => format!("c{}", index % LOOKS),
            Look::Ceiling => "cx".into(),
        }
    }

    /// The dash of its lines.
    pub fn dash(self) -> &'static str {
        const DASHES: [&str; LOOKS] =
            ["", "7 3", "2 3", "9 3 2 3", "4 2", "12 4", "1 4", "6 2 1 2 1 2"];
        match self {
            Look::Subject(index) => DASHES[index % LOOKS],
            Look::Ceiling => "3 4",
        }
    }
}
