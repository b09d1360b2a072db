#![doc = include_str!("../README.md")]

mod feature_rounds;
mod fedgh;
mod fedproto;
mod fedtgp;
mod last_layer;
mod means;
mod protocol;
mod prototype_network;
mod prototypes;

pub use feature_rounds::{FeatureMethod, FeatureRounds};
pub use fedgh::FedGh;
pub use fedproto::FedProto;
pub use fedtgp::{Trainable, TrainablePrototypes};
pub use means::{MeanOfClasses, Which, agrees, mean_of_classes};
pub use protocol::ClassDistill;
pub use prototype_network::Network;
pub use prototypes::{FeatureMeans, MeanOfFeatures, Near, Prototypes};

fl_core::export_plugins!();
