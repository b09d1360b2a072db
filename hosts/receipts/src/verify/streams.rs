//! The random numbers of a run's server, by their addresses: they follow from the seed of its spec,
//! and not from what a folder says.

use super::chain::Line;
use super::differs;
use fl_core::settings::Value;
use fl_core::{Stages, Stream};
use std::collections::BTreeMap;

/// The streams of the run's server.
pub(super) struct ServerStreams {
    root: Stream,
    /// How many stages the run has; 1 without stages.
    stages: usize,
}

impl ServerStreams {
    pub(super) fn of(spec: &Value) -> Option<Self> {
        let stages = spec.get("stages").and_then(Value::as_sequence);
        Some(Self {
            root: Stream::root(spec.get("seed")?.as_u64()?),
            stages: stages.map_or(1, Vec::len).max(1),
        })
    }

    /// The root of the run.
    pub(super) fn root(&self) -> Stream {
        self.root.clone()
    }

    /// The stream that the part in a slot is made with.
    pub(super) fn part(&self, slot: &str) -> Stream {
        self.root.child("server", 0).child(slot, 0)
    }

    /// The first stage is drawn as a run without stages.
    fn stage(&self, stage: usize) -> Stream {
        match stage {
            0 | 1 => self.root.clone(),
            stage => self.root.child("stage", stage as u64),
        }
    }
}

/// The attempt at a step that a receipt is of.
#[derive(Default)]
pub(super) struct CurrentAttempt {
    step: String,
    /// The stage of the last round, and how many rounds of the run were before that stage.
    stage: (usize, usize),
    /// The last round of the run.
    round: usize,
    /// How many earlier attempts had too few answers.
    before: usize,
    /// How many releases this attempt has made, by slot.
    released: BTreeMap<String, u64>,
}

/// Where a receipt is, as seen from the one before.
pub(super) enum Begins {
    Nothing,
    Attempt,
    Step,
}

impl CurrentAttempt {
    /// Goes on to the next receipt of a run: to another step, or to another attempt at this one.
    /// `number` is the round within its stage, as its file says, 0 for a step that is done once;
    /// `failed` is the number of attempts that the journal has of its step. `is`: whether a stream
    /// is that of the attempt.
    pub(super) fn go_on(
        &mut self,
        streams: &ServerStreams,
        line: &Line,
        (number, failed): (Option<usize>, usize),
        is: impl Fn(&Stream, &BTreeMap<String, u64>) -> bool,
    ) -> anyhow::Result<(Stream, Begins)> {
        let step = &line.step.receipt.step;
        let again = *step == self.step;
        let round = step.strip_prefix("round ").and_then(|of| of.parse().ok());
        let places = match round {
            Some(round) => self.stages_of(streams, round, number),
            None if number.is_none_or(|number| number == 0) => vec![(0, 0)],
            None => Vec::new(),
        };
        let none = BTreeMap::new();
        for place in places {
            let (stage, before) = place;
            let first = match round {
                Some(round) => streams.stage(stage).child("round", (round - before) as u64),
                None => {
                    let owner = Stages::owner(step).filter(|(stage, _)| *stage > 1);
                    let (stage, name) = owner.unwrap_or((1, step.as_str()));
                    streams.stage(stage).child(name, 0)
                }
            };
            let from = if again { self.before } else { 0 };
            for attempt in from..=failed {
                let stream = match attempt {
                    0 => first.clone(),
                    again => first.child("again", again as u64),
                };
                let same = again && attempt == self.before;
                if !is(&stream, if same { &self.released } else { &none }) {
                    continue;
                }
                if let Some(round) = round {
                    (self.stage, self.round) = (place, round);
                }
                if same {
                    return Ok((stream, Begins::Nothing));
                }
                self.step.clone_from(step);
                self.before = attempt;
                self.released.clear();
                let begins = if again { Begins::Attempt } else { Begins::Step };
                return Ok((stream, begins));
            }
        }
        differs(
            line.place(None),
            "another stream of random numbers",
            "the one that follows from the seed, the slot and the step",
        )
    }

    /// The stages that a round of the run may be in, each with the number of rounds before it.
    fn stages_of(
        &self,
        streams: &ServerStreams,
        round: usize,
        number: Option<usize>,
    ) -> Vec<(usize, usize)> {
        let (now, before) = self.stage;
        let now = (now.max(1), before);
        let mut all = vec![now];
        // a later stage begins after the last round of the one before
        let later = now.0 + 1..=streams.stages;
        let first = self.round + 1..=round;
        all.extend(later.flat_map(|stage| first.clone().map(move |of| (stage, of - 1))));
        let fits = |before: usize| number.is_none_or(|number| before + number == round);
        all.retain(|(_, before)| *before < round && fits(*before));
        all
    }

    /// How many releases this attempt has made, by slot.
    pub(super) fn releases(&self) -> &BTreeMap<String, u64> {
        &self.released
    }

    /// Counts a release through a slot.
    pub(super) fn released(&mut self, slot: &str) {
        *self.released.entry(slot.into()).or_default() += 1;
    }
}
