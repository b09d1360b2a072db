//! Rounds of parameter averaging with several centres: the shared settings, and the loop.
use crate::distance::{points, views};
use crate::em;
use fl_core::TaskKind;
use fl_core::prelude::*;
use fl_core::settings::{Joined, Settings};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

settings! {
    /// The settings that all methods share.
    pub struct ClusterSettings {
        /// Rounds.
        rounds: usize = 50, in 1..=1_000_000;
        /// Centres; 1 is averaging as in `fedavg`.
        clusters: usize = 4, in 1..=100_000;
        /// Number of draws of the first centres. Each draw takes the trained parameters of distinct
        /// random clients, and the draw with the least mean distance to the clients is used.
        starts: usize = 1, in 1..=10_000;
        /// Rounds with one centre before there are several.
        warm_up: usize = 0, in 0..=1_000_000;
        /// A client's training in one round.
        local: RoundTraining = Training::epochs(10, 32).into();
        /// Start every round's training with a fresh optimiser.
        fresh: bool = true;
    }
}

/// The server's state between rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// One centre until clients are assigned.
    pub centres: Vec<Params>,
    /// The last centre of each client; without clients that got no request since there are several
    /// centres.
    pub of: BTreeMap<ClientId, usize>,
}

impl State {
    /// Returns a client's centre; if unknown, that of the most clients, the first of equals.
    pub fn centre_of(&self, client: ClientId) -> usize {
        self.of.get(&client).copied().unwrap_or_else(|| {
            let size = |j: usize| self.of.values().filter(|of| **of == j).count() as f64;
            let sizes: Vec<f64> = (0..self.centres.len()).map(|j| -size(j)).collect();
            em::least(&sizes)
        })
    }
}

pub(crate) const MODEL: TrainerSlot = TrainerSlot::new(
    "model",
    "The model that all clients train; it needs parameters.",
);
pub(crate) const AGGREGATOR: AggregatorSlot<Params, Params> = AggregatorSlot::new(
    "aggregator",
    "Combines the parameters of the clients of one centre. It keeps a state for each centre.",
);
pub(crate) const COHORT: SelectorSlot<Roster> =
    SelectorSlot::new("cohort", "Picks the clients of a round; everyone if empty.");

pub(crate) const TRAIN: Exchange<Params, Params> = Exchange::new("parameters after local training");

/// A method of the family. `plugin!(protocol "name" => Shared<Rule> as Clusters<Rule>)` registers
/// it.
pub trait ClusterRule: Settings + Send + Sync + 'static {
    /// Returns the number of rounds in which clients get the parameters of one centre, if as many
    /// answer as there are centres.
    fn rounds_from_one(&self, family: &ClusterSettings) -> usize {
        family.rounds
    }

    /// The rounds after `warm-up` that there must be for clients to belong to centres.
    const LEAST: usize = 1;

    /// Beginnings of the names of parameters that the method looks for; none by default.
    fn layers(&self) -> &[String] {
        &[]
    }

    /// Adds the other exchanges.
    fn declare<'p>(&'p self, _: &'p ClusterSettings, all: Declaration<'p>) -> Declaration<'p> {
        all
    }

    /// Splits one centre into several, after clients have `trained` from it.
    ///
    /// # Errors
    /// If too few clients have answered.
    fn divide(&self, run: InRound<'_, '_>, trained: &Inbox<Params>) -> Result<()>;

    /// Runs one round with several centres.
    ///
    /// # Errors
    /// Those of the exchanges.
    fn round(&self, run: InRound<'_, '_>) -> Result<()>;
}

/// The settings of a method: the family's, and its own.
pub type Shared<R> = Joined<ClusterSettings, R>;

/// A method of the family as a protocol.
pub struct Clusters<R>(Shared<R>);

impl<R> From<Shared<R>> for Clusters<R> {
    fn from(settings: Shared<R>) -> Self {
        Self(settings)
    }
}

impl<R: ClusterRule> Protocol for Clusters<R> {
    fn declare(&self) -> Declaration<'_> {
        let Joined { shared, own } = &self.0;
        let model = MODEL.spec().lasting_if(!shared.fresh);
        let model = model.several_if(shared.clusters > 1 && shared.warm_up < shared.rounds);
        let model = model.trained_by("local", &shared.local, (shared.fresh, shared.rounds));
        let model = shared.local.rated(model);
        let train = TRAIN.answered_by(|client, centre| shared.train(client, centre));
        let train = train.to(&COHORT).times(own.rounds_from_one(shared));
        let all = Declaration::new()
            .rounds(shared.rounds)
            .grows_by("rounds")
            .slot(model.shared_parameters().at_server().named(own.layers()))
            .exchange(train.trains().into(&AGGREGATOR))
            .measures([Measurement::clients(&MODEL)])
            .measures(shared.measures());
        own.declare(shared, all)
    }

    fn suits(&self, _: TaskKind, _: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
        Ok(())
    }

    fn conflicts(&self, _: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let shared = &self.0.shared;
        let late = shared.clusters > 1 && shared.warm_up + R::LEAST > shared.rounds;
        let why = format!(
            "is {}, and a client belongs to one of {} centres from round {} on at the earliest: `rounds` must be at least that",
            shared.warm_up,
            shared.clusters,
            shared.warm_up + R::LEAST
        );
        let late = Conflict::at("warm-up", why).when(late);
        let rate = shared.local.conflict("local.rate.by-round", shared.rounds);
        [late, rate].into_iter().flatten().collect()
    }

    fn data_conflicts(&self, facts: &DataFacts<'_>) -> Vec<Conflict> {
        let k = self.0.shared.clusters;
        let few = |n: usize, what| {
            let why = format!(
                "is {k}: centres begin with the parameters of as many clients, and {what} {n}"
            );
            Conflict::at("clusters", why).when(k > 1 && k > n)
        };
        let cohort = facts.cohorts.get(COHORT.name());
        let all = few(facts.clients, "there are");
        let few = all.or_else(|| few(*cohort?, "a round has at most"));
        few.into_iter().collect()
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        let Joined { shared, own } = &self.0;
        let mut state = State {
            centres: vec![server.parametric(&MODEL)?.params()],
            of: BTreeMap::new(),
        };
        let clients = server.everyone().len();
        ensure!(
            shared.clusters <= clients,
            "protocol.clusters: {} centres begin with the parameters of as many clients, and there are {clients}",
            shared.clusters
        );
        server.rounds(&mut state, |server, state, round| {
            let cohort = server.cohort(round, &TRAIN)?;
            let mut run = InRound {
                family: shared,
                server: &mut *server,
                round,
                state: &mut *state,
            };
            match run.state.centres.len() {
                _ if cohort.is_empty() => {} // a Poisson draw may pick no client
                1 => {
                    let centre = &run.state.centres[0];
                    let trained = run.server.collect(round, &TRAIN, |_| centre)?;
                    let due = shared.clusters > 1 && round.number > shared.warm_up;
                    if due && trained.len() >= shared.clusters {
                        own.divide(run, &trained)?
                    } else {
                        if due && (round.number == shared.warm_up + 1 || round.last) {
                            run.server.warn(&format!(
                                "{}: {} centres begin with the parameters of as many clients, and {} have answered: one centre goes on",
                                round.name, shared.clusters, trained.len()
                            ));
                        }
                        run.maximise(&trained, &vec![0; trained.len()])?;
                    }
                }
                _ => own.round(run)?,
            }
            shared.report(server, round, state)
        })?;
        for (j, centre) in state.centres.iter().enumerate() {
            server.parametric(&MODEL)?.set_params(centre)?;
            server.keep_model_as(&MODEL, &format!("centre-{j}"))?;
        }
        Ok(())
    }
}

impl ClusterSettings {
    /// Returns what is measured of several clusters.
    fn measures(&self) -> Vec<Measurement> {
        if self.clusters == 1 {
            return Vec::new();
        }
        let mut all = vec![
            Measurement::each("cluster"),
            Measurement::number("cluster.distance"),
            Measurement::number("cluster.moved"),
        ];
        for j in 0..self.clusters {
            let of = |what| Measurement::number(format!("cluster.{j}.{what}"));
            all.extend(["clients", "score"].map(of));
        }
        all
    }

    pub(crate) fn train(&self, client: &mut Client, from: &Params) -> Result<Params> {
        client.parametric(&MODEL)?.set_params(from)?;
        let pass = FitOptions {
            fresh: self.fresh,
            ..self
                .local
                .pass(client.task().kind.loss(), client.round_number())
        };
        client.fit_own(&MODEL, &pass)?;
        Ok(client.parametric(&MODEL)?.params())
    }

    /// Records the score of each client's centre for it. Once clients belong to centres, also the
    /// centre of each client, and the size and score of each cluster.
    fn report(&self, server: &mut Server<'_>, round: &Round, state: &State) -> Result<()> {
        let scores =
            server.evaluate_for_clients(round, &MODEL, &state.centres, |id| state.centre_of(id))?;
        if self.clusters == 1 || scores.is_empty() || state.of.is_empty() {
            return Ok(());
        }
        let everyone = server.everyone();
        let of = everyone.iter().map(|id| state.centre_of(*id) as f64);
        server.record_each(round, "cluster", of.collect())?;
        for j in 0..state.centres.len() {
            // a client that was never asked belongs to no centre
            let members = scores.iter().zip(everyone.iter());
            let members = members.filter(|(_, id)| state.of.get(*id) == Some(&j));
            let members: Vec<f64> = members.map(|(score, _)| *score).collect();
            server.record(round, &format!("cluster.{j}.clients"), members.len() as f64)?;
            // a client that failed has no score
            let known = members.iter().filter(|score| score.is_finite());
            let (sum, known) = known.fold((0.0, 0), |(sum, n), score| (sum + score, n + 1));
            if known > 0 {
                let mean = sum / f64::from(known);
                server.record(round, &format!("cluster.{j}.score"), mean)?;
            }
        }
        Ok(())
    }
}

/// One round of a run.
pub struct InRound<'a, 's> {
    /// The settings that all methods share.
    pub family: &'a ClusterSettings,
    /// The server.
    pub server: &'a mut Server<'s>,
    /// The round.
    pub round: &'a Round,
    /// The centres, and who is at which.
    pub state: &'a mut State,
}

impl InRound<'_, '_> {
    /// Makes the parameters of distinct random clients the centres, and returns the assignment of
    /// clients after `passes` E steps with plain M steps in between. Uses the draw with the least
    /// objective.
    ///
    /// # Errors
    /// If fewer clients have answered than there are centres, or no parameter is of `layers`.
    pub fn first_centres(
        &mut self,
        trained: &Inbox<Params>,
        layers: &[String],
        passes: usize,
    ) -> Result<Vec<usize>> {
        let k = self.family.clusters;
        ensure!(
            trained.len() >= k,
            "{k} centres need the parameters of as many clients, and {} have answered",
            trained.len()
        );
        let apart = em::pairwise(&views(&points(trained, layers)?));
        let mut best: Option<(f64, Vec<usize>, Vec<usize>)> = None;
        for start in 0..self.family.starts {
            let stream = self.round.stream.child("centres", start as u64);
            let chosen = stream.draws().choose(trained.len(), k);
            let (of, objective) = em::among_points(&apart, &chosen, passes);
            if best.as_ref().is_none_or(|(least, ..)| objective < *least) {
                best = Some((objective, chosen, of));
            }
        }
        let (objective, chosen, of) = best.context("no draw of first centres")?;
        self.record("cluster.distance", objective.sqrt())?;
        let all: Vec<&Params> = trained.iter().map(|mail| &mail.body).collect();
        self.state.centres = chosen.into_iter().map(|at| all[at].clone()).collect();
        Ok(of)
    }

    /// Runs the M step, by the part in the slot `aggregator`.
    ///
    /// # Errors
    /// Those of the aggregator.
    pub fn maximise(&mut self, trained: &Inbox<Params>, of: &[usize]) -> Result<()> {
        let all: Vec<&ClientMessage<Params>> = trained.iter().collect();
        let several = self.state.centres.len() > 1;
        em::recentre(of, &mut self.state.centres, |j, members, centre| {
            let members = members.iter().map(|at| all[*at].clone()).collect();
            let (server, shown) = (&mut *self.server, self.round.showing(centre.clone()));
            match Inbox::new(members) {
                Ok(members) if several => server.aggregate_line(&AGGREGATOR, j, &shown, &members),
                Ok(members) => server.aggregate(&AGGREGATOR, &shown, &members),
                // members without examples leave the centre unchanged
                Err(_) => Ok(centre.clone()),
            }
        })
    }

    /// Stores the clients' clusters, and records how many clients moved.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn remember(&mut self, trained: &Inbox<Params>, of: &[usize]) -> Result<()> {
        let mut moved = 0;
        for (mail, at) in trained.iter().zip(of) {
            let old = self.state.of.insert(mail.from, *at);
            moved += usize::from(old.is_some_and(|old| old != *at));
        }
        self.record("cluster.moved", moved as f64)
    }

    /// Records a number of the round.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn record(&mut self, what: &str, number: f64) -> Result<()> {
        self.server.record(self.round, what, number)
    }
}
