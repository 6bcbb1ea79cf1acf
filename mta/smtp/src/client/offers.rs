//! The extensions that the peer offers in its reply to EHLO (RFC 5321 4.1.1.1).
//!
//! Must never use an offer that is misspelt or out of range.

/// The offered extensions, of those that the client uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// RFC 2920.
    pub pipelining: bool,
    /// RFC 1870. `Some(0)` is an offer without a limit.
    pub size: Option<u64>,
    /// RFC 6152.
    pub eight_bit_mime: bool,
    /// RFC 6531.
    pub smtputf8: bool,
    /// RFC 3461.
    pub dsn: bool,
    /// RFC 3030.
    pub chunking: bool,
    /// RFC 2034.
    pub enhanced_status_codes: bool,
    /// RFC 9422: transactions in one session.
    pub mail_max: Option<u32>,
    /// RFC 9422: recipients in one transaction.
    pub rcpt_max: Option<u32>,
    /// RFC 9422: recipient domains in one transaction.
    pub rcpt_domain_max: Option<u32>,
}

impl Offers {
    /// Parses the text of a reply to EHLO. The first line is the name of the peer.
    pub fn parse(text: &str) -> Offers {
        let mut offers = Offers::default();
        for line in text.split('\n').skip(1) {
            offers.take(line);
        }
        offers
    }

    fn take(&mut self, line: &str) {
        let mut words = line.split_ascii_whitespace();
        let keyword = words.next().unwrap_or_default().to_ascii_uppercase();
        match keyword.as_str() {
            "PIPELINING" => self.pipelining = true,
            "SIZE" => {
                self.size = Some(words.next().and_then(|limit| limit.parse().ok()).unwrap_or(0))
            }
            "8BITMIME" => self.eight_bit_mime = true,
            "SMTPUTF8" => self.smtputf8 = true,
            "DSN" => self.dsn = true,
            "CHUNKING" => self.chunking = true,
            "ENHANCEDSTATUSCODES" => self.enhanced_status_codes = true,
            "LIMITS" => words.for_each(|limit| self.take_limit(limit)),
            _ => {}
        }
    }

    /// Parses `NAME=value`. Unknown names, zero and garbage are ignored (RFC 9422 4).
    fn take_limit(&mut self, limit: &str) {
        let Some((name, value)) = limit.split_once('=') else { return };
        let value = value.parse().ok().filter(|value| *value > 0);
        match name.to_ascii_uppercase().as_str() {
            "MAILMAX" => self.mail_max = value,
            "RCPTMAX" => self.rcpt_max = value,
            "RCPTDOMAINMAX" => self.rcpt_domain_max = value,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_are_read_in_any_case_and_the_name_line_is_none() {
        let text =
            "pipelining\npipelining\nSIZE 1000\nlimits RCPTMAX=5 MAILMAX=x FOO=1\nCHUNKING\nX";
        let wanted = Offers {
            pipelining: true,
            size: Some(1000),
            chunking: true,
            rcpt_max: Some(5),
            ..Offers::default()
        };
        assert_eq!(Offers::parse(text), wanted);
        assert_eq!(Offers::parse("PIPELINING"), Offers::default());
        assert_eq!(Offers::parse("a\nSIZE").size, Some(0));
        assert_eq!(Offers::parse("a\nSIZE -1").size, Some(0));
    }
}
