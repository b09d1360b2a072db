//! AFL: the algorithm Stochastic-AFL of Mohri et al. 2019.
use fl_core::ClientId;
use fl_core::prelude::*;
use std::collections::BTreeMap;

settings! {
    /// Mean of the clients' parameters by weights that move towards the clients with the largest
    /// training losses, so that the loss of the worst mixture of clients is minimised (AFL; Mohri
    /// et al. 2019). It remembers a weight for each client.
    pub struct Afl {
        /// The step of the weights in a round: they change by this times the losses.
        lr: f64 = 0.1, in above_to(0.0, 1e6);
    }
}

/// The aggregator of [`Afl`].
#[derive(Debug)]
pub struct AgnosticMean {
    settings: Afl,
    /// Each client's weight and last loss. The weights add up to 1.
    clients: BTreeMap<ClientId, [f64; 2]>,
}

/// Returns the nearest point whose numbers are at least 0 and add up to 1.
pub fn project_to_simplex(point: &[f64]) -> Vec<f64> {
    let mut falling = point.to_vec();
    falling.sort_by(|a, b| b.total_cmp(a));
    // a common shift of all numbers does not change the result, and keeps the sums exact
    let largest = falling.first().copied().unwrap_or_default();
    let (mut sum, mut shift) = (0.0, 0.0);
    for (n, x) in (1..).zip(falling) {
        sum += x - largest;
        let next = (1.0 - sum) / f64::from(n);
        if x - largest + next > 0.0 {
            shift = next;
        }
    }
    let moved = point.iter().map(|x| (x - largest + shift).max(0.0));
    moved.collect()
}

impl AgnosticMean {
    /// Gives each new client the mean weight.
    fn admit(&mut self, new: &[ClientId]) {
        let known = self.clients.len() as f64;
        let all = known + new.len() as f64;
        self.clients
            .values_mut()
            .for_each(|[weight, _]| *weight *= known / all);
        let entry = [1.0 / all, 0.0];
        self.clients.extend(new.iter().map(|id| (*id, entry)));
    }
}

impl Aggregator for AgnosticMean {
    type In = Params;
    type Out = Params;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let senders = inbox.iter().map(|mail| mail.from);
        let new = senders.clone().filter(|id| !self.clients.contains_key(id));
        let new: Vec<ClientId> = new.collect();
        self.admit(&new);
        let weights: Vec<f64> = senders.clone().map(|id| self.clients[&id][0]).collect();
        let mean = if weights.iter().any(|weight| *weight > 0.0) {
            inbox.weighted_mean(&weights, &*round.exec)
        } else {
            // no client with a weight above 0 has answered
            let sent: &Params = round
                .sent()
                .context("it needs the parameters sent to clients")?;
            sent.clone()
        };
        for (id, loss) in senders.zip(inbox.training_losses()?) {
            self.clients.entry(id).and_modify(|[_, last]| *last = loss);
        }
        let lr = self.settings.lr;
        let moved = self
            .clients
            .values()
            .map(|[weight, loss]| weight + lr * loss);
        let moved = project_to_simplex(&moved.collect::<Vec<_>>());
        for ([weight, _], moved) in self.clients.values_mut().zip(moved) {
            *weight = moved;
        }
        Ok(mean)
    }

    fn needs(&self) -> RequiredInputs {
        RequiredInputs {
            training_loss: true,
            sent: true,
            ..RequiredInputs::default()
        }
    }
    fn claims(&self) -> Properties {
        Properties {
            weight_free: true,
            weight_scale_free: true,
            ..Properties::default()
        }
    }
    fn save(&self) -> Vec<u8> {
        let entry = |(id, numbers): (&ClientId, &[f64; 2])| {
            let numbers = numbers.iter().flat_map(|x| x.to_le_bytes());
            id.to_le_bytes()
                .into_iter()
                .chain(numbers)
                .collect::<Vec<_>>()
        };
        self.clients.iter().flat_map(entry).collect()
    }
    fn load(&mut self, state: &[u8]) -> Result<()> {
        let (entries, rest) = state.as_chunks::<20>();
        ensure!(
            rest.is_empty(),
            "a state of {} bytes is cut short: 20 are due for each client",
            state.len()
        );
        let entry = |[a, b, c, d, numbers @ ..]: &[u8; 20]| {
            let mut all = numbers
                .as_chunks::<8>()
                .0
                .iter()
                .map(|x| f64::from_le_bytes(*x));
            let mut next = || all.next().unwrap_or_default();
            (ClientId::from_le_bytes([*a, *b, *c, *d]), [next(), next()])
        };
        self.clients = entries.iter().map(entry).collect();
        Ok(())
    }
}
plugin!(aggregator "agnostic-mean" => Afl as AgnosticMean { clients }, aliases: ["afl"],
    papers: ["Mohri et al. 2019"]);
