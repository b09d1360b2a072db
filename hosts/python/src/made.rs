//! One part on arrays: `fl.make`.

use crate::buffer::Buffer;
use crate::marshal::Array;
use crate::parts::find;
use crate::speed::Threads;
use anyhow::{Result, bail, ensure};
use fl_cases::{Part, SLOT, aggregated, released};
use fl_core::message::{
    self, Dtype, Erased, Message, MessageType, Params, Tensor, TensorMap, View,
};
use fl_core::privacy::NoiseSource;
use fl_core::{
    BuildContext, Candidate, ClientMessage, Cohort, LogEvent, PartDecl, Parts, Pool as _,
    PrivacyEvent, Role, Round, SlotAssignment, Stream, Task, TaskKind,
};
use fl_registry::Catalogue;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// A part, its state, and how often it was called.
struct State {
    part: Part,
    rounds: usize,
}

/// A part that Python calls.
#[pyclass(frozen)]
pub struct MadePart {
    state: Mutex<State>,
    /// What it takes, if it takes messages.
    on: Option<&'static MessageType>,
    stream: Stream,
    noise: NoiseSource,
    exec: Arc<Threads>,
}

/// The named arrays of a message.
type Arrays<'py> = Vec<(String, Bound<'py, PyAny>)>;

/// Sender, weight, examples per class, training loss, arrays.
type Sent<'py> = (u32, f64, Option<Vec<u32>>, Option<f32>, Arrays<'py>);

/// Arrays, what was noted, and what was measured.
type Answer = (Vec<(String, Buffer)>, Vec<String>, Vec<(String, f64)>);

/// A message of these arrays, whose numbers are copied once.
fn message(of: &'static MessageType, arrays: &Arrays<'_>) -> PyResult<Erased> {
    let tensor = |(name, array): &(String, Bound<'_, PyAny>)| {
        let array = Array::of(name.clone(), array)?;
        let mut columns = of.columns.iter();
        let column = columns.find(|c| c.name == name || c.name == "*");
        let numbers = match (array.named().1, column.map(|c| c.dtype)) {
            (View::F64(a), Some(Dtype::F32)) => Tensor::F32(a.mapv(|x| x as f32)),
            (view, _) => view.to_tensor(),
        };
        Ok((name.clone(), numbers))
    };
    let tensors: PyResult<Vec<_>> = arrays.iter().map(tensor).collect();
    let made = of.from_tensors(TensorMap::new(tensors?));
    made.map_err(|error| failed(&error))
}

fn given_back(message: Erased) -> Result<Vec<(String, Buffer)>> {
    if message.kind() == Params::KIND {
        let owned = message.take::<Params>()?.0.into_iter();
        return Ok(owned
            .map(|(name, numbers)| (name, Buffer::owning(Tensor::F32(numbers))))
            .collect());
    }
    let copy = |(name, view): (std::borrow::Cow<'_, str>, View<'_>)| {
        (name.into_owned(), Buffer::owning(view.to_tensor()))
    };
    Ok(message.content().into_iter().map(copy).collect())
}

fn failed(error: &anyhow::Error) -> PyErr {
    PyValueError::new_err(format!("{error:#}"))
}

fn made(
    all: &Catalogue,
    part: &str,
    settings: &str,
    seed: u64,
    threads: usize,
) -> Result<MadePart> {
    let (decl, settings) = find(all, part, settings)?;
    ensure!(
        !matches!(decl.role, Role::Trainer | Role::Generator | Role::Protocol),
        "{} does not stand alone; aggregators, attacks, mechanisms, selectors of clients and accountants do",
        decl.role.with_article()
    );
    let stream = Stream::root(seed);
    let context = BuildContext::new(Task::new(vec![1], TaskKind::Classes(2)), stream.clone());
    let parts = Parts::new(vec![SlotAssignment {
        slot: SLOT.into(),
        clients: None,
        decl,
        settings,
    }]);
    let made = Part::make(&parts, decl.role, &context)?;
    let on = match &made {
        Part::Aggregator(part) => Some(part.input()),
        Part::Mechanism(part) => Some(part.on()),
        Part::Selector(part) => {
            ensure!(
                part.pool() == fl_core::Roster::NAME,
                "`{}` selects {}, and only selectors of clients stand alone",
                decl.name,
                part.pool()
            );
            None
        }
        _ => None,
    };
    Ok(MadePart {
        state: Mutex::new(State {
            part: made,
            rounds: 0,
        }),
        on,
        stream,
        noise: NoiseSource::Seeded,
        exec: Arc::new(Threads(threads)),
    })
}

impl MadePart {
    /// Runs the next round of the part.
    fn next<T>(&self, f: impl FnOnce(&mut Part, &Round) -> Result<T>) -> PyResult<(T, Round)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let number = state.rounds + 1;
        let stream = self.stream.child("round", number as u64);
        let name = format!("round {number}");
        let round = Round::new(name, number, false, stream, self.exec.clone());
        let answer = f(&mut state.part, &round).map_err(|error| failed(&error))?;
        state.rounds = number;
        Ok((answer, round))
    }

    fn message(&self, arrays: &Arrays<'_>) -> PyResult<Erased> {
        let of = self
            .on
            .ok_or_else(|| PyValueError::new_err("it takes no messages"))?;
        message(of, arrays)
    }

    fn answer(message: Erased, round: &Round) -> PyResult<Answer> {
        let (mut notes, mut numbers) = (Vec::new(), Vec::new());
        for said in round.take_log() {
            match said {
                LogEvent::Note(text) => notes.push(text),
                LogEvent::Number(name, value) => numbers.push((name, value)),
            }
        }
        let back = given_back(message).map_err(|error| failed(&error))?;
        Ok((back, notes, numbers))
    }
}

#[pymethods]
impl MadePart {
    /// The roles of the parts of this name, by their keys in a spec; `plugins` as a spec has them,
    /// as JSON.
    #[staticmethod]
    fn roles(py: Python<'_>, name: &str, plugins: &str) -> PyResult<Vec<&'static str>> {
        let all = py.detach(|| crate::catalogue_with(plugins));
        let all = all.map_err(|error| failed(&error))?;
        // `privacy mechanism`
        let key = |p: &&PartDecl| p.role.name().split(' ').next().unwrap_or_default();
        Ok(all.named(name).iter().map(key).collect())
    }

    /// A part such as `aggregator mean`; its settings are JSON.
    #[staticmethod]
    fn make(
        py: Python<'_>,
        part: &str,
        settings: &str,
        plugins: &str,
        seed: u64,
        system: bool,
        threads: usize,
    ) -> PyResult<Self> {
        let with_noise = || {
            let all = crate::catalogue_with(plugins)?;
            let mut made = made(&all, part, settings, seed, threads)?;
            if system {
                made.noise = NoiseSource::system()?;
            }
            Ok(made)
        };
        py.detach(with_noise).map_err(|error| failed(&error))
    }

    /// The kind of messages that it takes, if it takes any.
    fn kind(&self) -> Option<&'static str> {
        self.on.map(|of| of.kind)
    }

    fn aggregate(
        &self,
        py: Python<'_>,
        messages: Vec<Sent<'_>>,
        sent: Option<Arrays<'_>>,
    ) -> PyResult<Answer> {
        let message = |(from, weight, class_counts, training_loss, arrays): &Sent<'_>| {
            Ok(ClientMessage {
                from: *from,
                weight: *weight,
                class_counts: class_counts.clone(),
                training_loss: training_loss.map(f64::from),
                body: self.message(arrays)?,
            })
        };
        let messages: PyResult<Vec<_>> = messages.iter().map(message).collect();
        let sent = sent.map(|sent| self.message(&sent)).transpose()?;
        let messages = messages?;
        py.detach(|| {
            let (out, round) = self.next(|part, round| match part {
                Part::Aggregator(part) => aggregated(&mut **part, round, messages, sent),
                _ => bail!("it takes no messages of clients"),
            })?;
            Self::answer(out, &round)
        })
    }

    /// The message clipped and with noise, for one of so many clients, and the event as JSON.
    fn release(
        &self,
        py: Python<'_>,
        arrays: Arrays<'_>,
        clients: usize,
    ) -> PyResult<(Answer, String)> {
        let mut message = self.message(&arrays)?;
        py.detach(|| {
            let noise = |round: &Round| self.noise.at(&round.stream);
            let (event, round) = self.next(|part, round| {
                let Part::Mechanism(part) = part else {
                    bail!("it is no mechanism");
                };
                ensure!(
                    part.range(&*message).is_none(),
                    "it agrees with all clients on a range, which only a run can"
                );
                message::check(&*message)?;
                let (cohort, noise) = (Cohort::all(clients), noise(round));
                released(&mut **part, &mut *message, &cohort, &noise, |_| ())
            })?;
            let json = serde_json::to_string(&event);
            let json = json.map_err(|error| PyValueError::new_err(error.to_string()))?;
            Ok((Self::answer(message, &round)?, json))
        })
    }

    /// Positions of the chosen of these clients: number, examples, loss.
    fn select(
        &self,
        py: Python<'_>,
        clients: Vec<(u32, Option<u64>, Option<f64>)>,
    ) -> PyResult<Vec<usize>> {
        let candidate = |(id, samples, loss)| Candidate { id, samples, loss };
        let pool: Vec<Candidate> = clients.into_iter().map(candidate).collect();
        py.detach(|| {
            let chosen = self.next(|part, round| match part {
                Part::Selector(part) => part.select(round, pool[..].any()),
                _ => bail!("it selects no clients"),
            });
            Ok(chosen?.0)
        })
    }

    /// Charges events, as JSON, and returns what all so far cost, as JSON.
    fn charge(&self, events: &str) -> PyResult<String> {
        let events: Result<Vec<PrivacyEvent>, _> = serde_json::from_str(events);
        let events = events.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let charged = self.next(|part, _| {
            let Part::Accountant(part) = part else {
                bail!("it is no accountant");
            };
            events.iter().try_for_each(|event| part.charge(event))?;
            Ok(serde_json::to_string(&part.guarantee(None)?)?)
        });
        Ok(charged?.0)
    }

    /// The number of calls so far, and what the part keeps between them.
    fn save(&self) -> PyResult<(usize, Vec<u8>)> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = state.part.save().map_err(|error| failed(&error))?;
        let bytes = bytes.ok_or_else(|| {
            PyValueError::new_err("an accountant is kept as the events that it was charged")
        })?;
        Ok((state.rounds, bytes))
    }

    fn load(&self, rounds: usize, bytes: &[u8]) -> PyResult<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.rounds = rounds;
        let loaded = state.part.load(bytes);
        loaded.map_err(|error| failed(&error))
    }
}
