//! The outcome of a delivery to a program, by the program's exit status (sysexits.h).
//! Must never bounce a message for something that the message or its recipient did not cause.

use crate::outcome;
use mail::{Enhanced, Outcome, Reply};

/// What stands before a program's name where logs and bounces name a mailbox.
pub const PROGRAM_NAME_PREFIX: &str = "pipe:";

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
    /// It was killed because it took too long.
    TookTooLong,
}

/// Returns the outcome for the recipient of the program's input. `said` is one line of the program's
/// output, `program` its name.
pub fn program_outcome(end: ProgramEnd, said: &str, program: &str) -> Outcome {
    let (code, enhanced, what) = meaning(end);
    let text = if said.is_empty() { what } else { format!("{what}: {said}") };
    outcome(Reply::new(code, enhanced, text), format!("{PROGRAM_NAME_PREFIX}{program}"))
}

/// Statuses 64 to 78 as sysexits.h defines them; any other is tried again.
fn meaning(end: ProgramEnd) -> (u16, Enhanced, String) {
    let (code, enhanced, what) = match end {
        ProgramEnd::Exited(0) => (250, Enhanced(2, 0, 0), "delivered to the program"),
        ProgramEnd::Exited(64) => (550, Enhanced(5, 3, 0), "the program was called wrongly (64)"),
        ProgramEnd::Exited(65) => (550, Enhanced(5, 6, 0), "the program refuses the message (65)"),
        ProgramEnd::Exited(66) => (550, Enhanced(5, 3, 0), "the program lacks its input (66)"),
        ProgramEnd::Exited(67) => (550, Enhanced(5, 1, 1), "the program knows no such user (67)"),
        ProgramEnd::Exited(68) => (550, Enhanced(5, 1, 2), "the program knows no such host (68)"),
        ProgramEnd::Exited(69) => (550, Enhanced(5, 3, 0), "the service is unavailable (69)"),
        ProgramEnd::Exited(70) => (550, Enhanced(5, 3, 0), "the program has an error inside (70)"),
        ProgramEnd::Exited(76) => (550, Enhanced(5, 5, 0), "the program saw a protocol error (76)"),
        ProgramEnd::Exited(77) => (550, Enhanced(5, 7, 0), "the program has no permission (77)"),
        ProgramEnd::Exited(78) => (451, Enhanced(4, 3, 5), "the program's settings are wrong (78)"),
        ProgramEnd::Exited(status) => {
            return (451, Enhanced(4, 3, 0), format!("the program ended with {status}"));
        }
        ProgramEnd::Signalled(signal) => {
            return (451, Enhanced(4, 3, 0), format!("signal {signal} ended the program"));
        }
        ProgramEnd::TookTooLong => (451, Enhanced(4, 3, 0), "the program took too long"),
    };
    (code, enhanced, what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d181_only_what_sysexits_calls_permanent_bounces() {
        let permanent = [64, 65, 66, 67, 68, 69, 70, 76, 77];
        for status in 0..=255 {
            let outcome = program_outcome(ProgramEnd::Exited(status), "", "/bin/x");
            match status {
                0 => assert!(matches!(outcome, Outcome::Delivered { relayed: false, .. })),
                _ if permanent.contains(&status) => assert!(matches!(outcome, Outcome::Failed(_))),
                _ => assert!(matches!(outcome, Outcome::Deferred(_)), "{status}: {outcome:?}"),
            }
            assert_eq!(&*outcome.report().peer, "pipe:/bin/x");
        }
        for end in [ProgramEnd::Signalled(9), ProgramEnd::TookTooLong] {
            assert!(matches!(program_outcome(end, "", "x"), Outcome::Deferred(_)), "{end:?}");
        }
    }

    #[test]
    fn what_the_program_said_is_in_the_reply() {
        let outcome = program_outcome(ProgramEnd::Exited(67), "who is that?", "x");
        let text = "the program knows no such user (67): who is that?";
        assert_eq!(&*outcome.report().reply.text, text);
    }
}
