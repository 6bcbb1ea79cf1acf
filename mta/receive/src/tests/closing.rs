//! The end of a connection: who lingers, who does not, and clients that take no replies.
//!
//! Must never let a test end with a connection that is still open.

use super::*;

#[test]
fn after_quit_or_the_end_of_input_the_connection_closes_at_once() {
    for quits in [true, false] {
        let mut bench = Bench::new();
        let mut peer = bench.connect(STRANGER);
        match quits {
            true => bench.say(&mut peer, "QUIT\r\n"),
            false => bench.hear(&mut peer, SessionInput::Eof),
        }
        assert_eq!(peer.outputs, [SessionOutput::Close]);
    }
}

#[test]
fn the_reply_to_quit_may_go_out_with_the_end_of_the_connection() {
    let mut bench = Bench::new();
    let mut peer = bench.connect(STRANGER);
    peer.deaf = true;
    bench.say(&mut peer, "NOOP\r\n");
    assert!(!peer.client.ends_after_replies());
    peer.deaf = false;
    bench.run(&mut peer);
    peer.deaf = true;
    bench.say(&mut peer, "QUIT\r\n");
    assert!(peer.client.ends_after_replies());
}

#[test]
fn a_client_that_hears_a_goodbye_has_half_a_second_to_read_it() {
    for closes in [true, false] {
        let mut bench = Bench::new();
        let mut peer = bench.connect(STRANGER);
        bench.say(&mut peer, "GET / HTTP/1.1\r\n");
        assert_eq!((peer.hear().as_str(), peer.outputs.len()), ("521", 1));
        assert_eq!(peer.outputs[0], SessionOutput::CloseWrite);
        bench.say(&mut peer, "Host: mx.test\r\n\r\n");
        assert_eq!(bench.wakeup(&peer), Some(Duration::from_millis(500)));
        match closes {
            true => bench.hear(&mut peer, SessionInput::Eof),
            false => bench.pass_for(&mut peer, Duration::from_millis(500)),
        }
        assert_eq!(peer.outputs[1..], [SessionOutput::Close]);
    }
}

#[test]
fn a_client_that_takes_no_replies_is_not_read_from_and_is_dropped_in_its_time() {
    let mut bench = Bench::new();
    let mut peer = bench.connect(STRANGER);
    bench.say(&mut peer, PATHS);
    peer.deaf = true;
    bench.say(&mut peer, "NOOP\r\n");
    assert_eq!(peer.client.read_bytes_max(&bench.gateway), 0);
    assert_eq!(bench.wakeup(&peer), Some(secs(300)));
    bench.pass_for(&mut peer, secs(299));
    assert!(!peer.closed);
    bench.pass_for(&mut peer, secs(1));
    assert_eq!(peer.outputs, [SessionOutput::Close]);
    assert!(bench.unstaged.is_empty(), "nothing of it was staged");
}

#[test]
fn the_last_replies_have_the_command_timeout() {
    let mut bench = Bench::new();
    let mut peer = bench.connect(STRANGER);
    peer.deaf = true;
    bench.say(&mut peer, "QUIT\r\n");
    assert_eq!(bench.wakeup(&peer), Some(secs(300)));
    bench.pass_for(&mut peer, secs(300));
    assert_eq!(peer.outputs, [SessionOutput::Close]);
}

/// The first replies of a long group come while the rest of it is read.
#[test]
fn replies_to_many_commands_are_sent_in_parts() {
    let mut bench = Bench::new();
    let mut peer = bench.connect(FRIEND);
    peer.deaf = true;
    let recipients: String = (0..2_000).map(|n| format!("RCPT TO:<r{n}@far.test>\r\n")).collect();
    let text = format!("MAIL FROM:<a@far.test>\r\n{recipients}");
    bench.hear(&mut peer, SessionInput::Received(text.as_bytes()));
    let bytes = peer.client.transmit().len();
    assert!((8 << 10..9 << 10).contains(&bytes), "{bytes}");
    peer.deaf = false;
    bench.run(&mut peer);
    assert_eq!(peer.hear().matches("250").count(), 2_001);
}

#[test]
fn refused_recipients_beyond_a_hundred_are_one_line_at_the_end() {
    let mut bench = Bench::new();
    bench.listener.strangers = bench.listener.trusted.clone();
    let mut peer = bench.connect(STRANGER);
    bench.say(&mut peer, "MAIL FROM:<a@far.test>\r\n");
    for number in 0..110 {
        bench.say(&mut peer, &format!("RCPT TO:<n{number}@local.test>\r\n"));
    }
    let logged = |output: &SessionOutput| matches!(output, SessionOutput::RecipientRefused { .. });
    assert_eq!(peer.outputs.iter().filter(|output| logged(output)).count(), 100);
    bench.hear(&mut peer, SessionInput::Lost);
    assert_eq!(peer.outputs[100..], [SessionOutput::RecipientsRefused(10), SessionOutput::Close]);
}

#[test]
fn a_connection_that_is_lost_leaves_nothing_staged_in_any_state() {
    let body = format!("{}\r\n", "x".repeat(998)).repeat(70);
    for (says, unstaged) in [("", 0), (PATHS, 0), ("DATA", 0), (&*body, 1)] {
        let mut bench = Bench::new();
        let mut peer = match says {
            "" | PATHS => bench.connect(FRIEND),
            _ => bench.connect_at_body(FRIEND),
        };
        if says != "DATA" && !says.is_empty() {
            bench.say(&mut peer, says);
        }
        bench.hear(&mut peer, SessionInput::Lost);
        assert_eq!(peer.outputs, [SessionOutput::Close]);
        bench.release(peer);
        assert_eq!((bench.unstaged.len(), bench.gateway.open_connections()), (unstaged, 0));
    }
}
