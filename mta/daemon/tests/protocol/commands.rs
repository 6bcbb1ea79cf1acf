//! Commands out of order, pipelined commands, and commands with invalid parameters (P024 to P035, P061, P062).
//!
//! Must never read more replies than there are.

use super::{MESSAGE_BYTES_MAX, place, port};
use crate::support::{Client, token};

fn codes(client: &mut Client, count: usize) -> Vec<u16> {
    (0..count).map(|_| client.reply().code).collect()
}

/// Sends all bytes at once, then reads to the end of the connection.
fn codes_of(bytes: impl AsRef<[u8]>) -> Vec<u16> {
    let mut client = Client::ready(port());
    client.try_send(bytes);
    client.half_close();
    client.replies_to_the_end().iter().map(|reply| reply.code).collect()
}

#[test]
fn p024_commands_pipelined_before_the_reply_to_ehlo_are_refused() {
    let mut client = Client::connect(port());
    client.expect(220);
    client.send("EHLO client.test\r\nMAIL FROM:<a@client.test>\r\nRCPT TO:<b@local.test>\r\n");
    let codes: Vec<u16> = client.replies_to_the_end().iter().map(|reply| reply.code).collect();
    assert_eq!(codes.last(), Some(&554), "{codes:?}");
}

#[test]
fn p025_mail_rcpt_and_data_pipelined_after_ehlo_are_answered_in_order() {
    let token = token("p025");
    let mut client = Client::ready(port());
    client.send(format!(
        "MAIL FROM:<{token}@client.test>\r\nRCPT TO:<b@sink.test>\r\nRCPT TO:<c@sink.test>\r\nDATA\r\n"
    ));
    assert_eq!(codes(&mut client, 4), [250, 250, 250, 354]);
    client.send("Subject: x\r\n\r\nbody\r\n.\r\nQUIT\r\n");
    assert_eq!(codes(&mut client, 2), [250, 221]);
    place().sink.wait(&token);
}

#[test]
fn p025_more_pipelined_commands_than_their_replies_have_room_are_all_answered() {
    let token = token("p025");
    let mut client = Client::ready(port());
    // A reply takes 14 octets, and 64 KiB of them may wait for the client.
    let mut commands = format!("MAIL FROM:<{token}@client.test>\r\n");
    commands += &"RCPT TO:<b@sink.test>\r\n".repeat(6_000);
    commands += "RCPT TO:<none@not valid>\r\nRSET\r\nQUIT\r\n";
    client.send(commands);
    let codes: Vec<u16> = client.replies_to_the_end().iter().map(|reply| reply.code).collect();
    let (last, accepted) = codes.split_last_chunk::<3>().map(|(all, last)| (last, all)).unwrap();
    assert!(accepted.len() == 6_001 && accepted.iter().all(|code| *code == 250));
    assert_eq!(last, &[501, 250, 221]);
}

#[test]
fn p026_a_body_pipelined_with_data_is_refused_and_never_run() {
    let user = token("p026");
    let codes = codes_of(format!(
        "MAIL FROM:<a@client.test>\r\nRCPT TO:<{user}@local.test>\r\nDATA\r\n\
         Subject: x\r\nRSET\r\nNOOP\r\nVRFY a\r\n\r\n.\r\n"
    ));
    assert_eq!(codes[..2], [250, 250], "{codes:?}");
    assert!(codes.len() > 2 && codes[2..].iter().all(|code| code / 100 == 5), "{codes:?}");
    place().daemon.works_and_has_nothing_for(&user);
}

#[test]
fn p027_what_follows_quit_is_ignored() {
    assert_eq!(codes_of("QUIT\r\nNOOP\r\nMAIL FROM:<a@client.test>\r\n"), [221]);
}

#[test]
fn p028_rset_noop_and_vrfy_pipelined_are_answered_in_order() {
    assert_eq!(
        codes_of("RSET\r\nNOOP\r\nVRFY postmaster\r\nHELP\r\nQUIT\r\n"),
        [250, 250, 252, 214, 221]
    );
}

#[test]
fn p029_a_body_after_a_refused_data_is_not_run() {
    let mut client = Client::ready(port());
    client.ask("MAIL FROM:<a@client.test>", 250);
    let reply = client.command("DATA");
    assert!(matches!(reply.code, 503 | 554), "{reply:?}");
    client.try_send("Subject: x\r\n\r\nhello\r\n.\r\n");
    client.half_close();
    let codes: Vec<u16> = client.replies_to_the_end().iter().map(|reply| reply.code).collect();
    assert!(codes.iter().all(|code| code / 100 == 5), "{codes:?}");
    place().daemon.works();
}

#[test]
fn p030_commands_out_of_order_are_refused() {
    let mut client = Client::connect(port());
    client.expect(220);
    client.ask("MAIL FROM:<a@client.test>", 503);
    client.ask("EHLO client.test", 250);
    client.ask("RCPT TO:<b@local.test>", 503);
    let reply = client.command("DATA");
    assert!(matches!(reply.code, 503 | 554), "{reply:?}");
    client.ask("MAIL FROM:<a@client.test>", 250);
    client.ask("MAIL FROM:<c@client.test>", 503);
    let reply = client.command("DATA");
    assert!(matches!(reply.code, 503 | 554), "{reply:?}");
    client.ask("RSET", 250);
    client.ask("MAIL FROM:<a@client.test>", 250);
}

#[test]
fn p031_ehlo_in_a_transaction_ends_it() {
    let mut client = Client::ready(port());
    client.envelope("a@client.test", "b@local.test");
    client.ask("EHLO client.test", 250);
    client.ask("RCPT TO:<b@local.test>", 503);
}

#[test]
fn p032_after_helo_there_are_no_parameters() {
    let mut client = Client::connect(port());
    client.expect(220);
    let hello = client.ask("HELO client.test", 250);
    assert_eq!(hello.lines.len(), 1);
    for line in ["MAIL FROM:<a@client.test> SIZE=10", "MAIL FROM:<a@client.test> BODY=8BITMIME"] {
        let reply = client.command(line);
        assert!(matches!(reply.code, 501 | 555), "{reply:?}");
    }
    client.ask("MAIL FROM:<a@client.test>", 250);
}

#[test]
fn p033_unknown_doubled_and_empty_parameters_are_refused() {
    let mut client = Client::ready(port());
    for parameters in [
        "FOO=1",
        "FOO",
        "SIZE=1 SIZE=1",
        "BODY=7BIT BODY=8BITMIME",
        "SIZE",
        "SIZE=",
        "BODY=",
        "BODY=X",
    ] {
        let reply = client.command(&format!("MAIL FROM:<a@client.test> {parameters}"));
        assert!(matches!(reply.code, 501 | 504 | 555), "{parameters}: {reply:?}");
        assert!(reply.enhanced().starts_with("5.5."), "{parameters}: {reply:?}");
    }
    client.ask("MAIL FROM:<a@client.test>", 250);
    for parameters in ["FOO=1", "NOTIFY=", "NOTIFY=NEVER,SUCCESS", "NOTIFY=X", "ORCPT=x"] {
        let reply = client.command(&format!("RCPT TO:<b@local.test> {parameters}"));
        assert!(matches!(reply.code, 501 | 555), "{parameters}: {reply:?}");
    }
}

#[test]
fn p034_sizes_that_are_none_are_refused_and_none_overflows() {
    let mut client = Client::ready(port());
    let sizes = ["-1", "abc", "1e3", "100000000000000000000", "18446744073709551616"];
    for size in sizes {
        let reply = client.command(&format!("MAIL FROM:<a@client.test> SIZE={size}"));
        assert!(matches!(reply.code, 501 | 552), "{size}: {reply:?}");
    }
    client.ask("MAIL FROM:<a@client.test> SIZE=0", 250);
}

#[test]
fn p035_the_bytes_count_and_not_what_size_said() {
    let user = token("p035");
    let mut client = Client::ready(port());
    client.ask("MAIL FROM:<a@client.test> SIZE=1000000000", 552);
    let body = "x".repeat(998) + "\r\n";
    for (lines, code) in [(1_500, 250), (MESSAGE_BYTES_MAX / 1_000 + 1, 552)] {
        client.ask("MAIL FROM:<a@client.test> SIZE=10", 250);
        let domain = if code == 250 { "hold.test" } else { "local.test" };
        client.ask(&format!("RCPT TO:<{user}@{domain}>"), 250);
        client.ask("DATA", 354);
        client.send("Subject: x\r\n\r\n".to_string() + &body.repeat(lines));
        client.send(".\r\n");
        client.expect(code);
    }
    place().daemon.works_and_has_nothing_for(&user);
    // A client that announces the largest message and sends little takes no room from others.
    let announce = |_| {
        let mut client = Client::ready(port());
        client.ask(&format!("MAIL FROM:<a@client.test> SIZE={MESSAGE_BYTES_MAX}"), 250);
        client.ask("RCPT TO:<announced@local.test>", 250);
        client
    };
    let before = blocks(&place().daemon.directory.join("state"));
    let liars: Vec<Client> = (0..200).map(announce).collect();
    place().daemon.works();
    let grown = blocks(&place().daemon.directory.join("state")).saturating_sub(before);
    assert!(
        grown < 200 * MESSAGE_BYTES_MAX as u64 / 4,
        "{grown} bytes for what was only announced"
    );
    for mut client in liars {
        client.ask("DATA", 354);
        client.send("Subject: x\r\n\r\nten bytes.\r\n.\r\n");
        client.expect(250);
    }
}

/// The size of all files below a directory.
fn blocks(directory: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => blocks(&entry.path()),
        Ok(data) => data.blocks() * 512,
        Err(_) => 0,
    };
    entries.map(size).sum()
}

#[test]
fn p061_commands_for_friends_are_refused_to_strangers() {
    let commands = [
        "XCLIENT ADDR=127.0.0.1",
        "XFORWARD NAME=x",
        "ETRN local.test",
        "ETRN @local.test;id",
        "EXPN list",
        "TURN",
        "STARTTLS",
        "AUTH PLAIN AGEAYg==",
    ];
    let mut client = Client::stranger(port());
    for line in commands {
        let reply = client.command(line);
        assert!(reply.is_refusal(), "{line}: {reply:?}");
    }
    client.ask("VRFY root", 252);
    client.ask("MAIL FROM:<a@stranger.test>", 250);
    let reply = client.command("RCPT TO:<b@sink.test>");
    assert!(reply.is_refusal(), "relayed for a stranger: {reply:?}");
}

#[test]
fn p062_a_proxy_header_is_taken_from_nobody() {
    let v2 = b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a";
    let long = format!("PROXY TCP4 {}", "1".repeat(64 << 10));
    let headers: Vec<Vec<u8>> = vec![
        b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\nMAIL FROM:<a@x.test>\r\n".to_vec(),
        b"PROXY TC".to_vec(),
        long.into_bytes(),
        [&v2[..], b"\x21\x11\x00\x0c\x7f\x00\x00\x01\x7f\x00\x00\x01\x00\x01\x00\x02"].concat(),
        [&v2[..], b"\x21\x11\xff\xff\x7f"].concat(),
    ];
    for header in headers {
        let mut client = Client::connect_from("127.0.0.9", port());
        client.expect(220);
        client.try_send(&header);
        client.half_close();
        let replies = client.replies_to_the_end();
        assert!(replies.iter().all(|reply| reply.code / 100 >= 4), "{replies:?}");
    }
    place().daemon.works();
}
