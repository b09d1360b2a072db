//! What published methods cost, as their papers count it: the counting that gives the numbers they print.
//!
//! A run counts its own bytes exactly and in both directions ([`crate::message::bytes`]). These are the papers' formulas,
//! for comparing with their tables and for planning: `width` is the bytes of one number (the papers take 4 or 8) and
//! `copies` how often everything travels. No paper counts the bits of its quantiser; [`packed_logits`] does.

use crate::message::Grid;

/// A unit that papers print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 10^6 bytes (FedKT).
    Megabyte,
    /// 10^9 bytes.
    Gigabyte,
    /// 2^20 bytes (FedKD's tables of texts).
    Mebibyte,
    /// 2^30 bytes (FedKD's rows of parameter methods).
    Gibibyte,
    /// 1024 * 10^6 bytes: the unit that FedKD's rows of logit methods turn out to have.
    MixedGigabyte,
}

impl Unit {
    /// As the vectors in `tests/reference/bandwidth.json` write it: `MB`, `GB`, `MiB`, `GiB`, `GB_mixed`.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "MB" => Self::Megabyte,
            "GB" => Self::Gigabyte,
            "MiB" => Self::Mebibyte,
            "GiB" => Self::Gibibyte,
            "GB_mixed" => Self::MixedGigabyte,
            _ => return None,
        })
    }

    /// Bytes of one.
    pub fn bytes(self) -> f64 {
        match self {
            Self::Megabyte => 1e6,
            Self::Gigabyte => 1e9,
            Self::Mebibyte => 1_048_576.0,
            Self::Gibibyte => 1_073_741_824.0,
            Self::MixedGigabyte => 1024e6,
        }
    }

    /// So many bytes in this unit.
    pub fn of(self, bytes: u64) -> f64 {
        bytes as f64 / self.bytes()
    }
}

/// Scores of `samples` public samples from every client: FedKD with one copy for each pass over the public samples, FedMD
/// with two for each round in which a client takes part.
pub fn logits(samples: u64, classes: u64, clients: u64, width: u64, copies: u64) -> u64 {
    samples * classes * clients * width * copies
}

/// Bits of one packed score, and bytes of the scores of all clients, each of which packs its own.
pub fn packed_logits(samples: u64, classes: u64, clients: u64, levels: u32) -> (u32, u64) {
    let grid = Grid {
        levels,
        lowest: 0.0,
        step: 1.0,
    };
    (
        grid.bits(),
        clients * (samples * classes * u64::from(grid.bits())).div_ceil(8),
    )
}

/// Parameters to and from every client; `copies` counts both directions.
pub fn parameters(count: u64, clients: u64, width: u64, copies: u64) -> u64 {
    count * clients * width * copies
}

/// How many clients take part in a round: the share rounded, at least one.
pub fn participants(clients: u64, share: f64) -> u64 {
    ((clients as f64 * share).round() as u64).max(1)
}

/// A run of FedAvg, and of FedAvgM, FedProx and FedDF, whose rounds cost the same: down and up for every participant.
pub fn fedavg(count: u64, clients: u64, width: u64, rounds: u64, share: f64) -> u64 {
    parameters(count, participants(clients, share), width, 2 * rounds)
}

/// A run of SCAFFOLD: control variates travel with the parameters, both ways.
pub fn scaffold(count: u64, clients: u64, width: u64, rounds: u64, share: f64) -> u64 {
    2 * fedavg(count, clients, width, rounds, share)
}

/// FedKT: the final model to, and `students` models from, every party, once.
pub fn fedkt(model_bytes: u64, parties: u64, students: u64) -> u64 {
    parties * (students + 1) * model_bytes
}

/// Rounds of FedAvg that cost as much as FedKT.
pub fn fedkt_break_even(students: u64) -> f64 {
    (students + 1) as f64 / 2.0
}

/// Parameters of FedKD's published ResNet-8 that its predictions do not use and its tables count: a second classifier on
/// the 2048 features, and an embedding of the classes in themselves.
pub fn unused_in_fedkd_resnet(classes: u64) -> u64 {
    2048 * classes + classes + classes * classes
}

/// Parameters of the uncased DistilBERT base with its classifier (Sanh et al. 2019), which FedKD's tables of texts count
/// and no trainer here trains.
pub fn distilbert(classes: u64) -> u64 {
    let (words, places, width, inner, blocks) = (30_522, 512, 768, 3072, 6);
    let linear = |from: u64, to: u64| from * to + to;
    let norm = 2 * width;
    let block = 4 * linear(width, width) + linear(width, inner) + linear(inner, width) + 2 * norm;
    (words + places) * width + norm + blocks * block + linear(width, width) + linear(width, classes)
}
