//! FeSEM: multi-centre clustering by EM (Xie et al. 2020, algorithm 1).
use crate::clusters::{ClusterRule, Clusters, InRound, Shared, TRAIN};
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
    fn layers(&self) -> &[String] {
        &self.layers
    }

    fn divide(&self, mut run: InRound<'_, '_>, trained: &Inbox<Params>) -> Result<()> {
        let of = run.first_centres(trained, &self.layers, self.first_passes)?;
        run.maximise(trained, &of)?;
        run.remember(trained, &of)
    }

    fn round(&self, mut run: InRound<'_, '_>) -> Result<()> {
        let sent = |id| &run.state.centres[run.state.centre_of(id)];
        let trained = run.server.collect(run.round, &TRAIN, sent)?;
        let last = trained.iter().map(|m| run.state.centre_of(m.from));
        let mut of: Vec<usize> = last.collect();
        if !(run.round.number - run.family.warm_up - 1).is_multiple_of(self.every) {
            run.maximise(&trained, &of)?;
            return run.remember(&trained, &of);
        }
        let points = points(&trained, &self.layers)?;
        let points = views(&points);
        for _ in 0..self.passes {
            let centres = run.state.centres.iter();
            let centres = centres.map(|centre| counted(centre, &self.layers));
            let centres = centres.collect::<Result<Vec<_>>>()?;
            let centres = views(&centres);
            of = em::assign(&points, &centres);
            let objective = em::objective(&points, &centres, &of);
            run.record("cluster.distance", objective.sqrt())?;
            run.maximise(&trained, &of)?;
        }
        run.remember(&trained, &of)
    }
}
plugin!(protocol "fesem" => Shared<FeSem> as Clusters<FeSem>, papers: ["Xie et al. 2020"]);
