//! Both methods in one protocol, chosen by `assign`.
use crate::clusters::{ClusterRule, ClusterSettings, Clusters, Shared, State};
use crate::fesem::FeSem;
use crate::ifca::Ifca;
use fl_core::prelude::*;

choices! {
    /// How a client is assigned to a centre.
    pub enum Assign {
        /// To the nearest centre to its trained parameters: FeSEM.
        Distance(FeSem) = "distance",
        /// To the centre with the least loss on its own examples: it gets all centres, and answers
        /// with its choice (IFCA, Ghosh et al. 2020).
        Loss = "loss",
    }
}

settings! {
    /// Rounds of parameter averaging with several centres, each for the clients that belong to it
    /// (FeSEM, Xie et al. 2020; IFCA, Ghosh et al. 2020).
    pub struct ClusteredRounds {
        /// How a client is assigned to a centre.
        assign: Assign = Assign::Distance(FeSem::default());
    }
}

impl ClusterRule for ClusteredRounds {
    fn rounds_from_one(&self, family: &ClusterSettings) -> usize {
        match &self.assign {
            Assign::Distance(rule) => rule.rounds_from_one(family),
            Assign::Loss => Ifca {}.rounds_from_one(family),
        }
    }

    fn declare<'p>(&'p self, family: &'p ClusterSettings, all: Declaration<'p>) -> Declaration<'p> {
        const LOSS: Ifca = Ifca {};
        match &self.assign {
            Assign::Distance(rule) => rule.declare(family, all),
            Assign::Loss => LOSS.declare(family, all),
        }
    }

    fn divide(
        &self,
        family: &ClusterSettings,
        server: &mut Server<'_>,
        round: &Round,
        trained: &Inbox<Params>,
        state: &mut State,
    ) -> Result<()> {
        match &self.assign {
            Assign::Distance(rule) => rule.divide(family, server, round, trained, state),
            Assign::Loss => Ifca {}.divide(family, server, round, trained, state),
        }
    }

    fn round(
        &self,
        family: &ClusterSettings,
        server: &mut Server<'_>,
        round: &Round,
        state: &mut State,
    ) -> Result<()> {
        match &self.assign {
            Assign::Distance(rule) => rule.round(family, server, round, state),
            Assign::Loss => Ifca {}.round(family, server, round, state),
        }
    }
}
plugin!(protocol "clustered-rounds" => Shared<ClusteredRounds> as Clusters<ClusteredRounds>,
    papers: ["Xie et al. 2020", "Ghosh et al. 2020"]);
