//! A picture as it grows: elements with classes for colours, words escaped.
//!
//! Must never hold a colour of its own, but for the standalone file: the page decides between light and dark.

use super::{Look, legend};
use std::fmt::Write;

/// The rules of both kinds of pictures; colours are variables.
pub const SHAPES: &str = include_str!("figure.css");
/// The colours of a picture in a file of its own: the light ones.
const LIGHT: &str = include_str!("light.css");
/// The mean width of a letter, in parts of the font's size. Measured over names and numbers in Liberation Sans.
const LETTER_EM: f64 = 0.54;
/// The font's size in all pictures, in units.
pub const FONT: f64 = 12.0;

/// The share of the font's size by which a heading is larger, and so holds fewer letters.
const HEADING_SHARE: f64 = FONT * LETTER_EM * 1.35;

/// Where a word begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// At the point.
    Start,
    /// With its middle at the point.
    Middle,
    /// It ends there.
    End,
}

/// A picture.
#[derive(Clone, Debug)]
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
    plain_title: String,
    title: String,
    description: String,
    key: Vec<(Look, String)>,
}

impl Svg {
    /// An empty one. Who does not see it reads the title and the description.
    pub fn new(width: f64, height: f64, title: &str, description: &str) -> Svg {
        let (plain_title, title, description) =
            (title.to_string(), escape(title), escape(description));
        Svg { width, height, body: String::new(), plain_title, title, description, key: Vec::new() }
    }

    /// Its width in units.
    pub fn width(&self) -> f64 {
        self.width
    }

    /// Says what the looks in it mean. A page shows that once for several pictures; a file has it above the picture.
    pub fn set_key(&mut self, key: Vec<(Look, String)>) {
        self.key = key;
    }

    /// See `set_key`.
    pub fn key(&self) -> &[(Look, String)] {
        &self.key
    }

    /// Sets the height, once it is known.
    pub fn set_height(&mut self, height: f64) {
        self.height = height;
    }

    /// A line.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (x1, y1, x2, y2) = (short(from.0), short(from.1), short(to.0), short(to.1));
        self.push(format_args!("<path class=\"{class}\" d=\"M{x1} {y1}L{x2} {y2}\"/>"));
    }

    /// A line through points, in a subject's dash.
    pub fn course(&mut self, class: &str, dash: &str, points: &[(f64, f64)]) {
        let Some(path) = path(points) else { return };
        let dash =
            if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
        self.push(format_args!("<path class=\"{class}\"{dash} d=\"{path}\"/>"));
    }

    /// An area between two edges.
    pub fn area(&mut self, class: &str, upper: &[(f64, f64)], lower: &[(f64, f64)]) {
        let edge: Vec<(f64, f64)> = upper.iter().chain(lower.iter().rev()).copied().collect();
        let Some(path) = path(&edge) else { return };
        self.push(format_args!("<path class=\"{class}\" d=\"{path}Z\"/>"));
    }

    /// A rectangle.
    pub fn rectangle(&mut self, class: &str, corner: (f64, f64), size: (f64, f64)) {
        let (x, y, width, height) =
            (short(corner.0), short(corner.1), short(size.0.max(0.0)), short(size.1.max(0.0)));
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>"
        ));
    }

    /// Many dots, in one element: short enough for thousands.
    pub fn dots(&mut self, class: &str, points: &[(f64, f64)]) {
        if points.is_empty() {
            return;
        }
        let mut path = String::new();
        for (x, y) in points {
            let _ = write!(path, "M{} {}h0", short(*x), short(*y));
        }
        self.push(format_args!("<path class=\"{class}\" d=\"{path}\"/>"));
    }

    /// A circle, with a word for who points at it.
    pub fn circle(&mut self, class: &str, centre: (f64, f64), radius: f64, word: &str) {
        let (x, y) = (short(centre.0), short(centre.1));
        let word = if word.is_empty() {
            String::new()
        } else {
            format!("<title>{}</title>", escape(word))
        };
        self.push(format_args!(
            "<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{}\">{word}</circle>",
            short(radius)
        ));
    }

    /// A subject's mark.
    pub fn mark(&mut self, look: Look, centre: (f64, f64), radius: f64, word: &str) {
        let word = if word.is_empty() {
            String::new()
        } else {
            format!("<title>{}</title>", escape(word))
        };
        let path = mark_path(look, centre, radius);
        self.push(format_args!("<path class=\"mark\" d=\"{path}\">{word}</path>"));
    }

    /// A word.
    pub fn text(&mut self, class: &str, anchor: Anchor, at: (f64, f64), word: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let (x, y, word) = (short(at.0), short(at.1), escape(word));
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        self.push(format_args!("<text{class}{anchor} x=\"{x}\" y=\"{y}\">{word}</text>"));
    }

    /// What follows has these classes, until `close`.
    pub fn open(&mut self, class: &str) {
        self.push(format_args!("<g class=\"{class}\">"));
    }

    /// Ends what `open` began.
    pub fn close(&mut self) {
        self.body.push_str("</g>");
    }

    /// As a part of a page. `id` is unlike all others there.
    pub fn inline(&self, id: &str) -> String {
        let Svg { title, description, body, .. } = self;
        let (width, height) = (short(self.width), short(self.height));
        format!(
            "<svg class=\"plot\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\"><title id=\"{id}-t\">{title}</title><desc id=\"{id}-d\">{description}</desc>\
             {body}</svg>"
        )
    }

    /// As a small sign within a line of words.
    pub fn icon(&self) -> String {
        let (width, height) = (short(self.width), short(self.height));
        format!(
            "<svg class=\"plot icon\" width=\"{width}\" height=\"{height}\" aria-hidden=\"true\">{}</svg>",
            self.body
        )
    }

    /// A look's line and mark, for a legend among words.
    pub fn sample(look: Look) -> String {
        let mut svg = Svg::new(26.0, 12.0, "", "");
        svg.open(&look.class());
        svg.course("course", look.dash(), &[(0.0, 6.0), (26.0, 6.0)]);
        svg.mark(look, (13.0, 6.0), 4.2, "");
        svg.close();
        svg.icon()
    }

    /// As a file.
    pub fn standalone(&self) -> String {
        let mut above = Svg::new(self.width, 0.0, "", "");
        above.text(
            "heading",
            Anchor::Start,
            (0.0, 16.0),
            &cut(&self.plain_title, self.width / HEADING_SHARE),
        );
        let top =
            if self.key.is_empty() { 28.0 } else { legend(&mut above, 28.0, &self.key) + 12.0 };
        let Svg { title, description, body, .. } = self;
        let (width, height) = (short(self.width + 24.0), short(self.height + top + 24.0));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" role=\"img\" viewBox=\"-12 -12 {width} {height}\" \
             width=\"{width}\" height=\"{height}\">\n<title>{title}</title>\n<desc>{description}</desc>\n\
             <style>{LIGHT}{SHAPES}</style>\n<rect class=\"paper\" x=\"-12\" y=\"-12\" width=\"{width}\" height=\"{height}\"/>\n\
             {above}\n<g transform=\"translate(0 {top})\">{body}</g>\n</svg>\n",
            above = above.body,
            top = short(top),
        )
    }

    fn push(&mut self, element: std::fmt::Arguments) {
        self.body.write_fmt(element).expect("a String takes all");
    }
}

/// As XML and HTML have it, in text and in attributes. What XML cannot hold becomes U+FFFD.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(letter),
            letter if letter.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

/// Shortens a text to this number of letters.
fn cut(text: &str, letters: f64) -> String {
    let letters = letters.max(2.0) as usize;
    if text.chars().count() <= letters {
        text.into()
    } else {
        text.chars().take(letters - 1).chain(['…']).collect()
    }
}

/// About how wide a word is, in units.
pub fn text_width(word: &str) -> f64 {
    word.chars().count() as f64 * FONT * LETTER_EM
}

/// A tenth of a unit is enough for any eye.
fn short(number: f64) -> String {
    if !number.is_finite() {
        return "0".into();
    }
    let text = format!("{number:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".into() } else { text.into() }
}

fn path(points: &[(f64, f64)]) -> Option<String> {
    let (first, rest) = points.split_first()?;
    let mut path = format!("M{} {}", short(first.0), short(first.1));
    for (x, y) in rest {
        let _ = write!(path, "L{} {}", short(*x), short(*y));
    }
    Some(path)
}

/// The eight marks differ in shape, so that they are told apart without colour.
fn mark_path(look: Look, (x, y): (f64, f64), radius: f64) -> String {
    let polygon = |corners: &[(f64, f64)]| {
        let corners: Vec<(f64, f64)> =
            corners.iter().map(|(dx, dy)| (x + dx * radius, y + dy * radius)).collect();
        path(&corners).map(|path| path + "Z").unwrap_or_default()
    };
    let arm = 0.36;
    let plus = [
        (-arm, -1.1),
        (arm, -1.1),
        (arm, -arm),
        (1.1, -arm),
        (1.1, arm),
        (arm, arm),
        (arm, 1.1),
        (-arm, 1.1),
        (-arm, arm),
        (-1.1, arm),
        (-1.1, -arm),
        (-arm, -arm),
    ];
    let Look::Subject(index) = look else {
        return polygon(&[(-1.2, -0.35), (1.2, -0.35), (1.2, 0.35), (-1.2, 0.35)]);
    };
    match index % super::LOOKS {
        0 => {
            let (left, radius) = (short(x - radius), short(radius));
            format!(
                "M{left} {y}a{radius} {radius} 0 1 0 {d} 0a{radius} {radius} 0 1 0 -{d} 0Z",
                y = short(y),
                d = short(radius.parse::<f64>().unwrap_or(1.0) * 2.0)
            )
        }
        1 => polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        2 => polygon(&[(0.0, -1.2), (1.15, 0.9), (-1.15, 0.9)]),
        3 => polygon(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
        4 => polygon(&[(0.0, 1.2), (1.15, -0.9), (-1.15, -0.9)]),
        5 => polygon(&plus),
        6 => polygon(&plus.map(|(dx, dy)| ((dx - dy) * 0.75, (dx + dy) * 0.75))),
        _ => {
            polygon(&[(-0.5, -1.1), (0.5, -1.1), (1.1, 0.0), (0.5, 1.1), (-0.5, 1.1), (-1.1, 0.0)])
        }
    }
}
