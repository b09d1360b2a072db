//! All methods of the family in one protocol, chosen by settings.
use crate::adaptive_clip::AdaptiveClip;
use crate::dp_fedavg::{self, DpFedAvg};
use crate::feddf::FedDf;
use crate::fedgen::{FedGen, GENERATOR};
use crate::fednova::FedNova;
use crate::rounds::average;
use crate::rounds::{Family, RoundRule, Rounds, Shared};
use crate::scaffold::Scaffold;
use crate::server_sum::SERVER_PRIVACY;
use fl_core::prelude::*;

choices! {
    /// The correction of client drift.
    pub enum Correction {
        /// None (FedAvg); FedProx's `mu` limits the drift.
        None = "none",
        /// Control variates at the server and at every client correct each step (SCAFFOLD,
        /// Karimireddy et al. 2020).
        Scaffold(Scaffold) = "scaffold",
        /// More steps of a client count no more (FedNova, Wang et al. 2020).
        Nova(FedNova) = "nova",
    }
}

settings! {
    /// In every round clients train from the server's parameters, and the server combines theirs
    /// (FedAvg, McMahan et al. 2017; FedProx with `mu`, Li et al. 2020; SCAFFOLD and FedNova with
    /// `correction`; FedDF with `fuse`, Lin et al. 2020; FedGEN with `generate`, Zhu et al. 2021).
    pub struct ParamRounds {
        /// FedProx: adds `mu / 2 * |w - w_server|^2` to the local loss; 0 is FedAvg. FedKT's
        /// comparison uses 0.1.
        mu: f64 = 0.0, in 0.0..=1e6;
        /// The correction of client drift.
        correction: Correction = Correction::None;
        /// DP-FedAvg, with `parts.server-privacy`: the bound of updates follows a quantile of their
        /// norms, and the mechanism's own `clip` must be 1.
        adaptive: Option<AdaptiveClip> = None;
        /// FedDF: after the parameters are combined, the server's model learns from the ensemble of
        /// the clients' models on the public samples.
        fuse: Option<FedDf> = None;
        /// FedGEN: clients also learn from made features; the server trains `parts.generator` to
        /// make them.
        generate: Option<FedGen> = None;
    }
}

/// The server's state, for every method.
pub type State = (Option<Params>, Option<f64>, bool);

impl RoundRule for ParamRounds {
    type State = State;

    fn mu(&self) -> f64 {
        self.mu
    }

    fn declare<'p>(&'p self, family: Family<'p>, all: Declaration<'p>) -> Declaration<'p> {
        let all = dp_fedavg::exchanges(self.adaptive.as_ref(), family, all);
        let all = all.measures(self.fuse.as_ref().and_then(FedDf::measures));
        let generator = GENERATOR.spec().shared_parameters().at_server().optional();
        match (&self.correction, &self.generate) {
            (Correction::Scaffold(scaffold), _) => scaffold.declare(family, all.slot(generator)),
            (Correction::Nova(nova), _) => nova.declare(family, all.slot(generator)),
            (Correction::None, Some(generate)) => generate.declare(family, all),
            (Correction::None, None) => all
                .slot(generator)
                .exchange(family.trains_plainly().unless_filled(&SERVER_PRIVACY)),
        }
    }

    fn round(
        &self,
        family: Family<'_>,
        server: &mut Server<'_>,
        round: &Round,
        cohort: &Cohort,
        model: &mut Params,
        state: &mut State,
    ) -> Result<()> {
        let (control, bound, taught) = state;
        if server.has(&SERVER_PRIVACY) {
            return self
                .summed()
                .round(family, server, round, cohort, model, bound);
        }
        match (&self.correction, &self.fuse, &self.generate) {
            (Correction::Scaffold(rule), ..) => {
                rule.round(family, server, round, cohort, model, control)
            }
            (Correction::Nova(rule), ..) => {
                rule.round(family, server, round, cohort, model, &mut ())
            }
            (_, Some(rule), _) => rule.round(family, server, round, cohort, model, &mut ()),
            (.., Some(rule)) => rule.round(family, server, round, cohort, model, taught),
            _ => average(server, round, cohort, model),
        }
    }

    fn empty_round(
        &self,
        family: Family<'_>,
        server: &mut Server<'_>,
        round: &Round,
        cohort: &Cohort,
        model: &mut Params,
        (_, bound, _): &mut State,
    ) -> Result<()> {
        match server.has(&SERVER_PRIVACY) {
            true => self
                .summed()
                .round(family, server, round, cohort, model, bound),
            false => Ok(()),
        }
    }

    fn model(&self, slot: SlotSpec) -> SlotSpec {
        let slot = match &self.correction {
            Correction::None => slot,
            Correction::Scaffold(rule) => rule.model(slot),
            Correction::Nova(rule) => rule.model(slot),
        };
        match &self.generate {
            Some(rule) => rule.model(slot),
            None => slot,
        }
    }

    fn corrects(&self) -> bool {
        self.correction != Correction::None
    }

    fn conflicts(&self, family: Family<'_>, has: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let (corrected, fused) = (self.corrects(), self.fuse.is_some());
        let summed = has(&SERVER_PRIVACY);
        let mut all = match (&self.correction, &self.fuse) {
            (Correction::Scaffold(rule), _) => rule.conflicts(family, has),
            (Correction::Nova(rule), _) => rule.conflicts(family, has),
            (Correction::None, Some(rule)) => rule.conflicts(family, has),
            (Correction::None, None) => Vec::new(),
        };
        if let Some(rule) = &self.generate {
            let corrected = Conflict::at("generate", "adds a loss to the training of clients, which `correction` does not account for: leave one of the two out").when(self.corrects());
            let both = Conflict::at("generate", "and `fuse` both teach the server what the clients' models say together: leave one of the two out").when(fused);
            match corrected.or(both).filter(|_| has(&GENERATOR)) {
                Some(conflict) => all.push(conflict),
                None => all.extend(rule.conflicts(family, has)),
            }
        }
        if summed {
            all.extend(self.summed().conflicts(family, has));
        }
        let rest = [
            Conflict::at("fuse", "learns from the clients' parameters as they are: leave out `correction`, or `fuse`").when(fused && corrected),
            dp_fedavg::only_sum().when(summed && (corrected || fused) && !has("attack")),
            Conflict::idle("adaptive", &SERVER_PRIVACY).when(self.adaptive.is_some() && !summed),
            Conflict::between("a generator (`parts.generator`) makes features for `generate` only: set it, or leave the generator out").when(self.generate.is_none() && has(&GENERATOR)),
        ];
        all.extend(rest.into_iter().flatten());
        all
    }

    fn suits_dense(&self) -> std::result::Result<(), String> {
        self.fuse.as_ref().map_or(Ok(()), RoundRule::suits_dense)?;
        self.generate
            .as_ref()
            .map_or(Ok(()), RoundRule::suits_dense)
    }
}
plugin!(protocol "param-rounds" => Shared<ParamRounds> as Rounds<ParamRounds>,
    papers: ["McMahan et al. 2017", "Li et al. 2020", "Lin et al. 2020", "Zhu et al. 2021"]);

impl ParamRounds {
    fn summed(&self) -> DpFedAvg {
        DpFedAvg {
            adaptive: self.adaptive.clone(),
        }
    }
}
