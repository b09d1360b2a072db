//! Helpers for authors' own tests: inboxes from literals, messages as text, and snapshots with a
//! tolerance.

use crate::compare::{digits, numbers};
use fl_core::message::{Logits, Message, Params};
use fl_core::{ClientId, ClientMessage, Inbox};
use insta::Snapshot;
use insta::comparator::Comparator;
use insta::internals::Content;
use ndarray::{Array2, ArrayD};
use std::fmt::Debug;

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
    assert_eq!(
        inbox.len(),
        weights.len(),
        "there must be one weight for each client"
    );
    let mail = inbox.iter().zip(weights);
    made(
        mail.map(|(m, w)| ClientMessage {
            weight: *w,
            ..m.clone()
        })
        .collect(),
    )
}

/// Returns the same inbox with training losses, one for each client in order.
#[track_caller]
pub fn with_losses<M: Message>(inbox: &Inbox<M>, losses: &[f64]) -> Inbox<M> {
    assert_eq!(
        inbox.len(),
        losses.len(),
        "there must be one training loss for each client"
    );
    let mail = inbox.iter().zip(losses);
    made(
        mail.map(|(m, loss)| ClientMessage {
            training_loss: Some(*loss),
            ..m.clone()
        })
        .collect(),
    )
}

/// Formats a message for snapshots: a line for each tensor with its name, its shape, and its
/// numbers to six digits.
pub fn show<M: Message>(message: &M) -> String {
    let line = |(name, view): &(std::borrow::Cow<'_, str>, fl_core::message::View<'_>)| {
        let values: Vec<String> = numbers(view).into_iter().map(digits).collect();
        format!("{name} {:?} {}", view.shape(), values.join(" "))
            .trim_end()
            .to_string()
    };
    message
        .tensors()
        .iter()
        .map(line)
        .collect::<Vec<_>>()
        .join("\n")
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

/// Returns settings under which a review of snapshots shows what the part was given: its settings,
/// and the weight and the message of each client.
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
/// let mut part = First {};
/// fl_conformance::given(&part, &inbox).bind(|| {
///     let out = part.aggregate(&Round::first(), &inbox).unwrap();
///     insta::assert_snapshot!(fl_conformance::show(&out), @"w [2] 1 2")
/// });
/// ```
pub fn given<M: Message>(part: &impl Debug, inbox: &Inbox<M>) -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_raw_info(&inputs(part, inbox));
    settings
}

/// A small table: the part, then a line for each client.
fn inputs<M: Message>(part: &impl Debug, inbox: &Inbox<M>) -> Content {
    let text = |text: String| Content::String(text);
    let mut rows = vec![(text("part".into()), text(format!("{part:?}")))];
    rows.extend(inbox.iter().map(|mail| {
        let loss = mail.training_loss;
        let loss = loss.map_or(String::new(), |loss| format!(", loss {}", digits(loss)));
        let weight = digits(mail.weight);
        let body = show(&mail.body).replace('\n', "; ");
        let name = format!("client {}", mail.from);
        (text(name), text(format!("weight {weight}{loss}: {body}")))
    }));
    Content::Map(rows)
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

    #[test]
    fn exact_inputs_are_the_part_and_a_line_for_each_client() {
        #[derive(Debug)]
        #[expect(dead_code)]
        struct Trimmed {
            trim: f64,
        }
        let inbox = weigh(&params(&[&[1.0, 2.0], &[3.0, -4.5]]), &[1.0, 2.5]);
        let inbox = with_losses(&inbox, &[0.5, 0.25]);
        let rows = [
            ("part", "Trimmed { trim: 0.2 }"),
            ("client 0", "weight 1, loss 0.5: w [2] 1 2"),
            ("client 1", "weight 2.5, loss 0.25: w [2] 3 -4.5"),
        ];
        let text = |text: &str| Content::String(text.into());
        let due = rows.map(|(name, row)| (text(name), text(row)));
        assert_eq!(
            inputs(&Trimmed { trim: 0.2 }, &inbox),
            Content::Map(due.into())
        );
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
