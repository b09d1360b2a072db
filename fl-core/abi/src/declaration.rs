//! What a protocol declares, as it crosses.

use anyhow::Context;
use fl_roles::message::{VoteSensitivity, message_type};
use fl_roles::privacy::{DataDependence, MinibatchSampling};
use fl_roles::{
    Ability, AggregatorUse, ExchangeSpec, Measurement, PlannedTraining, Result, SlotSpec, TaskMap,
};
use serde::{Deserialize, Serialize};

/// See [`FL_DECLARE`](super::raw::FL_DECLARE).
#[derive(Serialize, Deserialize)]
pub(super) struct DeclarationText {
    pub slots: Vec<SlotText>,
    pub exchanges: Vec<ExchangeText>,
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

#[derive(Serialize, Deserialize)]
pub(super) struct SlotText {
    name: String,
    role: String,
    #[serde(default)]
    signature: String,
    optional: bool,
    doc: String,
    lasts: bool,
    #[serde(default)]
    needs: Vec<Ability>,
    #[serde(default)]
    alike: bool,
    #[serde(default)]
    server: bool,
    #[serde(default)]
    for_some: bool,
    #[serde(default)]
    only_clips: bool,
    #[serde(default)]
    shown: bool,
    #[serde(default)]
    through: Vec<String>,
    #[serde(default)]
    scores: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    training: Option<PlannedTraining>,
    #[serde(default)]
    pub own_task: bool,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct FlowText {
    public: bool,
    through: Vec<String>,
    learnt_through: Vec<String>,
    releases: Vec<String>,
    steps: Option<(String, MinibatchSampling)>,
    beside: Vec<String>,
    partly: bool,
    at_server: Vec<String>,
    released_with: Option<String>,
    sent_back_unreleased: bool,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ExchangeText {
    label: String,
    down: String,
    up: String,
    times: usize,
    /// `null`: all public samples.
    rows: Option<usize>,
    #[serde(default)]
    made: bool,
    voices: usize,
    copies: usize,
    model: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    shares: Vec<String>,
    #[serde(default)]
    flow: FlowText,
    #[serde(default)]
    cohort: Option<String>,
    #[serde(default)]
    aggregator: Option<String>,
    #[serde(default)]
    sums_into: Option<String>,
    #[serde(default)]
    class_counts: bool,
    #[serde(default)]
    trains: bool,
    #[serde(default)]
    held_out: bool,
    #[serde(default)]
    change: bool,
    #[serde(default)]
    needs: Option<String>,
    #[serde(default)]
    unless: Option<String>,
    #[serde(default)]
    requested_by: Option<String>,
    #[serde(default)]
    votes: Option<VoteSensitivity>,
}

/// The text without what steers a terminal, for ever.
pub(crate) fn kept(text: &str) -> &'static str {
    fl_roles::__private::kept(&super::marshal::plain(text))
}

fn all_kept(texts: &[String]) -> Vec<&'static str> {
    texts.iter().map(|text| kept(text)).collect()
}

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| (*text).into()).collect()
}

impl From<&SlotSpec> for SlotText {
    fn from(slot: &SlotSpec) -> Self {
        Self {
            name: slot.name.into(),
            role: slot.role.name().into(),
            signature: slot.signature.clone(),
            optional: slot.optional,
            doc: slot.doc.into(),
            lasts: slot.lasts,
            needs: slot.needs.clone(),
            alike: slot.alike,
            server: slot.server,
            for_some: slot.for_some,
            only_clips: slot.only_clips,
            shown: slot.shown,
            through: texts(&slot.through),
            scores: slot.scores,
            training: slot.training.clone(),
            own_task: !slot.task.is_same(),
        }
    }
}

impl SlotText {
    /// The slot; `task` is what its parts learn, if that is not the run's task.
    pub fn spec(&self, task: TaskMap) -> Result<SlotSpec> {
        let role = super::signature::role(&self.role);
        let role = role.with_context(|| format!("slot `{}`: no such role", self.name))?;
        Ok(SlotSpec {
            name: kept(&self.name),
            role,
            signature: self.signature.clone(),
            optional: self.optional,
            doc: kept(&self.doc),
            lasts: self.lasts,
            needs: self.needs.clone(),
            alike: self.alike,
            server: self.server,
            for_some: self.for_some,
            only_clips: self.only_clips,
            shown: self.shown,
            through: all_kept(&self.through),
            scores: self.scores,
            training: self.training.clone(),
            task,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

impl From<&ExchangeSpec> for ExchangeText {
    fn from(of: &ExchangeSpec) -> Self {
        let text = |name: Option<&str>| name.map(String::from);
        let flow = &of.flow;
        Self {
            label: of.label.into(),
            down: of.down.into(),
            up: of.up.into(),
            times: of.times,
            rows: (of.rows != usize::MAX).then_some(of.rows),
            made: of.made,
            voices: of.voices,
            copies: of.copies,
            model: of.model.into(),
            shares: of.shares.clone(),
            flow: FlowText {
                public: flow.public,
                through: texts(&flow.through),
                learnt_through: texts(&flow.learnt_through),
                releases: texts(&flow.releases),
                steps: flow.steps.map(|(slot, lots)| (slot.into(), lots)),
                beside: texts(&flow.beside),
                partly: flow.partly,
                at_server: texts(&flow.at_server),
                released_with: text(flow.released_with),
                sent_back_unreleased: flow.sent_back_unreleased,
            },
            cohort: text(of.cohort),
            aggregator: text(of.aggregator.map(|used| used.slot)),
            sums_into: text(of.sums_into),
            class_counts: of.class_counts,
            trains: of.trains,
            held_out: of.held_out,
            change: of.change,
            needs: text(of.needs),
            unless: text(of.unless),
            requested_by: text(of.requested_by),
            votes: of.votes,
        }
    }
}

impl ExchangeText {
    pub fn spec(&self) -> Result<ExchangeSpec> {
        let label = kept(&self.label);
        let of = |kind: &str| {
            let known = message_type(kind);
            known.with_context(|| {
                format!(
                    "exchange `{label}`: no message is called `{kind}`; declare it under `messages`"
                )
            })
        };
        let (request, answer) = (of(&self.down)?, of(&self.up)?);
        let text = |name: &Option<String>| name.as_deref().map(kept);
        let flow = &self.flow;
        Ok(ExchangeSpec {
            label,
            down: request.kind,
            up: answer.kind,
            request,
            answer,
            times: self.times,
            rows: self.rows.unwrap_or(usize::MAX),
            made: self.made,
            voices: self.voices,
            copies: self.copies,
            model: kept(&self.model),
            shares: self.shares.clone(),
            flow: DataDependence {
                public: flow.public,
                through: all_kept(&flow.through),
                learnt_through: all_kept(&flow.learnt_through),
                releases: all_kept(&flow.releases),
                steps: flow.steps.as_ref().map(|(slot, lots)| (kept(slot), *lots)),
                beside: all_kept(&flow.beside),
                partly: flow.partly,
                at_server: all_kept(&flow.at_server),
                released_with: text(&flow.released_with),
                sent_back_unreleased: flow.sent_back_unreleased,
                // the host knows what comes before
                taught_before: Vec::new(),
            },
            cohort: text(&self.cohort),
            aggregator: text(&self.aggregator).map(|slot| AggregatorUse { slot }),
            sums_into: text(&self.sums_into),
            class_counts: self.class_counts,
            trains: self.trains,
            held_out: self.held_out,
            change: self.change,
            needs: text(&self.needs),
            unless: text(&self.unless),
            requested_by: text(&self.requested_by),
            votes: self.votes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_roles::Exchange;
    use fl_roles::message::{Ids, Params};

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
                beside: vec!["d"],
                partly: true,
                at_server: vec!["e"],
                released_with: Some("k"),
                sent_back_unreleased: true,
                ..DataDependence::default()
            },
            cohort: Some("f"),
            aggregator: Some(AggregatorUse { slot: "g" }),
            class_counts: true,
            trains: true,
            held_out: true,
            change: true,
            needs: Some("h"),
            unless: Some("i"),
            requested_by: Some("j"),
            ..Exchange::<Ids, Params>::new("an exchange").spec()
        };
        let text = serde_json::to_string(&ExchangeText::from(&spec)).unwrap();
        let crossed: ExchangeText = serde_json::from_str(&text).unwrap();
        // the types of messages are found by their kinds
        let crossed = ExchangeSpec {
            request: spec.request,
            answer: spec.answer,
            ..crossed.spec().unwrap()
        };
        assert_eq!(format!("{crossed:?}"), format!("{spec:?}"));
    }
}
