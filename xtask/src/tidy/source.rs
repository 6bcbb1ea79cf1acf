//! A Rust file as tidy reads it: without comments and string literals, with its functions and tests marked.
//!
//! Must never understand more Rust than tidy's rules need.

/// One file.
pub struct Source {
    /// Relative to the top of the workspace.
    pub path: String,
    /// The whole text.
    pub text: String,
    /// The text with comments, strings and characters replaced by spaces. Lines and offsets stay the same.
    pub code: String,
    /// Byte ranges of `code` that only tests compile.
    tests: Vec<std::ops::Range<usize>>,
}

/// One function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// The name.
    pub name: String,
    /// The first line, counted from 1.
    pub line: usize,
    /// The number of lines from `fn` to the closing brace.
    pub lines: usize,
    /// The offset in `code` at which the function begins.
    pub start: usize,
}

impl Source {
    /// Reads one.
    pub fn new(path: &str, text: &str) -> Source {
        let code = blank(text);
        let tests = test_ranges(path, &code);
        Source { path: path.into(), text: text.into(), code, tests }
    }

    /// Returns whether only tests compile this place of `code`.
    pub fn is_test(&self, at: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&at))
    }

    /// Returns the line of a place of `code`, counted from 1.
    pub fn line(&self, at: usize) -> usize {
        self.code[..at].matches('\n').count() + 1
    }

    /// Returns each place of `code` outside tests where `needle` is a whole word.
    pub fn places<'a>(&'a self, needle: &'a str) -> impl Iterator<Item = usize> + 'a {
        let is_word =
            |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
        self.code.match_indices(needle).map(|(at, _)| at).filter(move |at| {
            let before = at.checked_sub(1).and_then(|at| self.code.as_bytes().get(at));
            let after = self.code.as_bytes().get(at + needle.len());
            let starts_word = is_word(needle.as_bytes().first());
            let ends_word = is_word(needle.as_bytes().last());
            let inside = starts_word && is_word(before) || ends_word && is_word(after);
            !inside && !self.is_test(*at)
        })
    }

    /// Returns all functions with a body, including those of tests.
    pub fn functions(&self) -> Vec<Function> {
        let mut found = Vec::new();
        for (start, _) in self.code.match_indices("fn ") {
            let before = self.code[..start].chars().next_back();
            if before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_') {
                continue;
            }
            let rest = &self.code[start + 3..];
            let name: String =
                rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let Some(open) = body(rest).filter(|_| !name.is_empty()) else { continue };
            let open = start + 3 + open;
            let lines = self.line(closing(&self.code, open)) - self.line(start) + 1;
            found.push(Function { name, line: self.line(start), lines, start });
        }
        found
    }
}

/// Returns the offset of the body's brace in the text after `fn `, or `None` for a declaration or a type.
fn body(rest: &str) -> Option<usize> {
    let mut depth = 0i32;
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(at),
            b';' | b'}' if depth == 0 => return None,
            _ if depth < 0 => return None,
            _ => {}
        }
    }
    None
}

/// Returns the offset of the brace that closes the one at `open`, or the end of the file if there is none.
fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return at,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    code.len().saturating_sub(1)
}

fn test_ranges(path: &str, code: &str) -> Vec<std::ops::Range<usize>> {
    let in_tests = path.split('/').any(|part| matches!(part, "tests" | "tests.rs" | "benches"));
    if in_tests || path.ends_with("_tests.rs") {
        return std::iter::once(0..code.len()).collect();
    }
    let marks = code.match_indices("#[cfg(test)]").map(|(at, mark)| at..at + mark.len());
    marks
        .filter_map(|mark| {
            let open = mark.end + body(&code[mark.end..])?;
            Some(mark.start..closing(code, open) + 1)
        })
        .collect()
}

/// Replaces comments, strings and characters by spaces. Keeps line ends, and the offset of every byte.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match token_to_blank(bytes, at) {
            Some(end) => end.min(bytes.len()),
            None => {
                at += 1;
                continue;
            }
        };
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8(out).unwrap_or_default()
}

/// Returns the end of the comment, string or character that begins at `at`.
fn token_to_blank(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return Some(at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()));
    }
    if rest.starts_with(b"/*") {
        return Some(block_comment_end(bytes, at));
    }
    if rest[0] == b'"' {
        return Some(text_end(bytes, at + 1));
    }
    let after_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if rest[0] == b'r' && (!after_word || bytes[at - 1] == b'b') {
        let hashes = rest[1..].iter().take_while(|b| **b == b'#').count();
        if rest.get(1 + hashes) == Some(&b'"') {
            return Some(raw_text_end(bytes, at + 2 + hashes, hashes));
        }
    }
    if rest[0] == b'\'' {
        return letter_end(rest).map(|end| at + end);
    }
    None
}

fn block_comment_end(bytes: &[u8], from: usize) -> usize {
    let (mut at, mut depth) = (from, 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn text_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

fn raw_text_end(bytes: &[u8], from: usize, hashes: usize) -> usize {
    let mut end = vec![b'"'];
    end.resize(1 + hashes, b'#');
    let length = bytes[from..].windows(end.len()).position(|window| window == end);
    length.map_or(bytes.len(), |length| from + length + end.len())
}

/// `'a'`, `'\n'`, `'\u{1f}'`; `None` for a lifetime.
fn letter_end(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        let length = rest.iter().skip(3).take(12).position(|b| *b == b'\'')?;
        return Some(3 + length + 1);
    }
    // One letter is one to four bytes of UTF-8.
    let letter = std::str::from_utf8(&rest[1..rest.len().min(5)]);
    let valid = match letter {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&rest[1..1 + error.valid_up_to()]).ok()?,
    };
    let length = valid.chars().next()?.len_utf8();
    (rest.get(1 + length) == Some(&b'\'')).then_some(2 + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_texts_and_letters_are_blanked_and_nothing_else() {
        let table = [
            ("a // b.unwrap()\nc", "a              \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            ("f(\"x{\\\"}\") {", "f(       ) {"),
            ("r#\"{\"# }", "       }"),
            ("b'{' '\\'' 'é' &'a T", "b              &'a T"),
        ];
        for (text, code) in table {
            assert_eq!(blank(text), code, "{text}");
        }
    }

    #[test]
    fn functions_are_measured_and_tests_are_known() {
        let text = "fn a<T: Fn() -> u8>(x: [u8; 2]) -> u8 {\n  {}\n}\ntrait B { fn c(); }\n\
                    #[cfg(test)]\nmod tests {\n    fn d() {}\n}\n";
        let source = Source::new("mta/x/src/y.rs", text);
        let found: Vec<_> = source.functions().into_iter().map(|f| (f.name, f.lines)).collect();
        assert_eq!(found, [("a".into(), 3), ("d".into(), 1)]);
        assert!(source.is_test(text.find("fn d").unwrap()));
        assert!(!source.is_test(0));
        assert!(Source::new("mta/x/tests/y.rs", "fn a() {}").is_test(0));
    }
}
