#![doc = include_str!("../README.md")]

mod fedgh;
mod fedproto;
mod last_layer;
mod means;
mod protocol;
mod prototypes;

pub use fedgh::FedGh;
pub use fedproto::FedProto;
pub use means::{MeanOfClasses, Which, agrees, mean_of_classes};
pub use protocol::ClassDistill;
pub use prototypes::{FeatureMeans, MeanOfFeatures, Near, Prototypes};

fl_core::export_plugins!();
