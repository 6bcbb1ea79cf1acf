//! From the settings to what each machine below `daemon` calls its own settings. Must never decide
//! anything: what a file can say is decided in `schema`, what follows from it in the machines.

use super::{
    BareNewline, Deliver, DestinationSettings, DnsChoice, HostEnvironment, Listen, ListenAddress,
    ListenProtocol, LocalSettings, Piece, Problem, SettingOrigin, Settings, Users,
};
use mail::{Address, NextHop};
use policy::{Accounts, ConnectionLimits, Mailboxes, Names, Needs, Policy, Routes, Standing};
use smtp::framing::BareLf;
use std::net::IpAddr;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Refusals of a client in `relay.from` before each counts as wrong: as many as a transaction may have
/// recipients at the most, so that no list of it is ever cut off.
const TRUSTED_REFUSALS_MAX: u32 = 1_000_000;

/// Recipients of one LMTP transaction: the session holds a reply for each of them until the end of the data.
const LMTP_RECIPIENTS_MAX: u32 = 1_000;

/// Bytes of one command line with its CRLF. RFC 5321 4.5.3.1.4 and the extensions need about 1,600.
const COMMAND_BYTES_MAX: usize = 2_048;

/// Bytes of replies that wait to be written to one client; above it the session reads nothing more.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// Bytes of a body that a session hands over at once. A body of this size or less crosses in one piece from the client
/// to the queue process and from there to the next hop, so the three crates must agree.
const BODY_CHUNK_BYTES: usize = link::send::INLINE_BYTES_MAX as usize;
const _: () = assert!(link::send::INLINE_BYTES_MAX == smtp::client::INLINE_BODY_BYTES_MAX);

// What a client session asks for at once is what the queue process may be asked for at once.
const _: () = assert!(smtp::client::BODY_CHUNK_BYTES_MAX <= link::send::CHUNK_BYTES_MAX);

/// How long one attempt waits for a next hop at each step: the least that RFC 5321 4.5.3.2 asks for, and at most an hour
/// for one message.
const NEXT_HOP_TIMEOUTS: smtp::client::Timeouts = smtp::client::Timeouts {
    greeting: minutes(5),
    hello: minutes(5),
    mail: minutes(5),
    rcpt: minutes(5),
    data: minutes(2),
    block: minutes(3),
    end: minutes(10),
    total: minutes(60),
};

/// The port of next hops that an MX lookup finds.
const SMTP_PORT: u16 = 25;

/// What one attempt may try before its recipients are deferred.
const ATTEMPT_LIMITS: delivery::Limits = delivery::Limits {
    addresses_max: 5,
    connect: Duration::from_secs(30),
    resolve: Duration::from_secs(60),
};

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

impl Settings {
    /// What a session of this listener goes by; `trusted`: its client is in `relay.from`.
    pub fn smtp(&self, listen: &Listen, trusted: bool) -> smtp::server::Settings {
        let limits = &self.limits;
        let (recipients_max, refusals_max) = match trusted {
            true => (listen.recipients_max, TRUSTED_REFUSALS_MAX),
            false => {
                let recipients_max = listen.recipients_max.min(listen.stranger_recipients_max);
                (recipients_max, limits.refusals_max)
            }
        };
        let bare_lf = match self.relay.bare_newline {
            BareNewline::Normalize if trusted => BareLf::Normalize,
            _ => BareLf::Refuse,
        };
        smtp::server::Settings {
            bare_lf,
            lmtp: listen.protocol == ListenProtocol::Lmtp,
            message_bytes_max: listen.message_bytes_max,
            header_bytes_max: limits.header_bytes_max,
            hops_max: limits.hops_max,
            recipients_max,
            bad_commands_max: limits.bad_commands_max,
            idle_commands_max: limits.idle_commands_max,
            refusals_max,
            command_timeout: limits.command_timeout,
            data_timeout: limits.data_timeout,
            data_bytes_per_second_min: limits.data_bytes_per_second_min,
            transaction_time_max: limits.transaction_time_max,
            hostname: listen.hostname.clone(),
            line_bytes_max: None,
            lmtp_recipients_max: LMTP_RECIPIENTS_MAX,
            mails_max: None,
            command_bytes_max: COMMAND_BYTES_MAX,
            body_chunk_bytes: BODY_CHUNK_BYTES,
            output_bytes_max: OUTPUT_BYTES_MAX,
        }
    }

    /// How many connections this listener takes.
    pub fn connections(&self, listen: &Listen) -> ConnectionLimits {
        ConnectionLimits {
            connections_max: self.limits.connections,
            listener_connections: listen.connections,
            connections_per_client: listen.connections_per_client,
        }
    }

    /// What judges recipients and says where their mail goes.
    pub fn policy(&self, environment: &HostEnvironment) -> Policy {
        Policy {
            relay_from: self.relay.from.clone(),
            mailboxes: self.local.mailboxes(environment),
            postmaster: self.postmaster.value.clone(),
            routes: self.routes(environment),
        }
    }

    /// What is wrong with the postmaster: nobody gets the mail that everybody may send to it.
    pub(super) fn postmaster_problem(&self, environment: &HostEnvironment) -> Option<Problem> {
        let mail::Verdict::Reject(reply) = self.policy(environment).postmaster() else {
            return None;
        };
        let who = match &self.postmaster.value {
            policy::Postmaster::Mailbox(local) => format!("`{local}`"),
            policy::Postmaster::Address(address) => format!("<{address}>"),
        };
        let help = "set `postmaster` to an account that gets mail, or to the address of somebody who reads it";
        let what =
            format!("mail for the postmaster goes to {who}, which accepts none: {}", reply.text);
        Some(self.postmaster.origin.problem("postmaster", what, help))
    }

    /// Each group of a listener that is no group of this system.
    fn group_problems(&self, is_group: impl Fn(&str) -> bool) -> Vec<Problem> {
        let problem = |listen: &Listen| {
            let group = listen.group.as_ref().filter(|group| !is_group(&group.value))?;
            let what = format!("this system has no group `{}`", group.value);
            let help = "`getent group` lists the groups";
            Some(group.origin.problem("listen.group", what, help))
        };
        self.listen.iter().filter_map(problem).collect()
    }

    /// Everything in these settings that does not fit this system.
    pub fn problems_here(
        &self,
        environment: &HostEnvironment,
        is_group: impl Fn(&str) -> bool,
    ) -> Vec<Problem> {
        self.postmaster_problem(environment)
            .into_iter()
            .chain(self.group_problems(is_group))
            .collect()
    }

    /// The addresses that we listen at; where that is any, those of the machine.
    pub fn own_addresses(&self, environment: &HostEnvironment) -> Vec<IpAddr> {
        let addresses = |listen: &Listen| match &listen.address {
            ListenAddress::Tcp(address) if address.ip().is_unspecified() => {
                let v6_too = address.is_ipv6();
                let heard = |own: &IpAddr| own.is_ipv4() || v6_too;
                environment.addresses.iter().copied().filter(heard).collect()
            }
            ListenAddress::Tcp(address) => vec![address.ip()],
            _ => Vec::new(),
        };
        self.listen.iter().flat_map(addresses).collect()
    }

    /// Where mail for each domain goes. Mail to the literal of an address that is not ours goes
    /// nowhere: it could be an address in our own network.
    pub fn routes(&self, environment: &HostEnvironment) -> Routes {
        let own_hop = match &self.local.deliver {
            Deliver::Lmtp(hop) => hop.clone(),
            Deliver::Maildir(_) | Deliver::Mbox(_) | Deliver::Pipe(_) => NextHop::Local,
        };
        let own = self.local.domains.iter().cloned().collect();
        Routes::new(own, own_hop, self.hostname.clone(), self.routes.clone(), false)
            .with_addresses(self.own_addresses(environment))
            .with_postmaster(&self.postmaster.value)
    }

    /// What the spool goes by.
    pub fn spool(&self) -> spool::Settings {
        let segment_bytes = self.spool.segment_bytes;
        spool::Settings {
            segment_bytes,
            batch_bytes_max: self.spool.batch_bytes_max,
            commits_in_flight: self.spool.commits_in_flight as usize,
            reserve_bytes: self.spool.reserve_bytes,
            keep_free_bytes: self.spool.keep_free_bytes,
            snapshot_log_bytes: self.spool.snapshot_log_bytes,
            bulk_body_bytes_min: 1 << 20,
            // One chunk is what a sending process fetches at once; a segment must have room for eight.
            chunk_bytes_max: link::send::CHUNK_BYTES_MAX.min(segment_bytes / 8),
            // A snapshot writes the whole index: with 3, snapshots add at most a third to the bytes of the log.
            snapshot_log_factor: 3,
            snapshot_slice_messages: 4096,
            staged_bytes_max: 256 << 20,
            own_bytes_max: 32 << 20,
            spares: 3,
            change_delay_ms_max: 20,
            recent_transactions_max: 65_536,
            zero_slice_bytes: 1 << 20,
            copy_forward_divisor: 8,
            create: true,
        }
    }

    /// What the scheduler goes by.
    pub fn scheduler(&self) -> scheduler::Settings {
        let retry = &self.retry;
        let named = self.destinations.named.iter();
        scheduler::Settings {
            retry: scheduler::Retry {
                first: retry.first,
                factor: retry.factor,
                longest: retry.longest,
                expire: retry.expire,
                jitter: retry.jitter,
            },
            delay_notice: retry.delay_notice,
            default: self.destinations.default.limits(),
            limits: named.map(|(name, one)| (name.clone(), one.limits())).collect(),
            attempts_in_flight_max: self.queue.attempts_in_flight_max,
            bulk_bytes_min: self.queue.bulk_bytes_min,
            losses_max: self.queue.losses_max,
            order: self.queue.order,
        }
    }

    /// The settings of the queue process's machine.
    pub fn queue(&self, environment: &HostEnvironment) -> queue::Settings {
        let postmaster = format!("MAILER-DAEMON@{}", self.hostname);
        queue::Settings {
            hostname: self.hostname.to_string(),
            postmaster: Address::parse(&postmaster, true).expect("a host name makes a domain"),
            routes: self.routes(environment),
            scheduler: self.scheduler(),
            original_bytes_max: self.bounce.original_bytes_max,
            message_cache_bytes_max: queue::MESSAGE_CACHE_BYTES_MAX,
            credit_bytes: self.limits.session_memory_bytes_max,
            receivers: u16::try_from(self.processes.receive).unwrap_or(u16::MAX),
        }
    }

    /// The settings of every SMTP and LMTP session with a next hop.
    pub fn client(&self) -> smtp::client::Settings {
        smtp::client::Settings {
            helo: self.hostname.as_str().into(),
            timeouts: NEXT_HOP_TIMEOUTS,
            chunking: true,
        }
    }

    /// The limits of one attempt.
    pub fn attempt_limits(&self) -> delivery::Limits {
        ATTEMPT_LIMITS
    }

    /// The rules for mail that goes where the DNS says.
    pub fn rules(&self, environment: &HostEnvironment) -> delivery::Rules {
        let choice = |choice| match choice {
            DnsChoice::Use => delivery::Choice::Use,
            DnsChoice::Refuse => delivery::Choice::Refuse,
        };
        delivery::Rules {
            port: SMTP_PORT,
            ourselves: delivery::Ourselves {
                names: vec![self.hostname.as_str().into()],
                addresses: self.own_addresses(environment),
            },
            loopback_is_ourselves: true,
            mx_addresses: choice(self.dns.mx_addresses),
            mx_nxdomain: choice(self.dns.mx_nxdomain),
            private_addresses: choice(self.dns.private_addresses),
        }
    }
}

impl SettingOrigin {
    fn problem(&self, key: &str, what: String, help: &str) -> Problem {
        let SettingOrigin { file, place } = self.clone();
        Problem { file, place, key: key.into(), what, help: Some(help.into()) }
    }
}

impl LocalSettings {
    /// Which mailboxes there are: RCPT is answered by it, and mail is delivered by it.
    pub fn mailboxes(&self, environment: &HostEnvironment) -> Mailboxes {
        let needs = Needs { home: self.is_at_home(), only_user: environment.only_user };
        // The rule is about our own workers. An LMTP server has its own users and its own place for mail.
        let by_another = matches!(self.deliver, Deliver::Lmtp(_));
        let standing = |account: &super::UserAccount| {
            if by_another {
                return Standing::Gets;
            }
            let super::UserAccount { uid, gid, home_is: home, .. } = *account;
            policy::Account { uid, gid, home }.standing(needs)
        };
        let accounts = environment.accounts.iter();
        let accounts = match self.users {
            Users::Any => Accounts::Any,
            Users::System => Accounts::Listed(
                accounts.map(|account| (account.name.as_str().into(), standing(account))).collect(),
            ),
        };
        Mailboxes { names: self.names(), accounts }
    }

    /// Whether mail is kept in the homes of accounts.
    pub fn is_at_home(&self) -> bool {
        let (Deliver::Maildir(template) | Deliver::Mbox(template)) = &self.deliver else {
            return false;
        };
        self.users == Users::System && template.has(&Piece::Home)
    }

    fn names(&self) -> Names {
        // The first word is the program; within a word, what stands before {user} begins it.
        let is_argument = |word: &super::Template| word.0.first() == Some(&Piece::User);
        Names {
            dotlocks: matches!(self.deliver, Deliver::Mbox(_)),
            arguments: matches!(&self.deliver, Deliver::Pipe(words) if words.iter().any(is_argument)),
        }
    }
}

impl DestinationSettings {
    fn limits(&self) -> scheduler::DestinationLimits {
        scheduler::DestinationLimits {
            connections: self.connections,
            start_connections: self.start_connections,
            messages_per_connection: self.messages_per_connection,
            recipients_per_message: self.recipients_per_message,
            rate_per_second: self.rate.map(|rate| f64::from(rate.count) / rate.per.as_secs_f64()),
        }
    }
}
