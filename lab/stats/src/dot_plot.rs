//! ministat's plot in text: every sample a sign, below it a box from one standard deviation under the mean to one above.
//!
//! Must never hide a sample: those of one column are stacked.

use crate::summary::Summary;

/// The signs of the first set to the seventh. Where two sets meet, the sign of the bitwise "or" of their numbers stands,
/// as ministat has it: `x` and `+` make `*`.
pub const SYMBOLS: [char; SETS_MAX] = ['x', '+', '*', '%', '#', '@', 'O'];

/// Number of sets that have a sign.
pub const SETS_MAX: usize = 7;

/// Columns where nothing else is known.
pub const WIDTH_DEFAULT: usize = 74;

/// Columns at most.
pub const WIDTH_MAX: usize = 10_000;

/// The plot of one to seven sets, in lines; `separate` gives each set's box a line of its own. `None` if there are more
/// sets or none, or if the width is not from 2 to [`WIDTH_MAX`].
pub fn dot_plot(sets: &[Summary], width: usize, separate: bool) -> Option<String> {
    if sets.is_empty() || sets.len() > SETS_MAX || !(2..=WIDTH_MAX).contains(&width) {
        return None;
    }
    let Some(scale) = Scale::over(sets, width) else {
        return Some("[no plot, span is zero width]\n".to_string());
    };
    let mut bars = vec![vec![' '; width]; if separate { sets.len() } else { 1 }];
    for (number, set) in sets.iter().enumerate() {
        draw_bar(&mut bars[if separate { number } else { 0 }], set, &scale);
    }
    let edge = format!("+{}+\n", "-".repeat(width));
    let row = |signs: &Vec<char>| format!("|{}|\n", signs.iter().collect::<String>());
    let rows: String = stacks(sets, &scale, width).iter().rev().chain(&bars).map(row).collect();
    Some(format!("{edge}{rows}{edge}"))
}

/// Where a value stands.
struct Scale {
    start: f64,
    column: f64,
    last: usize,
}

impl Scale {
    /// From the least to the greatest of all samples and boxes, half a column to spare at each end.
    fn over(sets: &[Summary], width: usize) -> Option<Scale> {
        let ends = |set: &Summary| [set.min, set.max, set.mean - set.stddev, set.mean + set.stddev];
        let (low, high) = sets
            .iter()
            .flat_map(ends)
            .filter(|end| !end.is_nan())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), end| {
                (low.min(end), high.max(end))
            });
        let column = (high - low) / (width as f64 - 1.0);
        let start = low - 0.5 * column;
        (column > 0.0 && column.is_finite()).then_some(Scale { start, column, last: width - 1 })
    }

    fn place(&self, value: f64) -> usize {
        (((value - self.start) / self.column) as usize).min(self.last)
    }
}

/// The rows of signs, the lowest first.
fn stacks(sets: &[Summary], scale: &Scale, width: usize) -> Vec<Vec<char>> {
    let mut rows: Vec<Vec<usize>> = Vec::new();
    for (number, set) in sets.iter().enumerate() {
        let mut heights = vec![0; width];
        for value in set.sorted() {
            let place = scale.place(*value);
            if rows.len() == heights[place] {
                rows.push(vec![0; width]);
            }
            rows[heights[place]][place] |= number + 1;
            heights[place] += 1;
        }
    }
    let sign = |bits: &usize| bits.checked_sub(1).map_or(' ', |number| SYMBOLS[number]);
    rows.iter().map(|row| row.iter().map(sign).collect()).collect()
}

/// `|___M_A___|`; an earlier set's signs stay where this one has but its line.
fn draw_bar(bar: &mut [char], set: &Summary, scale: &Scale) {
    if !set.stddev.is_nan() {
        let (left, right) =
            (scale.place(set.mean - set.stddev), scale.place(set.mean + set.stddev));
        for sign in bar[left..=right].iter_mut().filter(|sign| **sign == ' ') {
            *sign = '_';
        }
        bar[left] = '|';
        bar[right] = '|';
    }
    bar[scale.place(set.median)] = 'M';
    bar[scale.place(set.mean)] = 'A';
}
