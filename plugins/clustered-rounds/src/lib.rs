#![doc = include_str!("../README.md")]

mod centres;
mod distance;
pub mod em;

pub use centres::Centres;

use distance::{counted, points, views};

use fl_core::TaskKind;
use fl_core::message::Params;
use fl_core::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

settings! {
    /// FeSEM: a client belongs to the centre that is nearest to what it has trained (Xie et al. 2020).
    pub struct Distance {
        /// Only parameters whose names begin with one of these count for the distance; if there are none, all do.
        layers: Vec<String> = Vec::new();
        /// E and M steps when centres are first chosen. The paper's code takes 5.
        first_passes: usize = 1, in 1..=1000;
        /// E and M steps in every later round in which clients are assigned.
        passes: usize = 1, in 1..=1000;
        /// Assign clients anew after every so many rounds; in between, centres follow their members.
        every: usize = 1, in 1..;
    }
}

impl Default for Distance {
    fn default() -> Self {
        Self {
            layers: Vec::new(),
            first_passes: 1,
            passes: 1,
            every: 1,
        }
    }
}

choices! {
    /// Which centre a client belongs to.
    pub enum Assign {
        /// The nearest to what it has trained: FeSEM.
        Distance(Distance) = "distance",
        /// That with the least loss on its own examples: it is sent all of them, and says which (IFCA, Ghosh et al. 2020).
        Loss = "loss",
    }
}

settings! {
    /// Rounds of parameter averaging with several centres, each for the clients that belong to it (FeSEM, Xie et al. 2020; IFCA, Ghosh
    /// et al. 2020).
    pub struct ClusteredRounds {
        /// Rounds.
        rounds: usize = 50, in 1..=1_000_000;
        /// Centres; 1 is averaging as in `param-rounds`.
        clusters: usize = 4, in 1..=100_000;
        /// Which centre a client belongs to.
        assign: Assign = Assign::Distance(Distance::default());
        /// First centres are what distinct random clients have trained, drawn so many times: the draw from which clients end up nearest to
        /// their centres is taken. With 1, chance decides.
        starts: usize = 1, in 1..=10_000;
        /// Rounds with one centre before there are several.
        warm_up: usize = 0, in 0..=1_000_000;
        /// A client's training in one round.
        local: Training = Training::epochs(10, 32);
        /// Start every round's training with a fresh optimiser.
        fresh: bool = true;
    }
}

/// What the server keeps from round to round.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct State {
    /// One until clients have been told apart.
    centres: Vec<Params>,
    /// Where each client was last; those who have not been asked since there are several centres are not in it.
    of: BTreeMap<ClientId, usize>,
}

impl State {
    /// A client's centre; that with the most clients if nothing is known of it.
    fn centre_of(&self, client: ClientId) -> usize {
        self.of.get(&client).copied().unwrap_or_else(|| {
            let size = |j: usize| self.of.values().filter(|of| **of == j).count() as f64;
            let sizes: Vec<f64> = (0..self.centres.len()).map(|j| -size(j)).collect();
            em::least(&sizes)
        })
    }
}

const MODEL: TrainerSlot = TrainerSlot::new(
    "model",
    "The model that everybody trains; it needs parameters.",
);
const AGGREGATOR: AggregatorSlot<Params, Params> = AggregatorSlot::new(
    "aggregator",
    "Combines the parameters of the clients of one centre. One that remembers would mix up the centres.",
);
const COHORT: SelectorSlot<Roster> =
    SelectorSlot::new("cohort", "Picks the clients of a round; everyone if empty.");

const TRAIN: Exchange<Params, Params> = Exchange::new("parameters after local training");
const CHOOSE: Exchange<Centres, Scalar> = Exchange::new("the centre with the least loss");
const TRAIN_CHOSEN: Exchange<Nothing, Params> =
    Exchange::new("parameters after training from the chosen centre");

impl Protocol for ClusteredRounds {
    fn declare(&self) -> Declaration<'_> {
        let alone = match (&self.assign, self.clusters) {
            // the first with several centres still begins with one
            (Assign::Loss, 2..) => (self.warm_up + 1).min(self.rounds),
            _ => self.rounds,
        };
        let times = self.rounds - alone;
        let model = MODEL.spec().lasting_if(!self.fresh);
        let train = TRAIN.answered_by(|me, centre| self.train(me, centre));
        let all = Declaration::new()
            .grows_by("rounds")
            .slot(model.shared_parameters().at_server())
            .exchange(train.to(&COHORT).times(alone).into(&AGGREGATOR));
        let choose = || {
            let choose = CHOOSE.answered_by(|me, centres| self.choose(me, centres));
            choose.to(&COHORT).times(times).copies(self.clusters)
        };
        let train_chosen = || {
            let train = TRAIN_CHOSEN.answered_by(|me, _| {
                let centre = me.unstash("chosen")?;
                let centre: Params = centre.context("no centre was chosen before")?;
                self.train(me, &centre)
            });
            train.to(&COHORT).times(times).into(&AGGREGATOR)
        };
        all.exchange_if(times > 0, choose)
            .exchange_if(times > 0, train_chosen)
    }

    fn suits(&self, _: TaskKind, _: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
        Ok(())
    }
    fn conflicts(&self, _: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let late = self.clusters > 1 && self.warm_up >= self.rounds;
        let why = format!(
            "of {} rounds leaves none with {} centres: it must be below `rounds`",
            self.warm_up, self.clusters
        );
        let late = Conflict::at("warm-up", why).when(late);
        late.into_iter().collect()
    }

    fn lead(&self, fed: &mut Server<'_>) -> Result<()> {
        let mut state = State {
            centres: vec![fed.parametric(&MODEL)?.params()],
            of: BTreeMap::new(),
        };
        let clients = fed.everyone().len();
        ensure!(
            self.clusters <= clients,
            "protocol.clusters: {} centres begin with the parameters of as many clients, and there are {clients}",
            self.clusters
        );
        fed.rounds(self.rounds, &mut state, |fed, state, round| {
            let cohort = fed.cohort(&COHORT, round)?;
            if !cohort.is_empty() {
                // a Poisson draw may be of nobody
                self.round(fed, round, &cohort, state)?;
            }
            self.report(fed, round, state)
        })?;
        for (j, centre) in state.centres.iter().enumerate() {
            fed.parametric(&MODEL)?.set_params(centre)?;
            fed.keep_model_as(&MODEL, &format!("centre-{j}"))?;
        }
        Ok(())
    }
}
plugin!(protocol "clustered-rounds" => ClusteredRounds,
    papers: ["Xie et al. 2020", "Ghosh et al. 2020"]);

impl ClusteredRounds {
    fn choose(&self, me: &mut Client, centres: &Centres) -> Result<Scalar> {
        let mut losses = Vec::with_capacity(centres.0.len());
        for centre in &centres.0 {
            me.parametric(&MODEL)?.set_params(centre)?;
            losses.push(me.own_loss(&MODEL)?);
        }
        let chosen = em::least(&losses);
        me.stash("chosen", &centres.0[chosen]);
        Ok(Scalar::new(chosen as f32))
    }

    fn train(&self, me: &mut Client, from: &Params) -> Result<Params> {
        me.parametric(&MODEL)?.set_params(from)?;
        let pass = Pass {
            fresh: self.fresh,
            ..self.local.pass(me.task().kind.loss())
        };
        me.fit_own(&MODEL, &pass)?;
        Ok(me.parametric(&MODEL)?.params())
    }

    fn round(
        &self,
        fed: &mut Server<'_>,
        round: &Round,
        cohort: &[ClientId],
        state: &mut State,
    ) -> Result<()> {
        let several = state.centres.len() > 1;
        let mut of = BTreeMap::new();
        let trained: Inbox<Params> = match (&self.assign, several) {
            (Assign::Loss, true) => {
                let sent = Centres(state.centres.clone());
                let chosen = fed.collect(round, &CHOOSE, cohort, |_| &sent)?;
                let n = state.centres.len();
                for mail in chosen.iter() {
                    let at = mail.body.value();
                    ensure!(
                        at >= 0.0 && at.fract() == 0.0 && (at as usize) < n,
                        "client {} chose centre {at} of {n}",
                        mail.from
                    );
                    of.insert(mail.from, at as usize);
                }
                let those: Vec<ClientId> = of.keys().copied().collect();
                fed.collect(round, &TRAIN_CHOSEN, &those, |_| &Nothing)?
            }
            _ => {
                let sent = |id| &state.centres[state.centre_of(id)];
                fed.collect(round, &TRAIN, cohort, sent)?
            }
        };
        let first = !several && self.clusters > 1 && round.number > self.warm_up;
        match &self.assign {
            Assign::Distance(how) if first => {
                let (layers, passes) = (&how.layers[..], how.first_passes);
                let (centres, of) = self.first_centres(fed, round, &trained, layers, passes)?;
                state.centres = centres;
                maximise(fed, round, &trained, &of, &mut state.centres)?;
                remember(fed, round, &trained, &of, state)?;
            }
            Assign::Distance(how) if several => {
                self.expect_and_maximise(fed, round, &trained, state, how)?;
            }
            // clients choose among them in the next round
            Assign::Loss if first => {
                state.centres = self.first_centres(fed, round, &trained, &[], 1)?.0;
            }
            _ => {
                let of: Vec<usize> = trained
                    .iter()
                    .map(|m| of.get(&m.from).copied().unwrap_or(0))
                    .collect();
                maximise(fed, round, &trained, &of, &mut state.centres)?;
                if several {
                    remember(fed, round, &trained, &of, state)?;
                }
            }
        }
        Ok(())
    }

    fn expect_and_maximise(
        &self,
        fed: &mut Server<'_>,
        round: &Round,
        trained: &Inbox<Params>,
        state: &mut State,
        how: &Distance,
    ) -> Result<()> {
        let mut of: Vec<usize> = trained.iter().map(|m| state.centre_of(m.from)).collect();
        if !(round.number - self.warm_up - 1).is_multiple_of(how.every) {
            maximise(fed, round, trained, &of, &mut state.centres)?;
            return remember(fed, round, trained, &of, state);
        }
        let points = points(trained, &how.layers)?;
        let points = views(&points);
        for _ in 0..how.passes {
            let centres = state.centres.iter().map(|c| counted(c, &how.layers));
            let centres = centres.collect::<Result<Vec<_>>>()?;
            let centres = views(&centres);
            of = em::assign(&points, &centres);
            let objective = em::objective(&points, &centres, &of);
            fed.record(round, "cluster.distance", objective.sqrt())?;
            maximise(fed, round, trained, &of, &mut state.centres)?;
        }
        remember(fed, round, trained, &of, state)
    }

    /// What distinct random clients have trained, and who is nearest to which after `passes` E steps with a plain M step between two; of
    /// several draws that with the least objective.
    fn first_centres(
        &self,
        fed: &mut Server<'_>,
        round: &Round,
        trained: &Inbox<Params>,
        layers: &[String],
        passes: usize,
    ) -> Result<(Vec<Params>, Vec<usize>)> {
        let k = self.clusters;
        ensure!(
            trained.len() >= k,
            "{k} centres need the parameters of as many clients, and {} have answered",
            trained.len()
        );
        let apart = em::pairwise(&views(&points(trained, layers)?));
        let mut best: Option<(f64, Vec<usize>, Vec<usize>)> = None;
        for start in 0..self.starts {
            let stream = round.stream.child("centres", start as u64);
            let chosen = stream.draws().choose(trained.len(), k);
            let (of, objective) = em::among_points(&apart, &chosen, passes);
            if best.as_ref().is_none_or(|(least, ..)| objective < *least) {
                best = Some((objective, chosen, of));
            }
        }
        let (objective, chosen, of) = best.context("no draw of first centres")?;
        fed.record(round, "cluster.distance", objective.sqrt())?;
        let all: Vec<&Params> = trained.iter().map(|mail| &mail.body).collect();
        Ok((chosen.into_iter().map(|at| all[at].clone()).collect(), of))
    }

    /// How good each client's centre is for it, who belongs where, and how each cluster does.
    fn report(&self, fed: &mut Server<'_>, round: &Round, state: &State) -> Result<()> {
        let scores =
            fed.evaluate_for_clients(round, &MODEL, &state.centres, |id| state.centre_of(id))?;
        let everyone = fed.everyone();
        let of: Vec<usize> = everyone.iter().map(|id| state.centre_of(*id)).collect();
        if self.clusters == 1 || scores.is_empty() {
            return Ok(());
        }
        fed.record_each(round, "cluster", of.iter().map(|j| *j as f64).collect())?;
        for j in 0..state.centres.len() {
            let members = scores.iter().zip(&of).filter(|(_, of)| **of == j);
            let members: Vec<f64> = members.map(|(score, _)| *score).collect();
            fed.record(round, &format!("cluster.{j}.clients"), members.len() as f64)?;
            if !members.is_empty() {
                let mean = members.iter().sum::<f64>() / members.len() as f64;
                fed.record(round, &format!("cluster.{j}.score"), mean)?;
            }
        }
        Ok(())
    }
}

/// The M step, by the part in the slot `aggregator`.
fn maximise(
    fed: &mut Server<'_>,
    round: &Round,
    trained: &Inbox<Params>,
    of: &[usize],
    centres: &mut [Params],
) -> Result<()> {
    let all: Vec<&Mail<Params>> = trained.iter().collect();
    em::recentre(of, centres, |members, centre| {
        let members = members.iter().map(|at| all[*at].clone()).collect();
        match Inbox::new(members) {
            Ok(members) => fed.aggregate(&AGGREGATOR, &round.showing(centre.clone()), &members),
            // clients without examples move nothing
            Err(_) => Ok(centre.clone()),
        }
    })
}

/// Takes down where clients are now, and how many have moved.
fn remember(
    fed: &mut Server<'_>,
    round: &Round,
    trained: &Inbox<Params>,
    of: &[usize],
    state: &mut State,
) -> Result<()> {
    let mut moved = 0;
    for (mail, at) in trained.iter().zip(of) {
        moved += usize::from(
            state
                .of
                .insert(mail.from, *at)
                .is_some_and(|old| old != *at),
        );
    }
    fed.record(round, "cluster.moved", moved as f64)
}
