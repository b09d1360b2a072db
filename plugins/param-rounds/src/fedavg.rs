//! FedAvg (McMahan et al. 2017, algorithm 1).
use crate::rounds::{RoundRule, Rounds, Shared};
use fl_core::prelude::*;

settings! {
    /// In every round clients train from the server's parameters, and the server combines theirs
    /// (FedAvg, McMahan et al. 2017). With `share`, each client keeps a part of the model as its own
    /// (FedPer, Arivazhagan et al. 2019; LG-FedAvg, Liang et al. 2020; FedBN, Li et al. 2021;
    /// FedBABU, Oh et al. 2022).
    pub struct FedAvg {}
}

impl RoundRule for FedAvg {
    type State = ();
}
plugin!(protocol "fedavg" => Shared<FedAvg> as Rounds<FedAvg>,
aliases: [
    "fedper": "share: [body]",
    "lg-fedavg": "share: [head]",
    "fedbn": "share: [-norm]",
    "fedbabu": "{share: [body], freeze-rest: true, tune: {epochs: 5}}",
],
papers: [
    "McMahan et al. 2017",
    "Arivazhagan et al. 2019",
    "Liang et al. 2020",
    "Li et al. 2021",
    "Oh et al. 2022",
]);
