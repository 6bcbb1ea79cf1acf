//! `sendmail`, `mailq` and `newaliases`: the names by which old programs call a mailer.
//!
//! Must never take a message and lose it: a function that is not built yet fails with `EX_UNAVAILABLE`, which every caller
//! of sendmail understands.

use super::print::Failure;
use super::{EX_OK, EX_UNAVAILABLE, config, mailq};
use std::ffi::OsString;
use std::path::Path;

/// A name other than `posthaste`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherName {
    Sendmail,
    Mailq,
    Newaliases,
}

pub(super) fn other_name(args: &[OsString]) -> Option<OtherName> {
    match Path::new(args.first()?).file_name()?.to_str()? {
        "sendmail" => Some(OtherName::Sendmail),
        "mailq" => Some(OtherName::Mailq),
        "newaliases" => Some(OtherName::Newaliases),
        _ => None,
    }
}

pub(super) fn run(name: OtherName, args: &[OsString]) -> Result<u8, Failure> {
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    match name {
        OtherName::Mailq => mailq::print(&config::find(None)),
        OtherName::Sendmail if has("-bp") => mailq::print(&config::find(None)),
        OtherName::Sendmail if !has("-bi") && !has("-I") => Err(Failure::new(
            EX_UNAVAILABLE,
            "sendmail: this version of posthaste takes no mail from the command line yet;\n\
             send it by SMTP to the address of [[listen]] in the settings. Nothing was sent.",
        )),
        OtherName::Sendmail | OtherName::Newaliases => {
            // There is no alias database yet, so there is nothing to rebuild. Package scripts call this after installing,
            // and must not fail.
            crate::log::complain(
                "newaliases: this version of posthaste reads no aliases; nothing done",
            );
            Ok(EX_OK)
        }
    }
}
