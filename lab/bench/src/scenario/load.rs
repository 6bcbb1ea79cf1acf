//! What a scenario sends, and what its sink does.
//!
//! Must never say what a mailer is to do: that is its setup.

use serde::{Deserialize, Serialize};

/// How a question is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Mail is sent and its rate measured.
    #[default]
    Load,
    /// A queue is restored and run once in an order: read, sort, sum; or until it is empty.
    Order,
    /// Mail is sent beside what else is queued, and its delay measured.
    Fairness,
    /// Mail is sent before, while and after there is more than can be done.
    Overload,
}

/// What ends a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ends {
    /// The last 250 to the source.
    #[default]
    Accepted,
    /// Everything has come to the sink, or lies in mailboxes.
    Delivered,
}

/// Whose programs send and take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tool {
    /// The laboratory's own.
    #[default]
    Lab,
    /// Postfix's smtp-source or smtp-sink.
    Postfix,
}

/// What the source sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Load {
    /// The event that ends a run.
    pub ends: Ends,
    /// Concurrent sessions.
    pub sessions: u32,
    /// Number of messages; 0: as many as are sent in `seconds`.
    pub messages: u64,
    /// Seconds after which no message is begun; 0: no limit.
    pub seconds: f64,
    /// Messages sent before the clock starts.
    pub warm_up: u64,
    /// Messages over one connection; 0: all of them.
    pub per_connection: u64,
    /// Recipients of each message.
    pub recipients: u32,
    /// Bytes of each message: a number, `1k:50,4k:30,100k:20`, or `lognormal:MEDIAN:SIGMA`.
    pub sizes: String,
    /// A directory of real messages to send instead.
    pub messages_from: String,
    /// Whether messages are sent by BDAT (RFC 3030).
    pub bdat: bool,
    /// Whether MAIL, RCPT and DATA are sent together (RFC 2920).
    pub pipelining: bool,
    /// Messages a second over all sessions; 0: as fast as they are answered.
    pub rate: f64,
    /// The rate in percent of the subject's greatest rate, which the cell with 100 measures in the same campaign. Replaces
    /// `rate`.
    pub rate_percent: f64,
    /// Recipients with weights, unless the subject chooses them.
    pub to: Vec<String>,
    /// The sender; empty: the source's own.
    pub from: String,
    /// Destinations over which `{d}` in `to` counts.
    pub spread: u32,
    /// Seconds of a row of the minute table, and of a point of the curve over time; 0: a tenth of `seconds`.
    pub every: f64,
    /// Messages that are queued before the clock starts.
    pub queued: u64,
    /// Seconds of rest before the load.
    pub settle: f64,
    /// The program that sends.
    pub source: Tool,
    /// The program that receives.
    pub sink: Tool,
    /// For `measure = "order"`: the run ends when all is sorted, or when the queue is empty.
    pub until_empty: bool,
    /// For `measure = "order"`: different hosts to which the messages go.
    pub hosts: u32,
    /// For `measure = "order"`: nothing of the queue is in memory when the run begins.
    pub cold: bool,
    /// For `measure = "order"`: the sink acknowledges each segment at once. Else a mailer that waits for that before it
    /// goes on waits up to 40 ms.
    pub acknowledge_at_once: bool,
    /// Seconds after which a run is cut short if its deliveries have not ended; its rate is that of the mail delivered
    /// until then.
    pub longest: f64,
    /// For `measure = "fairness"`: the load of the scenario's `[beside]` that is queued first; `nothing`: none.
    pub beside: String,
    /// For `measure = "fairness"`: its number of messages; 0: as `[beside]` says.
    pub crowd: u64,
    /// For `measure = "overload"`: KIND-NUMBER, see `campaign/burden.rs`.
    pub overload: String,
    /// Seconds for which a client that is not accepted or not answered tries again, as mailers do.
    pub retry: u64,
    /// The source gives up on a reply after this many seconds.
    pub patience: u64,
}

impl Default for Load {
    fn default() -> Load {
        Load {
            ends: Ends::Accepted,
            sessions: 10,
            messages: 0,
            seconds: 1.0,
            warm_up: 100,
            per_connection: 1,
            recipients: 1,
            sizes: "4096".into(),
            messages_from: String::new(),
            bdat: false,
            pipelining: false,
            rate: 0.0,
            rate_percent: 100.0,
            to: Vec::new(),
            from: String::new(),
            spread: 0,
            every: 0.0,
            queued: 0,
            settle: 0.2,
            source: Tool::Lab,
            sink: Tool::Lab,
            until_empty: false,
            hosts: 1,
            cold: false,
            acknowledge_at_once: false,
            longest: 30.0,
            beside: "nothing".into(),
            crowd: 0,
            overload: String::new(),
            retry: 20,
            patience: 60,
        }
    }
}

/// What the sink does to the mail; each as on the command line of `posthaste-lab sink`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Sink {
    /// Messages a second that the second sink takes, at the port 2601; 0: there is none.
    pub aside_rate: f64,
    /// `[STAGE:]MILLISECONDS[:SHARE]`.
    pub delay: Vec<String>,
    /// `STAGE:CODE[:SHARE]`.
    pub refuse: Vec<String>,
    /// `STAGE[:SHARE]`.
    pub drop: Vec<String>,
}
