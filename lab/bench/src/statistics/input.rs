//! Files of numbers, a sample a line in one of its columns, as ministat reads them.
//!
//! Must never guess: what is not a number stops the command with its file and line.

use std::fmt;
use std::io::Read;

/// Upper bound on the bytes of a file.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The content of one file.
#[derive(Debug)]
pub struct Set {
    /// The file's name.
    pub name: String,
    /// Its samples, in the file's order.
    pub samples: Vec<f64>,
    /// The line of each, from 1.
    pub lines: Vec<usize>,
}

/// An error of the input, with ministat's exit code.
#[derive(Debug)]
pub struct Fault {
    /// 1: a file cannot be read; 2: all else.
    pub code: i32,
    text: String,
}

impl Fault {
    /// Creates an error about a file's content or the options.
    pub fn content(text: String) -> Fault {
        Fault { code: 2, text }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Reads a file's text; `-` is the standard input.
pub struct Text {
    name: String,
    text: String,
}

/// Reads a file, or the standard input.
pub fn read(name: &str) -> Result<Text, Fault> {
    let fault =
        |error: std::io::Error| Fault { code: 1, text: format!("{name} cannot be read: {error}") };
    let mut bytes = Vec::new();
    if name == "-" {
        std::io::stdin().lock().take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(fault)?;
    } else {
        let file = std::fs::File::open(name).map_err(fault)?;
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(fault)?;
    }
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Fault::content(format!("{name} has more than {} MiB", FILE_BYTES_MAX >> 20)));
    }
    let name = if name == "-" { "<stdin>" } else { name }.to_string();
    Ok(Text { name, text: String::from_utf8_lossy(&bytes).into_owned() })
}

impl Text {
    /// Returns the numbers of one column, counted from 1. A line without that column is skipped.
    pub fn column(self, column: usize, delimiters: &str) -> Result<Set, Fault> {
        let mut set = Set { name: self.name, samples: Vec::new(), lines: Vec::new() };
        for (number, line) in self.text.lines().enumerate() {
            if let Some(field) = fields(line, delimiters).nth(column - 1) {
                set.samples.push(parse(field, &set.name, number + 1)?);
                set.lines.push(number + 1);
            }
        }
        if set.samples.len() < stats::SAMPLES_MIN {
            return Err(too_few(&set.name, set.samples.len()));
        }
        Ok(set)
    }

    /// Returns the points (x, y) of a column and the next one, with the file's name.
    pub fn points(
        self,
        column: usize,
        delimiters: &str,
    ) -> Result<(String, Vec<(f64, f64)>), Fault> {
        let mut points = Vec::new();
        for (number, line) in self.text.lines().enumerate() {
            let mut fields = fields(line, delimiters).skip(column - 1);
            let Some(x) = fields.next() else { continue };
            let place = format!("{}:{}", self.name, number + 1);
            let y = fields
                .next()
                .ok_or_else(|| Fault::content(format!("{place}: there is an x, but no y")))?;
            points.push((parse(x, &self.name, number + 1)?, parse(y, &self.name, number + 1)?));
        }
        if points.len() < stats::SAMPLES_MIN {
            return Err(too_few(&self.name, points.len()));
        }
        Ok((self.name, points))
    }
}

fn too_few(name: &str, found: usize) -> Fault {
    Fault::content(format!(
        "{name}: {} numbers at least are needed, it has {found}",
        stats::SAMPLES_MIN
    ))
}

/// Returns the fields of a line before the first that begins with `#`; consecutive delimiters count as one.
fn fields<'a>(line: &'a str, delimiters: &'a str) -> impl Iterator<Item = &'a str> {
    line.split(|sign| delimiters.contains(sign))
        .filter(|field| !field.is_empty())
        .take_while(|field| !field.starts_with('#'))
}

fn parse(field: &str, name: &str, line: usize) -> Result<f64, Fault> {
    let number = field.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    number
        .ok_or_else(|| Fault::content(format!("{name}:{line}: {:?} is not a number", field.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Text {
        Text { name: "f".to_string(), text: text.to_string() }
    }

    #[test]
    fn comments_empty_lines_and_lines_without_the_column_are_passed_over() {
        let set = text("# head\n1 10\r\n\n2\t 20 # more\n3\n4 30").column(2, " \t").unwrap();
        assert_eq!((set.samples, set.lines), (vec![10.0, 20.0, 30.0], vec![2, 4, 6]));
        let set = text("1;;2,3\n,4;5\n6;7").column(2, ",;").unwrap();
        assert_eq!(set.samples, [2.0, 5.0, 7.0]);
    }

    #[test]
    fn what_is_no_number_is_named_with_its_line() {
        for (content, complaint) in [
            ("1\n2\nthree\n", "f:3: \"three\" is not a number"),
            ("1\n2#3\n", "f:2: \"2#3\" is not a number"),
            ("inf\n", "f:1: \"inf\" is not a number"),
            ("1\n2\n", "f: 3 numbers at least are needed, it has 2"),
        ] {
            let fault = text(content).column(1, " \t").unwrap_err();
            assert_eq!((fault.to_string().as_str(), fault.code), (complaint, 2));
        }
        assert_eq!(
            text("1 2\n3\n").points(1, " ").unwrap_err().to_string(),
            "f:2: there is an x, but no y"
        );
    }
}
