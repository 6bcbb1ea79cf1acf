//! Descriptors, memory, processes, the log and the network are taken from a working daemon and given back: N106
//! to N110, N115, N116.
//!
//! Must never take resources from other processes than those of its own daemon, or from the network of the
//! machine. Tests that change the network have a namespace of their own.

use crate::field::{Field, Promised, RETRY};
use crate::support::daemon::signal_to;
use crate::support::{Client, Daemon, PATIENCE, Script, Setup, Sink, token, until};
use needs::Need;
use std::fs::File;
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The user for daemons whose limits root changes. Without CAP_SYS_RESOURCE root may change limits only of its
/// own processes' user, and some limits have no effect on root.
const NOBODY: u32 = 61_200;

/// A field whose daemon belongs to an ordinary user, and its directory.
fn start_as_ordinary_user() -> (Field, tempfile::TempDir) {
    let place = tempfile::tempdir_in("/tmp").unwrap();
    let mut setup = Setup::default();
    if is_root() {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(place.path(), mode).unwrap();
        let copy = place.path().join("posthaste");
        // Copied by another process. If this process had the file open for writing, a parallel test that starts
        // a program would inherit the descriptor, and the copy could not be executed.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_posthaste")).arg(&copy).status();
        assert!(copied.unwrap().success());
        let script = format!("program=$1; shift 2; exec {AS_NOBODY} $program \"$@\"");
        let words = ["sh", "-c", &script, "sh", copy.to_str().unwrap()];
        setup.wrapper = words.map(String::from).to_vec();
        setup.owner = Some((NOBODY, place.path().to_path_buf()));
    }
    (Field::start(setup), place)
}

const AS_NOBODY: &str = "setpriv --reuid 61200 --regid 61200 --clear-groups";

/// Sets a limit of a running process, in the syntax of prlimit(1): `nofile=3:`.
fn limit(pid: u32, limit: &str) {
    assert!(is_limited(pid, limit), "{pid}: {limit}");
}

/// The same for a process that may have ended.
fn is_limited(pid: u32, limit: &str) -> bool {
    let before = if is_root() { AS_NOBODY } else { "" };
    let script = format!("{before} prlimit --pid {pid} --{limit}");
    Command::new("sh").args(["-c", &script]).status().unwrap().success()
}

/// The number of open descriptors of a process.
fn open_files(pid: u32) -> u64 {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64
}

/// CPU time of a process in ticks of 10 ms.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    let words: Vec<&str> = rest.split(' ').collect();
    words[11].parse::<u64>().unwrap() + words[12].parse::<u64>().unwrap()
}

fn settle(field: &Field, load: crate::field::Loads) {
    let mut promised = Promised::default();
    load.stop(&mut promised);
    let count = field.judge(&promised);
    assert!(count.lost.is_empty(), "lost {:?}", count.lost);
    field.daemon.works();
}

#[test]
fn n107_without_descriptors_accept_waits_without_spinning_and_goes_on_when_there_are_some() {
    // The kernel lists the descriptors of an untraceable process only to root.
    if !needs::met(&[Need::Root("a list of another process's descriptors")]) {
        return;
    }
    let (field, _place) = start_as_ordinary_user();
    let daemon = &field.daemon;
    let mut early = Client::ready(daemon.port);
    let receive = daemon.pids_of("receive")[0];
    limit(receive, &format!("nofile={}:", open_files(receive) + 3));
    let late: Vec<TcpStream> =
        (0..30).map(|_| TcpStream::connect(daemon.address()).unwrap()).collect();
    daemon.wait_for_log(&["cannot accept connections for now"]);
    let ticks_before = ticks(receive);
    std::thread::sleep(Duration::from_secs(1));
    let used = ticks(receive) - ticks_before;
    assert!(used < 30, "{used} of 100 ticks: it spins");
    // Connected clients are served.
    early.envelope("a@client.test", "b@sink.test");
    early.ask("DATA", 354);
    let token = token("early");
    early.send(format!("Subject: {token}\r\n\r\nx\r\n.\r\n"));
    early.expect(250);
    field.sink.wait(&token);
    limit(receive, "nofile=1024:");
    for stream in late {
        Client::over(stream).expect(220);
    }
    assert_eq!(daemon.pids_of("receive"), [receive]);
    daemon.works();
}

#[test]
fn n107_any_process_without_descriptors_defers_or_refuses_and_goes_on_when_there_are_some() {
    let (field, _place) = start_as_ordinary_user();
    let daemon = &field.daemon;
    let load = field.load(2);
    for role in ["queue", "send", "local"] {
        load.wait_for_more(5);
        let pid = daemon.pids_of(role)[0];
        limit(pid, "nofile=3:");
        let ticks_before = ticks(pid);
        std::thread::sleep(Duration::from_secs(1));
        println!("{role}: {} ticks in 1 s without descriptors", ticks(pid) - ticks_before);
        limit(pid, "nofile=1024:");
        load.wait_for_more(5);
        assert_eq!(daemon.pids_of(role), [pid], "{role} has ended");
    }
    settle(&field, load);
}

#[test]
fn n107_master_without_descriptors_starts_what_died_once_there_are_some() {
    let (field, _place) = start_as_ordinary_user();
    let daemon = &field.daemon;
    let load = field.load(2);
    load.wait_for_more(3);
    limit(daemon.pid(), "nofile=3:");
    daemon.pids_of("send").iter().for_each(|pid| signal_to(*pid, libc::SIGKILL));
    daemon.wait_for_log(&["cannot start send"]);
    limit(daemon.pid(), "nofile=1024:");
    until("send to be there again", || (daemon.pids_of("send").len() == 1).then_some(()));
    load.wait_for_more(3);
    settle(&field, load);
    let of_master = ["--ppid", &daemon.pid().to_string(), "-o", "stat="];
    let dead = Command::new("ps").args(of_master).output().unwrap().stdout;
    assert!(!dead.contains(&b'Z'), "a child was left unburied");
}

/// Bytes of the address space of a process.
fn address_space(pid: u32) -> u64 {
    let pages = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    pages.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn n108_a_process_that_gets_no_more_memory_dies_and_is_started_again_and_nothing_is_lost() {
    let (field, _place) = start_as_ordinary_user();
    let daemon = &field.daemon;
    let load = field.load(2);
    for role in ["queue", "receive", "send"] {
        load.wait_for_more(3);
        let pid = daemon.pids_of(role)[0];
        limit(pid, &format!("as={}:", address_space(pid)));
        let body = "a large body that has to be kept somewhere\r\n".repeat(40_000);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let Ok(stream) = TcpStream::connect(daemon.address()) else { return };
                    let mut client = Client::over(stream);
                    let script = [
                        "",
                        "EHLO a\r\n",
                        "MAIL FROM:<a@a.test>\r\n",
                        "RCPT TO:<l@sink.test>\r\n",
                        "DATA\r\n",
                    ];
                    for command in script {
                        if !client.try_send(command) || client.next_reply().is_none() {
                            return;
                        }
                    }
                    // The message may be accepted or refused, or the connection may break.
                    let _ = client.try_send(&body) && client.try_send(".\r\n");
                    let _ = client.next_reply();
                });
            }
        });
        // The processes that survive have room again.
        if daemon.pids_of(role) == [pid] && !is_limited(pid, "as=unlimited:") {
            assert!(daemon.pids_of(role) != [pid], "{role} lives and keeps its limit");
        }
        load.wait_for_more(3);
    }
    let deaths = daemon.log().matches("was killed by signal 6").count();
    println!("{deaths} deaths for want of memory");
    assert!(deaths > 0, "nobody noticed the limit");
    settle(&field, load);
}

#[test]
fn n109_without_a_process_to_spare_what_runs_goes_on_and_what_died_comes_back_later() {
    let (field, _place) = start_as_ordinary_user();
    let daemon = &field.daemon;
    let load = field.load(2);
    load.wait_for_more(3);
    let master = daemon.pid();
    limit(master, "nproc=1:");
    let mut early = Client::ready(daemon.port);
    daemon.pids_of("send").iter().for_each(|pid| signal_to(*pid, libc::SIGKILL));
    daemon.wait_for_log(&["cannot start send"]);
    // A separate process reads the settings, so the old settings stay.
    daemon.signal(libc::SIGHUP);
    daemon.wait_for_log(&["settings not reloaded"]);
    // Mail is accepted and waits.
    early.envelope("a@client.test", "b@sink.test");
    early.ask("DATA", 354);
    early.send("Subject: x\r\n\r\nx\r\n.\r\n");
    early.expect(250);
    daemon.pids_of("receive").iter().for_each(|pid| signal_to(*pid, libc::SIGKILL));
    daemon.wait_for_log(&["cannot start receive"]);
    let waits = TcpStream::connect(daemon.address()).unwrap();
    limit(master, "nproc=4096:");
    // The port was never closed: clients that connected meanwhile get a greeting.
    Client::over(waits).expect(220);
    load.wait_for_more(3);
    settle(&field, load);
}

/// Runs the test in a network namespace of its own with only loopback.
fn in_own_network(test: impl FnOnce() + Send + 'static) {
    if !needs::met(&[Need::Root("a network"), Need::Network]) {
        return;
    }
    let alone = std::thread::spawn(|| {
        // SAFETY: only this thread, and what it starts, gets the new namespace.
        let made = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(made, 0, "unshare: {}", std::io::Error::last_os_error());
        ip(&["link", "set", "lo", "up"]);
        test();
    });
    if let Err(panic) = alone.join() {
        std::panic::resume_unwind(panic);
    }
}

fn ip(arguments: &[&str]) {
    assert!(Command::new("ip").args(arguments).status().unwrap().success(), "ip {arguments:?}");
}

/// Sends one message through a daemon that listens at this address to a sink that listens there too.
fn passes(listen: SocketAddr, client: SocketAddr, trusted: &str) {
    let sink = Sink::over(TcpListener::bind((client.ip(), 0)).unwrap(), Script::default());
    let next_hop = SocketAddr::new(client.ip().to_canonical(), sink.port);
    let daemon = Daemon::start(Setup {
        listen: Some(listen),
        routes: format!("[[route]]\ndomain = \"far.test\"\nto = \"smtp:{next_hop}\"\n"),
        ..Setup::default()
    });
    let file = daemon.directory.join("posthaste.toml");
    let settings = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, settings.replace("127.0.0.1/32", trusted)).unwrap();
    daemon.signal(libc::SIGHUP);
    daemon.wait_for_log(&["settings reloaded"]);
    let token = token("passes");
    let taken = until("to be trusted", || {
        let mut client = Client::over(TcpStream::connect(client).unwrap());
        client.expect(220);
        client.ask("EHLO client.test", 250);
        client.ask("MAIL FROM:<a@client.test>", 250);
        (client.command("RCPT TO:<b@far.test>").code == 250).then_some(client)
    });
    let mut client = taken;
    client.ask("DATA", 354);
    client.send(format!("Subject: {token}\r\n\r\nx\r\n.\r\n"));
    client.expect(250);
    sink.wait(&token);
}

#[test]
fn n110_a_host_with_ipv6_alone_works() {
    in_own_network(|| {
        ip(&["addr", "del", "127.0.0.1/8", "dev", "lo"]);
        let address = SocketAddr::from((Ipv6Addr::LOCALHOST, 2525));
        passes(address, address, "::1");
    });
}

#[test]
fn n110_a_host_with_loopback_alone_works_also_for_mapped_addresses() {
    in_own_network(|| {
        let plain: SocketAddr = "127.0.0.1:2525".parse().unwrap();
        let mapped: SocketAddr = "[::ffff:127.0.0.1]:2525".parse().unwrap();
        passes(plain, plain, "127.0.0.0/8");
        // A client that has only IPv6 sockets, and a listener with such an address.
        passes(plain, mapped, "127.0.0.0/8");
        passes(mapped, mapped, "127.0.0.0/8");
    });
}

#[test]
fn n106_a_full_backlog_keeps_clients_waiting_and_harms_nobody() {
    in_own_network(|| {
        std::fs::write("/proc/sys/net/core/somaxconn", "4").unwrap();
        let daemon = Daemon::start(Setup::default());
        let address = daemon.address();
        let receive = daemon.pids_of("receive");
        receive.iter().for_each(|pid| signal_to(*pid, libc::SIGSTOP));
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok();
        let waiting: Vec<TcpStream> = (0..12).map_while(|_| connect()).collect();
        assert!(waiting.len() < 12, "the backlog is never full");
        receive.iter().for_each(|pid| signal_to(*pid, libc::SIGCONT));
        for stream in waiting {
            Client::over(stream).expect(220);
        }
        let late = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
        Client::over(late).expect(220);
        daemon.works();
    });
}

/// Mail is delivered while the log is written to this file, and a stop succeeds.
fn flows_with_log_at(stderr: File) {
    let field = Field::start(Setup {
        stderr: Some(Arc::new(stderr)),
        tables: format!("{RETRY}[log]\nlevel = \"debug\"\n"),
        ..Setup::default()
    });
    let load = field.load(2);
    load.wait_for_more(200);
    let dropped = || {
        let output = field.daemon.command(&["status", "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        status["processes"][0]["counters"]["log_lines_dropped"].as_u64()
    };
    assert!(dropped().is_some());
    let (time, well) = field.daemon.stop();
    assert!(well && time < Duration::from_secs(10), "{time:?} {well}");
    field.daemon.start_again();
    load.wait_for_more(5);
    settle(&field, load);
}

#[test]
fn n115_a_log_on_a_full_disk_holds_up_no_mail() {
    flows_with_log_at(File::options().write(true).open("/dev/full").unwrap());
}

#[test]
fn n115_a_log_into_a_closed_pipe_holds_up_no_mail() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    flows_with_log_at(std::os::fd::OwnedFd::from(writer).into());
}

#[test]
fn n115_a_log_that_nobody_reads_holds_up_no_mail() {
    let (reader, writer) = std::io::pipe().unwrap();
    flows_with_log_at(std::os::fd::OwnedFd::from(writer).into());
    drop(reader);
}

#[test]
fn n116_without_resolv_conf_hosts_or_with_broken_ones_mail_waits_and_the_rest_flows() {
    if !needs::met(&[Need::Root("another /etc"), Need::Mounts]) {
        return;
    }
    // A small system has no /etc/hosts on which another file could be mounted.
    let broken = "mount -t tmpfs none /mnt && cp -a /etc/. /mnt && mount --move /mnt /etc && \
                  rm -f /etc/resolv.conf && cat /proc/self/exe >/etc/resolv.conf && : >/etc/hosts";
    for change in ["mount -t tmpfs none /etc", broken] {
        let script = format!("{change} && exec \"$@\"");
        let wrapper = ["unshare", "--mount", "sh", "-c", &script, "sh"].map(String::from);
        let field = Field::start(Setup { wrapper: wrapper.to_vec(), ..Setup::default() });
        let daemon = &field.daemon;
        let mut client = Client::in_data(daemon.port, "a@load.test", "b@nowhere.example");
        client.send("Subject: x\r\n\r\nx\r\n.\r\n");
        client.expect(250);
        let line = daemon.wait_for_log(&["b@nowhere.example", "\"attempt\""]);
        assert!(line.contains("deferred"), "{line}");
        daemon.works();
        let load = field.load(1);
        load.wait_for_more(3);
        load.stop(&mut Promised::default());
        until("the rest to leave", || (daemon.queued() == 1).then_some(()));
    }
}
