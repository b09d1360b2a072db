//! Protocols of a library as parts of this program.

use super::part_handle::{PartHandle, PartMaker};
use crate::ask::{AnswerText, ConflictsText, LeadText, SuitsText, TaskText};
use crate::caller::{Caller, Calls, Means};
use crate::declaration::{DeclarationText, kept, typed};
use crate::marshal::{OutgoingMessage, content, plain};
use crate::raw::{FL_ANSWER, FL_CONFLICTS, FL_DECLARE, FL_LEAD, FL_SUITS, FL_TASK};
use crate::roles::client::LocalClient;
use crate::roles::server::LocalServer;
use anyhow::Context;
use fl_roles::message::{AnyMessage, Erased};
use fl_roles::{
    BuildContext, Client, Conflict, Declaration, ExchangeSpec, InitialModel, Protocol, Request,
    Result, Server, SlotSpec, Task, TaskKind, TaskMap,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::{Arc, Mutex, PoisonError};

/// A protocol of a library. It keeps nothing from call to call, so each call has a part of its own.
pub(super) struct LoadedProtocol {
    library: Arc<LibraryProtocol>,
    slots: Vec<SlotSpec>,
    exchanges: Vec<ExchangeSpec>,
    declared: DeclarationText,
    /// The names of all slots.
    fillable: Vec<&'static str>,
    /// See [`LoadedProtocol::facts`].
    last: Mutex<Option<Arc<(AnswerText, String)>>>,
}

/// The data that a spec may give or leave out, as `conflicts` and `suits` may ask.
const DATA: [&str; 2] = ["data.public", "data.public.labelled"];

/// What makes a part of it.
struct LibraryProtocol {
    maker: PartMaker,
    context: BuildContext,
    /// Parts that no call uses.
    idle: Mutex<Vec<PartHandle>>,
}

impl LibraryProtocol {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<PartHandle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `f` with a part of it that no other call uses.
    fn with<T>(&self, f: impl FnOnce(&PartHandle) -> Result<T>) -> Result<T> {
        let idle = self.idle().pop();
        let part = match idle {
            Some(part) => part,
            None => self.maker.make(&self.context, true)?,
        };
        let out = f(&part);
        // one that failed may be in any state
        if out.is_ok() {
            self.idle().push(part);
        }
        out
    }

    /// What a part of it says of these facts; `None`: it has no such operation.
    fn says<T: DeserializeOwned>(
        &self,
        operation: u32,
        facts: &impl Serialize,
    ) -> Result<Option<T>> {
        let text = serde_json::to_string(facts)?;
        self.with(|part| part.value(operation, &text, &[]))
    }

    fn task(&self, slot: &str, task: &Task) -> Result<Task> {
        let (slot, task) = (slot.into(), task.clone());
        let text = serde_json::to_string(&TaskText { slot, task })?;
        self.with(|part| part.json(&part.must(FL_TASK, &text, &[], Means::default())?))
    }
}

impl LoadedProtocol {
    pub fn new(maker: PartMaker, context: &BuildContext) -> Result<Self> {
        let who = maker.who;
        let library = Arc::new(LibraryProtocol {
            maker,
            context: context.clone(),
            idle: Mutex::default(),
        });
        let declared: DeclarationText =
            library.with(|part| part.json(&part.must(FL_DECLARE, "", &[], Means::default())?))?;
        let slots = declared.slots.iter().map(|slot| {
            let (of, mut spec) = (library.clone(), slot.slot.clone());
            let own = move |task: &Task| of.task(spec.name, task).unwrap_or_else(|_| task.clone());
            if slot.own_task {
                spec.task = TaskMap::new(own);
            }
            spec
        });
        let slots = slots.collect();
        let exchanges = declared.exchanges.iter().map(typed);
        let exchanges = exchanges.collect::<Result<Vec<_>>>().context(who)?;
        let mut protocol = Self {
            library,
            slots,
            exchanges,
            declared,
            fillable: Vec::new(),
            last: Mutex::default(),
        };
        let slots = protocol.declare().into_slots();
        protocol.fillable = slots.into_iter().map(|slot| slot.name).collect();
        Ok(protocol)
    }

    /// The names of slots for which `has` holds.
    fn filled<C: FromIterator<String>>(&self, has: impl Fn(&str) -> bool) -> C {
        let filled = self.fillable.iter().filter(|name| has(name));
        filled.map(|name| name.to_string()).collect()
    }

    /// The names of slots and data for which `has` holds.
    fn given(&self, has: &dyn Fn(&str) -> bool) -> Vec<String> {
        let given = self.fillable.iter().chain(&DATA).filter(|name| has(name));
        given.map(|name| name.to_string()).collect()
    }

    fn answer(
        &self,
        spec: &ExchangeSpec,
        client: &mut Client,
        sent: &dyn AnyMessage,
    ) -> Result<Erased> {
        let (id, stream) = (client.id(), client.calls().now().clone());
        let facts = self.facts(spec, client)?;
        let tensors = content(sent);
        let letter = [OutgoingMessage {
            from: id,
            ..OutgoingMessage::new(&tensors)
        }];
        self.library.with(|part| {
            let side = LocalClient::new(client, spec.held_out);
            let means = Means {
                answers: Some(&side),
                ..Means::stream(&stream)
            };
            let answer = part.call(FL_ANSWER, &facts.1, &letter, means)?;
            part.message_of(part.due(FL_ANSWER, answer)?, spec.answer)
        })
    }

    /// The facts for a client's answer, and their text: mostly those of the answer before.
    fn facts(&self, spec: &ExchangeSpec, client: &Client) -> Result<Arc<(AnswerText, String)>> {
        let round = client.round_number();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |(facts, _): &(AnswerText, String)| {
            let same_slot = |name: &&str| facts.filled.contains(*name) == client.has(name);
            (&*facts.label, facts.round) == (spec.label, round)
                && facts.task == *client.task()
                && self.fillable.iter().all(same_slot)
        };
        if let Some(known) = last.as_ref().filter(|known| same(known)) {
            return Ok(known.clone());
        }
        let facts = AnswerText {
            label: spec.label.into(),
            round,
            task: client.task().clone(),
            filled: self.filled(|slot| client.has(slot)),
        };
        let text = serde_json::to_string(&facts)?;
        Ok(last.insert(Arc::new((facts, text))).clone())
    }
}

impl Protocol for LoadedProtocol {
    fn declare(&self) -> Declaration<'_> {
        let declared = &self.declared;
        let answer = |spec: &ExchangeSpec, client: &mut Client, request: Request<'_>| {
            request.answer_any(spec, client, |client, sent| self.answer(spec, client, sent))
        };
        let mut all = Declaration::of_specs(self.slots.clone(), self.exchanges.clone(), answer);
        all.grows = declared.grows.as_deref().map(kept);
        all.begins_with = declared.begins_with.as_deref().map(plain);
        let loads = declared.loads.as_ref();
        all.loads = loads.map(|[slot, setting, file]| InitialModel {
            slot: kept(slot),
            setting: kept(setting),
            file: file.clone(),
        });
        all.pooled = declared.pooled;
        all.measures = declared.measures.clone();
        all
    }

    fn answer_request(
        &self,
        client: &mut Client,
        request: Request<'_>,
    ) -> Result<fl_roles::Answer> {
        let spec = ExchangeSpec::find(&self.exchanges, request.label)?;
        request.answer_any(spec, client, |client, sent| self.answer(spec, client, sent))
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        let text = serde_json::to_string(&LeadText {
            task: server.task().clone(),
            filled: self.filled(|slot| server.has(slot)),
            everyone: server.everyone(),
        })?;
        self.library.with(|part| {
            let side = LocalServer::new(server, &self.exchanges);
            let means = Means {
                answers: Some(&side),
                ..Means::default()
            };
            part.must(FL_LEAD, &text, &[], means).map(drop)
        })
    }

    fn conflicts(&self, has: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let filled = self.given(has);
        let facts = ConflictsText { filled };
        let found: Result<Option<Vec<Conflict>>> = self.library.says(FL_CONFLICTS, &facts);
        match found {
            Ok(all) => (all.into_iter().flatten())
                .map(|one| Conflict {
                    text: plain(&one.text),
                    ..one
                })
                .collect(),
            Err(error) => vec![Conflict::between(format!("{error:#}"))],
        }
    }

    fn suits(&self, kind: TaskKind, has: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
        let filled = self.given(has);
        let facts = SuitsText { kind, filled };
        let why: Result<Option<Option<String>>> = self.library.says(FL_SUITS, &facts);
        match why.map(Option::flatten) {
            Ok(None) => Ok(()),
            Ok(Some(why)) => Err(plain(&why)),
            Err(error) => Err(format!("{error:#}")),
        }
    }
}
