//! A described part as a [`PartDecl`], the same as a linked one has.

use super::describe::{self, Described};
use super::part_handle::{Functions, PartHandle, PartMaker};
use super::protocol::LoadedProtocol;
use crate::ask::{CheckText, CheckedText};
use crate::caller::Calls;
use crate::marshal::plain;
use crate::raw::FL_CHECK;
use crate::roles::accountant::RemoteAccountant;
use crate::roles::aggregator::RemoteAggregator;
use crate::roles::generator::RemoteGenerator;
use crate::roles::mechanism::RemoteMechanism;
use crate::roles::selector::RemoteSelector;
use crate::roles::trainer::RemoteTrainer;
use anyhow::{Context, bail};
use fl_roles::message::{message_type, pair};
use fl_roles::settings::{Field, Mistake, Reader, Step, Value, show};
use fl_roles::{
    Accountant, AnyAggregator, AnyMechanism, AnySelector, BuildContext, CheckedSettings, Generator,
    PartDecl, Protocol, Result, Role, Task, Trainer,
};
use std::any::Any;

/// A part of a library. It stays for ever, as its library does.
pub(super) fn declare(
    functions: Functions,
    index: u32,
    part: Described,
    origin: &'static str,
    confined: bool,
) -> &'static PartDecl {
    let Described {
        role,
        name,
        about,
        aliases,
        papers,
        package,
        brought,
        ..
    } = part;
    let name: &'static str = name.leak();
    let who: &'static str = format!("{role} `{name}` from {origin}").leak();
    let fields = about.fields.clone();
    let signature = about.signature.clone();
    let check = move |value: &Value, reader: &mut Reader| {
        let filled = checked(functions, who, index, &fields, value, reader)?;
        // what passed the check is JSON
        let settings = serde_json::to_string(&filled).ok()?;
        let signature = signature.clone();
        let maker = PartMaker {
            functions,
            who,
            index,
            settings,
        };
        let build = move |make: &BuildContext| -> Result<Box<dyn Any + Send>> {
            if role == Role::Protocol {
                let protocol = LoadedProtocol::new(maker.clone(), make)?;
                return Ok(Box::new(Box::new(protocol) as Box<dyn Protocol>));
            }
            boxed(role, &signature, maker.make(make, false)?, &make.task)
        };
        Some(CheckedSettings::new(filled, build))
    };
    Box::leak(Box::new(PartDecl {
        role,
        name,
        aliases: aliases.leak(),
        papers: papers.leak(),
        origin,
        package,
        brought,
        confined,
        describe: Box::leak(Box::new(move || about.clone())),
        check: Box::leak(Box::new(check)),
    }))
}

/// What [`CheckedSettings::build`] gives.
fn boxed(
    role: Role,
    signature: &str,
    remote: PartHandle,
    task: &Task,
) -> Result<Box<dyn Any + Send>> {
    let cannot = || format!("a {role} of `{signature}` cannot be loaded");
    Ok(match role {
        Role::Aggregator | Role::Attack => {
            let one = || message_type(signature).map(|of| (of, of));
            let (input, output) = pair(signature).or_else(one).with_context(cannot)?;
            let part = RemoteAggregator::new(remote, input, output)?;
            Box::new(Box::new(part) as Box<dyn AnyAggregator>)
        }
        Role::Privacy => {
            let on = message_type(signature).with_context(cannot)?;
            let remote = Box::new(remote);
            let part = RemoteMechanism { remote, on };
            Box::new(Box::new(part) as Box<dyn AnyMechanism>)
        }
        Role::Selector => {
            let part = RemoteSelector::new(Box::new(remote), signature)?;
            Box::new(Box::new(part) as Box<dyn AnySelector>)
        }
        Role::Accountant => Box::new(Box::new(RemoteAccountant(remote)) as Box<dyn Accountant>),
        Role::Generator => {
            let (remote, input) = (Box::new(remote), Some(task.input.clone()));
            Box::new(Box::new(RemoteGenerator { remote, input }) as Box<dyn Generator>)
        }
        Role::Trainer => {
            let outputs = Some(task.kind.outputs());
            let part = RemoteTrainer::new(Box::new(remote), outputs)?;
            Box::new(Box::new(part) as Box<dyn Trainer>)
        }
        Role::Protocol => bail!(cannot()),
    })
}

/// The longest path to a setting, and the longest text about it.
const STEPS: usize = 100;
const TEXT: usize = 2000;

/// Lets the library check settings; if it does not, its description says enough to do it here.
fn checked(
    functions: Functions,
    who: &'static str,
    index: u32,
    fields: &[Field],
    value: &Value,
    reader: &mut Reader,
) -> Option<Value> {
    if !crosses(value, reader) {
        return None;
    }
    let outcome = || -> Result<Option<CheckedText>> {
        let (part, settings) = (index, value.clone());
        let text = serde_json::to_string(&CheckText { part, settings })?;
        PartHandle::library(functions, who).value(FL_CHECK, &text, &[])
    };
    match outcome() {
        Ok(None) => describe::check(fields, value, reader),
        Ok(Some(checked)) => {
            let before = reader.mistakes.len();
            for Mistake { path, text, on_key } in checked.mistakes {
                let step = |step| match step {
                    Step::Item(at) => Step::Item(at),
                    Step::Key(key) => Step::Key(plain(&key)),
                };
                reader.add(Mistake {
                    path: path.into_iter().take(STEPS).map(step).collect(),
                    text: plain(&text.chars().take(TEXT).collect::<String>()),
                    on_key,
                });
            }
            match checked.settings {
                _ if reader.mistakes.len() > before => None,
                Some(settings) => Some(settings),
                None => reader.wrong(format!(
                    "{who}: its answer has neither settings nor mistakes"
                )),
            }
        }
        Err(error) => reader.wrong(format!("cannot be checked: {error:#}")),
    }
}

/// Notes what JSON cannot say: NaN, infinities, tags, and keys that are no text.
fn crosses(value: &Value, reader: &mut Reader) -> bool {
    match value {
        Value::Number(n) if n.as_f64().is_some_and(|x| !x.is_finite()) => {
            reader.unlike::<()>("a finite number", value).is_some()
        }
        Value::Tagged(_) => reader.unlike::<()>("without a tag", value).is_some(),
        Value::Sequence(items) => items.iter().enumerate().fold(true, |fine, (at, item)| {
            reader.below(Step::Item(at), |r| crosses(item, r)) & fine
        }),
        Value::Mapping(map) => map
            .iter()
            .fold(true, |fine, (key, value)| match key.as_str() {
                Some(key) => reader.below(Step::Key(key.into()), |r| crosses(value, r)) & fine,
                None => {
                    let text = format!("a setting's name must be text, got {}", show(key));
                    reader.wrong::<()>(text).is_some()
                }
            }),
        _ => true,
    }
}
