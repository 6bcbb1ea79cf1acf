//! What a mailer's work costs, process by process: system calls, bytes that they copied, waits, switches, CPU time, page
//! faults.
//!
//! Must never count under the tracer what the tracer changes: times and switches come from runs without it.

mod kernel;
mod tasks;
mod traced;

pub use kernel::Plain;
pub use traced::Traced;

use serde::Serialize;
use std::collections::BTreeMap;

/// Names that a cost has without a tracer, with their units.
pub const PLAIN: [&str; 5] =
    ["user_us", "system_us", "voluntary_switches", "involuntary_switches", "page_faults"];
/// Names that need the tracer.
pub const TRACED: [&str; 6] =
    ["system_calls", "bytes_read", "bytes_written", "waits", "wakes", "syncs"];
/// The row of all processes together.
pub const ALL: &str = "all";
/// Between a process and the name of its figure, in a run's line.
pub const BETWEEN: &str = ": ";

/// What a message cost those of a mailer's processes that have one name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// `receive`, `smtpd`, ...; [`ALL`] is the sum over all processes.
    pub role: String,
    /// For each message, by the names of [`PLAIN`] and [`TRACED`].
    pub each: BTreeMap<String, f64>,
}

/// Sums by what the processes are called, each by its name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sums(BTreeMap<String, BTreeMap<&'static str, f64>>);

impl Sums {
    /// Adds counts to a role.
    pub fn add(&mut self, role: &str, name: &'static str, amount: f64) {
        *self.0.entry(role.to_string()).or_default().entry(name).or_default() += amount;
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: Sums) {
        for (role, sums) in other.0 {
            sums.into_iter().for_each(|(name, amount)| self.add(&role, name, amount));
        }
    }

    /// Returns the cost of each of `messages`; the sum of all processes comes last.
    pub fn each(&self, messages: f64) -> Vec<Cost> {
        let mut all: BTreeMap<String, f64> = BTreeMap::new();
        let mut costs = Vec::new();
        for (role, sums) in &self.0 {
            let each = |(name, sum): (&&str, &f64)| (name.to_string(), sum / messages.max(1.0));
            let each: BTreeMap<String, f64> = sums.iter().map(each).collect();
            each.iter().for_each(|(name, one)| *all.entry(name.clone()).or_default() += one);
            costs.push(Cost { role: role.clone(), each });
        }
        costs.push(Cost { role: ALL.into(), each: all });
        costs
    }
}

/// Describes the way of measuring.
pub fn how(traced_messages: u64) -> String {
    format!(
        "{}: strace -f over {traced_messages} messages before the load, which it slows down, so that fewer share a \
        batch; {}: /proc/PID/task/TID/{{schedstat,stat,status}} under the load, each 10 ms, without a tracer",
        TRACED.join(", "),
        PLAIN.join(", ")
    )
}

/// Joins the costs measured with the tracer and without.
pub fn together(plain: Vec<Cost>, traced: Vec<Cost>) -> Vec<Cost> {
    let mut rows: BTreeMap<(bool, String), BTreeMap<String, f64>> = BTreeMap::new();
    for cost in plain.into_iter().chain(traced) {
        rows.entry((cost.role == ALL, cost.role)).or_default().extend(cost.each);
    }
    rows.into_iter().map(|((_, role), each)| Cost { role, each }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_for_each_message_and_the_sum_of_all_comes_last() {
        let mut sums = Sums::default();
        sums.add("receive", "system_calls", 30.0);
        sums.add("queue", "system_calls", 10.0);
        let mut more = Sums::default();
        more.add("queue", "system_calls", 10.0);
        sums.merge(more);
        let mut plain = Sums::default();
        plain.add("zeta", "user_us", 50.0);
        let rows = together(plain.each(10.0), sums.each(10.0));
        let roles: Vec<&str> = rows.iter().map(|row| row.role.as_str()).collect();
        assert_eq!(roles, ["queue", "receive", "zeta", ALL]);
        assert_eq!(rows[3].each["system_calls"], 5.0);
        assert_eq!(rows[3].each["user_us"], 5.0);
        assert_eq!(rows[0].each["system_calls"], 2.0);
    }
}
