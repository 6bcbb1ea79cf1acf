//! The page in a real browser: what it says of overflow, errors and the network, wide and narrow, light and dark.

#![allow(clippy::unwrap_used)]

mod chromium;
mod synthetic;

use chromium::Browser;
use report::Campaign;
use serde_json::{Value, json};
use std::path::PathBuf;

/// What stands out of the page to the right, apart from what scrolls in a box of its own.
const OVERFLOW: &str = "(() => {
    const wide = document.documentElement.clientWidth;
    const inside = element => element.closest('.box, pre, .symbols') && !element.matches('.box, pre');
    const out = [...document.body.querySelectorAll('*')].filter(element => {
        const box = element.getBoundingClientRect();
        return box.width > 0 && !inside(element) && (box.right > wide + 1 || box.left < -1);
    });
    return {page: document.documentElement.scrollWidth - wide,
        out: out.slice(0, 5).map(element => element.outerHTML.slice(0, 160))};
})()";

/// Words in figures that lie on each other, or outside of their figure.
const WORDS: &str = "(() => {
    const bad = [];
    for (const plot of document.querySelectorAll('svg.plot:not(.icon)')) {
        const frame = plot.getBoundingClientRect();
        if (frame.width === 0) continue;
        const words = [...plot.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
        const name = plot.querySelector('title').textContent;
        words.forEach(([word, box], index) => {
            if (box.left < frame.left - 3 || box.right > frame.right + 3) bad.push(`outside: ${word} in ${name}`);
            for (const [other, next] of words.slice(index + 1)) {
                const across = Math.min(box.right, next.right) - Math.max(box.left, next.left);
                const down = Math.min(box.bottom, next.bottom) - Math.max(box.top, next.top);
                if (across > 1 && down > 4) bad.push(`over each other: ${word} / ${other} in ${name}`);
            }
        });
    }
    return bad;
})()";

/// Tables that are wider than their boxes and scroll: of the first table, and of those that answer a scenario's question.
const SCROLLING: &str = "(() => {
    const answers = [...document.querySelectorAll('section.scenario')].map(one => one.querySelector('.box'));
    const boxes = [document.querySelector('.box'), ...answers].filter(box => box);
    return boxes.filter(box => box.scrollWidth > box.clientWidth + 1)
        .map(box => `${box.getAttribute('aria-label')}: ${box.scrollWidth} in ${box.clientWidth}`);
})()";

/// Wide and narrow, light and dark, and on A4 paper.
const LOOKS: [(u32, &str); 5] =
    [(1400, "light"), (1400, "dark"), (390, "light"), (390, "dark"), (718, "print")];

fn page() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let campaign =
        Campaign::new(&synthetic::campaign(), &synthetic::abouts(), Some("postfix")).unwrap();
    let path = place.path().join("page.html");
    std::fs::write(&path, report::html(&campaign, "A campaign that never was", "campaign.jsonl"))
        .unwrap();
    (place, path)
}

fn kinds(browser: &Browser, method: &str) -> Vec<Value> {
    browser
        .events
        .iter()
        .filter(|event| event["method"] == method)
        .map(|event| event["params"].clone())
        .collect()
}

#[test]
fn a_browser_shows_all_of_it_without_overflow_errors_or_network() {
    let (_place, path) = page();
    let pictures = std::env::var_os("REPORT_PICTURES").map(PathBuf::from);
    let mut browser = Browser::start();
    browser.look(1400, "light");
    browser.open(&path);
    for (width, scheme) in LOOKS {
        let at = format!("{width} {scheme}");
        browser.look(width, scheme);
        browser.value("document.querySelectorAll('details').forEach(one => one.open = false)");
        if let Some(place) = &pictures {
            browser.pictures(place, &at.replace(' ', "-"), if width > 600 { 2200 } else { 2600 });
        }
        assert_eq!(browser.value(OVERFLOW), json!({"page": 0, "out": []}), "{at}");
        if width == 1400 {
            assert_eq!(browser.value(SCROLLING), json!([]), "{at}");
        }
        browser.value("document.querySelectorAll('details').forEach(one => one.open = true)");
        assert_eq!(browser.value(OVERFLOW)["page"], 0, "{at}, all unfolded");
        assert_eq!(browser.value(WORDS), json!([]), "{at}");
        let paper = browser.value("getComputedStyle(document.body).backgroundColor");
        let expected = match scheme {
            "light" => "rgb(253, 253, 251)",
            "dark" => "rgb(23, 25, 27)",
            _ => "rgb(255, 255, 255)",
        };
        assert_eq!(paper, expected, "{at}");
    }
    let asked = kinds(&browser, "Network.requestWillBeSent");
    let asked: Vec<&str> =
        asked.iter().filter_map(|event| event["request"]["url"].as_str()).collect();
    assert!(
        asked.iter().all(|url| url.starts_with("file://") && url.ends_with("page.html")),
        "{asked:?}"
    );
    assert_eq!(asked.len(), 1);
    for method in ["Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"] {
        assert_eq!(kinds(&browser, method), Vec::<Value>::new());
    }
    let sections = browser
        .value("[...document.querySelectorAll('section.scenario')].map(one => one.id).join(' ')");
    assert_eq!(sections, "senders local depth order syscalls minute spread limit");
}
