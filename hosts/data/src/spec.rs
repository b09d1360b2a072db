//! The `data` section of a spec.
//!
//! ```
//! use fl_core::settings::read_yaml;
//! use fl_data::spec::{DataSpec, Split};
//! let spec: DataSpec = read_yaml("{set: glyphs, clients: 20, split: {dirichlet: {alpha: 0.5}}}").unwrap();
//! assert!(matches!(spec.split(), Split::Dirichlet(_)));
//! ```

pub(crate) use crate::spec_checks::{check, check_files, check_own, check_shares};

use crate::columns::alike;
use crate::domains::Domains;
use crate::partition::check_covering;
use crate::published;
use crate::set::{Problem, SetSpec};
use crate::set_spec::Use;
use crate::undersampled::Undersampled;
use fl_core::settings::{Step, above, between};
use fl_core::{Task, TaskKind};
use std::path::{Path, PathBuf};

/// More clients than this are a slip of the pen.
pub const MAX_CLIENTS: usize = 1_000_000;

/// Clients where a spec does not say how many.
pub const CLIENTS: usize = 10;

fl_core::settings! {
    /// What is learnt from, and who owns which part of it.
    #[check(DataSpec::check)]
    pub struct DataSpec {
        /// The set that the clients' data come from: its name, or `{name: settings}`.
        set: SetSpec;
        /// Number of clients; if not given 10, or with `split: by-file` one for each file.
        clients: Option<usize> = None, in 1..=MAX_CLIENTS;
        /// Numbers the classes anew before anything else is done: class `class-order[i]` of the files becomes class `i`. Who
        /// wins a tie (the lowest class) and what a split that goes class by class gives to whom depend on the numbers.
        class_order: Option<Vec<usize>> = None;
        /// Which client owns which samples. Every sample that is not public goes to exactly one client. If not given `iid`, or
        /// `by-file` for a set whose training rows are in several files.
        split: Option<Split> = None;
        /// Samples that everybody may see.
        public: Option<Public> = None;
        /// Instead of the set's own mean and standard deviation.
        normalise: Option<Normalise> = None;
        /// Use only a part of the set, for a quick run.
        limit: Limit = Limit::default();
        /// Share of each client's samples that the client sets aside for validation: `floor(share * samples)` of them,
        /// drawn at random. Selective-FD uses 0.05.
        validation: f64 = 0.0, in 0.0..1.0;
        /// Clients whose images look different, such as turned ones; if not given, all look alike.
        domains: Option<Domains> = None;
        /// The task becomes to make whole images of undersampled ones; if not given, it is the set's own.
        undersampled: Option<Undersampled> = None;
    }
}

fl_core::settings! {
    /// What is taken from each value before a model sees it: `(value - mean) / std`, per channel of an image (on the
    /// scale 0 to 1) or per column of a table.
    pub struct Normalise {
        /// One per channel or column.
        mean: Vec<f32>;
        /// One per channel or column.
        std: Vec<f32>, in above(0.0);
    }
}

fl_core::settings! {
    /// How many rows to use. They are the first of every class, as many as keep the classes' proportions: the rows of
    /// some sets are sorted by class, so the very first rows of the file would be of one class.
    pub struct Limit {
        /// Of the training rows; all if not given.
        train: Option<usize> = None, in 1..;
        /// Of the test rows; all if not given.
        test: Option<usize> = None, in 1..;
    }
}

impl Default for Limit {
    fn default() -> Self {
        fl_core::settings::defaults()
    }
}

fl_core::choices! {
    /// Which client owns which samples.
    pub enum Split {
        /// At random, parts as equal as can be.
        Iid = "iid",
        /// Each class is shared out by proportions drawn from a Dirichlet distribution. The smaller its parameter, the
        /// fewer clients share a class. A multi-label sample counts for its rarest positive finding; samples without a
        /// positive finding are a class of their own.
        Dirichlet(Dirichlet) = "dirichlet",
        /// Each client holds this many classes, in a cycle: `k, k + 1, ..`. A class is shared out in equal parts to the
        /// clients that hold it.
        Classes(usize, in 1..) = "classes",
        /// At random, parts of different sizes.
        Size(Sizes) = "size",
        /// Client `k` owns the rows of the set's training file (or folder) `k`: for `files`.
        ByFile = "by-file",
        /// Nobody gets any: each client owns what it says itself (`fl run --node`). What the set is for is to be learnt; its test
        /// rows and public samples are used, and its other training rows are not.
        Own = "own",
        /// A split whose counts were published: FedKD's of `cifar10` over 20 clients.
        Published(PublishedSplit) = "published",
    }
}

impl Split {
    /// Does it deal the rows of one set to the clients? One row less would deal all of them anew.
    pub fn deals(&self) -> bool {
        !matches!(self, Self::ByFile | Self::Own)
    }
}

fl_core::settings! {
    /// A Dirichlet split.
    pub struct Dirichlet {
        /// Parameter of the distribution.
        alpha: f64, in 1e-4..=1e6;
        /// Whose rule turns proportions into samples.
        reading: Reading = Reading::Plain;
        /// Draw again until every client owns at least this many; if not given, what the reading says.
        min_size: Option<usize> = None;
    }
}

fl_core::choices! {
    /// How papers turn Dirichlet proportions into samples.
    pub enum Reading {
        /// Selective-FD's text: each class is shuffled and cut at its cumulative proportions; nothing more.
        Plain = "plain",
        /// FedKD and FedIOD: data-set order, each part rounded down, no smallest size. The last client gets what rounding leaves
        /// of every class, which is a lot when there are many clients.
        Floor = "floor",
        /// FedKT and FedDF: each class is shuffled, clients that own their equal share already get nothing more of the
        /// classes that follow, and at least 10 samples each.
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

fl_core::settings! {
    /// The public samples.
    #[check(Public::check)]
    pub struct Public {
        /// Where they come from.
        from: PublicFrom;
        /// Are their labels public too (the labelled-public variant of FedKD)?
        labelled: bool = false;
        /// Keep only so many of them, drawn at random. The others are nobody's; `from: {count: ..}` leaves them to the
        /// clients.
        size: Option<usize> = None, in 1..;
        /// Keep only `floor(queries * (public + test))` of them, drawn at random: FedKT's fraction of queries. The
        /// others are nobody's.
        queries: Option<f64> = None, in 0.0..=1.0;
    }
}

fl_core::choices! {
    /// Where public samples come from.
    pub enum PublicFrom {
        /// This share of every class of the training rows; the clients own the others.
        Share(f64, in between(0.0, 1.0)) = "share",
        /// So many of the training rows, of every class in proportion; the clients own the others.
        Count(usize, in 1..) = "count",
        /// Half of the test rows, rounded down and drawn at random; the other half stays the test set (FedKT, images).
        HalfOfTest = "half-of-test",
        /// FedKT's split of a table: of the training rows 75 % for the clients, 12.5 % public, 12.5 % test. The set's
        /// own test rows are not used.
        Tabular = "tabular",
        /// The training rows of another set with inputs of the same shape.
        Set(SetSpec) = "set",
    }
}

impl Public {
    /// All samples of this origin, without labels.
    pub fn from(from: PublicFrom) -> Self {
        Self {
            from,
            labelled: false,
            size: None,
            queries: None,
        }
    }

    fn check(&self) -> Result<(), String> {
        match (self.size, self.queries) {
            (Some(_), Some(_)) => {
                Err("`size` and `queries` both say how many to keep; give one of them".into())
            }
            _ => Ok(()),
        }
    }
}

impl DataSpec {
    /// IID over `clients`, no public samples, the whole set with its own normalisation.
    pub fn iid(set: SetSpec, clients: usize) -> Self {
        Self {
            set,
            clients: Some(clients),
            class_order: None,
            split: Some(Split::Iid),
            public: None,
            normalise: None,
            limit: Limit::default(),
            validation: 0.0,
            domains: None,
            undersampled: None,
        }
    }

    /// How many clients there are.
    pub fn clients(&self) -> usize {
        let files = || match self.split() {
            Split::ByFile => self.set.sources(),
            _ => None,
        };
        self.clients.or_else(files).unwrap_or(CLIENTS)
    }

    /// How the samples are split.
    pub fn split(&self) -> Split {
        let own = || match self.set.sources() {
            Some(2..) => Split::ByFile,
            _ => Split::Iid,
        };
        self.split.clone().unwrap_or_else(own)
    }

    /// Settles what depends on where the spec is (relative paths: `folder` is the spec's) and on the files that it names.
    /// Returns what is wrong: where below `data`, and the mistake.
    pub fn resolve(&mut self, folder: &Path) -> Vec<Problem> {
        let below = |path: &[&str], problems: Vec<Problem>| {
            let path: Vec<Step> = path.iter().map(|key| Step::Key((*key).into())).collect();
            let add = |(rest, text)| (path.iter().cloned().chain(rest).collect(), text);
            problems.into_iter().map(add).collect::<Vec<Problem>>()
        };
        let mut problems = below(&["set"], self.set.resolve(folder, Use::Tested));
        if let Some(Public {
            from: PublicFrom::Set(set),
            labelled,
            ..
        }) = &mut self.public
        {
            let how = match labelled {
                true => Use::Labelled,
                false => Use::Unlabelled,
            };
            problems.extend(below(&["public", "from", "set"], set.resolve(folder, how)));
        }
        if problems.is_empty() {
            (self.clients, self.split) = (Some(self.clients()), Some(self.split()));
            if let Err(text) = self.check() {
                problems.push((Vec::new(), text));
            }
            problems.extend(crate::counts::too_many(self));
        }
        problems
    }

    /// The set that public samples come from, if they come from one of their own.
    pub(crate) fn public_set(&self) -> Option<&SetSpec> {
        match &self.public.as_ref()?.from {
            PublicFrom::Set(set) => Some(set),
            _ => None,
        }
    }

    fn sets(&self) -> impl Iterator<Item = &SetSpec> {
        [&self.set].into_iter().chain(self.public_set())
    }

    /// Every file that the data are read from, as far as it is there; `dir` is the data directory.
    pub fn paths(&self, dir: &Path) -> Vec<PathBuf> {
        self.sets().flat_map(|set| set.paths(dir)).collect()
    }

    /// Which published file is not in the data directory `dir`, and where to get it, before anything is read.
    pub fn missing(&self, dir: &Path) -> Option<String> {
        self.sets().find_map(|set| set.folder(dir).lacks())
    }

    /// What is to be learnt of rows of a set that is for `own`.
    ///
    /// # Errors
    /// When such rows cannot be undersampled.
    pub(crate) fn task_of(&self, own: Task) -> anyhow::Result<Task> {
        match &self.undersampled {
            Some(how) => how.task(&own),
            None => Ok(own),
        }
    }

    /// What several settings must fulfil together, as far as it is known without loading the set.
    fn check(&self) -> Result<(), String> {
        match self.set.task() {
            Some(own) => self.fits(&own),
            None => Ok(()), // again once the files have been read
        }
    }

    /// What several settings must fulfil together if this is what the set is for.
    pub(crate) fn fits(&self, own: &Task) -> Result<(), String> {
        let clients = self.clients();
        let pixels = own.kind.is_dense();
        let split = match &self.split() {
            Split::Classes(_) | Split::Dirichlet(_) if pixels => Err(anyhow::anyhow!(
                "an image of `{}` has a class, or a value, for every pixel, and none of its own to split by; use iid, size or by-file",
                self.set.name()
            )),
            Split::Classes(each) => {
                let groups = match own.kind {
                    TaskKind::Classes(n) => n,
                    TaskKind::MultiLabel(n) => n + 1, // and those without a finding
                    TaskKind::Pixels { .. } | TaskKind::Image { .. } => 1,
                };
                check_covering(clients, groups, *each)
            }
            Split::Size(Sizes::Shares(shares)) => check_shares(shares, clients),
            Split::Published(PublishedSplit { alpha, seed }) => {
                published::find(self.set.name(), *alpha, *seed)
                    .and_then(|table| table.check(clients))
            }
            Split::ByFile => check_files(self.set.name(), self.set.sources(), clients),
            Split::Own => check_own(self),
            Split::Iid | Split::Dirichlet(_) | Split::Size(Sizes::Power(_)) => Ok(()),
        };
        let order = match &self.class_order {
            Some(order) => self.check_order(order, own),
            None => Ok(()),
        };
        let normalise = match &self.normalise {
            Some(normalise) => self.set.check_normalise(own, normalise),
            None => Ok(()),
        };
        let public = match &self.public {
            Some(public) => public.fits(&self.set, own),
            None => Ok(()),
        };
        let domains = match &self.domains {
            Some(domains) => domains.check(own).map_err(anyhow::Error::msg),
            None => Ok(()),
        };
        let undersampled = match &self.undersampled {
            Some(_) if self.domains.is_some() => Err(anyhow::anyhow!(
                "images that are to be made again are not turned; leave `domains` out"
            )),
            Some(how) => how.task(own).map(drop),
            None => Ok(()),
        };
        let wrong: Vec<String> = [
            ("class-order", order),
            ("split", split),
            ("normalise", normalise),
            ("public", public),
            ("domains", domains),
            ("undersampled", undersampled),
        ]
        .into_iter()
        .filter_map(|(key, found)| Some(format!("`{key}`: {}", found.err()?)))
        .collect();
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(wrong.join("; "))
        }
    }

    /// Every class once, and nothing that goes by the files' numbers.
    fn check_order(&self, order: &[usize], own: &Task) -> anyhow::Result<()> {
        let TaskKind::Classes(n) = own.kind else {
            anyhow::bail!(
                "`{}` has not one class a row; leave it away",
                self.set.name()
            );
        };
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        anyhow::ensure!(
            sorted.iter().copied().eq(0..n),
            "{order:?}; it must name each of the classes 0 to {} of `{}` once",
            n - 1,
            self.set.name()
        );
        anyhow::ensure!(
            !matches!(self.split(), Split::Published(_)),
            "a published split goes by the files' numbers; leave it away"
        );
        Ok(())
    }
}

impl Public {
    /// Do these samples go with those of the clients?
    fn fits(&self, private: &SetSpec, own: &Task) -> anyhow::Result<()> {
        let PublicFrom::Set(set) = &self.from else {
            return Ok(());
        };
        let Some(other) = set.task() else {
            return Ok(()); // as above
        };
        anyhow::ensure!(
            other.input == own.input,
            "rows of `{}` have shape {:?}, the private ones {:?}; they must be equal",
            set.name(),
            other.input,
            own.input
        );
        anyhow::ensure!(
            !self.labelled || other.kind == own.kind,
            "labels of `{}` are of another task ({}) than the private ones ({}); leave `labelled` away",
            set.name(),
            other.kind,
            own.kind
        );
        alike(set.columns(), private.columns())?;
        let classes = [set, private].map(SetSpec::classes);
        anyhow::ensure!(
            !self.labelled || classes.iter().any(|of| of.is_empty()) || classes[0] == classes[1],
            "classes are {}, and the clients' {}; say the same `classes` of both, in one order",
            classes[0].join(", "),
            classes[1].join(", ")
        );
        Ok(())
    }
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
