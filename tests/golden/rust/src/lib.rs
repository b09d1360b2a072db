//! A library of interface 3 that every later fl must load: an aggregator, a protocol with a state
//! at the server and at its clients, and a message of its own.
use fl_core::message::Scalar;
use fl_core::prelude::*;
use serde::{Deserialize, Serialize};

export_plugins!();

settings! {
    /// Averages each number after dropping the smallest and the largest of its values.
    pub struct GoldenMean {
        /// Share of clients dropped at each end.
        trim: f64 = 0.1, in 0.0..0.5;
    }
}

impl Aggregator for GoldenMean {
    type In = Params;
    type Out = Params;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let drop = (self.trim * inbox.len() as f64) as usize;
        round.record("dropped", 2.0 * drop as f64);
        Ok(inbox.per_coordinate(|values| {
            values.sort_by(f32::total_cmp);
            let kept = &values[drop..values.len() - drop];
            kept.iter().sum::<f32>() / kept.len() as f32
        }))
    }
}
plugin!(aggregator "golden-mean" => GoldenMean);

message! {
    /// The number of a client's examples, and of its answers so far.
    pub struct Sizes: "golden-sizes" {
        examples: Scalar,
        answers: Scalar,
    }
}

settings! {
    /// Counts the examples of all clients, round after round.
    pub struct GoldenCount {
        /// Number of rounds.
        rounds: usize = 3, in 1..;
    }
}

const SIZES: Exchange<Nothing, Sizes> = Exchange::new("sizes");

#[derive(Serialize, Deserialize)]
struct Counted {
    examples: f64,
    answers: f64,
}

impl Protocol for GoldenCount {
    fn declare(&self) -> Declaration<'_> {
        let sizes = SIZES.answered_by(|me, _| {
            let before = me.unstash::<Scalar>("answers")?;
            let answers = Scalar::new(1.0 + before.map_or(0.0, |n| n.value()));
            me.stash("answers", &answers);
            let examples = Scalar::new(me.own().len() as f32);
            Ok(Sizes { examples, answers })
        });
        Declaration::new().exchange(sizes.times(self.rounds))
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        let (examples, answers) = (0.0, 0.0);
        let mut counted = Counted { examples, answers };
        server.rounds(self.rounds, &mut counted, |server, counted, round| {
            let all = server.everyone();
            for one in server.collect(round, &SIZES, &all, |_| &Nothing)?.iter() {
                counted.examples += f64::from(one.body.examples.value());
                counted.answers = counted.answers.max(f64::from(one.body.answers.value()));
            }
            server.record(round, "examples", counted.examples)?;
            server.record(round, "answers", counted.answers)
        })
    }
}
plugin!(protocol "golden-count" => GoldenCount);
