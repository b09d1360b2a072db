//! A protocol behind `call`.

use super::call_context::{Host, Input};
use super::link::ProgramPart;
use crate::ask::{AnswerText, ConflictsText, ErrorText, LeadText, SuitsText, TaskText};
use crate::caller::Callee;
use crate::declaration::DeclarationText;
use crate::marshal::content;
use crate::raw::*;
use crate::roles::client::RemoteClient;
use crate::roles::server::RemoteServer;
use anyhow::{Context, bail};
use fl_roles::{
    Body, Client, ExchangeSpec, Payload, Protocol, Request, RequiredInputs, Result, Server,
};
use std::sync::Arc;

/// A protocol that is here.
pub(super) struct LocalProtocol {
    protocol: Box<dyn Protocol>,
    /// The text of the last [`FL_ANSWER`], read.
    last: Option<(String, Arc<AnswerText>)>,
}

impl LocalProtocol {
    pub fn new(protocol: Box<dyn Protocol>) -> Self {
        Self {
            protocol,
            last: None,
        }
    }

    fn lead(&self, input: &Input<'_>, host: &Host<'_>) -> Result<()> {
        let text: LeadText = input.json()?;
        ProgramPart::lend(host, input, |program| {
            let mut server = RemoteServer::new(program, text, self.protocol.declare());
            self.protocol.lead(&mut Server::elsewhere(&mut server))
        })
    }

    fn answer(&mut self, input: &Input<'_>, host: &Host<'_>) -> Result<()> {
        let text = input.text()?;
        let facts = match &self.last {
            Some((known, facts)) if known == text => facts.clone(),
            _ => {
                let facts: Arc<AnswerText> = Arc::new(input.json()?);
                self.last = Some((text.into(), facts.clone()));
                facts
            }
        };
        let (client, stream) = (input.sender(0)?, host.stream());
        let declared = self.protocol.declare();
        let request = ExchangeSpec::find(declared.specs(), &facts.label)?.request;
        let sent = input.message_of(0, request)?;
        let answer = ProgramPart::lend(host, input, |program| {
            let remote = RemoteClient::new(program, client, stream.clone(), &facts);
            let mut client = Client::elsewhere(Box::new(remote));
            let needs = RequiredInputs::default();
            let request = Request::new(
                &facts.label,
                facts.round,
                Payload::Here(&*sent),
                stream,
                needs,
            );
            declared.answer(&mut client, request)
        })?;
        match answer.body {
            Body::Here(body) => host.tensors(&content(&*body)),
            Body::Wire(_) => bail!("an answer in its wire form"),
        }
    }
}

/// States the kind of an error, beside its text.
fn told(host: &Host<'_>, outcome: Result<()>) -> Result<()> {
    if let Err(error) = &outcome {
        host.json(&ErrorText::of(error))?;
    }
    outcome
}

impl Callee for LocalProtocol {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool> {
        match operation {
            FL_DECLARE => {
                let declared = self.protocol.declare();
                host.json(&DeclarationText {
                    slots: declared.slots.iter().map(Into::into).collect(),
                    exchanges: declared.specs().cloned().collect(),
                    grows: declared.grows.map(Into::into),
                    begins_with: declared.begins_with.clone(),
                    loads: (declared.loads).map(|of| [of.slot.into(), of.setting.into(), of.file]),
                    pooled: declared.pooled,
                    measures: declared.measures.clone(),
                })?;
            }
            FL_CONFLICTS => {
                let ConflictsText { filled } = input.json()?;
                let has = |name: &str| filled.iter().any(|slot| slot == name);
                host.json(&self.protocol.conflicts(&has))?;
            }
            FL_SUITS => {
                let SuitsText { kind, filled } = input.json()?;
                let has = |name: &str| filled.iter().any(|slot| slot == name);
                host.json(&self.protocol.suits(kind, &has).err())?;
            }
            FL_TASK => {
                let TaskText { slot, task } = input.json()?;
                let slots = self.protocol.slots();
                let slot = slots.iter().find(|s| s.name == slot);
                let slot = slot.context("the protocol has no such slot")?;
                host.json(&slot.task.of(&task))?;
            }
            FL_LEAD => told(host, self.lead(input, host))?,
            FL_ANSWER => {
                let answered = self.answer(input, host);
                told(host, answered)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
