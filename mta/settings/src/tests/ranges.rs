//! The ranges of settings: both ends, values beyond them, and products of several settings.
//!
//! Must never name a setting to leave it out.

use super::*;

/// A file that sets `name` to `value`, with what else its table needs.
fn file_with(name: &str, value: &str) -> String {
    match name.split_once('.') {
        None => format!("{name} = {value}\n"),
        Some(("listen", "address")) => format!("[[listen]]\naddress = {value}\n"),
        Some(("listen", name @ ("mode" | "group" | "trusted"))) => {
            format!("{SOCKET}{name} = {value}\n")
        }
        Some(("listen", name)) => {
            format!("[[listen]]\naddress = \"127.0.0.1:2525\"\n{name} = {value}\n")
        }
        Some(("route", "domain")) => format!("[[route]]\nto = \"hold\"\ndomain = {value}\n"),
        Some(("route", name)) => format!("[[route]]\ndomain = \"a.test\"\n{name} = {value}\n"),
        Some(("destination", name)) => format!("[destination.default]\n{name} = {value}\n"),
        Some((table, name)) => format!("[{table}]\n{name} = {value}\n"),
    }
}

#[test]
fn each_setting_is_read_its_default_is_the_table_s_and_another_value_counts() {
    let (plain, socket) = (good(""), good(SOCKET));
    for setting in settings() {
        let of_socket = file_with(setting.name, "").starts_with(SOCKET);
        let plain = if of_socket { &socket } else { &plain };
        if let Preset::Is(default) = setting.default {
            let default = setting.range.quoted(default);
            assert_eq!(&good(&file_with(setting.name, &default)), plain, "{}", setting.name);
        }
        let example = setting.range.quoted(setting.example);
        assert_ne!(&good(&file_with(setting.name, &example)), plain, "{}", setting.name);
    }
}

#[test]
fn both_ends_of_each_range_count_and_what_lies_beyond_is_refused() {
    // The ends of these ranges do not fit the defaults of other settings.
    let bound_to_others = [
        "retry.first",
        "retry.longest",
        "retry.expire",
        "retry.delay_notice",
        "destination.start_connections",
        "limits.connections",
        "limits.session_memory_bytes_max",
        "listen.connections",
        "spool.segment_bytes",
        "spool.batch_bytes_max",
    ];
    for setting in settings() {
        let (Range::Count(low, high) | Range::Bytes(low, high) | Range::Time(low, high)) =
            setting.range
        else {
            continue;
        };
        let write = |number: u64| match setting.range {
            Range::Time(..) => format!("\"{number}s\""),
            _ => number.to_string(),
        };
        if !bound_to_others.contains(&setting.name) {
            good(&file_with(setting.name, &write(low)));
            good(&file_with(setting.name, &write(high)));
        }
        let told = wrong(&file_with(setting.name, &write(high + 1)));
        assert!(told[0].contains(setting.name) && told[0].contains("out of range"), "{told:?}");
        if low > 0 {
            let told = wrong(&file_with(setting.name, &write(low - 1)));
            assert!(told[0].contains(setting.name) && told[0].contains("out of range"), "{told:?}");
        }
    }
}

#[test]
fn r242_what_no_counter_can_keep_is_refused_with_the_arithmetic_and_its_place() {
    for (text, told) in [
        (
            "[limits]\nconnections = 1000000",
            "posthaste.toml:2:15: limits.connections: 1000000 connections x 12KiB, the minimum for each, = 12000000KiB: \
             more than session_memory_bytes_max, 262144KiB",
        ),
        (
            "[limits]\nsession_memory_bytes_max = \"1MiB\"",
            "posthaste.toml:2:28: limits.session_memory_bytes_max: 20000 connections x 12KiB, the minimum for each, = \
             240000KiB: more than session_memory_bytes_max, 1024KiB",
        ),
        (
            "[limits]\nconnections = 80\nsession_memory_bytes_max = \"1MiB\"\n[[listen]]\naddress = \"*:25\"\nconnections = 86",
            "posthaste.toml:6:15: listen.connections: 86 connections here: more than limits.connections, 80, which all \
             listeners share",
        ),
        (
            "[limits]\nconnections = 80\nsession_memory_bytes_max = \"1MiB\"\n[processes]\nreceive = 13",
            "posthaste.toml:5:11: processes.receive: 13 processes x 80KiB, the minimum for one message, = 1040KiB: \
             more than session_memory_bytes_max, 1024KiB",
        ),
        (
            "[limits]\nrecipients_max = 1000000\n[spool]\nsegment_bytes = \"4MiB\"\nbatch_bytes_max = \"1MiB\"",
            "posthaste.toml:2:18: limits.recipients_max: 1000000 recipients x 8 bytes, the minimum for each, = 8000000 bytes: \
             more than the 4182016 bytes that a record can have in a segment of 4MiB",
        ),
        (
            "[[listen]]\naddress = \"*:25\"\nrecipients_max = 130000\n[spool]\nsegment_bytes = \"1MiB\"\nbatch_bytes_max = \"256KiB\"",
            "posthaste.toml:3:18: listen.recipients_max: 130000 recipients x 8 bytes, the minimum for each, = 1040000 bytes: \
             more than the 1036288 bytes that a record can have in a segment of 1MiB",
        ),
        (
            "[spool]\nsegment_bytes = \"1MiB\"",
            "posthaste.toml:2:17: spool.segment_bytes: a batch can have at most a quarter of a segment: \
             batch_bytes_max 2MiB is more than segment_bytes 1MiB / 4 = 256KiB",
        ),
        (
            "[limits]\nmessage_bytes_max = \"4GiB\"",
            "posthaste.toml:2:21: limits.message_bytes_max: is out of range: 64KiB to 4095MiB",
        ),
        (
            "[retry]\nfirst = \"1d\"\nlongest = \"1h\"",
            "posthaste.toml:2:9: retry.first: the first wait, 1d, is longer than the longest, 1h",
        ),
        (
            "[retry]\nfirst = \"1h\"\nexpire = \"30m\"",
            "posthaste.toml:3:10: retry.expire: a message would expire after 30m, before it is tried again after 1h",
        ),
        (
            "[retry]\nexpire = \"1h\"\ndelay_notice = \"2h\"",
            "posthaste.toml:3:16: retry.delay_notice: a message would expire after 1h, before its sender is told of a delay after 2h",
        ),
    ] {
        assert_eq!(wrong(text), [told], "{text}");
    }
}

#[test]
fn texts_and_paths_of_the_longest_kind_are_taken_and_longer_ones_refused() {
    let route = |bytes: usize| {
        format!("[[route]]\ndomain = \"a.test\"\nto = \"error:{}\"", "x".repeat(bytes))
    };
    let socket =
        |bytes: usize| format!("[[listen]]\naddress = \"unix:/{}\"", "x".repeat(bytes - 1));
    let listeners = |count: usize| -> String {
        (0..count).map(|n| format!("[[listen]]\naddress = \"127.0.0.1:{}\"\n", 2000 + n)).collect()
    };
    good(&route(400));
    good(&socket(107));
    assert_eq!(good(&listeners(schema::LISTENERS_MAX)).listen.len(), 256);
    for (text, told) in [
        (
            route(401),
            "route.to: the text after `error:` must be 1 to 400 printable ASCII characters",
        ),
        (socket(108), "listen.address: the path of a socket can have at most 107 bytes"),
        (listeners(257), "listen: 257 listeners are more than 256"),
    ] {
        assert!(wrong(&text)[0].ends_with(told), "{:?}", wrong(&text));
    }
}

#[test]
fn r242_a_product_that_a_counter_keeps_is_let_through() {
    for text in [
        "[limits]\nconnections = 21845\nconnections_per_client = 1000000",
        "[limits]\nsession_memory_bytes_max = \"1MiB\"\nconnections = 85",
        "[limits]\nsession_memory_bytes_max = \"1MiB\"\nconnections = 85\n[processes]\nreceive = 12",
        "[limits]\nconnections = 21845\n[[listen]]\naddress = \"*:25\"\nconnections = 21845\nrecipients_max = 1000000",
        // 452 4.5.3 when the envelope is too long, 452 4.3.1 when memory is.
        "[limits]\nrecipients_max = 1000000",
        // 552 5.3.4 for a long envelope in a short segment.
        "[spool]\nsegment_bytes = \"1MiB\"\nbatch_bytes_max = \"256KiB\"",
        "[limits]\nmessage_bytes_max = \"4095MiB\"\nheader_bytes_max = \"1GiB\"",
        "[limits]\ntransaction_time_max = \"1m\"\ndata_timeout = \"1d\"\ncommand_timeout = \"1d\"",
        "[spool]\nkeep_free_bytes = \"1024TiB\"\nreserve_bytes = \"1024GiB\"",
    ] {
        good(text);
    }
}
