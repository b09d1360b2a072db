//! [`Sim`]: the host in one process, with data, clients, threads and listeners.

use crate::client_side::ClientSide;
use crate::listener::{Listener, Listeners, Verdict};
use crate::run_record::RunRecord;
use crate::saver::Saver;
use crate::unpriced::Unpriced;
use anyhow::{bail, ensure};
use fl_core::message::Params;
use fl_core::{
    Answer, ClientId, Evaluation, Examples, Host, Problem, Public, Request, Result, RunEvent,
    SharedExecutor, StepPosition,
};
use std::sync::Arc;

/// Why measurements may not end a run with an accountant.
const CHOSEN: &str = "the rounds of a run with an accountant cannot be ended by what was measured: \
    the epsilon of a number of rounds that follows from results is no guarantee; give it fewer \
    rounds, or a `budget`";

pub(crate) struct Sim<'a> {
    pub clients: ClientSide<'a>,
    pub public: Option<Arc<Public>>,
    pub test: Examples,
    pub client_tests: Vec<Examples>,
    pub own_tests: bool,
    pub exec: SharedExecutor,
    pub listeners: Listeners<'a>,
    pub record: RunRecord,
    pub saver: Saver,
    /// Why a listener has ended the rounds.
    pub ending: Option<String>,
}

impl Sim<'_> {
    /// Passes an event to the listeners, then adds it to the record.
    pub fn tell(&mut self, event: RunEvent<'_>) -> Result<()> {
        if let Verdict::EndRounds(why) = self.listeners.on(&event, &self.record)? {
            self.ending.get_or_insert(why);
        }
        self.record.add(&event);
        Ok(())
    }

    /// Adds a note to the results, and shows it to the user.
    pub fn note(&mut self, text: &str) {
        // no listener refuses a note
        let _ = self.tell(RunEvent::Note(text));
    }

    /// Shows the user a warning that is no result.
    pub fn warn(&mut self, text: &str) {
        // no listener refuses a warning
        let _ = self.tell(RunEvent::Warning(text));
    }
}

/// Fails if a call of a library was cut off because the program is to stop.
pub(crate) fn not_cut() -> Result<()> {
    ensure!(
        !fl_core::abi::calls_were_cut(),
        Problem::Interrupted(
            "a call of a library was cut off by the signal to stop: its step is done again when the run goes on".into()
        )
    );
    Ok(())
}

impl Host for Sim<'_> {
    fn roster(&self) -> &[(ClientId, usize)] {
        &self.clients.roster
    }

    fn ask<'q>(
        &mut self,
        to: &[ClientId],
        question: &(dyn Fn(ClientId) -> Request<'q> + Sync),
        each: &mut dyn FnMut(ClientId, Result<Answer>) -> Result<()>,
    ) -> Result<()> {
        self.tell(RunEvent::ExchangeBegins)?;
        let long = self.saver.long_step(self.record.began);
        if !self.listeners.any(Listener::sees_messages) {
            return self.clients.ask(to, question, long, each);
        }
        for id in to {
            self.tell(RunEvent::Request(*id, &question(*id)))?;
        }
        let (listeners, record) = (&mut self.listeners, &self.record);
        self.clients.ask(to, question, long, &mut |id, answer| {
            listeners.on(&RunEvent::Answer(id, &answer), record)?;
            each(id, answer)
        })
    }

    fn score_clients(
        &mut self,
        to: &[ClientId],
        slot: &str,
        shared: Option<&Params>,
        each: &mut dyn FnMut(ClientId, Result<Evaluation>) -> Result<()>,
    ) -> Result<()> {
        let (test, own) = (&self.test, &self.client_tests);
        let test_of = |client: ClientId| own.get(client as usize).unwrap_or(test);
        self.clients.score((to, slot), shared, test_of, each)
    }

    fn score_at_clients(
        &mut self,
        slot: &str,
        params: &dyn Fn(ClientId) -> Arc<Params>,
        each: &mut dyn FnMut(ClientId, Result<Evaluation>) -> Result<()>,
    ) -> Result<()> {
        self.clients.score_for_server(slot, params, each)
    }

    fn public(&self) -> Option<&Arc<Public>> {
        self.public.as_ref()
    }

    fn test(&self) -> &Examples {
        &self.test
    }

    fn test_of(&self, client: ClientId) -> &Examples {
        self.client_tests.get(client as usize).unwrap_or(&self.test)
    }

    fn own_tests(&self) -> bool {
        self.own_tests
    }

    fn tests_at_clients(&self) -> bool {
        self.own_tests && self.client_tests.is_empty()
    }

    fn executor(&self) -> SharedExecutor {
        self.exec.clone()
    }

    fn emit(&mut self, event: RunEvent<'_>) -> Result<bool> {
        if let RunEvent::StepBegins { .. } = event
            && let Some(after) = self.saver.stopped.take()
        {
            return Err(Problem::Stopped { after }.into());
        }
        if let RunEvent::StepEnds { .. } = event {
            not_cut()?;
            self.record.step_ended = self.record.seconds();
        }
        self.tell(event)?;
        let RunEvent::StepEnds { number, of } = event else {
            return Ok(false);
        };
        let Some(why) = &self.ending else {
            return Ok(false);
        };
        if self.record.unpriced == Unpriced::Withheld {
            bail!(CHOSEN);
        }
        let ends = (1..of).contains(&number);
        if ends {
            self.note(&format!("round {number} of {of} is the last: {why}"));
        }
        Ok(ends)
    }

    fn may_end_rounds(&self) -> bool {
        self.listeners.any(Listener::may_end_rounds)
    }

    fn keep_clients(
        &mut self,
        to: &[ClientId],
        slot: &str,
        lost: &mut dyn FnMut(ClientId, anyhow::Error) -> Result<()>,
    ) -> Result<()> {
        if self.listeners.folder.is_none() && !self.listeners.any(Listener::sees_messages) {
            return Ok(());
        }
        let (listeners, record) = (&mut self.listeners, &self.record);
        self.clients.models(to, slot, &mut |id, model| match model {
            Ok(model) => {
                let (name, bytes) = (&format!("{slot}-{id}")[..], &model[..]);
                let kept = RunEvent::Model { name, bytes };
                listeners.on(&kept, record).map(drop)
            }
            Err(error) => lost(id, error),
        })
    }

    fn checkpoint(
        &mut self,
        done: usize,
        step: &str,
        place: StepPosition,
        server: &dyn Fn() -> Result<Vec<u8>>,
    ) -> Result<()> {
        // not a note: a run's notes do not depend on the machine
        if let Some(held) = self.clients.here.passed() {
            self.warn(&held);
        }
        let folder = self.listeners.folder.as_ref();
        let run = (folder, &mut self.clients, &self.record);
        self.saver.step_done((done, step, place), server, run)
    }
}
