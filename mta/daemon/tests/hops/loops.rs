//! Mail that returns: from one mailer to another and back, by SMTP and by LMTP (D161, M063, M064).
//!
//! Must never wait for a loop to end by itself: the Received fields count the passes.

use crate::HURRY;
use crate::support::{Client, Daemon, Setup, free_port, token, until};

fn send(daemon: &Daemon, sender: &str, recipient: &str) {
    let mut client = Client::in_data(daemon.port, sender, recipient);
    client.send("Subject: round and round\r\n\r\nbody\r\n.\r\n");
    client.expect(250);
}

fn is_empty(daemons: &[&Daemon]) -> Option<()> {
    daemons.iter().all(|daemon| daemon.queued() == 0).then_some(())
}

#[test]
fn d161_m063_two_mailers_that_send_to_each_other_end_it_with_one_notice() {
    let ports = [free_port(), free_port()];
    let daemons = [0, 1].map(|number| {
        let (own, other) = (ports[number], ports[1 - number]);
        Daemon::start(Setup {
            routes: format!("[[route]]\ndomain = \"loop.test\"\nto = \"smtp:127.0.0.1:{other}\"\n"),
            tables: format!("[[listen]]\naddress = \"127.0.0.1:{own}\"\n{HURRY}"),
            ..Setup::default()
        })
    });
    let both = [&daemons[0], &daemons[1]];
    let user = token("d161");
    send(both[0], &format!("{user}@local.test"), "b@loop.test");
    let notices =
        || -> Vec<String> { both.iter().flat_map(|daemon| daemon.mailbox(&user)).collect() };
    until("the notice", || (!notices().is_empty()).then_some(()));
    // A bounce in a loop reaches nobody.
    send(both[0], "", "b@loop.test");
    until("empty queues", || is_empty(&both));
    let notices = notices();
    assert!(notices.len() == 1 && notices[0].contains("Status: 5.4.6"), "{notices:?}");
    let passes: usize =
        both.iter().map(|daemon| daemon.log().matches("<b@loop.test>").count()).sum();
    assert!((50..=102).contains(&passes), "{passes} attempts for two messages");
}

#[test]
fn m064_a_mailer_that_is_its_own_lmtp_server_ends_the_loop_with_one_notice() {
    let lmtp = free_port();
    let daemon = Daemon::start(Setup {
        routes: format!("[[route]]\ndomain = \"loop.test\"\nto = \"lmtp:127.0.0.1:{lmtp}\"\n"),
        tables: format!("[[listen]]\naddress = \"127.0.0.1:{lmtp}\"\nprotocol = \"lmtp\"\n{HURRY}"),
        ..Setup::default()
    });
    let user = token("m064");
    send(&daemon, &format!("{user}@local.test"), "b@loop.test");
    let notice = daemon.wait_in_mailbox(&user, "Action: failed");
    assert!(notice.contains("Status: 5.4.6"), "{notice}");
    until("an empty queue", || is_empty(&[&daemon]));
    assert_eq!(daemon.mailbox(&user).len(), 1);
}
