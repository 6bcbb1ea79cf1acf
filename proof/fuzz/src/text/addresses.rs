//! Addresses and domains, from a stranger's text and from another process's bytes.
//!
//! Must never take a text for an address that a command, a header or a path would read otherwise.

use crate::input::Input;
use crate::memory;
use mail::{Address, Domain, MessageId, ReversePath};

/// Text as an address and as a domain; then the bytes as what another process would send.
pub fn addresses(data: &[u8]) {
    let mut input = Input(data);
    let (flags, bytes) = (input.byte(), input.rest());
    if let Ok(text) = std::str::from_utf8(bytes) {
        parsed(text, flags & 1 != 0);
        domain(text);
        if let Ok(id) = text.parse::<MessageId>() {
            assert_eq!(id.to_string(), text.to_ascii_lowercase());
        }
    }
    decoded(bytes);
}

fn parsed(text: &str, utf8: bool) {
    let bound = 64 * text.len() + 4_096;
    let Ok(address) = memory::within(bound, || Address::parse(text, utf8)) else { return };
    assert_eq!(address.as_str(), text);
    assert!(utf8 || text.is_ascii());
    assert_eq!(Address::parse(text, true).as_ref(), Ok(&address));
    safe(&address);
    let bytes = postcard::to_stdvec(&address).expect("memory takes any number of bytes");
    assert_eq!(postcard::from_bytes::<Address>(&bytes).as_ref(), Ok(&address));
    if let Some(ascii) = address.ascii_form() {
        let again = Address::parse(&ascii, false).expect("the ASCII form is an address");
        assert_eq!((again.domain(), again.local()), (address.domain(), address.local()));
    }
    for (dotlocks, arguments) in [(false, false), (true, false), (false, true)] {
        let names = policy::Names { dotlocks, arguments };
        if let Ok(name) = policy::mailbox_name(address.local(), names) {
            assert!(!arguments || !name.starts_with('-'));
            assert!(
                !name.is_empty() && !name.starts_with('.') && name.len() <= policy::NAME_BYTES_MAX
            );
            assert!(!name.chars().any(|c| c == '/' || c.is_control()));
        }
    }
}

/// What every address is, wherever it came from.
fn safe(address: &Address) {
    let text = address.as_str();
    assert!(!text.chars().any(char::is_control), "{text:?}");
    assert_eq!(text, format!("{}@{}", address.local(), address.domain_text()));
    let (local, domain) = (address.local(), address.domain_text());
    assert!(!local.is_empty() && local.len() <= 64, "{text:?}");
    assert!(!domain.contains([' ', '<', '>', '"', '@', ',', ';']), "{text:?}");
    let quoted = local.len() > 1 && local.starts_with('"') && local.ends_with('"');
    assert!(quoted || !local.contains([' ', '<', '>', '"', '@', ',', ';']), "{text:?}");
    safe_domain(address.domain());
}

fn safe_domain(domain: &Domain) {
    let text = domain.as_str();
    assert!(!text.is_empty() && text.len() <= 255, "{text:?}");
    assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text:?}");
    assert!(!text.contains(['<', '>', '"', '@', ',', ';', '(', ')', '\\']), "{text:?}");
    assert!(!text.contains('/') || domain.is_literal(), "{text:?}");
}

fn domain(text: &str) {
    let Ok(domain) = Domain::parse(text) else { return };
    safe_domain(&domain);
    assert_eq!(Domain::parse(domain.as_str()).as_ref(), Ok(&domain), "not canonical");
    assert!(domain.is_literal() || !domain.as_str().bytes().any(|b| b.is_ascii_uppercase()));
    assert!(domain.is_literal() || domain.literal().is_none());
}

/// A process that was taken over sends what it likes: it decodes to something safe or not at all.
fn decoded(bytes: &[u8]) {
    let bound = 16 * bytes.len() + 4_096;
    if let Ok(address) = memory::within(bound, || postcard::from_bytes::<Address>(bytes)) {
        safe(&address);
    }
    if let Ok(ReversePath::Address(address)) = postcard::from_bytes(bytes) {
        safe(&address);
    }
    if let Ok(domain) = postcard::from_bytes::<Domain>(bytes) {
        safe_domain(&domain);
    }
}
