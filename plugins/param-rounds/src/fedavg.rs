//! FedAvg (McMahan et al. 2017, algorithm 1).
use crate::local::Extra;
use crate::rounds::{Family, RoundRule, Rounds, Shared};
use fl_core::prelude::*;

settings! {
    /// In every round clients train from the server's parameters, and the server combines theirs
    /// (FedAvg, McMahan et al. 2017).
    pub struct FedAvg {}
}

impl<'p> Family<'p> {
    /// Declares FedAvg's exchange with FedAvg's training.
    pub(crate) fn trains_plainly(self) -> Declared<'p, Params, Params> {
        self.trains(move |client, examples, global| {
            let trained = self.train(client, examples, global, Extra::default())?;
            Ok(trained.params)
        })
    }
}

impl RoundRule for FedAvg {
    type State = ();
}
plugin!(protocol "fedavg" => Shared<FedAvg> as Rounds<FedAvg>, papers: ["McMahan et al. 2017"]);
