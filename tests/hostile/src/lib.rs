//! Parts that panic wherever they can or claim what is not so, to be loaded by the tests of the C
//! interface.
use fl_core::message::{Counts, Votes};
use fl_core::prelude::*;
use fl_core::privacy::Unit;
use fl_core::settings::{Reader, Setting, Value, ValueType};
use serde::{Deserialize, Serialize};

/// Where it panics.
#[derive(Clone, Debug)]
pub struct Position(String);

impl Setting for Position {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        let place = String::read(value, reader)?;
        assert!(place != "check", "in check");
        Some(Self(place))
    }
    fn write(&self) -> Value {
        self.0.write()
    }
    fn value_type() -> ValueType {
        if std::env::var_os("FL_HOSTILE").is_some_and(|v| v == "describe") {
            panic!("in describe");
        }
        String::value_type()
    }
}

impl PartialEq for Position {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

settings! {
    /// Panics.
    pub struct Panics {
        /// Where: check, create, about, aggregate, chunk, drop.
        place: Position = Position(String::new());
    }
}

/// [`Panics`] at work.
pub struct Panicking(String);

impl From<Panics> for Panicking {
    fn from(settings: Panics) -> Self {
        assert!(settings.place.0 != "create", "in create");
        Self(settings.place.0)
    }
}

impl Drop for Panicking {
    fn drop(&mut self) {
        assert!(self.0 != "drop", "in drop");
    }
}

impl Aggregator for Panicking {
    type In = Params;
    type Out = Params;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        assert!(self.0 != "aggregate", "in aggregate");
        let mut numbers = vec![0.0; 10];
        round.exec.chunks(&mut numbers, 1, &|i, _| {
            assert!(self.0 != "chunk" || i != 7, "in chunk {i}");
        });
        let weights: Vec<f64> = inbox.iter().map(|m| m.weight).collect();
        Ok(inbox.weighted_mean(&weights, &*round.exec))
    }

    fn claims(&self) -> Properties {
        assert!(self.0 != "about", "in claims");
        Properties::default()
    }
}
plugin!(aggregator "panics" => Panics as Panicking);

settings! {
    /// Claims a price, and adds no noise.
    pub struct Lies {
        /// Draws noise, and lets it go.
        draws: bool = false;
    }
}

impl PrivacyMechanism for Lies {
    type On = Params;

    fn clip(&self, _: &mut Params) -> Result<()> {
        Ok(())
    }

    fn price(&self, _: &Params, _: &Cohort) -> Result<PrivacyEvent> {
        Ok(PrivacyEvent::Laplace {
            sensitivity: 0.001,
            scale: 1.0,
            unit: Unit::Party,
        })
    }

    fn perturb(&mut self, _: &mut Params, _: &Cohort, noise: &ReleaseNoise) -> Result<()> {
        if self.draws {
            noise.draws();
        }
        Ok(())
    }
}
plugin!(privacy "lies" => Lies);
export_plugins!();

settings! {
    /// Counts every vote, perhaps many times.
    pub struct LoudVote {
        /// How many times.
        times: f64 = 1.0;
    }
}

impl Aggregator for LoudVote {
    type In = Votes;
    type Out = Counts;

    fn aggregate(&mut self, _: &Round, inbox: &Inbox<Votes>) -> Result<Counts> {
        let first = &inbox.iter().next().context("the inbox is empty")?.body;
        let mut counts = ndarray::Array2::zeros((first.rows.len(), first.classes()));
        for mail in inbox.iter() {
            for ((row, _), label) in mail.body.labels.indexed_iter() {
                counts[[row, *label as usize]] += self.times;
            }
        }
        Ok(Counts::new(first.rows.clone(), counts))
    }
}
plugin!(aggregator "loud-vote" => LoudVote);

settings! {
    /// A protocol that does what no protocol may.
    pub struct Misbehaves {
        /// What: panic, answer, undeclared, hides, outlasts, looks, stay, asks.
        how: String = String::new();
    }
}

const MODEL: TrainerSlot = TrainerSlot::new("model", "The model.");
const PRIVACY: MechanismSlot<Params> = MechanismSlot::new("privacy", "Hides.");
const ASKED: Exchange<Nothing, Scalar> = Exchange::new("a number");
const UNDECLARED: Exchange<Nothing, Scalar> = Exchange::new("another number");
const HIDDEN: Exchange<Nothing, Params> = Exchange::new("parameters");

/// A part of a call that is over.
static OUTLASTS: std::sync::Mutex<Option<Box<dyn Trainer>>> = std::sync::Mutex::new(None);

impl Protocol for Misbehaves {
    fn declare(&self) -> Declaration<'_> {
        let asked = ASKED.answered_by(|me, _| {
            assert!(self.how != "answer", "in answer");
            let mut kept = OUTLASTS.lock().unwrap_or_else(|e| e.into_inner());
            if self.how == "outlasts" {
                if let Some(model) = kept.take() {
                    model.save()?;
                }
                *kept = Some(me.new_model(&MODEL, 0)?);
            }
            if self.how == "looks" {
                let (own, seen) = (me.own().len(), me.own().samples.inputs().len());
                ensure!(own == seen, "it has {own} rows and sees {seen}");
            }
            Ok(Scalar::new(1.0))
        });
        let hidden = HIDDEN.answered_by(|me, _| Ok(me.parametric(&MODEL)?.params()));
        let hidden = hidden.releases_within(&PRIVACY);
        Declaration::new()
            .slot(MODEL.spec().at_server())
            .exchange(asked)
            .exchange(hidden)
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        assert!(self.how != "panic", "in lead");
        server.once("step", &mut (), |server, (), round| {
            match &*self.how {
                "undeclared" => {
                    server.collect(round, &UNDECLARED, |_| &Nothing)?;
                }
                "hides" => {
                    server.collect(round, &HIDDEN, |_| &Nothing)?;
                }
                "stay" => loop {
                    std::hint::spin_loop();
                },
                // each request is answered at once, and the call never ends
                "asks" => loop {
                    server.with_examples(1);
                },
                _ => {
                    server.collect(round, &ASKED, |_| &Nothing)?;
                    server.collect(round, &ASKED, |_| &Nothing)?;
                }
            }
            Ok(())
        })
    }
}
plugin!(protocol "misbehaves" => Misbehaves);

settings! {
    /// A protocol that declares as public what depends on a client's rows.
    pub struct Tattles {
        /// What it does: "" (nothing), rows (an answer is the client's number of rows, and the
        /// server measures their sum), absent (a client without rows is not asked).
        how: String = String::new();
    }
}

const SENT: Exchange<Nothing, Params> = Exchange::new("a model with noise");
const TOLD: Exchange<Nothing, Scalar> = Exchange::new("a public number");

impl Protocol for Tattles {
    fn declare(&self) -> Declaration<'_> {
        let sent = SENT.answered_by(|me, _| Ok(me.parametric(&MODEL)?.params()));
        let told = TOLD.answered_by(|me, _| {
            let rows = me.own().len() as f32;
            Ok(Scalar::new(match &self.how[..] {
                "rows" => rows,
                "absent" => rows.min(1.0),
                _ => 1.0,
            }))
        });
        Declaration::new()
            .slot(MODEL.spec().at_server())
            .exchange(sent.releases(&PRIVACY))
            .exchange(told.public())
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        server.once("step", &mut (), |server, (), round| {
            let told = server.collect(round, &TOLD, |_| &Nothing)?;
            let sum = told.iter().map(|m| f64::from(m.body.value())).sum();
            server.record(round, "told", sum)?;
            let some = told.iter().filter(|m| m.body.value() > 0.0);
            let some: Vec<ClientId> = some.map(|m| m.from).collect();
            let sent = server.collect_from(round, &SENT, &some, |_| &Nothing);
            sent.map(drop)
        })
    }
}
plugin!(protocol "tattles" => Tattles);

settings! {
    /// A protocol of rounds that keeps a state at the server and at every client.
    pub struct Tallies {
        /// Number of rounds.
        rounds: usize = 5, in 1..;
        /// Every answer takes this number of milliseconds.
        pause: u64 = 0;
        /// What goes wrong: kind (an answer has another kind than declared), forgets (the state
        /// cannot be read back), abort (the client's process ends in round 3).
        wrong: String = String::new();
        /// A file that the server makes when it begins; from then on a wrong kind is declared.
        begun: String = String::new();
    }
}

/// The sum of all answers; one that forgets can be written and not be read.
#[derive(Serialize, Deserialize)]
#[serde(try_from = "(f64, bool)")]
struct Tally {
    sum: f64,
    forgets: bool,
}

impl TryFrom<(f64, bool)> for Tally {
    type Error = &'static str;

    fn try_from((sum, forgets): (f64, bool)) -> std::result::Result<Self, &'static str> {
        if forgets {
            Err("it forgets")
        } else {
            Ok(Self { sum, forgets })
        }
    }
}

const WRONG_KIND: Exchange<Nothing, Params> = Exchange::new("a number");

impl Tallies {
    fn answer(&self, me: &mut Client) -> Result<Scalar> {
        std::thread::sleep(std::time::Duration::from_millis(self.pause));
        let before = me.unstash::<Scalar>("answers")?.map_or(0.0, |n| n.value());
        let now = before + 1.0;
        me.stash("answers", &Scalar::new(now));
        if self.wrong == "abort" && now > 2.0 {
            std::process::abort();
        }
        Ok(Scalar::new(
            now * me.stream("number").draws().uniform() as f32,
        ))
    }
}

impl Protocol for Tallies {
    fn declare(&self) -> Declaration<'_> {
        if self.wrong == "kind" && std::path::Path::new(&self.begun).exists() {
            let other = WRONG_KIND.answered_by(|_, _| Ok(Params::default()));
            return Declaration::new().rounds(self.rounds).exchange(other);
        }
        let asked = ASKED.answered_by(|me, _| self.answer(me));
        Declaration::new().rounds(self.rounds).exchange(asked)
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        let mut tally = Tally {
            sum: 0.0,
            forgets: self.wrong == "forgets",
        };
        if !self.begun.is_empty() {
            std::fs::write(&self.begun, "")?;
        }
        server.rounds(&mut tally, |server, tally, round| {
            for one in server.collect(round, &ASKED, |_| &Nothing)?.iter() {
                tally.sum += f64::from(one.body.value());
            }
            server.record(round, "tally", tally.sum)
        })
    }
}
plugin!(protocol "tallies" => Tallies);
