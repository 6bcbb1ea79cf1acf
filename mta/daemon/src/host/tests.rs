//! The environment of a host with unusual files.

use super::*;

#[test]
fn n116_what_is_missing_around_us_is_empty() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(collect(root.path(), true), HostEnvironment::default());
    std::fs::create_dir(root.path().join("etc")).unwrap();
    let passwd = "root:x:0:0:root:/root:/bin/sh\n# no\n+nis\nann:x:1000:1001::/home/ann:\n\
        ann:x:1:1::/other:\nbad:x:one:1::/home/bad:\nrel:x:5:5::home:\n";
    std::fs::write(root.path().join("etc/passwd"), passwd).unwrap();
    let groups = "root:x:0:\nmailman:x:7:\nmail:x:8:ann\nmail:x:9:\n";
    std::fs::write(root.path().join("etc/group"), groups).unwrap();
    std::fs::create_dir_all(root.path().join("proc/net")).unwrap();
    let tables = [
        (
            "fib_trie",
            "Local:\n  +-- 127.0.0.0/8 2 0 2\n     |-- 127.0.0.0\n        /8 host LOCAL\n     |-- 127.0.0.1\n        \
          /32 host LOCAL\n  |-- 192.0.2.2\n     /32 host LOCAL\n  |-- 192.0.2.255\n     /32 link BROADCAST\n",
        ),
        (
            "if_inet6",
            "20010db8000000000000000000000002 02 40 00 80     eth0\nfe80000000000000000000fffe000001 02 40 20 80     eth0\n",
        ),
    ];
    for (name, text) in tables {
        std::fs::write(root.path().join("proc/net").join(name), text).unwrap();
    }
    let found = collect(root.path(), true);
    let own: Vec<String> = found.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(own, ["127.0.0.1", "192.0.2.2", "2001:db8::2"]);
    let names: Vec<(&str, u32)> =
        found.accounts.iter().map(|account| (account.name.as_str(), account.uid)).collect();
    assert_eq!(names, [("ann", 1000), ("root", 0)]);
    assert_eq!(found.mail_group, Some(8));
    assert!(collect(root.path(), false).accounts.is_empty());
}

#[test]
fn r210_a_group_is_private_if_its_account_is_its_only_member() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("etc")).unwrap();
    let passwd = "ann:x:1000:1000::/home/ann:\nbob:x:1001:1001::/home/bob:\n\
        cat:x:1002:1002::/home/cat:\ndan:x:1003:100::/home/dan:\neve:x:1004:100::/home/eve:\n\
        fay:x:1005:1005::/home/fay:\n#gus:x:1006:1005::rel:\nhal:x:1007:1007::/home/hal:\n";
    let groups = "ann:x:1000:\nbob:x:1001:bob\ncat:x:1002:cat,dan\nusers:x:100:\nfay:x:1005:\n\
        hal:x:1007:hal\nhals:x:1007:ann\n";
    std::fs::write(root.path().join("etc/passwd"), passwd).unwrap();
    std::fs::write(root.path().join("etc/group"), groups).unwrap();
    let found = collect(root.path(), true);
    let private =
        |account: &&settings::UserAccount| found.groups(Some(account)).private == Some(account.gid);
    let names: Vec<&str> = found.accounts.iter().filter(private).map(|a| &*a.name).collect();
    assert_eq!(names, ["ann", "bob"]);
    assert_eq!(found.groups(None), policy::Groups::default());
    // Nobody knows who is in a group that the file does not have, or if the rest is elsewhere.
    let with = |groups: &str, more_users: &str| {
        std::fs::write(root.path().join("etc/passwd"), format!("{passwd}{more_users}")).unwrap();
        std::fs::write(root.path().join("etc/group"), groups).unwrap();
        let found = collect(root.path(), true);
        found.accounts.iter().filter(|account| account.has_private_group).count()
    };
    assert_eq!(with(groups, ""), 2);
    assert_eq!(with("", ""), 0);
    assert_eq!(with("bob:x:1001:bob\n", ""), 1);
    assert_eq!(with(&format!("{groups}+:::\n"), ""), 0);
    assert_eq!(with(groups, "+@staff::::::\n"), 0);
    std::fs::remove_file(root.path().join("etc/group")).unwrap();
    let found = collect(root.path(), true);
    assert!(found.accounts.iter().all(|account| !account.has_private_group));
}
