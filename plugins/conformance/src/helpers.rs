//! Helpers for authors' own tests: inboxes from literals, messages as text, and snapshots with a
//! tolerance.

use crate::compare::digits;
use fl_core::message::{Logits, Message, NamedTensors, Params, View};
use fl_core::{Candidate, ClientId, ClientMessage, Inbox, Round};
use insta::Snapshot;
use insta::comparator::Comparator;
use insta::internals::Content;
use ndarray::{Array2, ArrayD};
use std::borrow::Cow;
use std::fmt::{Debug, Display};

/// Returns an inbox with one tensor `w` from each client; clients count from 0 and have weight 1.
///
/// # Panics
/// If these values do not form an inbox; the same holds for the other helpers.
#[track_caller]
pub fn params(clients: &[&[f32]]) -> Inbox<Params> {
    let body = |row: &&[f32]| {
        let tensor = ArrayD::from_shape_vec(vec![row.len()], row.to_vec());
        Params([("w".to_string(), tensor.expect("one axis"))].into())
    };
    inbox(clients.iter().map(body).collect())
}

/// Returns an inbox with scores from each client for the samples 0, 1, 2, ..; clients count from 0
/// and have weight 1.
#[track_caller]
pub fn logits<const CLASSES: usize>(clients: &[&[[f32; CLASSES]]]) -> Inbox<Logits> {
    let body = |rows: &&[[f32; CLASSES]]| {
        let values = Array2::from_shape_vec((rows.len(), CLASSES), rows.concat());
        Logits::new(
            (0..rows.len() as u32).collect(),
            values.expect("rows of one length"),
        )
    };
    inbox(clients.iter().map(body).collect())
}

#[track_caller]
fn inbox<M: Message>(bodies: Vec<M>) -> Inbox<M> {
    let mail = bodies.into_iter().enumerate();
    made(
        mail.map(|(k, body)| ClientMessage::new(k as ClientId, 1.0, body))
            .collect(),
    )
}

#[track_caller]
fn made<M: Message>(mail: Vec<ClientMessage<M>>) -> Inbox<M> {
    Inbox::new(mail).unwrap_or_else(|e| panic!("this is no inbox: {e:#}"))
}

/// Returns the same inbox with other weights, one for each client in order.
#[track_caller]
pub fn weigh<M: Message>(inbox: &Inbox<M>, weights: &[f64]) -> Inbox<M> {
    with_each(inbox, weights, "weight", |mail, weight| {
        mail.weight = weight
    })
}

/// Returns the same inbox with training losses, one for each client in order.
#[track_caller]
pub fn with_losses<M: Message>(inbox: &Inbox<M>, losses: &[f64]) -> Inbox<M> {
    with_each(inbox, losses, "training loss", |mail, loss| {
        mail.training_loss = Some(loss)
    })
}

#[track_caller]
fn with_each<M: Message>(
    inbox: &Inbox<M>,
    numbers: &[f64],
    what: &str,
    set: impl Fn(&mut ClientMessage<M>, f64),
) -> Inbox<M> {
    assert_eq!(
        inbox.len(),
        numbers.len(),
        "there must be one {what} for each client"
    );
    let mut mail: Vec<_> = inbox.iter().cloned().collect();
    mail.iter_mut()
        .zip(numbers)
        .for_each(|(m, number)| set(m, *number));
    made(mail)
}

/// Formats a message for snapshots: a line for each tensor with its name, its shape, and its
/// numbers to six digits.
pub fn show<M: Message>(message: &M) -> String {
    lines(&message.tensors()).join("\n")
}

fn one_line(tensors: &NamedTensors<'_>) -> String {
    lines(tensors).join("; ")
}

fn lines(tensors: &NamedTensors<'_>) -> Vec<String> {
    let line = |(name, view): &(Cow<'_, str>, View<'_>)| {
        let values: Vec<String> = view.to_f64().into_iter().map(digits).collect();
        format!("{name} {:?} {}", view.shape(), values.join(" "))
            .trim_end()
            .to_string()
    };
    tensors.iter().map(line).collect()
}

/// Returns settings under which snapshots may differ by 1e-5 of each number, for results of `exp`,
/// `ln` or a matrix product.
///
/// ```
/// # use fl_core::prelude::*;
/// let out = Scalar::new(2.750_000_2);
/// fl_conformance::close().bind(|| {
///     insta::assert_snapshot!(fl_conformance::show(&out), @"value [1] 2.75")
/// });
/// ```
pub fn close() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_comparator(Box::new(Close));
    settings
}

/// The most characters of a part that a review shows: its settings come first, then its state.
const OF_A_PART: usize = 240;

/// Begins what a review of a snapshot shows above the answer: the part with its settings, and then
/// a row for each input that is added.
///
/// ```
/// # use fl_core::prelude::*;
/// # settings! {
/// #     /// The first client.
/// #     pub struct First {}
/// # }
/// # impl Selector for First {
/// #     type Pool = [Candidate];
/// #     fn select(&mut self, _: &Round, _: &[Candidate]) -> Result<Vec<usize>> {
/// #         Ok(vec![0])
/// #     }
/// # }
/// let pool = [Candidate::new(3), Candidate::new(5)];
/// let mut part = First {};
/// fl_conformance::given(&part).pool(&pool).bind(|| {
///     let chosen = part.select(&Round::first(), &pool).unwrap();
///     insta::assert_snapshot!(format!("{chosen:?}"), @"[0]")
/// });
/// ```
pub fn given(part: &impl Debug) -> Given {
    let part = format!("{part:?}");
    let cut = part.char_indices().nth(OF_A_PART);
    let shown = cut.map_or(part.clone(), |(at, _)| format!("{}..", &part[..at]));
    Given(Vec::new()).input("part", shown)
}

/// What a part was given, for the review of a snapshot of its answer; [`given`] makes it.
#[must_use = "call `bind` with the assertion"]
pub struct Given(Vec<(Content, Content)>);

impl Given {
    /// Adds an input by name.
    pub fn input(mut self, name: impl Into<String>, value: impl Display) -> Self {
        let text = |text: String| Content::String(text);
        self.0.push((text(name.into()), text(value.to_string())));
        self
    }

    /// Adds what the server sent to clients, if the round shows it.
    pub fn round(self, round: &Round) -> Self {
        match round.sent_any() {
            Some(sent) => self.input("sent", one_line(&sent.content())),
            None => self,
        }
    }

    /// Adds each client's weight, training loss and message.
    pub fn inbox<M: Message>(self, inbox: &Inbox<M>) -> Self {
        inbox.iter().fold(self, |rows, mail| {
            let loss = mail.training_loss;
            let loss = loss.map_or(String::new(), |loss| format!(", loss {}", digits(loss)));
            let (weight, body) = (digits(mail.weight), one_line(&mail.body.tensors()));
            let name = format!("client {}", mail.from);
            rows.input(name, format!("weight {weight}{loss}: {body}"))
        })
    }

    /// Adds the clients that a selector may choose.
    pub fn pool(self, pool: &[Candidate]) -> Self {
        (0..)
            .zip(pool)
            .fold(self, |rows, (at, client): (usize, _)| {
                let samples = client.samples.map(|n| format!(", {n} samples"));
                let loss = client.loss.map(|loss| format!(", loss {}", digits(loss)));
                let known = [samples, loss].map(Option::unwrap_or_default).concat();
                rows.input(format!("at {at}"), format!("client {}{known}", client.id))
            })
    }

    /// Runs `assertion`, whose snapshots have these rows as their info.
    pub fn bind<T>(self, assertion: impl FnOnce() -> T) -> T {
        let mut settings = insta::Settings::clone_current();
        settings.set_raw_info(&Content::Map(self.0));
        settings.bind(assertion)
    }
}

/// Takes an inline snapshot of what an aggregator answers. A review shows above it the part, what
/// the server sent, and each client's weight, training loss and message.
///
/// ```
/// # use fl_core::prelude::*;
/// # settings! {
/// #     /// The first message.
/// #     pub struct First {}
/// # }
/// # impl Aggregator for First {
/// #     type In = Params;
/// #     type Out = Params;
/// #     fn aggregate(&mut self, _: &Round, inbox: &Inbox<Params>) -> Result<Params> {
/// #         Ok(inbox.iter().next().unwrap().body.clone())
/// #     }
/// # }
/// let inbox = fl_conformance::params(&[&[1.0, 2.0], &[3.0, -4.0]]);
/// fl_conformance::snapshot!(First {}, Round::first(), inbox, @"w [2] 1 2");
/// ```
#[macro_export]
macro_rules! snapshot {
    ($part:expr, $round:expr, $inbox:expr, $($answer:tt)+) => {{
        let (part, round, inbox) = (&mut $part, &$round, &$inbox);
        $crate::given(&*part).round(round).inbox(inbox).bind(|| {
            let answer = part.aggregate(round, inbox).unwrap();
            $crate::insta::assert_snapshot!($crate::show(&answer), $($answer)+)
        })
    }};
}

#[derive(Clone)]
struct Close;

impl Comparator for Close {
    fn matches(&self, reference: &Snapshot, test: &Snapshot) -> bool {
        match (reference.as_text(), test.as_text()) {
            (Some(a), Some(b)) => nearly(&a.to_string(), &b.to_string()),
            _ => reference.contents() == test.contents(),
        }
    }
    fn dyn_clone(&self) -> Box<dyn Comparator> {
        Box::new(self.clone())
    }
}

/// Returns whether two texts have the same words, and numbers within 1e-5 of each other; below
/// 1e-3, within 1e-8.
fn nearly(one: &str, other: &str) -> bool {
    let lines = |text: &str| -> Vec<Vec<String>> {
        let split = |line: &str| line.split_whitespace().map(str::to_string).collect();
        text.trim().lines().map(split).collect()
    };
    let same = |a: &String, b: &String| {
        // `NaN` counts as a word: as a number it differs from itself
        if a == b {
            return true;
        }
        let trim = |word: &str| {
            word.trim_matches(|c: char| ",;:()[]".contains(c))
                .parse::<f64>()
        };
        match (trim(a), trim(b)) {
            (Ok(x), Ok(y)) => x == y || (x - y).abs() <= 1e-5 * x.abs().max(y.abs()).max(1e-3),
            _ => a == b,
        }
    };
    let (one, other) = (lines(one), lines(other));
    one.len() == other.len()
        && one
            .iter()
            .zip(&other)
            .all(|(a, b)| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_means_a_hundred_thousandth_of_each_number() {
        assert!(nearly("w [2] 2.75 1e-9", "w [2] 2.7500004 0"));
        assert!(!nearly("w [2] 2.75 1", "w [2] 2.751 1"));
        assert!(!nearly("w [2] 2.75", "v [2] 2.75"));
        assert!(!nearly("w [2] 2.75", "w [2] 2.75\nv [1] 1"));
        assert!(nearly("(2.75, nearly)", "(2.7500001, nearly)"));
        assert!(nearly("holds NaN", "holds NaN") && !nearly("holds NaN", "holds 1"));
    }

    #[derive(Debug)]
    #[expect(dead_code, reason = "a review shows it")]
    struct Trimmed {
        trim: f64,
        seen: Vec<u8>,
    }

    fn rows<const N: usize>(rows: [(&str, &str); N]) -> Vec<(Content, Content)> {
        let text = |text: &str| Content::String(text.into());
        rows.map(|(name, row)| (text(name), text(row))).into()
    }

    #[test]
    fn exact_inputs_are_the_part_and_a_line_for_each_client() {
        let inbox = weigh(&params(&[&[1.0, 2.0], &[3.0, -4.5]]), &[1.0, 2.5]);
        let inbox = with_losses(&inbox, &[0.5, 0.25]);
        let sent = inbox.iter().next().unwrap().body.clone();
        let part = Trimmed {
            trim: 0.2,
            seen: Vec::new(),
        };
        let found = given(&part)
            .round(&Round::first().showing(sent))
            .inbox(&inbox);
        let due = [
            ("part", "Trimmed { trim: 0.2, seen: [] }"),
            ("sent", "w [2] 1 2"),
            ("client 0", "weight 1, loss 0.5: w [2] 1 2"),
            ("client 1", "weight 2.5, loss 0.25: w [2] 3 -4.5"),
        ];
        assert_eq!(found.0, rows(due));
        let mut known = Candidate::new(7);
        (known.samples, known.loss) = (Some(20), Some(0.5));
        let found = given(&1).pool(&[Candidate::new(3), known]);
        let due = [
            ("part", "1"),
            ("at 0", "client 3"),
            ("at 1", "client 7, 20 samples, loss 0.5"),
        ];
        assert_eq!(found.round(&Round::first()).0, rows(due));
    }

    #[test]
    fn a_long_state_is_cut() {
        let part = Trimmed {
            trim: 0.2,
            seen: vec![1; 1000],
        };
        let Given(rows) = given(&part);
        let (_, Content::String(shown)) = &rows[0] else {
            panic!("{rows:?}");
        };
        assert_eq!(shown.len(), OF_A_PART + 2);
        assert!(shown.starts_with("Trimmed { trim: 0.2") && shown.ends_with(".."));
    }

    #[test]
    fn exact_messages_as_text() {
        insta::assert_snapshot!(show(&params(&[&[2.5, -0.0, 1e-7, 1e30, 0.1]]).iter().next().unwrap().body), @"w [5] 2.5 0 1e-7 1e30 0.1");
        let inbox = weigh(&logits(&[&[[1.0, 2.0]], &[[3.0, 4.0]]]), &[1.0, 3.0]);
        assert_eq!(inbox.total_weight(), 4.0);
        insta::assert_snapshot!(show(&inbox.iter().last().unwrap().body), @r"
        rows [1] 0
        values [1, 2] 3 4
        ");
    }
}
