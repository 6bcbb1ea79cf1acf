//! Finds the constants that are bounds, their values, and the tests that name them.
//!
//! Must never evaluate an expression: the page shows the expression in the code.

use crate::tidy::source::{Function, Source};

/// Ends of the names of bounds. A hint of a size ends otherwise.
const ENDS: &[&str] = &["_MAX", "_WAIT", "_WAIT_FIRST", "_PATIENCE", "LINGER", "_KEPT", "_MIN"];

/// One constant of the mailer.
#[derive(Debug, PartialEq, Eq)]
pub struct Constant {
    /// As in the code.
    pub name: String,
    /// Relative to the top.
    pub file: String,
    /// The expression.
    pub value: String,
    /// The first sentence of its documentation.
    pub what: String,
    /// Tests whose bodies name it, and `const assertion`.
    pub shown_by: Vec<String>,
}

/// All of the mailer's crates, by file and place.
pub fn search(sources: &[Source]) -> Vec<Constant> {
    let ours = sources.iter().filter(|source| source.path.starts_with("mta/"));
    let mut found: Vec<Constant> = ours.flat_map(declared).collect();
    for source in sources {
        name_tests(source, &mut found);
    }
    for constant in &mut found {
        constant.shown_by.sort();
        constant.shown_by.dedup();
    }
    found
}

/// The constants that a file declares outside of its tests.
fn declared(source: &Source) -> Vec<Constant> {
    let mut found = Vec::new();
    for (at, _) in source.code.match_indices("const ").filter(|(at, _)| !source.is_test(*at)) {
        let rest = &source.code[at + 6..];
        let name: String = rest
            .chars()
            .take_while(|c| c.is_ascii_uppercase() || *c == '_' || c.is_ascii_digit())
            .collect();
        let declares = rest[name.len()..].starts_with(": ");
        if !declares || !ENDS.iter().any(|end| name.ends_with(end)) {
            continue;
        }
        let Some((from, to)) = rest.find('=').zip(rest.find(';')) else { continue };
        if from < to {
            let value = source.text[at + 6 + from + 1..at + 6 + to].split_whitespace();
            let value = value.collect::<Vec<_>>().join(" ");
            let what = documentation(source, at);
            let file = source.path.clone();
            found.push(Constant { name, file, value, what, shown_by: Vec::new() });
        }
    }
    found
}

/// The comment above a place, in one line, up to its first paragraph's end.
fn documentation(source: &Source, at: usize) -> String {
    let above: Vec<&str> = source.text[..at].lines().collect();
    let lines = above.iter().rev().skip(usize::from(!source.text[..at].ends_with('\n')));
    let mut comment: Vec<&str> = lines
        .map(|line| line.trim())
        .take_while(|line| line.starts_with("///") || line.starts_with("#["))
        .filter(|line| line.starts_with("///"))
        .map(|line| line.trim_start_matches('/').trim())
        .collect();
    comment.reverse();
    comment.join(" ").replace('|', "\\|")
}

/// Notes which constants the tests and the `const` assertions of a file name.
fn name_tests(source: &Source, constants: &mut [Constant]) {
    let functions = source.functions();
    for constant in constants.iter_mut().filter(|constant| may_name(source, &constant.file)) {
        for (at, _) in source.code.match_indices(&constant.name) {
            if !is_whole_word(&source.code, at, constant.name.len()) {
                continue;
            }
            if let Some(test) = test_around(source, &functions, at) {
                constant.shown_by.push(test.into());
            } else if in_assertion(&source.code, at) {
                constant.shown_by.push("const assertion".into());
            }
        }
    }
}

/// Two crates may have constants of one name: a file speaks of its own crate's, or of one that it
/// names by its crate.
fn may_name(source: &Source, file: &str) -> bool {
    let of = |path: &str| path.split('/').nth(1).unwrap_or("").to_owned();
    of(&source.path) == of(file) || source.code.contains(&format!("{}::", of(file)))
}

fn is_whole_word(code: &str, at: usize, length: usize) -> bool {
    let is_word = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let before = at.checked_sub(1).and_then(|at| code.as_bytes().get(at));
    !is_word(before) && !is_word(code.as_bytes().get(at + length))
}

/// The innermost function that only tests compile around a place.
fn test_around<'a>(source: &Source, functions: &'a [Function], at: usize) -> Option<&'a str> {
    let line = source.line(at);
    let around =
        |f: &&Function| f.line <= line && line < f.line + f.lines && source.is_test(f.start);
    functions.iter().filter(around).max_by_key(|f| f.line).map(|f| f.name.as_str())
}

/// Whether the statement around a place is a `const` assertion.
fn in_assertion(code: &str, at: usize) -> bool {
    let begin = code[..at].rfind(';').map_or(0, |end| end + 1);
    let statement = &code[begin..at];
    statement.contains("assert!(")
        && (statement.contains("const _") || statement.contains("const {"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_has_its_value_its_documentation_and_the_tests_that_name_it() {
        let text = "/// Bytes of a frame.\npub const FRAME_BYTES_MAX: usize =\n    48 << 20;\n\
                    const _: () = assert!(FRAME_BYTES_MAX > 1);\nconst NAMES: u8 = 1;\n\
                    #[cfg(test)]\nmod tests {\n    #[test]\n    fn a_frame_is_bounded() {\n        \
                    assert!(FRAME_BYTES_MAX < 2);\n    }\n}\n";
        let found = search(&[Source::new("mta/x/src/y.rs", text)]);
        assert_eq!(found.len(), 1);
        let constant = &found[0];
        assert_eq!(
            (constant.value.as_str(), constant.what.as_str()),
            ("48 << 20", "Bytes of a frame.")
        );
        assert_eq!(constant.shown_by, ["a_frame_is_bounded", "const assertion"]);
    }

    #[test]
    fn a_constant_of_another_crate_with_the_same_name_is_not_meant() {
        let one = Source::new("mta/x/src/y.rs", "const A_MAX: u8 = 1;");
        let test = "#[test]\nfn other() { A_MAX; }";
        let elsewhere = Source::new("mta/z/tests/t.rs", test);
        assert!(search(&[one, elsewhere])[0].shown_by.is_empty());
        let one = Source::new("mta/x/src/y.rs", "const A_MAX: u8 = 1;");
        let named = Source::new("mta/z/tests/t.rs", &format!("use x::A_MAX;\n{test}"));
        assert_eq!(search(&[one, named])[0].shown_by, ["other"]);
    }
}
