//! The settings of a network.

use crate::cuda::Device;
use fl_core::augment::Augment;
use fl_core::settings;
use fl_core::settings::above;
use fl_nets::net::NetSpec;
use fl_nets::optim::{Adam, Rule, Schedule};

settings! {
    /// A neural network, trained on one thread or on one card.
    pub struct DfdxSettings {
        /// Name of a network, such as `lenet` (`fl inspect lenet`), or its layers.
        net: NetSpec;
        /// The optimiser. Default: Adam with rate 0.001 (FedMD; FedKT; FedKD's and FedDF's
        /// distillation).
        optimiser: Rule = Rule::Adam(Adam { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0 });
        /// The schedule of the learning rate. Default: constant (FedKT, FedDF).
        schedule: Schedule = Schedule::Constant;
        /// Random changes to training images, in this order. Default: none (FedKT, Selective-FD).
        augment: Vec<Augment> = vec![];
        /// For tasks with a class for every pixel: adds this many times the Dice loss to
        /// cross-entropy. Default: none. FedIOD on BraTS: 1.
        dice: Option<f64> = None, in above(0.0);
        /// Samples per prediction batch; affects memory and speed, and results only by rounding.
        predict_batch: usize = 256, in 1..;
        /// Where it runs: `cpu`, or an NVIDIA card, `cuda`, `cuda:1` and so on. Affects only the
        /// speed.
        device: Device = Device::Cpu;
    }
}
