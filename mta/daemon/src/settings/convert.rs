//! From the settings to what each machine below `daemon` calls its own settings. Must never decide
//! anything: what a file can say is decided in `schema`, what follows from it in the machines.

use super::{
    BareNewline, Deliver, Destination, Listen, ListenAddress, Local, Order, Origin, Piece, Problem,
    Protocol, Settings, Surroundings, Users,
};
use mail::NextHop;
use policy::{Accounts, ConnectionLimits, Mailboxes, Names, Needs, Policy, Routes, Standing};
use smtp::framing::BareLf;
use std::net::IpAddr;

/// Refusals of a client in `relay.from` before each counts as wrong: as many as a transaction may have
/// recipients at the most, so that no list of it is ever cut off.
const TRUSTED_REFUSALS_MAX: u32 = 1_000_000;

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
            lmtp: listen.protocol == Protocol::Lmtp,
            message_bytes_max: listen.message_bytes_max,
            header_bytes_max: limits.header_bytes_max,
            hops_max: limits.hops_max,
            recipients_max,
            errors_max: limits.junk_commands_max,
            idle_commands_max: limits.idle_commands_max,
            refusals_max,
            command_wait_max: limits.command_timeout,
            data_wait_max: limits.data_timeout,
            data_bytes_per_second_min: limits.data_bytes_per_second_min,
            transaction_wait_max: limits.transaction_time_max,
            ..smtp::server::Settings::new(listen.hostname.clone())
        }
    }

    /// How many connections this listener takes.
    pub fn connections(&self, listen: &Listen) -> ConnectionLimits {
        ConnectionLimits {
            connections_max: self.limits.connections,
            listener_connections_max: listen.connections,
            connections_per_client_max: listen.connections_per_client,
        }
    }

    /// What judges recipients and says where their mail goes.
    pub fn policy(&self, surroundings: &Surroundings) -> Policy {
        Policy {
            relay_from: self.relay.from.clone(),
            mailboxes: self.local.mailboxes(surroundings),
            postmaster: self.postmaster.to.clone(),
            routes: self.routes(surroundings),
        }
    }

    /// What is wrong with the postmaster: nobody gets the mail that everybody may send to it.
    pub(super) fn postmaster_problem(&self, surroundings: &Surroundings) -> Option<Problem> {
        let mail::Verdict::Reject(reply) = self.policy(surroundings).postmaster() else {
            return None;
        };
        let who = match &self.postmaster.to {
            policy::Postmaster::Mailbox(local) => format!("`{local}`"),
            policy::Postmaster::Address(address) => format!("<{address}>"),
        };
        let help = "set `postmaster` to an account that gets mail, or to an address of somebody who reads it";
        let what =
            format!("mail for the postmaster goes to {who}, which takes none: {}", reply.text);
        Some(self.postmaster.origin.problem("postmaster", what, help))
    }

    /// Each group of a listener that is no group of this system.
    fn group_problems(&self, is_group: impl Fn(&str) -> bool) -> Vec<Problem> {
        let problem = |listen: &Listen| {
            let name = listen.socket.group.as_deref().filter(|name| !is_group(name))?;
            let what = format!("this system has no group `{name}`");
            let help = "`getent group` shows the groups that there are";
            Some(listen.socket.group_origin.problem("listen.group", what, help))
        };
        self.listen.iter().filter_map(problem).collect()
    }

    /// Everything in these settings that does not fit this system.
    pub fn problems_here(
        &self,
        surroundings: &Surroundings,
        is_group: impl Fn(&str) -> bool,
    ) -> Vec<Problem> {
        self.postmaster_problem(surroundings)
            .into_iter()
            .chain(self.group_problems(is_group))
            .collect()
    }

    /// The addresses that we listen at; where that is any, those of the machine.
    pub fn own_addresses(&self, surroundings: &Surroundings) -> Vec<IpAddr> {
        let addresses = |listen: &Listen| match &listen.address {
            ListenAddress::Tcp(address) if address.ip().is_unspecified() => {
                let v6_too = address.is_ipv6();
                let heard = |own: &IpAddr| own.is_ipv4() || v6_too;
                surroundings.addresses.iter().copied().filter(heard).collect()
            }
            ListenAddress::Tcp(address) => vec![address.ip()],
            _ => Vec::new(),
        };
        self.listen.iter().flat_map(addresses).collect()
    }

    /// Where mail for each domain goes. Mail to the literal of an address that is not ours goes
    /// nowhere: it could be an address in our own network.
    pub fn routes(&self, surroundings: &Surroundings) -> Routes {
        let own_hop = match &self.local.deliver {
            Deliver::Lmtp(hop) => hop.clone(),
            Deliver::Maildir(_) | Deliver::Mbox(_) | Deliver::Pipe(_) => NextHop::Local,
        };
        let own = self.local.domains.iter().cloned().collect();
        Routes::new(own, own_hop, self.hostname.clone(), self.routes.clone(), false)
            .with_addresses(self.own_addresses(surroundings))
            .with_postmaster(&self.postmaster.to)
    }

    /// What the spool goes by.
    pub fn spool(&self) -> spool::Settings {
        let plain = spool::Settings::default();
        // Sizes of at most 1 GiB by the table of knobs.
        let small = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let segment_bytes = small(self.spool.segment_bytes);
        spool::Settings {
            segment_bytes,
            batch_bytes_max: small(self.spool.batch_bytes_max),
            commits_in_flight: self.spool.commits_in_flight as usize,
            reserve_bytes: self.spool.reserve_bytes,
            keep_free_bytes: self.spool.keep_free_bytes,
            snapshot_log_bytes: self.spool.snapshot_bytes,
            // The spool asks for at least eight chunks in a segment.
            chunk_bytes_max: plain.chunk_bytes_max.min(segment_bytes / 8),
            ..plain
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
            delay_notice_after: retry.delay_notice,
            default: self.destinations.default.limits(),
            limits: named.map(|(name, one)| (name.clone(), one.limits())).collect(),
            attempts_in_flight_max: self.queue.attempts_in_flight_max,
            bulk_bytes_min: self.queue.bulk_bytes_min,
            losses_max: self.queue.losses_max.try_into().unwrap_or(u8::MAX),
            order: self.queue.order.of_scheduler(),
        }
    }
}

impl Origin {
    fn problem(&self, key: &str, what: String, help: &str) -> Problem {
        let Origin { file, place } = self.clone();
        Problem { file, place, key: key.into(), what, help: Some(help.into()) }
    }
}

impl Local {
    /// Which mailboxes there are: RCPT is answered by it, and mail is delivered by it.
    pub fn mailboxes(&self, surroundings: &Surroundings) -> Mailboxes {
        let needs = Needs { home: self.is_at_home(), only_user: surroundings.only_user };
        // The rule is about our own workers. An LMTP server has its own users and its own place for mail.
        let by_another = matches!(self.deliver, Deliver::Lmtp(_));
        let standing = |account: &super::Account| {
            if by_another {
                return Standing::Gets;
            }
            let super::Account { uid, gid, home_is: home, .. } = *account;
            policy::Account { uid, gid, home }.standing(needs)
        };
        let accounts = surroundings.accounts.iter();
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

impl Destination {
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

impl Order {
    fn of_scheduler(self) -> scheduler::Order {
        match self {
            Order::Fair => scheduler::Order::Fair,
            Order::Priority => scheduler::Order::Priority,
            Order::Arrival => scheduler::Order::Arrival,
            Order::Destination => scheduler::Order::Destination,
            Order::Modified => scheduler::Order::Modified,
            Order::Id => scheduler::Order::Id,
            Order::Random => scheduler::Order::Random,
            Order::None => scheduler::Order::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::{Surroundings, System, load};
    use mail::{Domain, NextHop};
    use smtp::framing::BareLf;

    #[test]
    fn what_the_file_says_reaches_the_machines() {
        let system = System { hostname: "mx.test".into(), state: "/s".into() };
        let text = br#"
            [[listen]]
            address = "*:24"
            protocol = "lmtp"
            message_bytes_max = "1MB"
            [local]
            domains = ["here.test"]
            [[route]]
            domain = "*.sink.test"
            to = "smtp:127.0.0.1:2600"
            [limits]
            junk_commands_max = 3
            [destination."slow.test"]
            connections = 2
            rate = "30/m"
            [queue]
            order = "arrival"
        "#;
        let settings = load(text, "f", &system).unwrap();
        let smtp = settings.smtp(&settings.listen[0], true);
        assert_eq!((smtp.lmtp, smtp.message_bytes_max, smtp.errors_max), (true, 1_000_000, 3));
        let scheduler = settings.scheduler();
        assert_eq!(scheduler.order, scheduler::Order::Arrival);
        let (name, slow) = &scheduler.limits[0];
        assert_eq!((name.as_str(), slow.connections), ("slow.test", 2));
        assert_eq!((slow.start_connections, slow.rate_per_second), (2, Some(0.5)));
        let routes = settings.routes(&Surroundings::default());
        let hop = |name: &str| routes.next_hop(&Domain::parse(name).unwrap()).to_string();
        assert_eq!(hop("here.test"), NextHop::Local.to_string());
        assert_eq!(hop("a.sink.test"), "smtp:127.0.0.1:2600");
        assert_eq!(hop("elsewhere.test"), "elsewhere.test");
    }

    #[test]
    fn r211_strangers_may_address_fewer_recipients_than_those_who_may_relay() {
        let system = System { hostname: "mx.test".into(), state: "/s".into() };
        let most = |text: &str| {
            let settings = load(text.as_bytes(), "f", &system).unwrap();
            let of = |trusted| settings.smtp(&settings.listen[0], trusted).recipients_max;
            (of(true), of(false))
        };
        for (text, expected) in [
            ("", (50_000, 1_000)),
            ("[limits]\nstranger_recipients_max = 1000000", (50_000, 50_000)),
            ("[limits]\nrecipients_max = 200", (200, 200)),
            ("[limits]\nrecipients_max = 1000000", (1_000_000, 1_000)),
            ("[[listen]]\naddress = \"*:25\"\nstranger_recipients_max = 100", (50_000, 100)),
            ("[[listen]]\naddress = \"*:25\"\nrecipients_max = 100", (100, 100)),
        ] {
            assert_eq!(most(text), expected, "{text}");
        }
    }

    #[test]
    fn r232_bare_newlines_are_normalized_for_those_who_may_relay_unless_the_file_says_no() {
        let system = System { hostname: "mx.test".into(), state: "/s".into() };
        for (text, trusted) in [
            ("", BareLf::Normalize),
            ("[relay]\nbare_newline = \"refuse\"", BareLf::Refuse),
            ("[relay]\nfrom = []\nbare_newline = \"normalize\"", BareLf::Normalize),
        ] {
            let settings = load(text.as_bytes(), "f", &system).unwrap();
            let of = |trusted| settings.smtp(&settings.listen[0], trusted).bare_lf;
            assert_eq!((of(true), of(false)), (trusted, BareLf::Refuse), "{text}");
        }
    }

    #[test]
    fn r213_who_gets_mail_is_the_lmtp_servers_matter_where_one_delivers() {
        let system = System { hostname: "mx.test".into(), state: "/s".into() };
        let account = |name: &str, uid| crate::settings::Account {
            name: name.into(),
            uid,
            gid: uid,
            home: "/nonexistent".into(),
            has_private_group: false,
            home_is: policy::Home::NotTheirs,
        };
        let accounts = vec![account("ann", 1000), account("root", 0)];
        // The mailer was started by an ordinary user, who is neither of them.
        let around = Surroundings { accounts, only_user: Some(77), ..Surroundings::default() };
        for (deliver, gets) in [("lmtp:127.0.0.1:24", true), ("maildir:/var/mail/{user}/", false)] {
            let text = format!("[local]\nusers = \"system\"\ndeliver = {deliver:?}");
            let mailboxes = load(text.as_bytes(), "f", &system).unwrap().local.mailboxes(&around);
            for user in ["ann", "root"] {
                assert_eq!(mailboxes.find(user).is_ok(), gets, "{user} by {deliver}");
            }
            assert!(mailboxes.find("nobody-of-this-name").is_err());
        }
    }

    #[test]
    fn r213_the_postmaster_of_the_machine_is_accepted_and_delivered_by_one_rule() {
        const HOP: &str = "smtp:127.0.0.1:26";
        let system = System { hostname: "mx.a.test".into(), state: "/s".into() };
        let around = Surroundings::default();
        let address = |text: &str| mail::Address::parse(text, false).unwrap();
        // Routes and postmaster; whether a stranger's recipient is accepted, and delivered here.
        let table: [(&[&str], &str, &str, bool, bool); 12] = [
            (&[], "postmaster", "postmaster@mx.a.test", true, true),
            (&["*"], "postmaster", "PostMaster@MX.a.test", true, true),
            (&["*"], "ann", "\"postmaster\"@mx.a.test", true, true),
            (&["*"], "ann@mx.a.test", "postmaster@mx.a.test", true, true),
            (&["*"], "ann@b.test", "postmaster@mx.a.test", true, false),
            (&["*"], "ann", "bob@mx.a.test", false, false),
            (&["*", "mx.a.test"], "ann", "postmaster@mx.a.test", true, true),
            (&["*.mx.a.test", "*"], "ann", "postmaster@mx.a.test", true, true),
            (&["mx.a.test", "*"], "ann", "postmaster@mx.a.test", false, false),
            (&["*.a.test"], "postmaster", "postmaster@mx.a.test", false, false),
            (&["*.a.test"], "ann@mx.a.test", "ann@mx.a.test", false, false),
            (&["*", "*.a.test"], "postmaster", "postmaster@a.test", true, true),
        ];
        for (routes, postmaster, text, accepted, here) in table {
            let routes: String = routes
                .iter()
                .map(|domain| format!("[[route]]\ndomain = {domain:?}\nto = {HOP:?}\n"))
                .collect();
            let top = format!("postmaster = {postmaster:?}\nlocal.domains = [\"a.test\"]\n");
            let settings = load((top + &routes).as_bytes(), "f", &system).unwrap();
            let policy = settings.policy(&around);
            let verdict =
                policy.recipient(policy::Client { address: None, trusted: false }, &address(text));
            assert_eq!(verdict == mail::Verdict::Accept, accepted, "{text} by {routes}");
            let recipient = mail::Recipient {
                address: address(text),
                notify: mail::Notify::DEFAULT,
                orcpt: None,
            };
            let hop = settings.routes(&around).next_hop_of(&policy.as_delivered(recipient).address);
            assert_eq!(hop == NextHop::Local, here, "{text} by {routes}: {hop}");
        }
    }

    #[test]
    fn the_addresses_we_listen_at_are_ours_as_literals_and_mboxes_have_locks() {
        let system = System { hostname: "mx.test".into(), state: "/s".into() };
        let text = br#"
            [[listen]]
            address = "127.0.0.1:25"
            [[listen]]
            address = "*:587"
            [local]
            deliver = "mbox:/var/mail/{user}"
        "#;
        let settings = load(text, "f", &system).unwrap();
        let policy = settings.policy(&Surroundings::default());
        let hop = |name: &str| policy.routes.next_hop(&Domain::parse(name).unwrap());
        assert_eq!(hop("[127.0.0.1]"), NextHop::Local);
        assert!(matches!(hop("[127.0.0.2]"), NextHop::Error(_)));
        assert!(matches!(hop("[0.0.0.0]"), NextHop::Error(_)));
        assert!(policy.mailboxes.names.dotlocks);
        let plain = load(b"", "f", &system).unwrap().policy(&Surroundings::default());
        assert!(!plain.mailboxes.names.dotlocks);
    }

    #[test]
    fn the_spool_takes_whatever_the_knobs_let_through() {
        let system = System { hostname: "mx.test".into(), state: "/s".into() };
        let defaults = load(b"", "f", &system).unwrap().spool();
        assert_eq!(defaults, spool::Settings::default());
        for (segment, batch) in [("1MiB", "64KiB"), ("1MiB", "256KiB"), ("1GiB", "256MiB")] {
            let text = format!("[spool]\nsegment_bytes = {segment:?}\nbatch_bytes_max = {batch:?}");
            let settings = load(text.as_bytes(), "f", &system).unwrap().spool();
            assert_eq!(settings.problem(), None, "{segment} {batch}");
        }
    }

    #[test]
    fn the_scheduler_s_own_defaults_are_those_of_the_knobs() {
        let system = System { hostname: "mx.test".into(), state: "/s".into() };
        let settings = load(b"", "f", &system).unwrap();
        let (ours, theirs) = (settings.scheduler(), scheduler::Settings::default());
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    }
}
