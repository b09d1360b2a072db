//! Parts that panic wherever they can or claim what is not so, to be loaded by the tests of the C
//! interface.
use fl_core::prelude::*;
use fl_core::privacy::Unit;
use fl_core::settings::{Reader, Setting, Value, ValueType};

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
    /// A protocol that does what no protocol may.
    pub struct Misbehaves {
        /// What: panic, answer, undeclared, hides, outlasts, late, stay.
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
        let all = server.everyone();
        server.once("step", &mut (), |server, (), round| {
            match &*self.how {
                "undeclared" => {
                    server.collect(round, &UNDECLARED, &all, |_| &Nothing)?;
                }
                "hides" => {
                    server.collect(round, &HIDDEN, &all, |_| &Nothing)?;
                }
                "stay" => loop {
                    std::hint::spin_loop();
                },
                _ => {
                    server.collect(round, &ASKED, &all, |_| &Nothing)?;
                    server.collect(round, &ASKED, &all, |_| &Nothing)?;
                }
            }
            Ok(())
        })
    }
}
plugin!(protocol "misbehaves" => Misbehaves);
