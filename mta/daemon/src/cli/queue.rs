//! `posthaste queue …` and `posthaste status`: requests to the queue process, and the output of its answers.
//!
//! Must never delete messages before it has counted them and the operator has agreed.

use super::args::{Acting, QueueCommand};
use super::ask::QueueConnection;
use super::config::Config;
use super::print::{Failure, count, say};
use super::{EX_FOUND, EX_OK, EX_PROTOCOL, EX_USAGE, json, show};
use link::admin::{Acted, Action, Answer, Explanation, Filter, Order, ROWS_MAX, Request, Row};
use mail::{MessageId, Timestamp};
use std::io::{BufRead, IsTerminal, Write};
use std::time::{Duration, SystemTime};

pub(super) fn run(config: &Config, command: QueueCommand) -> Result<u8, Failure> {
    let mut queue = QueueConnection::of(config)?;
    match command {
        QueueCommand::List { which, limit, json } => list(&mut queue, which.filter(), limit, json),
        QueueCommand::Show { ids, json } => each(&ids, |id| show_one(&mut queue, id, json)),
        QueueCommand::Explain { ids, json } => each(&ids, |id| explain_one(&mut queue, id, json)),
        QueueCommand::Summary { json } => summary(&mut queue, json),
        QueueCommand::Run { order, json } => start(&mut queue, order, json),
        QueueCommand::Hold(acting) => act(&mut queue, Action::Hold, acting),
        QueueCommand::Release(acting) => act(&mut queue, Action::Release, acting),
        QueueCommand::Retry(acting) => act(&mut queue, Action::Retry, acting),
        QueueCommand::Flush(acting) => {
            act(&mut queue, Action::Retry, Acting { all: true, ..acting })
        }
        QueueCommand::Priority { value, acting } => {
            act(&mut queue, Action::Priority(value), acting)
        }
        QueueCommand::Delete { acting, yes } => delete(&mut queue, acting, yes),
    }
}

/// Calls `each` with every row that passes a filter, page by page.
pub(super) fn pages(
    queue: &mut QueueConnection,
    filter: Filter,
    limit: Option<u64>,
    mut each: impl FnMut(Row),
) -> Result<(), Failure> {
    let (mut after, mut left) = (None, limit.unwrap_or(u64::MAX));
    while left > 0 {
        let rows_max = left.min(u64::from(ROWS_MAX)) as u32;
        let request = Request::List { filter: filter.clone(), after, rows_max };
        let Answer::Page(page) = queue.ask(&request)? else { return Err(unexpected()) };
        for row in page.rows.into_iter().take(rows_max as usize) {
            left -= 1;
            each(row);
        }
        match page.next {
            // A page that does not lead further would be requested without end.
            Some(next) if Some(next) > after => after = Some(next),
            _ => return Ok(()),
        }
    }
    Ok(())
}

fn list(
    queue: &mut QueueConnection,
    filter: Filter,
    limit: Option<u64>,
    json: bool,
) -> Result<u8, Failure> {
    let (now, mut listed) = (now(), 0u64);
    pages(queue, filter, limit, |row| {
        listed += 1;
        say(&if json { json::line(&json::row(&row)) } else { show::row(&row, now) });
    })?;
    if !json {
        say(&format!("{}\n", count(listed, "message")));
    }
    Ok(EX_OK)
}

/// Calls `one` for each id. The exit code says whether all of them were in the queue.
fn each(
    ids: &[MessageId],
    mut one: impl FnMut(MessageId) -> Result<bool, Failure>,
) -> Result<u8, Failure> {
    let mut code = EX_OK;
    for id in ids {
        if !one(*id)? {
            crate::log::complain(&format!("{id} is not in the queue"));
            code = EX_FOUND;
        }
    }
    Ok(code)
}

fn show_one(queue: &mut QueueConnection, id: MessageId, json: bool) -> Result<bool, Failure> {
    match queue.ask(&Request::Show(id))? {
        Answer::Shown(shown) if json => say(&json::line(&json::shown(&shown))),
        Answer::Shown(shown) => say(&show::shown(&shown)),
        Answer::Unknown(_) => return Ok(false),
        _ => return Err(unexpected()),
    }
    Ok(true)
}

fn explain_one(queue: &mut QueueConnection, id: MessageId, json: bool) -> Result<bool, Failure> {
    let Some(explanation) = explanation(queue, id)? else { return Ok(false) };
    say(&match json {
        true => json::line(&json::explanation(&explanation)),
        false => show::explanation(&explanation, now()),
    });
    Ok(true)
}

/// Returns the whole explanation, put together from its pages.
fn explanation(queue: &mut QueueConnection, id: MessageId) -> Result<Option<Explanation>, Failure> {
    let mut whole: Option<Explanation> = None;
    let mut recipient_first = 0;
    loop {
        let page = match queue.ask(&Request::Explain { message: id, recipient_first })? {
            Answer::Explanation(page) => *page,
            // The message may have left the queue between two pages: the known part is shown.
            Answer::Unknown(_) => return Ok(whole),
            _ => return Err(unexpected()),
        };
        let next = page.recipient_next;
        match &mut whole {
            None => whole = Some(page),
            Some(whole) => whole.recipients.extend(page.recipients),
        }
        match next {
            Some(next) if next > recipient_first => recipient_first = next,
            _ => return Ok(whole),
        }
    }
}

fn summary(queue: &mut QueueConnection, json: bool) -> Result<u8, Failure> {
    let Answer::Summary(summary) = queue.ask(&Request::Summary)? else {
        return Err(unexpected());
    };
    say(&if json { json::line(&json::summary(&summary)) } else { show::summary(&summary) });
    Ok(EX_OK)
}

fn start(queue: &mut QueueConnection, order: Order, json: bool) -> Result<u8, Failure> {
    let Answer::Ran(ran) = queue.ask(&Request::Run { order })? else { return Err(unexpected()) };
    let name = order.name();
    say(&if json { json::line(&json::ran(name, &ran)) } else { show::ran(name, &ran) });
    Ok(EX_OK)
}

/// Longest wait for the status. A queue process that does not answer in this time is the trouble itself.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// Prints the status. The exit code says whether there is any trouble.
pub(super) fn status(config: &Config, json: bool) -> Result<u8, Failure> {
    let mut queue = QueueConnection::of(config)?;
    queue.patience(STATUS_TIMEOUT)?;
    let Answer::Status(status) = queue.ask(&Request::Status)? else { return Err(unexpected()) };
    say(&if json { json::line(&json::status(&status)) } else { show::status(&status) });
    Ok(if status.troubles.is_empty() { EX_OK } else { EX_FOUND })
}

/// Applies any action but deletion.
fn act(queue: &mut QueueConnection, action: Action, acting: Acting) -> Result<u8, Failure> {
    let filter = chosen(&acting)?;
    let acted = over_all(queue, action, &filter, acting.dry_run)?;
    report(action, &acted, acting.dry_run, acting.json);
    Ok(found(&filter, &acted))
}

fn delete(queue: &mut QueueConnection, acting: Acting, yes: bool) -> Result<u8, Failure> {
    let filter = chosen(&acting)?;
    let would = over_all(queue, Action::Delete, &filter, true)?;
    if acting.dry_run || would.messages == 0 {
        report(Action::Delete, &would, true, acting.json);
        return Ok(found(&filter, &would));
    }
    let what = show::acted_on(&would);
    if !yes && !is_agreed(&format!("Delete {what}? Their senders are not told. [y/N] "))? {
        return Err(Failure::new(EX_FOUND, format!("nothing deleted; it would have been {what}")));
    }
    let did = over_all(queue, Action::Delete, &filter, false)?;
    report(Action::Delete, &did, false, acting.json);
    Ok(EX_OK)
}

/// Returns the filter, or a failure if nothing selects messages.
fn chosen(acting: &Acting) -> Result<Filter, Failure> {
    let filter = acting.which.clone().filter();
    match filter.is_all() && !acting.all {
        false => Ok(filter),
        true => Err(Failure::new(
            EX_USAGE,
            "which messages? Name queue ids, or --destination, --sender, --recipient, --older, \
             --state, or --all",
        )),
    }
}

/// Applies an action to all messages that a filter selects, in bounded calls.
fn over_all(
    queue: &mut QueueConnection,
    action: Action,
    filter: &Filter,
    dry_run: bool,
) -> Result<Acted, Failure> {
    let (mut sum, mut after) = (Acted::default(), None);
    loop {
        let request = Request::Act { action, filter: filter.clone(), after, dry_run };
        let Answer::Acted(acted) = queue.ask(&request)? else { return Err(unexpected()) };
        sum.messages += acted.messages;
        sum.recipients += acted.recipients;
        sum.bytes += acted.bytes;
        match acted.next {
            Some(next) if Some(next) > after => after = Some(next),
            _ => return Ok(sum),
        }
    }
}

fn report(action: Action, acted: &Acted, dry_run: bool, json: bool) {
    say(&match json {
        true => json::line(&json::acted(action, acted, dry_run)),
        false => show::acted(action, acted, dry_run),
    });
}

/// Returns the exit code: named ids that are not in the queue are a finding, an empty selection is not.
fn found(filter: &Filter, acted: &Acted) -> u8 {
    if (acted.messages as usize) < filter.ids.len() { EX_FOUND } else { EX_OK }
}

/// Asks the operator. Without a terminal the answer is no.
fn is_agreed(question: &str) -> Result<bool, Failure> {
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    if !stdin.is_terminal() {
        return Err(Failure::new(
            EX_USAGE,
            format!("{question}\nnobody to ask: say --yes, or --dry-run to count only"),
        ));
    }
    let mut answer = String::new();
    let asked = stderr.write_all(question.as_bytes()).and_then(|()| stderr.flush());
    asked
        .and_then(|()| stdin.lock().read_line(&mut answer))
        .map_err(|error| Failure::new(EX_USAGE, error.to_string()))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn unexpected() -> Failure {
    Failure::new(EX_PROTOCOL, "the queue process answered another question")
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
