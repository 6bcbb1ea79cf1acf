//! What an operator sees of the queue: rows, explanations and sums, the filters that select messages, and the names of
//! the orders. The scheduler fills these types, `link::admin` carries them, and the command line prints them.
//!
//! Must never decide anything about mail.

mod explanation;
mod list;
mod order;
mod summary;

pub use explanation::{Explanation, Gate, HeldBy, WaitingRecipient};
pub use list::{Filter, ListPage, RECIPIENTS_SHOWN_MAX, Row, RowRecipient, State};
pub use order::{NotAnOrder, ORDERS, Order};
pub use summary::{DESTINATIONS_SHOWN_MAX, DestinationSummary, Summary};
