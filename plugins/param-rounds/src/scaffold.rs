//! Control variates (SCAFFOLD, Karimireddy et al. 2020, Algorithm 1).
use crate::{ParamRounds, State};
use fl_core::MeanOfParams;
use fl_core::prelude::*;
use fl_core::settings::above;

choices! {
    /// What a client's next control variate is.
    pub enum Control {
        /// The mean gradient of the steps that it took, `c_k - c + (x - y) / (steps lr)` (option II): free, but for plain gradient descent
        /// without momentum, with one learning rate throughout the round, only.
        Steps = "steps",
        /// The gradient of its own mean loss at the server's parameters (option I): one more pass over its examples.
        Gradient = "gradient",
    }
}

choices! {
    /// What the server's next control variate is.
    pub enum ServerControl {
        /// Moved by the mean change of the clients' own, times the share of clients that took part (the paper).
        Changes = "changes",
        /// The mean of the clients' own, weighed as their parameters are (FedKT's code), where everyone takes part in every round.
        Mean = "mean",
    }
}

settings! {
    /// Control variates at the server and at every client.
    pub struct Scaffold {
        /// The server's learning rate.
        server_lr: f64 = 1.0, in above(0.0);
        /// What a client's next control variate is.
        control: Control = Control::Steps;
        /// What the server's next control variate is.
        server_control: ServerControl = ServerControl::Changes;
    }
}

message! {
    /// A model and the control variate that goes with it (SCAFFOLD).
    pub struct Controlled: "controlled-params" { model: Params, control: Params }
}

/// SCAFFOLD's question.
pub(crate) const TRAIN: Ask<Controlled, Controlled> =
    Ask::new("parameters after corrected training, and what became of the control variate");

/// Option II for one number: the mean gradient of a client's steps, from its correction `c - c_k` and the way `x - y` that it went.
pub fn control_of_steps(correction: f64, way: f64, steps: f64, lr: f64) -> f64 {
    way / (steps * lr) - correction
}

/// One number of the server's model, from the combined answers.
pub fn next_model(x: f64, combined: f64, server_lr: f64) -> f64 {
    x + server_lr * (combined - x)
}

/// One number of the server's control variate, from the mean change of those who `answered`, of all `clients`.
pub fn next_control(c: f64, mean_change: f64, answered: usize, clients: usize) -> f64 {
    c + answered as f64 / clients as f64 * mean_change
}

/// `f` of every two numbers, in 64 bits.
pub(crate) fn zip(a: &Params, b: &Params, f: impl Fn(f64, f64) -> f64) -> Result<Params> {
    a.zip(b, |a, b| f(a.into(), b.into()) as f32)
}

impl Scaffold {
    /// The server's side of a round.
    pub(crate) fn round(
        &self,
        fed: &mut Federation<'_>,
        round: &Round,
        cohort: &[ClientId],
        state: &mut State,
    ) -> Result<()> {
        let State {
            model: x, control, ..
        } = state;
        let sent = Controlled {
            control: control.take().unwrap_or_else(|| x.zeros_like()),
            model: x.clone(),
        };
        let (mut controls, mut answered) = (Box::<MeanOfParams>::default(), 0);
        let shown = round.showing(x.clone());
        let y: Params = fed.gather_mail(
            "aggregator",
            &shown,
            &TRAIN,
            cohort,
            |_| &sent,
            |mail| {
                let from = mail.from;
                let weight = match self.server_control {
                    ServerControl::Changes => 1.0,
                    ServerControl::Mean => mail.weight,
                };
                mail.try_map(|answer: Controlled| {
                    answered += 1;
                    controls.add(Mail::new(from, weight, answer.control))?;
                    Ok(answer.model)
                })
            },
        )?;
        let clients = fed.everyone().len();
        *x = zip(x, &y, |x, y| next_model(x, y, self.server_lr))?;
        let mean = controls.finish()?;
        *control = Some(match self.server_control {
            ServerControl::Changes => zip(&sent.control, &mean, |c, change| {
                next_control(c, change, answered, clients)
            })?,
            ServerControl::Mean => mean,
        });
        Ok(())
    }

    /// A client's side of a round: `y <- y - lr (g(y) - c_k + c)`, then its next `c_k`.
    pub(crate) fn answer(
        &self,
        method: &ParamRounds,
        me: &mut Client,
        sent: &Controlled,
    ) -> Result<Controlled> {
        let own = me.stashed("control")?;
        let own: Params = own.unwrap_or_else(|| sent.control.zeros_like());
        let correction = zip(&sent.control, &own, |c, own| c - own)?;
        let gradient = match self.control {
            Control::Gradient => Some(method.gradient(me, &sent.model)?),
            Control::Steps => None,
        };
        let trained = method.train(me, &sent.model, Some(&correction))?;
        let next = match gradient {
            Some(gradient) => gradient,
            None => {
                let lr = me.parametric("model")?.step_size().context(
                    "parts.model: SCAFFOLD's `control: steps` takes every step for one learning rate times the gradient, and this trainer's are not (Adam, momentum, a rate that changes); use plain gradient descent, or `control: gradient`",
                )?;
                let (steps, way) = (
                    trained.steps as f64,
                    zip(&sent.model, &trained.params, |x, y| x - y)?,
                );
                match trained.steps {
                    0 => own.clone(), // nothing was learnt of its gradient
                    _ => zip(&correction, &way, |c, way| {
                        control_of_steps(c, way, steps, lr)
                    })?,
                }
            }
        };
        let told = match self.server_control {
            ServerControl::Changes => zip(&next, &own, |next, own| next - own)?,
            ServerControl::Mean => next.clone(),
        };
        me.stash("control", &next);
        Ok(Controlled {
            model: method.answered(me, &sent.model, Some(&correction), trained.params)?,
            control: told,
        })
    }
}
