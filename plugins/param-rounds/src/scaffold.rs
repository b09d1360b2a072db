//! SCAFFOLD: control variates (Karimireddy et al. 2020, algorithm 1).
use crate::learnt::learnt;
use crate::local::{Extra, zip};
use crate::rounds::{Family, InRound, RoundRule, Rounds, Shared};
use crate::slots::{AGGREGATOR, COHORT, MODEL};
use fl_core::MeanOfParams;
use fl_core::prelude::*;

choices! {
    /// A client's next control variate.
    pub enum Control {
        /// The mean gradient of the steps that it took, `c_k - c + (x - y) / (steps lr)` (option
        /// II): free, but only for plain gradient descent without momentum, with one learning rate
        /// throughout the round.
        Steps = "steps",
        /// The gradient of its own mean loss at the server's parameters (option I): one more pass
        /// over its examples.
        Gradient = "gradient",
    }
}

choices! {
    /// The server's next control variate.
    pub enum ServerControl {
        /// Moved by the mean change of the clients' own, times the share of clients that took part
        /// (the paper).
        Changes = "changes",
        /// The mean of the clients' own, weighted as their parameters (FedKT's code), if all
        /// clients take part in every round.
        Mean = "mean",
    }
}

settings! {
    /// FedAvg whose clients correct every local step by their and the server's control variates
    /// (SCAFFOLD, Karimireddy et al. 2020).
    pub struct Scaffold {
        /// The server's learning rate.
        server_lr: f64 = 1.0, in above(0.0);
        /// A client's next control variate.
        control: Control = Control::Steps;
        /// The server's next control variate.
        server_control: ServerControl = ServerControl::Changes;
    }
}

message! {
    /// A model and the control variate that goes with it (SCAFFOLD).
    pub struct Controlled: "controlled-params" { model: Params, control: Params }
}

/// SCAFFOLD's exchange.
const TRAIN: Exchange<Controlled, Controlled> =
    Exchange::new("parameters after corrected training, and what became of the control variate");

/// Option II for one number: returns the mean gradient of a client's steps, from its correction
/// `c - c_k` and its change `x - y`.
pub fn control_of_steps(correction: f64, way: f64, steps: f64, lr: f64) -> f64 {
    way / (steps * lr) - correction
}

/// Returns one number of the server's model, from the combined answers.
pub fn next_model(x: f64, combined: f64, server_lr: f64) -> f64 {
    x + server_lr * (combined - x)
}

/// Returns one number of the server's control variate, from the mean change of the `answered`
/// clients, of all `clients`.
pub fn next_control(c: f64, mean_change: f64, answered: usize, clients: usize) -> f64 {
    c + answered as f64 / clients as f64 * mean_change
}

impl RoundRule for Scaffold {
    /// The server's control variate, from the first round on.
    type State = Option<Params>;
    const CORRECTS: bool = true;

    fn declare<'p>(&'p self, family: Family<'p>, all: Declaration<'p>) -> Declaration<'p> {
        let train = TRAIN.answered_by(move |client, sent| self.train(family, client, sent));
        let train = train.to(&COHORT).shares(family.share).each_round();
        all.exchange(train.trains().into(&AGGREGATOR))
    }

    fn round(&self, run: InRound<'_, '_, Self::State>) -> Result<()> {
        let (server, x, control) = (run.server, run.model, run.state);
        let sent = Controlled {
            control: control.take().unwrap_or_else(|| x.zeros_like()),
            model: x.clone(),
        };
        let (mut controls, mut answered) = (Box::<MeanOfParams>::default(), 0);
        let shown = run.round.showing(x.clone());
        let form = |mail: ClientMessage<Controlled>| {
            let from = mail.from;
            let weight = match self.server_control {
                ServerControl::Changes => 1.0,
                ServerControl::Mean => mail.weight,
            };
            mail.try_map(|answer| {
                answered += 1;
                controls.add(ClientMessage::new(from, weight, answer.control))?;
                Ok(answer.model)
            })
        };
        let y: Params = server.run_with(&shown, &TRAIN, |_| &sent, form)?;
        let clients = server.everyone().len();
        let buffers = server.parametric(&MODEL)?.buffers();
        *x = x.step(&y, &buffers, |x, y| next_model(x, y, self.server_lr))?;
        let mean = controls.finish()?;
        *control = Some(match self.server_control {
            ServerControl::Changes => zip(&sent.control, &mean, |c, change| {
                next_control(c, change, answered, clients)
            })?,
            ServerControl::Mean => mean,
        });
        Ok(())
    }

    fn model(&self, slot: SlotSpec) -> SlotSpec {
        let slot = slot.needs(Ability::GradientTerms);
        match self.control {
            Control::Steps => slot.needs(Ability::EqualSteps),
            Control::Gradient => slot,
        }
    }

    fn conflicts(&self, _: Family<'_>, has: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let few = Conflict::at(
            "server-control",
            "is the mean of all clients' control variates, and `parts.cohort` may leave clients out: leave the cohort empty, or write `changes`",
        );
        let mean = matches!(self.server_control, ServerControl::Mean);
        few.when(mean && has(&COHORT)).into_iter().collect()
    }
}
plugin!(protocol "scaffold" => Shared<Scaffold> as Rounds<Scaffold>, papers: ["Karimireddy et al. 2020"]);

impl Scaffold {
    /// Answers at a client in a round: `y <- y - lr (g(y) - c_k + c)`, then its next `c_k`.
    fn train(
        &self,
        family: Family<'_>,
        client: &mut Client,
        sent: &Controlled,
    ) -> Result<Controlled> {
        let own = client.stashed("control")?;
        let own: Params = own.unwrap_or_else(|| sent.control.zeros_like());
        let correction = zip(&sent.control, &own, |c, own| c - own)?;
        let gradient = match self.control {
            Control::Gradient => Some(family.gradient(client, &sent.model)?),
            Control::Steps => None,
        };
        let train = |client: &mut Client, examples: &_| {
            let offset = Extra {
                offset: Some(&correction),
                ..Extra::default()
            };
            family.start(examples, &sent.model).train(client, offset)
        };
        let examples = learnt(client)?;
        let trained = train(client, &examples)?;
        let mut next = match gradient {
            Some(gradient) => gradient,
            None => {
                let lr = client.parametric(&MODEL)?.step_size().context(
                    "parts.model: SCAFFOLD's `control: steps` takes every step for one learning rate times the gradient, and this trainer's are not (Adam, momentum, a rate that changes); use plain gradient descent, or `control: gradient`",
                )?;
                let lr = lr * family.settings.local.rate(client.round_number());
                let (steps, way) = (
                    trained.steps as f64,
                    zip(&sent.model, &trained.params, |x, y| x - y)?,
                );
                match trained.steps {
                    0 => own.clone(), // its gradient is unknown
                    _ => zip(&correction, &way, |c, way| {
                        control_of_steps(c, way, steps, lr)
                    })?,
                }
            }
        };
        // no gradient moves a buffer
        let buffers = client.parametric(&MODEL)?.buffers();
        next.named_mut(&buffers).for_each(|tensor| tensor.fill(0.0));
        let control = match self.server_control {
            ServerControl::Changes => zip(&next, &own, |next, own| next - own)?,
            ServerControl::Mean => next.clone(),
        };
        client.stash("control", &next);
        let honest = trained.params;
        let model = family.forged(client, &sent.model, honest, |client, half| {
            Ok(train(client, half)?.params)
        })?;
        Ok(Controlled { model, control })
    }
}
