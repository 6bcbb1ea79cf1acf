//! A network namespace for one test: loopback with two networks of documentation addresses.
//!
//! Must never change the network of the machine.

use crate::support::until;
use needs::Need;
use std::process::Command;

/// Networks of which any address can be listened at without belonging to an interface.
pub const NET: &str = "198.51.100.0/24";
/// The same for private and link-local addresses.
pub const PRIVATE_NETS: [&str; 2] = ["10.99.0.0/24", "169.254.9.0/24"];
/// Addresses of the interface.
pub const OWN: [&str; 3] = ["203.0.113.5/32", "2001:db8::2/128", "2001:db8::99/128"];

/// Moves this thread, and everything that it starts from now on, into a network namespace of its own. Returns
/// false if that is not allowed; the test is skipped then.
pub fn own() -> bool {
    if !needs::met(&[Need::Root("a network"), Need::Network]) {
        return false;
    }
    // SAFETY: the call changes only the network namespace of this thread's new sockets.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(result, 0, "unshare: {}", std::io::Error::last_os_error());
    ip("link set lo up");
    for net in [NET].iter().chain(&PRIVATE_NETS) {
        ip(&format!("route add local {net} dev lo"));
    }
    for address in OWN {
        ip(&format!("address add {address} dev lo"));
    }
    // The kernel needs a moment until an IPv6 address can be used.
    for address in OWN.map(|address| address.split('/').next().unwrap()) {
        let place: std::net::IpAddr = address.parse().unwrap();
        until(address, || std::net::UdpSocket::bind((place, 0)).ok());
    }
    // A default route, so that other IPv6 addresses are used at all. It leads nowhere.
    ip("-6 route add default dev lo");
    true
}

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status().expect("ip of iproute2");
    assert!(status.success(), "ip {words}: {status}");
}
