//! Which client owns which samples, as a spec says it.

use fl_core::settings::above;

/// More clients than this are a slip of the pen.
pub const MAX_CLIENTS: usize = 1_000_000;

fl_core::choices! {
    /// Which client owns which samples.
    pub enum Split {
        /// At random, parts as equal as can be.
        Iid = "iid",
        /// Each class is shared out by proportions drawn from a Dirichlet distribution. The smaller
        /// its parameter, the fewer clients share a class. A multi-label sample counts for its
        /// rarest positive finding; samples without a positive finding are a class of their own.
        Dirichlet(Dirichlet) = "dirichlet",
        /// Each client holds this many classes, in a cycle: `k, k + 1, ..`. A class is shared out
        /// in equal parts to the clients that hold it.
        Classes(usize, in 1..) = "classes",
        /// Client `k` holds class `k` modulo the number of classes, and others at random, this many
        /// in all. A class is shared out in equal parts to the clients that hold it (NIID-Bench,
        /// Li et al. 2022).
        RandomClasses(usize, in 1..) = "random-classes",
        /// Each client holds this many classes. Class after class goes to the next clients that
        /// hold fewer, `clients * this / classes` of them, rounded up. The last of them gets what
        /// the others leave, whose parts are drawn between a tenth of an equal part and an equal
        /// part (PFLlib's `pat`, unbalanced; its least part of a few rows is left out).
        ClassBlocks(usize, in 1..) = "class-blocks",
        /// The samples in the order of their classes are cut into `clients * this` parts, as equal
        /// as can be, and each client gets this many of them at random (McMahan et al. 2017: 2).
        Shards(usize, in 1..=10_000) = "shards",
        /// At random, parts of different sizes.
        Size(Sizes) = "size",
        /// Client `k` owns the rows of the set's training file (or folder) `k`: for `files`.
        ByFile = "by-file",
        /// Each client owns the rows of whole users, where the set's rows name theirs, as LEAF's
        /// files do. Client `k` is user `k`; if `clients` says fewer, users are dealt at random, as
        /// evenly as can be.
        ByUser = "by-user",
        /// Each client owns the rows of its node file (`fl run --node`). The set gives the task,
        /// the test rows and the public samples; its other training rows are not used.
        Own = "own",
        /// A split whose counts were published: FedKD's of `cifar10` over 20 clients.
        Published(PublishedSplit) = "published",
    }
}

impl Split {
    /// Does it deal the rows of one set to the clients? One row less would deal all of them anew.
    /// [`DataSpec::deals`](crate::DataSpec::deals) knows of users too.
    pub(crate) fn deals(&self) -> bool {
        !matches!(self, Self::ByFile | Self::ByUser | Self::Own)
    }

    /// Does it look at the samples' classes?
    pub(crate) fn by_class(&self) -> bool {
        match self {
            Self::Dirichlet(_) | Self::Classes(_) | Self::RandomClasses(_) => true,
            Self::ClassBlocks(_) | Self::Shards(_) => true,
            Self::Iid | Self::Size(_) | Self::ByFile | Self::ByUser | Self::Own => false,
            Self::Published(_) => false,
        }
    }
}

fl_core::settings! {
    /// A Dirichlet split.
    pub struct Dirichlet {
        /// Parameter of the distribution.
        alpha: f64, in 1e-4..=1e6;
        /// The paper whose rule turns proportions into samples.
        reading: Reading = Reading::Plain;
        /// Draw again until every client owns at least this many; if not given, that of the
        /// reading.
        min_size: Option<usize> = None;
    }
}

fl_core::choices! {
    /// How papers turn Dirichlet proportions into samples.
    pub enum Reading {
        /// Selective-FD's text: each class is shuffled and cut at its cumulative proportions;
        /// nothing more.
        Plain = "plain",
        /// FedKD and FedIOD: data-set order, each part rounded down, no smallest size. The last
        /// client gets what rounding leaves of every class, which is a lot when there are many
        /// clients.
        Floor = "floor",
        /// FedKT and FedDF: each class is shuffled, and a client that already owns an equal share
        /// gets nothing more of later classes. Every client gets at least 10 samples.
        Balanced = "balanced",
    }
}

fl_core::choices! {
    /// Sizes of clients that draw their samples at random.
    pub enum Sizes {
        /// Client `k` (from 0) gets a share in proportion to `(k + 1)^-power`; 0 is IID.
        Power(f64, in 0.0..) = "power",
        /// One share per client, on any scale.
        Shares(Vec<f64>, in 0.0..) = "shares",
        /// Shares drawn from a Dirichlet distribution with this parameter, and drawn again until
        /// every client owns at least 10 samples (NIID-Bench's quantity skew: 0.5).
        Dirichlet(f64, in 1e-4..=1e6) = "dirichlet",
    }
}

fl_core::settings! {
    /// Which published split.
    pub struct PublishedSplit {
        /// Parameter of the published draw.
        alpha: f64, in above(0.0);
        /// Number of the published draw.
        seed: u64 = 1;
    }
}

impl Reading {
    /// The smallest client that the reading accepts.
    pub fn min_size(&self) -> usize {
        match self {
            Self::Balanced => 10,
            Self::Floor | Self::Plain => 0,
        }
    }
}

/// One file for each client.
pub(crate) fn check_files(set: &str, files: Option<usize>, clients: usize) -> anyhow::Result<()> {
    let Some(files) = files else {
        anyhow::bail!(
            "by-file is for sets that are read from a file for each client, and `{set}` is not; take another split"
        );
    };
    anyhow::ensure!(
        files == clients,
        "by-file gives each client a file of its own, and there are {files} training files for {clients} clients; leave \
         `clients` out, or say how they are shared out (`split: iid`)"
    );
    Ok(())
}

/// At least one user for each client.
pub(crate) fn check_users(set: &str, users: Option<usize>, clients: usize) -> anyhow::Result<()> {
    let Some(users) = users else {
        anyhow::bail!(
            "by-user is for sets whose rows name their users, such as files of `leaf`, and `{set}` does not; take another split"
        );
    };
    anyhow::ensure!(
        clients <= users,
        "by-user gives each client the rows of whole users, and there are {users} users for {clients} clients; take fewer \
         clients, or leave `clients` out"
    );
    Ok(())
}

/// One share for each client, not all 0.
pub(crate) fn check_shares(shares: &[f64], clients: usize) -> anyhow::Result<()> {
    anyhow::ensure!(
        shares.len() == clients,
        "{} shares for {clients} clients; there must be one for each",
        shares.len()
    );
    let sum: f64 = shares.iter().sum();
    anyhow::ensure!(
        sum > 0.0 && sum.is_finite(),
        "the shares sum to {sum}; they must not all be 0"
    );
    Ok(())
}
