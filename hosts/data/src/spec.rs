//! What a spec says about its data: plain values, checked where they are used.

use crate::sets::SetSpec;

/// The whole `data` section of a spec.
#[derive(Clone, Debug, PartialEq)]
pub struct DataSpec {
    /// The set that the clients' data come from.
    pub set: SetSpec,
    /// Number of clients, at least 1.
    pub clients: usize,
    /// Which client owns which samples.
    pub split: Split,
    /// Samples that everybody may see.
    pub public: Option<Public>,
    /// Instead of the set's own mean and standard deviation.
    pub normalise: Option<Normalise>,
    /// Use only a part of the set, for a quick run.
    pub limit: Limit,
    /// Share of each client's samples that the client sets aside for validation, in `0..1`; drawn at random,
    /// `floor(share * samples)` of them. Selective-FD uses 0.05.
    pub validation: f64,
}

impl DataSpec {
    /// IID over `clients`, no public samples, the whole set with its own normalisation.
    pub fn iid(set: SetSpec, clients: usize) -> Self {
        Self {
            set,
            clients,
            split: Split::Iid,
            public: None,
            normalise: None,
            limit: Limit::default(),
            validation: 0.0,
        }
    }
}

/// What is taken from each value before a model sees it: `(value - mean) / std`, per channel of an image (on the
/// scale 0 to 1) or per column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalise {
    /// One per channel or column; finite.
    pub mean: Vec<f32>,
    /// One per channel or column; above 0.
    pub std: Vec<f32>,
}

/// How many rows to use. They are the first of every class, as many as keep the classes' proportions: the rows of
/// some sets are sorted by class, so the very first rows of the file would be of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// Of the training rows; all if `None`.
    pub train: Option<usize>,
    /// Of the test rows; all if `None`.
    pub test: Option<usize>,
}

/// Which client owns which samples. Every sample that is not public goes to exactly one client.
#[derive(Clone, Debug, PartialEq)]
pub enum Split {
    /// At random, parts as equal as can be.
    Iid,
    /// Each class is shared out by proportions drawn from a Dirichlet distribution. The smaller its parameter, the
    /// fewer clients share a class. A multi-label sample counts for its rarest positive finding; samples without a
    /// positive finding are a class of their own.
    Dirichlet(Dirichlet),
    /// Each client holds the same number of classes, in a cycle: `k, k + 1, ..`. A class is shared out in equal
    /// parts to the clients that hold it.
    Classes {
        /// In `1..=classes`.
        per_client: usize,
    },
    /// At random, parts of different sizes.
    Size(Sizes),
    /// A split whose counts were published: see [`crate::published`].
    Published {
        /// Parameter of the published draw.
        alpha: f64,
        /// Number of the published draw.
        seed: u64,
    },
}

/// A Dirichlet split.
#[derive(Clone, Debug, PartialEq)]
pub struct Dirichlet {
    /// Parameter of the distribution, in `1e-4..=1e6`.
    pub alpha: f64,
    /// Whose rule turns proportions into samples.
    pub reading: Reading,
    /// Draw again until every client owns at least this many; if `None`, what the reading says.
    pub min_size: Option<usize>,
}

/// How papers turn Dirichlet proportions into samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// FedKD and FedIOD: data-set order, each part rounded down, the last client gets the rest, no smallest size.
    #[default]
    Floor,
    /// FedKT and FedDF: each class is shuffled, clients that own their equal share already get nothing more of the
    /// classes that follow, and at least 10 samples each.
    Balanced,
    /// Selective-FD: each class is shuffled, and no more than that.
    Plain,
}

impl Reading {
    /// The smallest client that the reading accepts.
    pub fn min_size(self) -> usize {
        match self {
            Self::Balanced => 10,
            Self::Floor | Self::Plain => 0,
        }
    }
}

/// Sizes of clients that draw their samples at random.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// Client `k` gets a share in proportion to `(k + 1)^-exponent`; at least 0, and 0 is IID.
    Power(f64),
    /// One share per client, on any scale.
    Shares(Vec<f64>),
}

/// The public samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Public {
    /// Where they come from.
    pub from: PublicFrom,
    /// Are their labels public too (the labelled-public variant of FedKD)?
    pub labels: bool,
    /// Keep only `floor(queries * (public + test))` of them, drawn at random; in `0..=1`. FedKT's fraction of queries.
    pub queries: Option<f64>,
}

impl Public {
    /// All samples of this origin, without labels.
    pub fn from(from: PublicFrom) -> Self {
        Self {
            from,
            labels: false,
            queries: None,
        }
    }
}

/// Where public samples come from.
#[derive(Clone, Debug, PartialEq)]
pub enum PublicFrom {
    /// This share, above 0 and below 1, of every class of the training rows; the clients share the others.
    Share(f64),
    /// Half of the test rows, rounded down and drawn at random; the other half stays the test set (FedKT, images).
    HalfOfTest,
    /// FedKT's split of a table: of the training rows 75 % for the clients, 12.5 % public, 12.5 % test. The set's own
    /// test rows are not used.
    Tabular,
    /// The training rows of another set with inputs of the same shape.
    Set {
        /// The other set.
        set: SetSpec,
        /// How many of its rows, drawn at random; all if `None`.
        size: Option<usize>,
    },
}
