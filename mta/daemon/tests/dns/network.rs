//! A network of a test's own: loopback alone, with two nets of documentation addresses on it.
//!
//! Must never change the network of the machine.

use crate::support::until;
use needs::Need;
use std::process::Command;

/// Of each of these any address can be listened at, without being an interface's.
pub const NET: &str = "198.51.100.0/24";
/// The same, private and link-local.
pub const PRIVATE_NETS: [&str; 2] = ["10.99.0.0/24", "169.254.9.0/24"];
/// Addresses of the interface.
pub const OWN: [&str; 3] = ["203.0.113.5/32", "2001:db8::2/128", "2001:db8::99/128"];

/// Moves this thread, and all that it starts from now on, into a network of its own. False if
/// that is not allowed; the test is skipped then.
pub fn own() -> bool {
    if !needs::met(&[Need::Root("a network"), Need::Network]) {
        return false;
    }
    // SAFETY: it changes nothing but which network this thread's new sockets belong to.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(result, 0, "unshare: {}", std::io::Error::last_os_error());
    ip("link set lo up");
    for net in [NET].iter().chain(&PRIVATE_NETS) {
        ip(&format!("route add local {net} dev lo"));
    }
    for address in OWN {
        ip(&format!("address add {address} dev lo"));
    }
    // The kernel takes a moment until an IPv6 address may be used.
    for address in OWN.map(|address| address.split('/').next().unwrap()) {
        let place: std::net::IpAddr = address.parse().unwrap();
        until(address, || std::net::UdpSocket::bind((place, 0)).ok());
    }
    // A way to the rest of IPv6, so that such addresses are used; it leads nowhere.
    ip("-6 route add default dev lo");
    true
}

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status().expect("ip of iproute2");
    assert!(status.success(), "ip {words}: {status}");
}
