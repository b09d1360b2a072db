//! IFCA: clients choose their centre (Ghosh et al. 2020, algorithm 1).
use crate::Centres;
use crate::clusters::{
    AGGREGATOR, COHORT, ClusterRule, ClusterSettings, Clusters, InRound, MODEL, Shared,
};
use crate::em;
use fl_core::prelude::*;
use std::collections::BTreeMap;

settings! {
    /// Rounds of parameter averaging with several centres; a client gets all of them and belongs to
    /// the one with the least loss on its own examples (IFCA, Ghosh et al. 2020).
    pub struct Ifca {}
}

const CHOOSE: Exchange<Centres, Scalar> = Exchange::new("the centre with the least loss");
const TRAIN_CHOSEN: Exchange<Nothing, Params> =
    Exchange::new("parameters after training from the chosen centre");

impl ClusterRule for Ifca {
    // in the first of them the centres are chosen, and only then clients choose among them
    const LEAST: usize = 2;

    fn rounds_from_one(&self, family: &ClusterSettings) -> usize {
        match family.clusters {
            1 => family.rounds,
            // the first round with several centres still begins with one
            _ => (family.warm_up + 1).min(family.rounds),
        }
    }

    fn declare<'p>(&'p self, family: &'p ClusterSettings, all: Declaration<'p>) -> Declaration<'p> {
        let times = family.rounds - self.rounds_from_one(family);
        let choose = || {
            let choose = CHOOSE.answered_by(choose);
            choose.to(&COHORT).times(times).copies(family.clusters)
        };
        let train = || {
            let train = TRAIN_CHOSEN.answered_by(|client, _| {
                let centre = client.unstash("chosen")?;
                let centre: Params = centre.context("no centre was chosen before")?;
                family.train(client, &centre)
            });
            train.to(&COHORT).times(times).trains().into(&AGGREGATOR)
        };
        all.exchange_if(times > 0, choose)
            .exchange_if(times > 0, train)
    }

    fn divide(&self, mut run: InRound<'_, '_>, trained: &Inbox<Params>) -> Result<()> {
        // in the next round, clients choose among them
        run.first_centres(trained, &[], 1).map(drop)
    }

    fn round(&self, mut run: InRound<'_, '_>) -> Result<()> {
        let (server, round) = (&mut *run.server, run.round);
        let sent = Centres(run.state.centres.clone());
        let n = sent.0.len();
        let mut of = BTreeMap::new();
        for mail in server.collect(round, &CHOOSE, |_| &sent)?.iter() {
            let at = mail.body.value();
            ensure!(
                at >= 0.0 && at.fract() == 0.0 && (at as usize) < n,
                "client {} chose centre {at} of {n}",
                mail.from
            );
            of.insert(mail.from, at as usize);
        }
        let those: Vec<ClientId> = of.keys().copied().collect();
        let trained = server.collect_from(round, &TRAIN_CHOSEN, &those, |_| &Nothing)?;
        let of: Vec<usize> = trained.iter().map(|mail| of[&mail.from]).collect();
        run.maximise(&trained, &of)?;
        run.remember(&trained, &of)
    }
}
plugin!(protocol "ifca" => Shared<Ifca> as Clusters<Ifca>, papers: ["Ghosh et al. 2020"]);

/// Returns the position of the centre with the least loss on the client's own examples.
fn choose(client: &mut Client, centres: &Centres) -> Result<Scalar> {
    let mut losses = Vec::with_capacity(centres.0.len());
    for centre in &centres.0 {
        client.parametric(&MODEL)?.set_params(centre)?;
        losses.push(client.own_loss(&MODEL)?);
    }
    let chosen = em::least(&losses);
    client.stash("chosen", &centres.0[chosen]);
    Ok(Scalar::new(chosen as f32))
}
