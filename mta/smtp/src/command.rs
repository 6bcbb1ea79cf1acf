//! Parses one command line as far as the grammar of its verb goes (RFC 5321 4.1.1, RFC 2033, RFC 3030).
//!
//! Must never copy the line, except the names of a source route, which are checked. Must never guess: a line of
//! another protocol is reported as such.

use memchr::memchr2;

/// A command of the client. Its arguments are text, which is not checked here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `HELO name`.
    Helo(&'a str),
    /// `EHLO name`.
    Ehlo(&'a str),
    /// `LHLO name` (RFC 2033 4.1).
    Lhlo(&'a str),
    /// `MAIL FROM:`, with the text after the colon.
    Mail(Path<'a>),
    /// `RCPT TO:`, with the text after the colon.
    Rcpt(Path<'a>),
    /// `DATA`.
    Data,
    /// `BDAT size [LAST]` (RFC 3030 2).
    Bdat {
        /// The number of octets that follow the line.
        size: u64,
        /// True if this is the last chunk.
        last: bool,
    },
    /// `RSET`.
    Rset,
    /// `NOOP`.
    Noop,
    /// `QUIT`.
    Quit,
    /// `VRFY` with any argument.
    Vrfy,
    /// `EXPN` with any argument.
    Expn,
    /// `HELP`.
    Help,
    /// `AUTH`, which is not offered.
    Auth,
    /// A verb that other servers know: ETRN, XCLIENT, STARTTLS and similar ones.
    Unimplemented,
}

/// The argument of MAIL and RCPT: `<path> parameters`, or the same without the brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path<'a> {
    /// The text between `<` and `>`. A source route is checked and removed (RFC 5321 appendix C).
    pub mailbox: &'a str,
    /// The text after `>`: empty, or a space and words.
    pub parameters: &'a str,
}

/// Why a line is not a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// HTTP, TLS, SSH, a PROXY header, or the header of a message. Such a client does not read replies.
    #[error("not SMTP")]
    Foreign,
    /// The line is not UTF-8.
    #[error("bad UTF-8")]
    BadUtf8,
    /// The line has a control character or is empty.
    #[error("bad syntax")]
    Syntax,
    /// The verb is unknown.
    #[error("unknown command")]
    Unknown,
    /// The arguments of a known verb are wrong. The text says what is right.
    #[error("usage: {0}")]
    Usage(&'static str),
    /// A `BDAT` without a valid size, whose octets cannot be told from commands.
    #[error("bad BDAT")]
    BadChunk,
}

use CommandError::Usage;

/// Parses a line without its line end.
pub fn parse(line: &[u8]) -> Result<Command<'_>, CommandError> {
    if line.first().is_some_and(|byte| starts_foreign(*byte)) {
        return Err(CommandError::Foreign);
    }
    let text = std::str::from_utf8(line).map_err(|_| CommandError::BadUtf8)?;
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(CommandError::Syntax);
    }
    let text = text.trim_end_matches(' ');
    let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
    if verb.is_empty() {
        return Err(CommandError::Syntax);
    }
    known(verb, rest.trim_start_matches(' '))
}

/// True if no line of SMTP starts with this byte.
pub fn starts_foreign(byte: u8) -> bool {
    !byte.is_ascii() || byte.is_ascii_control() && !matches!(byte, b'\r' | b'\n' | b'\t')
}

fn known<'a>(verb: &str, rest: &'a str) -> Result<Command<'a>, CommandError> {
    let is = |name: &str| verb.eq_ignore_ascii_case(name);
    match verb.len() {
        4 if is("RCPT") => path(rest, "TO:").map(Command::Rcpt).ok_or(Usage("RCPT TO:<address>")),
        4 if is("MAIL") => {
            path(rest, "FROM:").map(Command::Mail).ok_or(Usage("MAIL FROM:<address>"))
        }
        4 if is("DATA") => bare(rest, Command::Data, "DATA"),
        4 if is("BDAT") => chunk(rest),
        4 if is("EHLO") => hello_name(rest).map(Command::Ehlo).ok_or(Usage("EHLO hostname")),
        4 if is("HELO") => hello_name(rest).map(Command::Helo).ok_or(Usage("HELO hostname")),
        4 if is("LHLO") => hello_name(rest).map(Command::Lhlo).ok_or(Usage("LHLO hostname")),
        4 if is("RSET") => bare(rest, Command::Rset, "RSET"),
        4 if is("NOOP") => Ok(Command::Noop),
        4 if is("QUIT") => Ok(Command::Quit),
        4 if is("HELP") => Ok(Command::Help),
        4 if is("AUTH") => Ok(Command::Auth),
        4 if is("VRFY") => named(rest, Command::Vrfy, "VRFY address"),
        4 if is("EXPN") => named(rest, Command::Expn, "EXPN list"),
        _ if UNIMPLEMENTED.iter().any(|name| is(name)) => Ok(Command::Unimplemented),
        _ if is_foreign(verb) => Err(CommandError::Foreign),
        _ => Err(CommandError::Unknown),
    }
}

const UNIMPLEMENTED: &[&str] =
    &["ETRN", "TURN", "ATRN", "SEND", "SOML", "SAML", "STARTTLS", "BURL", "XCLIENT", "XFORWARD"];

/// Verbs of other protocols. The PROXY header of HAProxy is not supported.
const FOREIGN: &[&str] = &[
    "GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "CONNECT", "PATCH", "TRACE", "PRI", "PROXY",
];

/// True if the verb belongs to another protocol or is the name of a header field. In the second case the lines of a
/// message are arriving as commands.
fn is_foreign(verb: &str) -> bool {
    verb.contains(':')
        || verb.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("SSH-"))
        || FOREIGN.iter().any(|name| verb.eq_ignore_ascii_case(name))
}

fn bare<'a>(
    rest: &str,
    command: Command<'a>,
    usage: &'static str,
) -> Result<Command<'a>, CommandError> {
    if rest.is_empty() { Ok(command) } else { Err(Usage(usage)) }
}

fn named<'a>(
    rest: &str,
    command: Command<'a>,
    usage: &'static str,
) -> Result<Command<'a>, CommandError> {
    if rest.is_empty() { Err(Usage(usage)) } else { Ok(command) }
}

/// Returns the name if it is one word that may stand in a Received field, without the characters of comments, quoted
/// strings and brackets.
fn hello_name(rest: &str) -> Option<&str> {
    let fits = |character: char| match character {
        ' ' | '(' | ')' | '<' | '>' | '"' | '\\' | ',' | ';' | '@' => false,
        _ => !character.is_control(),
    };
    (!rest.is_empty() && rest.len() <= mail::domain::DOMAIN_BYTES_MAX && rest.chars().all(fits))
        .then_some(rest)
}

/// Parses `FROM:<path>` or `TO:<path>`. Spaces after the colon are accepted, as other mail servers accept them.
fn path<'a>(rest: &'a str, keyword: &str) -> Option<Path<'a>> {
    let head = rest.get(..keyword.len())?;
    if !head.eq_ignore_ascii_case(keyword) {
        return None;
    }
    let rest = rest[keyword.len()..].trim_start_matches(' ');
    let Some(inner) = rest.strip_prefix('<') else { return bare_path(rest) };
    let end = closing_bracket(inner)?;
    let parameters = &inner[end + 1..];
    if !parameters.is_empty() && !parameters.starts_with(' ') {
        return None;
    }
    Some(Path { mailbox: without_route(&inner[..end])?, parameters })
}

/// Returns the position of the first `>` outside of quoted strings.
fn closing_bracket(inner: &str) -> Option<usize> {
    let end = memchr2(b'>', b'"', inner.as_bytes())?;
    match inner.as_bytes()[end] {
        b'>' => Some(end),
        _ => first_unquoted(inner.bytes(), |byte| byte == b'>'),
    }
}

/// Parses a mailbox without brackets, which ends at the first space outside of quoted strings.
///
/// RFC 5321 4.1.2 requires the brackets, but cameras, scanners and scripts omit them, and other mail servers accept
/// that. A single bracket and a source route without brackets are errors.
fn bare_path(rest: &str) -> Option<Path<'_>> {
    // The end of the line ends the mailbox as a space does.
    let line = rest.as_bytes().iter().copied().chain([b' ']);
    let end = first_unquoted(line, |byte| matches!(byte, b' ' | b'<' | b'>'))?;
    let (mailbox, parameters) = rest.split_at(end);
    let whole = parameters.is_empty() || parameters.starts_with(' ');
    let good = whole && !mailbox.is_empty() && !mailbox.starts_with('@');
    good.then_some(Path { mailbox, parameters })
}

/// Returns the position of the first byte that fits and is outside of quoted strings.
fn first_unquoted(bytes: impl Iterator<Item = u8>, fits: impl Fn(u8) -> bool) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in bytes.enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if !quoted && fits(byte) => return Some(at),
            _ => {}
        }
    }
    None
}

/// Removes the source route `@a,@b:` (RFC 5321 4.1.2 A-d-l). The route must be valid, and is then ignored.
fn without_route(inner: &str) -> Option<&str> {
    if !inner.starts_with('@') {
        return Some(inner);
    }
    let mut bracketed = false;
    let colon = inner.bytes().position(|byte| {
        bracketed = (bracketed || byte == b'[') && byte != b']';
        byte == b':' && !bracketed
    })?;
    let hop =
        |hop: &str| hop.strip_prefix('@').is_some_and(|name| mail::Domain::parse(name).is_ok());
    inner[..colon].split(',').all(hop).then(|| &inner[colon + 1..])
}

/// Parses `chunk-size [SP LAST]`. Without a valid size the end of the chunk is unknown.
fn chunk(rest: &str) -> Result<Command<'_>, CommandError> {
    let (size, end) = rest.split_once(' ').unwrap_or((rest, ""));
    let last = end.trim_start_matches(' ').eq_ignore_ascii_case("LAST");
    if size.is_empty()
        || !size.bytes().all(|byte| byte.is_ascii_digit())
        || !(last || end.is_empty())
    {
        return Err(CommandError::BadChunk);
    }
    let size = size.parse().map_err(|_| CommandError::BadChunk)?;
    Ok(Command::Bdat { size, last })
}
