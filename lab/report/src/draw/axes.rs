//! Axes around a field, and the legend above it.
//!
//! Must never print a word over another: labels that would overlap are left out, legends begin a new line.

use super::svg::FONT;
use super::{Anchor, Look, Scale, Svg, text_width};

/// Units between two words at least.
const WORD_GAP: f64 = 8.0;
/// A line of a legend.
const LEGEND_LINE: f64 = 19.0;

/// A field with a scale along each side.
pub struct Axes<'a> {
    /// Along the bottom.
    pub x: &'a Scale,
    /// Along the left side, from the bottom up.
    pub y: &'a Scale,
    /// What x is, with its unit.
    pub x_name: &'a str,
    /// What y is, with its unit; stands above the field, so that nobody turns the head.
    pub y_name: &'a str,
    /// How x's values are written.
    pub x_word: &'a dyn Fn(f64) -> String,
    /// How y's are.
    pub y_word: &'a dyn Fn(f64) -> String,
    /// Where x has ticks, if not at round numbers.
    pub x_ticks: Option<Vec<f64>>,
}

impl Axes<'_> {
    /// Draws them: grid, ticks, words. The field begins at `left`, which may lie before the first x.
    pub fn draw(&self, svg: &mut Svg, left: f64) {
        let ((_, right), (bottom, top)) = (self.x.places(), self.y.places());
        for tick in self.y.ticks(42.0) {
            let y = self.y.at(tick);
            svg.line("grid", (left, y), (right, y));
            svg.text("tick", Anchor::End, (left - 7.0, y + 4.0), &(self.y_word)(tick));
        }
        svg.line("axis", (left, bottom), (right, bottom));
        self.draw_below(svg, (left, right), bottom);
        svg.text("name", Anchor::Start, (0.0, top - 12.0), self.y_name);
        svg.text("name", Anchor::End, (right, bottom + 37.0), self.x_name);
    }

    fn draw_below(&self, svg: &mut Svg, (left, right): (f64, f64), bottom: f64) {
        let ticks = self.x_ticks.clone().unwrap_or_else(|| self.x.ticks(64.0));
        let mut free = f64::NEG_INFINITY;
        for tick in ticks {
            let (x, word) = (self.x.at(tick), (self.x_word)(tick));
            if x < left - 0.5 || x > right + 0.5 {
                continue;
            }
            svg.line("axis", (x, bottom), (x, bottom + 4.0));
            let half = text_width(&word) / 2.0;
            let centre = x.min(svg.width() - half - 1.0).max(half);
            if centre - half < free {
                continue;
            }
            svg.text("tick", Anchor::Middle, (centre, bottom + 18.0), &word);
            free = centre + half + WORD_GAP;
        }
    }
}

/// Draws marks and names from `top` on, in as many lines as they need; returns where the next thing can begin.
pub fn legend(svg: &mut Svg, top: f64, entries: &[(Look, String)]) -> f64 {
    let (mut x, mut y) = (0.0, top + FONT);
    for (look, name) in entries {
        let width = 26.0 + text_width(name) + 14.0;
        if x > 0.0 && x + width > svg.width() {
            (x, y) = (0.0, y + LEGEND_LINE);
        }
        svg.open(&look.class());
        svg.course("course", look.dash(), &[(x, y - 4.0), (x + 20.0, y - 4.0)]);
        svg.mark(*look, (x + 10.0, y - 4.0), 4.2, "");
        svg.close();
        svg.text("label", Anchor::Start, (x + 26.0, y), name);
        x += width;
    }
    y + 8.0
}
