#![doc = include_str!("../README.md")]

mod adaptive;
mod momentum;

pub use adaptive::{FedAdagrad, FedAdam, FedYogi};
pub use momentum::FedAvgM;

use fl_core::prelude::*;
use fl_core::{MeanOfParams, Weigh};

/// An optimiser's state for one number of the model.
pub type Moments = [f64; 2];

/// A server optimiser, for one number of the model.
pub trait Rule: Send {
    /// Returns the weight of a client in the mean.
    fn weigh(&self) -> &Weigh;

    /// Returns the state before the first round.
    fn start(&self) -> Moments;

    /// Returns the new value of a number that the server sent as `sent` and whose mean answer is
    /// `mean`.
    fn step(&self, sent: f64, mean: f64, kept: &mut Moments) -> f64;
}

/// An aggregator that moves the model by a [`Rule`] of the clients' mean.
pub struct ServerOptimiser<R> {
    rule: R,
    /// One for each number of the model that is no buffer, in the order of [`Params::iter`]; empty
    /// before the first round.
    kept: Vec<Moments>,
}

impl<R: Rule> From<R> for ServerOptimiser<R> {
    fn from(rule: R) -> Self {
        Self {
            rule,
            kept: Vec::new(),
        }
    }
}

impl<R: Rule> Aggregator for ServerOptimiser<R> {
    type In = Params;
    type Out = Params;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let weights: Vec<f64> = inbox.iter().map(|mail| mail.weight).collect();
        self.update(round, inbox.weighted_mean(&weights, &*round.exec))
    }

    fn fold(&self, _: &Round) -> Option<Box<dyn Fold<Params, Params>>> {
        Some(Box::<MeanOfParams>::default())
    }

    fn update(&mut self, round: &Round, mut mean: Params) -> Result<Params> {
        let sent: &Params = round
            .sent()
            .context("a server optimiser moves the parameters sent, and there are none")?;
        let buffers = round.buffers();
        let buffered: usize = mean.named_mut(buffers).map(|tensor| tensor.len()).sum();
        let numbers = mean.count() - buffered;
        if self.kept.len() != numbers {
            // the first round, or another model than before, without a known state
            self.kept = vec![self.rule.start(); numbers];
        }
        let (rule, mut kept) = (&self.rule, self.kept.iter_mut());
        let mut none = rule.start();
        let step = |sent, mean| rule.step(sent, mean, kept.next().unwrap_or(&mut none));
        let next = sent.step(&mean, buffers, step);
        next.context("the message sent and the answer")
    }

    fn needs(&self) -> RequiredInputs {
        RequiredInputs {
            sent: true,
            ..self.rule.weigh().needs()
        }
    }

    fn claims(&self) -> Properties {
        Properties::SCALE_FREE.of_mean(true)
    }

    fn save(&self) -> Vec<u8> {
        self.kept
            .iter()
            .flatten()
            .flat_map(|x| x.to_le_bytes())
            .collect()
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        let (numbers, rest) = state.as_chunks::<8>();
        let (pairs, odd) = numbers.as_chunks::<2>();
        ensure!(
            rest.is_empty() && odd.is_empty(),
            "a state of {} bytes is cut short: 16 are due for each number of the model",
            state.len()
        );
        let pair = |pair: &[[u8; 8]; 2]| pair.map(f64::from_le_bytes);
        self.kept = pairs.iter().map(pair).collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
