//! What a protocol declares, as it crosses.

use anyhow::Context;
use fl_roles::message::message_type;
use fl_roles::{ExchangeSpec, Measurement, Result, SlotSpec};
use serde::{Deserialize, Serialize};

/// See [`FL_DECLARE`](super::raw::FL_DECLARE).
#[derive(Serialize, Deserialize)]
pub(super) struct DeclarationText {
    pub slots: Vec<SlotText>,
    pub exchanges: Vec<ExchangeSpec>,
    #[serde(default)]
    pub grows: Option<String>,
    #[serde(default)]
    pub begins_with: Option<String>,
    #[serde(default)]
    /// Slot, setting and file.
    pub loads: Option<[String; 3]>,
    #[serde(default)]
    pub pooled: bool,
    /// `null`: it may record anything.
    #[serde(default)]
    pub measures: Option<Vec<Measurement>>,
}

/// A slot, and whether its parts learn another task than the run's.
#[derive(Serialize, Deserialize)]
pub(super) struct SlotText {
    #[serde(flatten)]
    pub slot: SlotSpec,
    #[serde(default)]
    pub own_task: bool,
}

impl From<&SlotSpec> for SlotText {
    fn from(slot: &SlotSpec) -> Self {
        Self {
            slot: slot.clone(),
            own_task: !slot.task.is_same(),
        }
    }
}

/// The text without what steers a terminal, for ever.
pub(crate) fn kept(text: &str) -> &'static str {
    fl_roles::__private::kept(&super::marshal::plain(text))
}

/// An exchange as it came, with the types of its messages.
pub(super) fn typed(of: &ExchangeSpec) -> Result<ExchangeSpec> {
    let label = of.label;
    let known = |kind: &str| {
        message_type(kind).with_context(|| {
            format!(
                "exchange `{label}`: no message is called `{kind}`; declare it under `messages`"
            )
        })
    };
    let (request, answer) = (known(of.down)?, known(of.up)?);
    Ok(ExchangeSpec {
        request,
        answer,
        ..of.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_roles::Exchange;
    use fl_roles::message::{Ids, Message, Params};
    use fl_roles::privacy::DataDependence;

    #[test]
    fn every_fact_of_an_exchange_crosses() {
        let spec = ExchangeSpec {
            times: 2,
            rows: 3,
            made: true,
            voices: 4,
            copies: 5,
            model: "other",
            shares: vec!["body".into()],
            flow: DataDependence {
                public: true,
                through: vec!["a"],
                learnt_through: vec!["b"],
                releases: vec!["c"],
                within: vec!["c"],
                beside: vec!["d"],
                partly: true,
                at_server: vec!["e"],
                released_with: Some("k"),
                sent_back_unreleased: true,
                ..DataDependence::default()
            },
            cohort: Some("f"),
            aggregator: Some("g"),
            class_counts: true,
            trains: true,
            held_out: true,
            change: true,
            needs: Some("h"),
            unless: Some("i"),
            requested_by: Some("j"),
            ..Exchange::<Ids, Params>::new("an exchange").spec()
        };
        let text = serde_json::to_string(&spec).unwrap();
        // the types of messages are found by their kinds; those of one kind have other functions
        let crossed = typed(&serde_json::from_str(&text).unwrap()).unwrap();
        let kinds = |of: &ExchangeSpec| (of.request.kind, of.answer.kind);
        assert_eq!(kinds(&crossed), kinds(&spec));
        let (request, answer) = (spec.request, spec.answer);
        let crossed = ExchangeSpec {
            request,
            answer,
            ..crossed
        };
        assert_eq!(format!("{crossed:?}"), format!("{spec:?}"));
    }

    #[test]
    fn an_exchange_without_rows_is_about_all_public_samples() {
        let text = serde_json::json!({
            "label": "an\u{1b}exchange", "down": Ids::KIND, "up": Params::KIND,
            "times": 1, "voices": 1, "copies": 1, "model": "model",
        });
        let crossed = typed(&serde_json::from_value(text).unwrap()).unwrap();
        assert_eq!((crossed.rows, crossed.cohort), (usize::MAX, None));
        assert_eq!(crossed.request.kind, Ids::KIND);
        // no terminal obeys it
        assert_eq!(crossed.label, "an\\u{1b}exchange");
    }
}
