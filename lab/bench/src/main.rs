//! `posthaste-lab`: the laboratory that measures any mailer the same way.
//!
//! Must never depend on anything below `mta/`: Posthaste is one more subject to it.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod budgets_command;
mod campaign;
mod costs;
mod depth;
mod gauge;
mod hold;
mod layout;
mod machine;
mod mark;
mod net;
mod order;
mod peers;
mod power;
mod report_command;
mod room;
mod running;
mod scenario;
mod sink;
mod source;
mod statistics;
mod subject;
mod syslog;
mod unstuff;
mod verdicts;
mod watch;

use clap::{Parser, Subcommand};

/// Measures mailers: a source, a sink, and what lies between.
#[derive(Parser)]
#[command(name = "posthaste-lab", version)]
struct Cli {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Subcommand)]
enum Tool {
    /// Says what a message cost, process by process, in runs of the scenarios `cost`, `cost-relay` and `cost-local`.
    Costs(costs::Options),
    /// Fills a queue with a million messages or more, asks about it, kills it, opens it and drains it. Needs root.
    Depth(depth::Options),
    /// Says which budgets the runs of campaigns meet, and which they miss.
    Budgets(budgets_command::Options),
    /// Writes two files a message into queue directories, as in 2006, without a mailer.
    Layout(layout::Options),
    /// Says what this machine is, and how long its disk takes to sync.
    Machine(machine::Options),
    /// Asks many scenarios of many mailers in turn, then says what differs; without names the usual eight.
    Compare(campaign::Options),
    /// Cuts the power of mailers under load and counts the promises that were broken. Needs root.
    Power(power::Options),
    /// Opens many connections that do nothing, or hardly anything, and keeps them until it is killed.
    Hold(hold::Options),
    /// Makes a page, figures, a table or plain text of what a campaign left.
    Report(report_command::Options),
    /// Asks scenarios of mailers in turn, again and again, and keeps a line of each run. Needs root.
    Run(campaign::Options),
    /// Lists the scenarios, or prints one, to be copied and changed.
    Scenarios {
        /// Which
        name: Option<String>,
    },
    /// Takes mail in over SMTP or LMTP, counts it, and proves each marked message whole.
    Sink(sink::Options),
    /// Sends marked messages over SMTP or LMTP and says how fast they were taken.
    Source(source::Options),
    /// Says what numbers have in common and whether they differ: what ministat does, and more.
    Stats(statistics::Options),
    /// Says whether delays stayed the same beside what else was queued, and what an overload did to normal mail.
    Verdicts(verdicts::Options),
    /// Watches a mailer that runs: what it uses, its system calls, when it syncs.
    Watch(watch::Options),
    /// Starts mailers, sends each a few messages and says where they went. Needs root.
    TrySubject(subject::trial::Options),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().tool {
        Tool::Costs(options) => costs::run(&options),
        Tool::Depth(options) => depth::run(options),
        Tool::Budgets(options) => budgets_command::run(options),
        Tool::Layout(options) => layout::command(options),
        Tool::Machine(options) => machine::run(options),
        Tool::Compare(options) => campaign::compare(options.or_all_compared()),
        Tool::Power(options) => power::run(options),
        Tool::Hold(options) => hold::run(&options),
        Tool::Report(options) => report_command::run(options, campaign::abouts()?),
        Tool::Run(options) => campaign::run_alone(&options),
        Tool::Scenarios { name } => campaign::scenarios(name.as_deref()),
        Tool::Sink(options) => sink::run(options),
        Tool::Source(options) => source::run(options),
        Tool::Stats(options) => statistics::run(options),
        Tool::Verdicts(options) => verdicts::run(&options),
        Tool::Watch(options) => watch::run(options),
        Tool::TrySubject(options) => subject::trial::run(options),
    }
}
