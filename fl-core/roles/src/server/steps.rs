//! Steps of a run: single ones, rounds, and the state that a stopped run resumes from.

use crate::exchange::label_in;
use crate::host::{StepCost, StepPosition, Totals};
use crate::message::Params;
use crate::privacy::{UnpricedDisclosures, epsilons};
use crate::server::RunState;
use crate::server::calls::{Results, StepStart, StepVerdict, Steps};
use crate::store::States;
use crate::{
    ClientId, Cohort, FitReport, Length, LossCurve, PrivacyEvent, Problem, Protocol, Result, Round,
    RunEvent, Stream,
};
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The trainings of a model in one step.
#[derive(Default)]
pub(crate) struct Trained {
    last: FitReport,
    steps: usize,
    /// The mean loss of each.
    curve: LossCurve,
}

impl Trained {
    /// Adds a training.
    pub fn add(&mut self, fitted: &FitReport) {
        self.steps += fitted.steps;
        self.last = *fitted;
        self.curve.add(fitted.loss);
    }

    /// Returns a note if no training took a step, or if the loss still fell at the end: that of the
    /// trainings if there were several, and otherwise that of the steps.
    fn unfinished(&self, slot: &str) -> Option<String> {
        let falls = if self.steps > self.last.steps {
            self.curve.falls()
        } else {
            self.last.falls
        };
        let length = Length::Steps(self.steps);
        let steps = self.steps;
        FitReport {
            steps,
            falls,
            ..self.last
        }
        .unfinished(slot, length)
    }
}

/// State that lives for one step.
#[derive(Default)]
pub(crate) struct Step {
    /// How many earlier attempts of the step had too few answers.
    pub repeated: usize,
    /// The samples of the last request to clients.
    pub asked_about: Option<Vec<u32>>,
    /// Models that this round did not evaluate.
    pub unevaluated: Vec<PendingEvaluation>,
    /// The clients that selectors have picked, by their slot.
    pub cohorts: BTreeMap<&'static str, Cohort>,
    /// The server's models that trained, by their slot.
    pub trained: BTreeMap<String, Trained>,
    /// How often each action was done: no two requests, selections or releases share their
    /// randomness.
    times: BTreeMap<String, u64>,
}

impl Step {
    /// Returns how many times `what` was done before in this step, and counts this time.
    pub fn again(&mut self, what: String) -> u64 {
        let times = self.times.entry(what).or_default();
        *times += 1;
        *times - 1
    }
}

/// A measurement that a round skipped because later rounds were due: models by their slot, and
/// numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum PendingEvaluation {
    Server(String),
    /// With the parameters that the server shares, if any; of these clients, if not of all.
    Clients(String, Option<Params>, Option<Vec<ClientId>>),
    /// Models of the server, evaluated in turn in this slot, and each client's index among them.
    ForClients(String, Vec<Params>, Vec<usize>),
    Number(String, f64),
    Each(String, Vec<(ClientId, f64)>),
}

/// The stage that takes place, of a run that has stages ([`crate::Stages`]).
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct CurrentStage {
    /// Counted from 1; 0 if the run has no stages.
    pub number: usize,
    /// How many steps of the run were before it.
    pub steps_before: usize,
    /// How many of them were rounds.
    pub rounds_before: usize,
    /// How many rounds there were with those of this stage.
    rounds: usize,
}

/// Where a resumed run continues.
pub(crate) struct ResumePoint {
    pub done: usize,
    pub stage: CurrentStage,
    pub protocol: Vec<u8>,
}

/// All state of the server that a stopped run resumes from.
#[derive(Serialize, Deserialize)]
pub(crate) struct SavedServer {
    pub done: usize,
    pub stage: CurrentStage,
    #[serde(with = "serde_bytes")]
    pub protocol: Vec<u8>,
    pub parts: States,
    pub own: Vec<PrivacyEvent>,
    pub clients: BTreeMap<ClientId, Vec<PrivacyEvent>>,
    pub told: BTreeMap<String, BTreeSet<ClientId>>,
    pub exposed: UnpricedDisclosures,
    pub chain: [u8; 32],
    pub totals: Totals,
    pub ended: bool,
    pub unevaluated: Vec<PendingEvaluation>,
}

/// The step that is being done.
pub(crate) struct CurrentStep {
    name: String,
    number: usize,
    of: usize,
    stream: Stream,
    /// How many attempts there may be after this one.
    left: usize,
    /// How many there were.
    attempt: usize,
    /// The states of the server's parts before it, if they may have to be restored.
    parts: Option<States>,
}

impl RunState<'_> {
    /// An attempt at this step.
    fn attempt(&mut self, mut step: CurrentStep) -> Result<(Round, bool)> {
        let stream = match step.attempt {
            0 => step.stream.clone(),
            again => step.stream.child("again", again as u64),
        };
        let (exec, last) = (self.host.executor(), step.number == step.of);
        let round = Round::new(&*step.name, step.number, last, stream, exec);
        self.step = Step {
            repeated: step.attempt,
            ..Step::default()
        };
        let undoable = step.left > 0 || self.may_end_before(step.number);
        step.parts = undoable.then(|| self.store.save()).transpose()?;
        self.current = Some(step);
        Ok((round, undoable))
    }

    /// Returns whether a budget may end the run before this round of the stage: rounds must have
    /// been before it, of this stage or another.
    fn may_end_before(&self, number: usize) -> bool {
        self.ledger.accounts() && number > 0 && self.stage.rounds_before + number > 1
    }

    fn current(&mut self) -> Result<CurrentStep> {
        let current = self.current.take();
        current.context("the protocol is in no step: it must call `once` or `rounds`")
    }

    /// Returns a step's name and number in the whole run. `number` counts the rounds of a stage; 0
    /// is a step that is done once.
    pub(super) fn in_run(&self, name: &str, number: usize) -> (String, usize) {
        match number {
            0 => (label_in(name, self.stage.number), 0),
            _ => {
                let number = self.stage.rounds_before + number;
                (format!("round {number}"), number)
            }
        }
    }

    /// Runs the evaluations that the last round skipped because later rounds were due.
    fn evaluate_skipped(&mut self, number: usize) -> Result<()> {
        let (name, _) = self.in_run("", number);
        let stream = self.stage_root().child("round", number as u64);
        let round = Round::new(&*name, number, true, stream, self.host.executor());
        for models in std::mem::take(&mut self.unevaluated) {
            match models {
                PendingEvaluation::Server(slot) => self.evaluate(&round, &slot)?,
                PendingEvaluation::Clients(slot, shared, of) => {
                    self.evaluate_clients(&round, &slot, shared.as_ref(), of.as_deref())?;
                }
                PendingEvaluation::ForClients(slot, models, whose) => {
                    self.evaluate_for_clients(&round, &slot, &models, &whose)?;
                }
                PendingEvaluation::Number(name, value) => {
                    self.record_number(&round, &name, value)?
                }
                PendingEvaluation::Each(name, each) => self.record_of(&round, &name, each)?,
            }
        }
        Ok(())
    }

    /// Returns what the draws of the current stage follow from: the first is drawn as a run without
    /// stages.
    fn stage_root(&self) -> Stream {
        match self.stage.number {
            0 | 1 => self.root.clone(),
            stage => self.root.child("stage", stage as u64),
        }
    }

    /// Returns whether the rounds may end early: by a budget, that of the run or of a client's own
    /// node, or because of what was measured.
    pub(crate) fn may_end(&self) -> bool {
        self.ledger.accounts() || self.host.may_end_rounds()
    }
}

impl Steps for RunState<'_> {
    fn begin_step(&mut self, name: &str, number: usize, of: usize) -> Result<StepStart> {
        self.steps += 1;
        if let Some(saved) = self.resumed.as_ref().filter(|s| self.steps <= s.done) {
            return Ok(StepStart::Restored(saved.protocol.clone()));
        }
        if self.ended && of > 0 {
            return Ok(StepStart::Skipped);
        }
        let root = self.stage_root();
        let stream = match of {
            0 => root.child(name, 0),
            _ => root.child("round", number as u64),
        };
        let before = if of > 0 { self.stage.rounds_before } else { 0 };
        let (name, in_run) = self.in_run(name, number);
        let begins = RunEvent::StepBegins {
            step: &name,
            number: in_run,
            of: before + of,
        };
        self.host.emit(begins)?;
        let left = self.faults.if_too_few.repeats();
        let (round, undoable) = self.attempt(CurrentStep {
            name,
            number,
            of,
            stream,
            left,
            attempt: 0,
            parts: None,
        })?;
        Ok(StepStart::Attempt { round, undoable })
    }

    fn judge_step(&mut self, outcome: Result<()>) -> Result<StepVerdict> {
        let mut step = self.current()?;
        let Err(error) = outcome else {
            self.unevaluated = std::mem::take(&mut self.step.unevaluated);
            self.totals.steps += 1;
            self.current = Some(step);
            return Ok(StepVerdict::Done);
        };
        let name = &step.name;
        match (error.downcast_ref::<Problem>(), step.parts.take()) {
            (Some(few @ Problem::TooFew { .. }), Some(parts)) if step.left > 0 => {
                self.warn(&format!("{name}: {few}; it is done once more"));
                self.store.load(parts);
                self.ledger.exposure.forget_unreleased();
                step.left -= 1;
                step.attempt += 1;
                let (round, undoable) = self.attempt(step)?;
                Ok(StepVerdict::Again { round, undoable })
            }
            (Some(Problem::Budget(_)), Some(parts)) if self.may_end_before(step.number) => {
                self.warn(&format!(
                    "the budget ends the run before {name} is paid for: {error:#}"
                ));
                self.store.load(parts);
                self.ledger.exposure.forget_unreleased();
                self.ended = true;
                self.evaluate_skipped(step.number - 1)?;
                self.current = Some(step);
                Ok(StepVerdict::Undone)
            }
            _ => Err(error.context(step.name)),
        }
    }

    fn finish_step(&mut self, state: &dyn Fn() -> Result<Vec<u8>>) -> Result<()> {
        let CurrentStep {
            name, number, of, ..
        } = self.current()?;
        let (before, in_run) = match number {
            0 => (0, 0),
            _ => (self.stage.rounds_before, self.stage.rounds_before + number),
        };
        self.stage.rounds = self.stage.rounds.max(in_run);
        let trained = std::mem::take(&mut self.step.trained);
        // a training in rounds goes on in the next
        if number == of {
            let notes = trained.iter();
            let notes = notes.filter_map(|(slot, trained)| trained.unfinished(slot));
            notes.for_each(|note| self.warn(&note));
        }
        // releases of the server at the end of a step belong to no line of the journal
        let protections = self.protections()?;
        let cost = StepCost {
            step: name.clone(),
            round: in_run,
            bytes_up: self.totals.up,
            bytes_down: self.totals.down,
            privacy: protections.as_ref().map(epsilons),
            protections,
        };
        self.host.emit(RunEvent::Cost(&cost))?;
        // before the first round there is no result, and after the last nothing to skip
        let step_ends = RunEvent::StepEnds {
            number: in_run,
            of: before + of,
        };
        let ends = self.host.emit(step_ends)?;
        let ends = ends && (1..of).contains(&number);
        if ends {
            self.ended = true;
            self.evaluate_skipped(number)?;
        }
        let Self {
            host,
            store,
            ledger,
            chain,
            totals,
            grows,
            told,
            ended,
            unevaluated,
            stage,
            steps,
            ..
        } = self;
        // serialised only if the host stores it
        let saved = || {
            let saved = SavedServer {
                done: *steps,
                stage: *stage,
                protocol: state()?,
                parts: store.save()?,
                own: ledger.server.clone(),
                clients: ledger.clients.clone(),
                told: told.clone(),
                exposed: ledger.exposure.exposed.clone(),
                chain: *chain,
                totals: totals.clone(),
                ended: *ended,
                unevaluated: unevaluated.clone(),
            };
            Ok(postcard::to_stdvec(&saved)?)
        };
        let place = match of {
            0 => StepPosition::Outside,
            _ if ends || !*grows => StepPosition::Within,
            _ if number == of => StepPosition::Last,
            _ if number + 1 == of => StepPosition::BeforeLast,
            _ => StepPosition::Within,
        };
        host.checkpoint(*steps, &name, place, &saved)
    }

    fn begin_stage(&mut self, number: usize, protocol: &dyn Protocol) -> Result<bool> {
        self.ledger.exposure.check_released()?;
        // the budget ended an earlier stage
        if self.ended {
            return Ok(false);
        }
        if let Some(saved) = &self.resumed
            && number <= saved.stage.number
        {
            if number < saved.stage.number {
                return Ok(false);
            }
            self.steps = saved.stage.steps_before;
            self.stage = saved.stage;
        } else {
            self.stage = CurrentStage {
                number,
                steps_before: self.steps,
                rounds_before: self.stage.rounds,
                rounds: self.stage.rounds,
            };
        }
        let declared = protocol.declare();
        (self.rounds, self.declared) = (declared.rounds, declared.measures);
        self.store.enter(number);
        self.ledger.exposure.stage = number;
        Ok(true)
    }
}
