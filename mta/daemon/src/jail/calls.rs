//! The system call filter, made from the role's table, and the report of a process that the filter ends (X203).
//!
//! Must never let a denied call return an error as if it were an ordinary failure.

use super::profiles::{CallGroup, Calls, Only, calls, refused};
use super::{JailError, Role, names};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};

/// The exit code of a process that made a denied call. Shells show SIGSYS the same way.
pub const DENIED_EXIT_CODE: i32 = 128 + libc::SIGSYS;

type CallRules = BTreeMap<i64, Vec<SeccompRule>>;

/// Installs the role's filter in all threads, permanently. Returns how many calls remain.
pub(super) fn filter(role: Role) -> Result<usize, JailError> {
    report_denials(role)?;
    let failed = |error: seccompiler::Error| JailError::Filter(error.to_string());
    let quiet = quiet_rules(role);
    if !quiet.is_empty() {
        let action = SeccompAction::Errno(libc::ENOSYS as u32);
        let program = program(quiet, SeccompAction::Allow, action)?;
        apply_filter_all_threads(&program).map_err(failed)?;
    }
    let (groups, mismatch, matched) = match calls(role) {
        Calls::Only(groups) => (groups, SeccompAction::Trap, SeccompAction::Allow),
        Calls::AllBut(groups) => (groups, SeccompAction::Allow, SeccompAction::Trap),
    };
    let mut rules = rules(groups)?;
    if let Calls::Only(_) = calls(role) {
        // The stricter of two filters wins, so this one must allow what the first one refuses.
        let quiet = refused(role).iter().filter_map(|name| names::number(name));
        rules.extend(quiet.map(|number| (number, Vec::new())));
    }
    let count = rules.len();
    apply_filter_all_threads(&program(rules, mismatch, matched)?).map_err(failed)?;
    Ok(match calls(role) {
        Calls::Only(_) => count - refused(role).len().min(count),
        Calls::AllBut(_) => names::count() - count,
    })
}

fn quiet_rules(role: Role) -> CallRules {
    refused(role).iter().filter_map(|name| Some((names::number(name)?, Vec::new()))).collect()
}

fn rules(groups: &[&CallGroup]) -> Result<CallRules, JailError> {
    let mut rules = CallRules::new();
    for group in groups {
        let conditions = conditions(group.only)?;
        for number in group.calls.iter().filter_map(|name| names::number(name)) {
            rules.insert(number, conditions.clone());
        }
    }
    Ok(rules)
}

/// Returns conditions of which one must hold. An empty list always holds.
fn conditions(only: Only) -> Result<Vec<SeccompRule>, JailError> {
    let one = |argument, compare, value| {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Qword, compare, value)?;
        SeccompRule::new(vec![condition])
    };
    // The kernel reads only the low half of an argument of type `int`.
    let int = |argument, value| {
        let condition =
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?;
        SeccompRule::new(vec![condition])
    };
    let made: Result<Vec<SeccompRule>, seccompiler::BackendError> = match only {
        Only::Any => Ok(Vec::new()),
        Only::OneOf(argument, &[0]) => one(argument, SeccompCmpOp::Eq, 0).map(|rule| vec![rule]),
        Only::OneOf(argument, values) => values.iter().map(|value| int(argument, *value)).collect(),
        Only::Bits(argument, mask, value) => {
            one(argument, SeccompCmpOp::MaskedEq(mask), value).map(|rule| vec![rule])
        }
        Only::Ourselves(argument) => {
            int(argument, u64::from(std::process::id())).map(|rule| vec![rule])
        }
    };
    made.map_err(|error| JailError::Filter(error.to_string()))
}

fn program(
    rules: CallRules,
    mismatch: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, JailError> {
    #[cfg(target_arch = "x86_64")]
    const ARCH: TargetArch = TargetArch::x86_64;
    #[cfg(target_arch = "aarch64")]
    const ARCH: TargetArch = TargetArch::aarch64;
    SeccompFilter::new(rules, mismatch, matched, ARCH)
        .and_then(BpfProgram::try_from)
        .map_err(|error| JailError::Filter(error.to_string()))
}

/// The role, for the signal handler, which has no other way to get it.
static ROLE: AtomicU8 = AtomicU8::new(0);

fn report_denials(role: Role) -> Result<(), JailError> {
    ROLE.store(role as u8, Ordering::Relaxed);
    // SAFETY: a zeroed sigaction is valid, and the handler only does what a signal handler may.
    let failed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = denied as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut()) != 0
    };
    if failed { Err(JailError::last("watch for denied calls")) } else { Ok(()) }
}

/// The part of `siginfo_t` that SIGSYS fills (sigaction(2)). The crate libc does not declare it.
#[repr(C)]
struct DeniedInfo {
    signal: [libc::c_int; 4],
    address: *mut libc::c_void,
    call: libc::c_int,
}

/// Reports which call was denied, in one write, and ends the process. Allocates nothing and takes no lock.
extern "C" fn denied(_: libc::c_int, info: *const DeniedInfo, _: *const libc::c_void) {
    // SAFETY: the kernel passes a valid pointer to a handler with SA_SIGINFO, and the layout is the one above.
    let number = i64::from(unsafe { (*info).call });
    let role = Role::ALL[usize::from(ROLE.load(Ordering::Relaxed))];
    let mut line = DenialLine { bytes: [0; 128], length: 0 };
    for part in ["role ", role.name(), ": system call "] {
        line.push(part.as_bytes());
    }
    line.push_number(number);
    for part in [" (", names::name(number).unwrap_or("unknown"), ") denied\n"] {
        line.push(part.as_bytes());
    }
    // SAFETY: the buffer is ours; both calls may be made in a signal handler.
    unsafe {
        libc::write(2, line.bytes.as_ptr().cast(), line.length);
        libc::_exit(DENIED_EXIT_CODE);
    }
}

struct DenialLine {
    bytes: [u8; 128],
    length: usize,
}

impl DenialLine {
    /// Appends as much as fits.
    fn push(&mut self, part: &[u8]) {
        for byte in part {
            if let Some(free) = self.bytes.get_mut(self.length) {
                *free = *byte;
                self.length += 1;
            }
        }
    }

    fn push_number(&mut self, number: i64) {
        let mut digits = [0; 20];
        let mut start = digits.len();
        let mut rest = number.unsigned_abs();
        loop {
            start -= 1;
            digits[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.push(&digits[start..]);
    }
}
