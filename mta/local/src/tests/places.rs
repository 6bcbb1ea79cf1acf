//! Which place and which delivery user a recipient gets.

use super::*;
use crate::{DeliveryPlace, Format};
use policy::{NotTheirs, Ownership};

fn text(text: &str) -> Piece {
    Piece::Text(text.into())
}

/// The delivery user and the place of `Joe@l.test`.
fn place_of(deliver: Deliver, users: Users) -> (DeliveryUser, DeliveryPlace) {
    let mut bench = Bench::new(Settings { deliver, ..settings(users, LIMITS) });
    bench.small(1, &["Joe"]);
    let worker = bench.worker_of("Joe");
    (bench.workers[&worker].clone(), bench.batches[&worker][0].place.clone())
}

#[test]
fn each_kind_of_delivery_has_its_place_and_its_user() {
    let joe = || DeliveryUser::Account("joe".into());
    let mailbox = |base: &str, path: &str, format| DeliveryPlace::Mailbox {
        base: base.into(),
        path: path.into(),
        format,
    };
    let shared = || Template(vec![Piece::State, text("/mail/"), Piece::User, text("/")]);
    let at_home = Template(vec![Piece::Home, text("/Maildir/")]);
    let words = ["/bin/x", "--to"].map(|word| Template(vec![text(word)]));
    let pipe = || {
        let user = Template(vec![Piece::Home, text(":"), Piece::User, text("@"), Piece::Domain]);
        Deliver::Pipe(words.iter().cloned().chain([user]).collect())
    };
    let command =
        |user: &str| DeliveryPlace::Command(vec!["/bin/x".into(), "--to".into(), user.into()]);
    for (deliver, users, expected) in [
        (
            Deliver::Maildir(shared()),
            Users::Any,
            (DeliveryUser::ThisProcess, mailbox("/state/mail", "joe", Format::Maildir)),
        ),
        (
            Deliver::Mbox(shared()),
            Users::System,
            (joe(), mailbox("/state/mail", "joe", Format::Mbox)),
        ),
        (
            Deliver::Maildir(at_home),
            Users::System,
            (joe(), mailbox("/home/joe", "Maildir", Format::Maildir)),
        ),
        (pipe(), Users::Any, (DeliveryUser::Account("".into()), command("/:joe@l.test"))),
        (pipe(), Users::System, (joe(), command("/home/joe:joe@l.test"))),
    ] {
        assert_eq!(place_of(deliver, users), expected);
    }
}

#[test]
fn mail_that_belongs_to_another_server_waits() {
    let hop = NextHop::LmtpUnix("/run/lmtp".into());
    let deliver = Deliver::Lmtp(hop);
    let mut bench = Bench::new(Settings { deliver, ..settings(Users::Any, LIMITS) });
    bench.small(1, &["a"]);
    assert_eq!(bench.told(), [codes(1, &["4.3.5"])]);
}

#[test]
fn an_alarm_names_the_mailbox_of_its_delivery_and_one_of_no_delivery_is_dropped() {
    let mut bench = accounts();
    bench.small(1, &["ann"]);
    let found = Ownership { uid: 1, gid: 2, mode: 0o666 };
    let alarm = |delivery| MailboxAlarm { delivery, why: NotTheirs::Owner(1, 2), found };
    let busy = outcome(Reply::new(451, Enhanced(4, 2, 0), "not theirs"), "/home/ann/Maildir");
    bench.done(bench.worker_of("ann"), vec![busy], vec![alarm(0), alarm(7)]);
    assert_eq!(bench.alarms, [("/home/ann/Maildir".to_owned(), alarm(0))]);
    assert_eq!(bench.told(), [codes(1, &["4.2.0"])]);
}
