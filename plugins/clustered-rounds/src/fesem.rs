//! FeSEM: multi-centre clustering by EM (Xie et al. 2020, algorithm 1).
use crate::clusters::{
    ClusterRule, ClusterSettings, Clusters, Shared, State, TRAIN, maximise, remember,
};
use crate::distance::{counted, points, views};
use crate::em;
use fl_core::prelude::*;

settings! {
    /// Rounds of parameter averaging with several centres; a client belongs to the nearest centre
    /// to its trained parameters (FeSEM, Xie et al. 2020).
    pub struct FeSem {
        /// Only parameters whose names begin with one of these count for the distance; all if the
        /// list is empty.
        layers: Vec<String> = Vec::new();
        /// E and M steps for the first choice of centres. The paper's code takes 5.
        first_passes: usize = 1, in 1..=1000;
        /// E and M steps in every later round in which clients are assigned.
        passes: usize = 1, in 1..=1000;
        /// Number of rounds between assignments of clients; in between, centres follow
        /// their members.
        every: usize = 1, in 1..;
    }
}

impl ClusterRule for FeSem {
    fn divide(
        &self,
        family: &ClusterSettings,
        server: &mut Server<'_>,
        round: &Round,
        trained: &Inbox<Params>,
        state: &mut State,
    ) -> Result<()> {
        let (layers, passes) = (&self.layers[..], self.first_passes);
        let (centres, of) = family.first_centres(server, round, trained, layers, passes)?;
        state.centres = centres;
        maximise(server, round, trained, &of, &mut state.centres)?;
        remember(server, round, trained, &of, state)
    }

    fn round(
        &self,
        family: &ClusterSettings,
        server: &mut Server<'_>,
        round: &Round,
        state: &mut State,
    ) -> Result<()> {
        let sent = |id| &state.centres[state.centre_of(id)];
        let trained = server.collect(round, &TRAIN, sent)?;
        let mut of: Vec<usize> = trained.iter().map(|m| state.centre_of(m.from)).collect();
        if !(round.number - family.warm_up - 1).is_multiple_of(self.every) {
            maximise(server, round, &trained, &of, &mut state.centres)?;
            return remember(server, round, &trained, &of, state);
        }
        let points = points(&trained, &self.layers)?;
        let points = views(&points);
        for _ in 0..self.passes {
            let centres = state.centres.iter().map(|c| counted(c, &self.layers));
            let centres = centres.collect::<Result<Vec<_>>>()?;
            let centres = views(&centres);
            of = em::assign(&points, &centres);
            let objective = em::objective(&points, &centres, &of);
            server.record(round, "cluster.distance", objective.sqrt())?;
            maximise(server, round, &trained, &of, &mut state.centres)?;
        }
        remember(server, round, &trained, &of, state)
    }
}
plugin!(protocol "fesem" => Shared<FeSem> as Clusters<FeSem>, papers: ["Xie et al. 2020"]);
