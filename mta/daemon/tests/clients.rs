//! Other mail programs as clients of Posthaste and as its next hops.
//!
//! Must never skip a test: `./check` installs the programs that are needed.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use support::{Daemon, Script, Setup, Sink, free_port, postfix_tool, token, until};

struct Place {
    daemon: Daemon,
    sink: Sink,
}

fn place() -> &'static Place {
    static PLACE: OnceLock<Place> = OnceLock::new();
    PLACE.get_or_init(|| {
        let sink = Sink::start(Script::default());
        Place { daemon: Daemon::with_sink(&sink), sink }
    })
}

/// Runs a program to its end and asserts that it succeeds.
fn run(command: &mut Command) -> String {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; run ./check"));
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// Runs a Python script with the daemon's port and a token as its arguments.
fn python(script: &str, token: &str) {
    let port = place().daemon.port.to_string();
    run(Command::new("python3").args(["-c", script, &port, token]));
}

#[test]
fn pythons_smtplib_with_dsn_parameters() {
    let token = token("dsn");
    python(
        "import smtplib, sys\n\
         s = smtplib.SMTP('127.0.0.1', int(sys.argv[1]), 'python.test')\n\
         s.ehlo()\n\
         assert s.has_extn('dsn') and s.has_extn('pipelining') and s.has_extn('chunking')\n\
         s.sendmail(sys.argv[2] + '@client.test', ['b@sink.test'], 'Subject: x\\r\\n\\r\\n.dot\\r\\n',\n\
             ['RET=HDRS', 'ENVID=' + sys.argv[2]], ['NOTIFY=SUCCESS,DELAY', 'ORCPT=rfc822;o@p.test'])\n\
         s.quit()\n",
        &token,
    );
    let mail = place().sink.wait(&token);
    for parameter in ["RET=HDRS", &format!("ENVID={token}")] {
        assert!(mail.from.contains(parameter), "{}", mail.from);
    }
    for parameter in ["NOTIFY=SUCCESS,DELAY", "ORCPT=rfc822;o@p.test"] {
        assert!(mail.to[0].contains(parameter), "{:?}", mail.to);
    }
    assert_eq!(mail.body(), b".dot\r\n");
}

#[test]
fn pythons_smtplib_with_smtputf8() {
    let token = token("utf8");
    python(
        "import smtplib, sys\n\
         from email.message import EmailMessage\n\
         m = EmailMessage()\n\
         m['From'] = 'jürgen@client.test'; m['To'] = 'zoë@sink.test'; m['Subject'] = sys.argv[2]\n\
         m.set_content('猫', cte='8bit')\n\
         s = smtplib.SMTP('127.0.0.1', int(sys.argv[1]))\n\
         s.send_message(m)\n\
         s.quit()\n",
        &token,
    );
    let mail = place().sink.wait(&token);
    assert!(mail.from.contains("<jürgen@client.test>") && mail.from.contains("SMTPUTF8"));
    assert!(mail.to[0].contains("<zoë@sink.test>"), "{:?}", mail.to);
    assert!(mail.text().contains("猫") && mail.text().contains("with UTF8SMTP"), "{}", mail.text());
}

#[test]
fn pythons_smtplib_with_bdat() {
    let token = token("bdat");
    python(
        "import smtplib, sys\n\
         s = smtplib.SMTP('127.0.0.1', int(sys.argv[1]))\n\
         s.ehlo(); s.mail(sys.argv[2] + '@client.test'); s.rcpt('b@sink.test')\n\
         def chunk(c, last): s.send(b'BDAT %d%s\\r\\n' % (len(c), last) + c); r = s.getreply(); assert r[0] == 250, r\n\
         chunk(b'Subject: x\\r\\n\\r', b''); chunk(b'\\n.\\r\\nbody\\r\\n', b' LAST')\n\
         s.quit()\n",
        &token,
    );
    assert_eq!(place().sink.wait(&token).body(), b".\r\nbody\r\n");
}

#[test]
fn swaks_pipelined_and_not() {
    for options in [&["--pipeline"][..], &[]] {
        let token = token("swaks");
        let server = format!("127.0.0.1:{}", place().daemon.port);
        let from = format!("{token}@client.test");
        run(Command::new("swaks")
            .args(["--server", &server, "--from", &from, "--to", "b@sink.test,c@local.test"])
            .args(["--helo", "swaks.test", "--header", "X-Token: swaks", "--body", ".dot"])
            .args(options));
        assert!(place().sink.wait(&token).text().contains("X-Token: swaks"));
        place().daemon.wait_in_mailbox("c", &token);
    }
}

/// A child process that is stopped at the end of the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // SIGTERM first, because Dovecot and smtp-sink have children of their own to stop.
        support::daemon::signal_to(self.0.id(), libc::SIGTERM);
        for _ in 0..100 {
            if matches!(self.0.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory below /tmp, because the path of a Unix socket is limited to 107 bytes.
fn directory(name: &str) -> tempfile::TempDir {
    tempfile::Builder::new().prefix(&token(name)).tempdir().unwrap()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn postfixs_smtp_source_through_posthaste_into_postfixs_smtp_sink() {
    const MESSAGES: usize = 300;
    let dump = directory("smtp-sink");
    let dump = dump.path();
    std::fs::set_permissions(dump, std::fs::Permissions::from_mode(0o777)).unwrap();
    let port = free_port();
    let mut sink = postfix_tool("smtp-sink");
    if is_root() {
        sink.args(["-u", "nobody"]);
    }
    sink.args(["-d", "m.", &format!("127.0.0.1:{port}"), "100"]).current_dir(dump);
    let _sink = Running(sink.spawn().expect("smtp-sink; run ./check"));
    let daemon = Daemon::start(Setup { sink_port: port, ..Setup::default() });
    for options in [&["-s", "10"][..], &["-s", "10", "-d"], &["-s", "1", "-d"]] {
        let messages = MESSAGES / 3;
        let server = format!("inet:127.0.0.1:{}", daemon.port);
        run(postfix_tool("smtp-source")
            .args(["-m", &messages.to_string(), "-l", "4096", "-f", "a@client.test"])
            .args(["-t", "b@sink.test", "-M", "source.test"])
            .args(options)
            .arg(&server));
    }
    let count = || std::fs::read_dir(dump).unwrap().count();
    until("all messages at smtp-sink", || (count() >= MESSAGES).then_some(()));
    until("an empty queue", || (daemon.queued() == 0).then_some(()));
    assert_eq!(count(), MESSAGES);
    let whole = |file: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        // smtp-source fills its messages with lines of X.
        text.matches('X').count() > 3_500 && text.contains("Received: from source.test")
    };
    assert!(std::fs::read_dir(dump).unwrap().all(whole));
}

/// Starts Dovecot's LMTP server with the users one and three and all its files in `directory`.
fn dovecot(directory: &Path, port: u16) -> Running {
    let (uid, gid) = if is_root() {
        (65_534, 65_534)
    } else {
        (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
    };
    let mail = directory.join("mail");
    std::fs::create_dir(&mail).unwrap();
    std::os::unix::fs::chown(&mail, Some(uid), Some(gid)).unwrap();
    let users: String = ["one", "three"]
        .iter()
        .map(|user| format!("{user}@dovecot.test::{uid}:{gid}::{}/{user}\n", mail.display()))
        .collect();
    std::fs::write(directory.join("users"), users).unwrap();
    let me = if is_root() {
        String::new()
    } else {
        let user = run(Command::new("id").arg("-un"));
        let group = run(Command::new("id").arg("-gn"));
        let (user, group) = (user.trim(), group.trim());
        format!(
            "default_internal_user = {user}\ndefault_internal_group = {group}\n\
             default_login_user = {user}\nservice anvil {{\n  chroot =\n}}\n"
        )
    };
    let at = directory.display();
    let settings = format!(
        "base_dir = {at}/run\nstate_dir = {at}/run\nlog_path = {at}/log\nprotocols = lmtp\nssl = no\n\
         listen = 127.0.0.1\nmail_location = maildir:~/Maildir\nfirst_valid_uid = 1\n\
         first_valid_gid = 1\n{me}\
         userdb {{\n  driver = passwd-file\n  args = {at}/users\n}}\n\
         passdb {{\n  driver = passwd-file\n  args = {at}/users\n}}\n\
         service lmtp {{\n  chroot =\n  inet_listener lmtp {{\n    address = 127.0.0.1\n    port = {port}\n  }}\n}}\n\
         service stats {{\n  chroot =\n}}\n"
    );
    let path = directory.join("dovecot.conf");
    std::fs::write(&path, settings).unwrap();
    let child = Command::new("/usr/sbin/dovecot").args(["-F", "-c"]).arg(path).spawn();
    let running = Running(child.expect("dovecot; run ./check"));
    until("Dovecot's LMTP port", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    running
}

#[test]
fn dovecots_lmtp_refuses_one_of_three_recipients_and_the_sender_hears_of_that_one() {
    let directory = directory("dovecot");
    let directory = directory.path();
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    let port = free_port();
    let _dovecot = dovecot(directory, port);
    let daemon = Daemon::start(Setup {
        routes: format!("[[route]]\ndomain = \"dovecot.test\"\nto = \"lmtp:127.0.0.1:{port}\"\n"),
        ..Setup::default()
    });
    let token = token("dovecot");
    let mut client = support::Client::ready(daemon.port);
    client.ask("MAIL FROM:<sender@local.test>", 250);
    for user in ["one", "two", "three"] {
        client.ask(&format!("RCPT TO:<{user}@dovecot.test>"), 250);
    }
    client.ask("DATA", 354);
    client.send(format!("From: sender@local.test\r\nSubject: {token}\r\n\r\nbody\r\n.\r\n"));
    client.expect(250);
    for user in ["one", "three"] {
        let new = directory.join("mail").join(user).join("Maildir/new");
        until("the message in Dovecot's mailbox", || {
            let files = std::fs::read_dir(&new).ok()?;
            files.flatten().find(|file| {
                std::fs::read_to_string(file.path()).is_ok_and(|text| text.contains(&token))
            })
        });
    }
    let bounce = daemon.wait_in_mailbox("sender", "two@dovecot.test");
    assert!(bounce.contains("5.1.1"), "{bounce}");
    assert!(!bounce.contains("one@dovecot.test"), "{bounce}");
    until("an empty queue", || (daemon.queued() == 0).then_some(()));
}

/// Accepts one message by LMTP at a Unix socket and returns it.
fn lmtp_at(path: &Path) -> std::thread::JoinHandle<Vec<u8>> {
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 socket.test LMTP\r\n").unwrap();
        let (mut seen, mut at) = (Vec::new(), 0);
        loop {
            let mut piece = [0; 4096];
            let length = stream.read(&mut piece).unwrap();
            seen.extend_from_slice(&piece[..length]);
            while let Some(end) = seen[at..].windows(2).position(|two| two == b"\r\n") {
                let line = seen[at..at + end].to_vec();
                at += end + 2;
                match &line[..] {
                    line if line.starts_with(b"DATA") => stream.write_all(b"354 go\r\n").unwrap(),
                    b"." => {
                        stream.write_all(b"250 2.0.0 kept\r\n").unwrap();
                        return seen;
                    }
                    line if [&b"LHLO"[..], b"MAIL", b"RCPT"]
                        .iter()
                        .any(|v| line.starts_with(v)) =>
                    {
                        stream.write_all(b"250 2.0.0 ok\r\n").unwrap();
                    }
                    _ => {}
                }
            }
        }
    })
}

#[test]
fn a_next_hop_at_a_unix_socket_is_reached_from_an_empty_root() {
    let directory = directory("lmtp");
    let directory = directory.path();
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = directory.join("lmtp");
    let server = lmtp_at(&path);
    let shown = path.display();
    let daemon = Daemon::start(Setup {
        routes: format!("[[route]]\ndomain = \"socket.test\"\nto = \"lmtp:unix:{shown}\"\n"),
        ..Setup::default()
    });
    let token = token("socket");
    let mut client = support::Client::in_data(daemon.port, "s@local.test", "x@socket.test");
    client.send(format!("Subject: {token}\r\n\r\nbody\r\n.\r\n"));
    client.expect(250);
    until("an empty queue", || (daemon.queued() == 0).then_some(()));
    let seen = String::from_utf8(server.join().unwrap()).unwrap();
    assert!(seen.contains(&token), "{seen}");
}
