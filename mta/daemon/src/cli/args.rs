//! The arguments of the command line.
//!
//! Must never act: these are types that clap fills.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use link::admin::{Filter, State};
use mail::MessageId;
use scheduler::{ORDERS, Order};
use std::path::PathBuf;

/// A mail transfer agent: accepts mail over SMTP, keeps it, delivers it.
#[derive(Debug, Parser)]
#[command(name = "posthaste", version, max_term_width = 100)]
pub(super) struct Args {
    /// The settings file; without it POSTHASTE_CONFIG, then /etc/posthaste/posthaste.toml, then the defaults
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run in the foreground; the log goes to standard error or journald
    Run {
        /// Format of the log, instead of the one in the settings
        #[arg(long, value_enum)]
        log: Option<LogAs>,
    },
    /// Check the settings file and report everything that is wrong with it
    Check,
    /// Inspect the queue and act on it
    Queue {
        #[command(subcommand)]
        command: QueueCommand,
    },
    /// Show the processes, how long they have run, and their counters
    Status {
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Inspect the spool on disk
    Spool {
        #[command(subcommand)]
        command: SpoolCommand,
    },
    /// Print every setting with its default, range and reason, as Markdown
    Settings,
    /// A process of posthaste; started only by its master
    #[command(hide = true)]
    Role { name: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogAs {
    /// One line of key=value an event
    Text,
    /// One JSON object an event
    Json,
}

#[derive(Debug, Subcommand)]
pub(super) enum SpoolCommand {
    /// Read the whole spool, change nothing, and name every damaged record and its message
    Check {
        /// One JSON object a finding
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum QueueCommand {
    /// List messages, oldest first
    List {
        #[command(flatten)]
        which: Which,
        /// Maximum number of messages
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
        /// One JSON object a message, one a line
        #[arg(long)]
        json: bool,
    },
    /// Show a message's envelope and headers
    Show {
        #[arg(required = true, value_name = "ID")]
        ids: Vec<MessageId>,
        /// One JSON object a message
        #[arg(long)]
        json: bool,
    },
    /// Explain for each recipient what it waits for, since when, the last reply and the next try
    Explain {
        #[arg(required = true, value_name = "ID")]
        ids: Vec<MessageId>,
        /// One JSON object a message
        #[arg(long)]
        json: bool,
    },
    /// Hold messages: they are not tried until they are released
    Hold(Acting),
    /// Release held messages
    Release(Acting),
    /// Try deferred messages now; releases no holds
    Retry(Acting),
    /// Delete messages without notices to their senders; counts them and asks first
    Delete {
        #[command(flatten)]
        acting: Acting,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Try all deferred mail now; releases no holds
    Flush(Acting),
    /// Give messages a priority from -100 (last) to 100 (first)
    Priority {
        #[arg(allow_negative_numbers = true, value_parser = clap::value_parser!(i8).range(-100..=100))]
        value: i8,
        #[command(flatten)]
        acting: Acting,
    },
    /// Show the queue in a few numbers
    Summary {
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Read and sort the whole queue and start it in this order; prints both times and their sum
    Run {
        #[arg(long, default_value = "fair", value_parser = orders())]
        order: Order,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Arguments of an action on messages.
#[derive(Debug, ClapArgs)]
pub(super) struct Acting {
    #[command(flatten)]
    pub which: Which,
    /// Every message
    #[arg(long)]
    pub all: bool,
    /// Only count the messages
    #[arg(long)]
    pub dry_run: bool,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

/// Selection of messages. They must meet all conditions that are given.
#[derive(Clone, Debug, Default, ClapArgs)]
pub(super) struct Which {
    /// Queue ids
    #[arg(value_name = "ID")]
    pub ids: Vec<MessageId>,
    /// With a recipient in this domain or for this next hop; `*` stands for anything
    #[arg(long, value_name = "DOMAIN")]
    pub destination: Option<String>,
    /// From this address; `*` stands for anything, `<>` for the null sender
    #[arg(long, value_name = "ADDRESS")]
    pub sender: Option<String>,
    /// For this address; `*` stands for anything
    #[arg(long, value_name = "ADDRESS")]
    pub recipient: Option<String>,
    /// Minimum age, as in 90s, 5m, 2h or 3d
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub older: Option<u64>,
    /// In this state
    #[arg(long, value_enum)]
    pub state: Option<StateArg>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum StateArg {
    /// In flight or ready for an attempt
    Active,
    /// Waiting for the retry schedule
    Deferred,
    /// Held
    Held,
}

impl Which {
    pub fn filter(self) -> Filter {
        Filter {
            ids: self.ids,
            destination: self.destination,
            sender: self.sender.map(|sender| bare(&sender)),
            recipient: self.recipient.map(|recipient| bare(&recipient)),
            older_seconds: self.older,
            state: self.state.map(|state| match state {
                StateArg::Active => State::Active,
                StateArg::Deferred => State::Deferred,
                StateArg::Held => State::Held,
            }),
        }
    }
}

/// Returns an address without the `<>` that people copy from the log.
fn bare(address: &str) -> String {
    address.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).unwrap_or(address).into()
}

/// Parses `90`, `90s`, `5m`, `2h`, `3d` or `1w` into seconds.
fn seconds(text: &str) -> Result<u64, String> {
    const UNITS: [(char, u64); 5] =
        [('s', 1), ('m', 60), ('h', 3_600), ('d', 86_400), ('w', 604_800)];
    let unit = UNITS.iter().find(|(letter, _)| text.ends_with(*letter));
    let (digits, factor) = match unit {
        Some((letter, factor)) => (text.trim_end_matches(*letter), *factor),
        None => (text, 1),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(factor))
        .ok_or_else(|| "a time is a number and one of s, m, h, d, w, as in 2h".into())
}

/// Parser of the names of the orders.
fn orders() -> impl TypedValueParser<Value = Order> {
    PossibleValuesParser::new(ORDERS.map(|(name, _)| name)).try_map(|name| name.parse::<Order>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn times_have_units_and_bounds() {
        for (text, expected) in [
            ("90", Some(90)),
            ("90s", Some(90)),
            ("5m", Some(300)),
            ("2h", Some(7_200)),
            ("3d", Some(259_200)),
            ("1w", Some(604_800)),
            ("", None),
            ("h", None),
            ("-1h", None),
            ("1.5h", None),
            ("99999999999999999999d", None),
            ("9999999999999999999d", None),
        ] {
            assert_eq!(seconds(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn a_filter_takes_addresses_as_the_log_writes_them() {
        let args = ["posthaste", "queue", "list", "--sender", "<>", "--older", "2h", "0000000000z"];
        let Command::Queue { command: QueueCommand::List { which, .. } } =
            Args::try_parse_from(args).unwrap().command
        else {
            panic!("not a list");
        };
        let filter = which.filter();
        assert_eq!(filter.sender.as_deref(), Some(""));
        assert_eq!(filter.older_seconds, Some(7_200));
        assert_eq!(filter.ids, [MessageId(31)]);
        assert!(Args::try_parse_from(["posthaste", "queue", "explain", "nonsense"]).is_err());
        assert!(Args::try_parse_from(["posthaste", "queue", "run", "--order", "up"]).is_err());
        assert!(Args::try_parse_from(["posthaste", "queue", "priority", "-100", "--all"]).is_ok());
        assert!(Args::try_parse_from(["posthaste", "queue", "priority", "101", "--all"]).is_err());
    }
}
