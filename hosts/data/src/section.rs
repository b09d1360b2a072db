//! The `data` section of a spec.
//!
//! ```
//! use fl_core::settings::read_yaml;
//! use fl_data::{DataSpec, Split};
//! use fl_plugin_data_synthetic as _;
//! let text = "{set: glyphs, clients: 20, split: {dirichlet: {alpha: 0.5}}}";
//! let spec: DataSpec = read_yaml(text).unwrap();
//! assert!(matches!(spec.split(), Split::Dirichlet(_)));
//! ```

use crate::domains::Domains;
use crate::feature_noise::FeatureNoise;
use crate::features::Features;
use crate::kept_model::KeptModel;
use crate::partition::{check_covering, check_first_classes, class_blocks};
use crate::public::{Public, PublicFrom};
use crate::public_size::too_many;
use crate::published;
use crate::rows::cut;
use crate::split_spec::{
    MAX_CLIENTS, PublishedSplit, Sizes, Split, check_files, check_shares, check_users,
};
use crate::test_rows::{OwnTests, OwnTestsOf};
use crate::undersampled::Undersampled;
use anyhow::{Error, Result, anyhow, bail, ensure};
use fl_core::settings::Step;
use fl_core::{Examples, Stream, Task, TaskKind};
use fl_data_kit::{Normalise, SetSpec, Use, dataset::Problem};
use std::path::{Path, PathBuf};

/// Clients where a spec does not say how many.
pub const CLIENTS: usize = 10;

fl_core::settings! {
    /// The data set, and each client's part of it.
    pub struct DataSpec {
        /// The set that the clients' data come from: its name, or `{name: settings}`.
        set: SetSpec;
        /// Number of clients; if not given 10, or one for each file with `split: by-file`,
        /// and for each user with `by-user`.
        clients: Option<usize> = None, in 1..=MAX_CLIENTS;
        /// Renumbers the classes first of all: class `class-order[i]` of the
        /// files becomes class `i`. Ties (the lowest class wins) and splits class by class
        /// depend on the numbers.
        class_order: Option<Vec<usize>> = None;
        /// Which client owns which samples. Every sample that is not public goes to exactly one
        /// client. If not given `iid`; `by-file` for a set whose training rows are in several
        /// files; `by-user` for one whose rows name their users.
        split: Option<Split> = None;
        /// For labels that are numbers, with a split by class: puts the rows into so many groups of
        /// the same size, from the smallest label to the largest, each of which counts as a class.
        /// Rows with one label are in one group.
        label_groups: Option<usize> = None, in 2..=10_000;
        /// Samples that all clients and the server may see.
        public: Option<Public> = None;
        /// Instead of the set's own mean and standard deviation.
        normalise: Option<Normalise> = None;
        /// Use only a part of the set, for a quick run.
        limit: Limit = Limit::default();
        /// Share of each client's samples that the client sets aside for validation:
        /// `floor(share * samples)` of them, drawn at random. No part uses them: the clients train
        /// on fewer. Selective-FD: 0.05.
        validation: f64 = 0.0, in 0.0..1.0;
        /// Test rows of each client's own. If not given, all clients share the set's test rows.
        test: Option<OwnTests> = None;
        /// Clients whose images look different, such as turned ones; if not given, all look alike.
        domains: Option<Domains> = None;
        /// Noise on the inputs of each client, on every client's more than on the one before; if
        /// not given, none.
        feature_noise: Option<FeatureNoise> = None;
        /// Makes the task the reconstruction of whole images from undersampled ones. If not given,
        /// the task is the set's own.
        undersampled: Option<Undersampled> = None;
        /// Puts features that are computed from the inputs in their place, in the rows of all.
        features: Option<Features> = None;
    }
}

fl_core::settings! {
    /// How many rows to use. They are the first of every class, as many as keep the classes'
    /// proportions: the rows of some sets are sorted by class, so the very first rows of the file
    /// would be of one class. Without classes, as where the label is a number, they are the very
    /// first.
    pub struct Limit {
        /// Of the training rows; all if not given.
        train: Option<usize> = None, in 1..;
        /// Of the test rows; all if not given.
        test: Option<usize> = None, in 1..;
    }
}

impl Limit {
    /// What it leaves of training and test rows.
    pub(crate) fn of(&self, (train, test): (usize, usize)) -> (usize, usize) {
        let least = |rows: usize, limit: Option<usize>| limit.map_or(rows, |limit| limit.min(rows));
        (least(train, self.train), least(test, self.test))
    }

    /// A line for each limit that is above the number of training or test rows.
    pub(crate) fn notes(&self, (train, test): (usize, usize)) -> impl Iterator<Item = String> {
        let both = [("train", self.train, train), ("test", self.test, test)];
        both.into_iter().filter_map(|(part, limit, rows)| {
            let limit = limit.filter(|limit| *limit > rows)?;
            Some(format!(
                "data.limit.{part} is {limit}, and there are {rows} {part} rows: all are used"
            ))
        })
    }

    /// A line for each limit that takes the very first of a user's rows, which have no classes.
    pub(crate) fn first_rows(&self, (train, test): (usize, usize)) -> impl Iterator<Item = String> {
        let both = [("train", self.train, train), ("test", self.test, test)];
        both.into_iter().filter_map(|(part, limit, rows)| {
            let limit = limit.filter(|limit| *limit < rows)?;
            Some(format!(
                "data.limit.{part} takes the first {limit} of {rows} {part} rows, since a row has \
                 no class of its own: if the files are sorted, shuffle them or leave `limit` out"
            ))
        })
    }
}

impl Default for Limit {
    fn default() -> Self {
        fl_core::settings::defaults()
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
            label_groups: None,
            public: None,
            normalise: None,
            limit: Limit::default(),
            validation: 0.0,
            test: None,
            domains: None,
            feature_noise: None,
            undersampled: None,
            features: None,
        }
    }

    /// How many clients there are.
    pub fn clients(&self) -> usize {
        let owners = || match self.split() {
            Split::ByFile => self.set.sources(),
            Split::ByUser => self.set.users(),
            _ => None,
        };
        self.clients.or_else(owners).unwrap_or(CLIENTS)
    }

    /// How the samples are split.
    pub fn split(&self) -> Split {
        let own = || match (self.set.sources(), self.set.users()) {
            (Some(_), _) => Split::ByFile,
            (_, Some(2..)) => Split::ByUser,
            _ => Split::Iid,
        };
        self.split.clone().unwrap_or_else(own)
    }

    /// Have all its rows been read? The check of a spec reads a user's own files.
    pub fn is_read(&self) -> bool {
        self.sets().all(SetSpec::is_read)
    }

    /// Are the set's test rows shared out to the clients too?
    pub(crate) fn pools_tests(&self) -> bool {
        let of_all = |test: &OwnTests| test.of == OwnTestsOf::All;
        self.test.as_ref().is_some_and(of_all)
    }

    /// Does each client have test rows in files of its own?
    pub fn tests_in_files(&self) -> bool {
        self.test.as_ref().is_some_and(OwnTests::in_files)
    }

    /// Rows for clients and common test rows, of these training and test rows of the set.
    pub(crate) fn dealt(&self, (train, test): (usize, usize)) -> (usize, usize) {
        if self.pools_tests() {
            (train + test, 0)
        } else {
            (train, test)
        }
    }

    /// Says that clients get no row, where the numbers of rows and clients suffice to know it.
    pub fn idle_clients(&self) -> Option<String> {
        let (rows, _) = self.dealt(self.limit.of(self.set.facts().rows?));
        let clients = self.clients();
        let idle = clients
            .checked_sub(rows)
            .filter(|idle| *idle > 0 && self.deals())?;
        Some(format!(
            "{idle} or more of {clients} clients own no sample: there are {rows} {}rows",
            if self.pools_tests() { "" } else { "training " }
        ))
    }

    /// Does it deal rows, or users, to the clients at random? One less would deal all of them anew.
    pub fn deals(&self) -> bool {
        match self.split() {
            Split::ByUser => self.set.users() != Some(self.clients()),
            split => split.deals(),
        }
    }

    /// Settles what depends on where the spec is (relative paths: `folder` is the spec's) and on
    /// the files that it names. Returns what is wrong: where below `data`, and the mistake.
    pub fn resolve(&mut self, folder: &Path) -> Vec<Problem> {
        let below = |path: &[&str], problems: Vec<Problem>| {
            let path: Vec<Step> = path.iter().map(|key| Step::Key((*key).into())).collect();
            let add = |(rest, text)| (path.iter().cloned().chain(rest).collect(), text);
            problems.into_iter().map(add).collect::<Vec<Problem>>()
        };
        let mut problems = below(&["set"], self.set.resolve(folder, Use::Tested));
        if let Some(public) = &mut self.public {
            let how = if public.labelled {
                Use::Labelled
            } else {
                Use::Unlabelled
            };
            if let PublicFrom::Set(set) = &mut public.from {
                problems.extend(below(&["public", "from", "set"], set.resolve(folder, how)));
            }
            if let Some(mix) = &mut public.mix {
                let found = mix.set.resolve(folder, Use::Unlabelled);
                problems.extend(below(&["public", "mix", "set"], found));
            }
        }
        if problems.is_empty() {
            (self.clients, self.split) = (Some(self.clients()), Some(self.split()));
            let at = |name: &str| vec![Step::Key(name.into())];
            let own = self.set.facts().rows;
            let own = own.map(|rows| self.dealt(self.limit.of(rows)));
            let mut wrong = self.check();
            if let (Some(split), Some((rows, _))) = (&self.split, own)
                && let Err(error) = split.check_least(self.clients(), rows)
            {
                wrong.push(("split", error.to_string()));
            }
            problems.extend(wrong.into_iter().map(|(name, text)| (at(name), text)));
            problems.extend(
                self.public
                    .as_ref()
                    .and_then(|public| too_many(public, own)),
            );
        }
        problems
    }

    /// The sets that public samples come from, besides the clients' own.
    pub(crate) fn public_sets(&self) -> impl Iterator<Item = &SetSpec> {
        self.public.iter().flat_map(Public::sets)
    }

    fn sets(&self) -> impl Iterator<Item = &SetSpec> {
        [&self.set].into_iter().chain(self.public_sets())
    }

    /// Are some of its rows a user's own?
    pub fn has_own_rows(&self) -> bool {
        self.sets().any(SetSpec::own)
    }

    /// Every file that the data are read from, as far as it is there; `dir` is the data directory.
    pub fn paths(&self, dir: &Path) -> Vec<PathBuf> {
        let kept = self.kept_model().into_iter().flat_map(KeptModel::paths);
        let sets = self.sets().flat_map(|set| set.paths(dir));
        sets.chain(kept).collect()
    }

    /// The kept model of another run whose features take the place of the inputs.
    pub fn kept_model(&self) -> Option<&KeptModel> {
        self.features.as_ref()?.kept_model()
    }

    /// The folders of the runs that made rows or features of it from clients' rows.
    pub fn made_by(&self) -> impl Iterator<Item = &Path> {
        let kept = self.kept_model().filter(|of| !of.is_public);
        let kept = kept.and_then(KeptModel::run);
        self.sets().filter_map(SetSpec::made_by).chain(kept)
    }

    /// Which published file is not in the data directory `dir`, and where to get it, before
    /// anything is read.
    pub fn missing(&self, dir: &Path) -> Option<String> {
        self.sets().find_map(|set| set.lacks_file(dir))
    }

    /// What is to be learnt of rows of a set that is for `own`.
    ///
    /// # Errors
    /// When such rows cannot be undersampled, or have no features.
    pub(crate) fn task_of(&self, own: Task) -> Result<Task> {
        let own = match &self.undersampled {
            Some(how) => how.task(&own)?,
            None => own,
        };
        match &self.features {
            Some(how) => how.task(&own),
            None => Ok(own),
        }
    }

    /// Which settings do not go together, as far as it is known without loading the set, and why.
    fn check(&self) -> Vec<(&'static str, String)> {
        match self.set.task() {
            Some(own) => self.unfit(&own),
            None => Vec::new(), // again once the files have been read
        }
    }

    /// What `test` does to the rows of the set, the other settings must allow.
    fn fits_tests(&self, test: &OwnTests) -> Result<()> {
        let split = self.split();
        let from = self.public.as_ref().map(|public| &public.from);
        let divided = matches!(from, Some(PublicFrom::HalfOfTest | PublicFrom::Tabular));
        if test.in_files() {
            ensure!(
                matches!(split, Split::ByFile | Split::ByUser | Split::Own),
                "`own: files` needs files that are a client's own: take `split: by-file`, `by-user` or `own`, or a share, such as `own: 0.25`"
            );
            ensure!(
                test.of == OwnTestsOf::Train && test.by_class,
                "`of` and `by-class` are for a share of the rows; with `own: files` leave them out"
            );
            ensure!(
                self.feature_noise.is_none(),
                "`feature-noise` goes by the numbers of rows, which test files have too; take a share, such as `own: 0.25`"
            );
            ensure!(
                !divided,
                "`own: files` gives the test rows to the clients, so `public` cannot divide them"
            );
            return Ok(());
        }
        if test.of == OwnTestsOf::Train {
            return Ok(());
        }
        ensure!(
            !matches!(split, Split::Own),
            "the set's test rows are not the clients'; take `of: train`"
        );
        ensure!(
            !matches!(split, Split::ByFile | Split::ByUser | Split::Published(_)),
            "the split says only who owns the training rows; take `of: train`"
        );
        ensure!(
            !divided,
            "`of: all` gives the test rows to the clients, so `public` cannot divide them; take `of: train`"
        );
        ensure!(
            self.domains.is_none(),
            "`domains` shows the common test rows in every domain, and `of: all` leaves none; take `of: train`"
        );
        Ok(())
    }

    /// What `how` does to rows that are for `own`, the other settings must allow.
    fn fits_features(&self, how: &Features, own: &Task) -> Result<()> {
        ensure!(
            self.undersampled.is_none(),
            "features have no pixels to predict, which `undersampled` asks for; leave one of them out"
        );
        ensure!(
            self.public.is_some() || !how.needs_public(),
            "principal components are of public samples alone; give `public`"
        );
        how.task(own).map(drop)
    }

    /// Takes the rows that client `k` tests with out of `own`, the rows of its node, or returns
    /// those of `test`, the test rows that its node file names; `None` if it has none of its own.
    /// With the `stream` of [`build`](crate::build) they are the rows that the client would test
    /// with if `own` were its file in `split: by-file`.
    ///
    /// # Errors
    /// If there are less than two rows, or no test rows.
    pub fn tests_of_node(
        &self,
        k: usize,
        own: &mut Examples,
        test: Examples,
        stream: &Stream,
    ) -> Result<Option<Examples>> {
        let Some(how) = &self.test else {
            return Ok(None);
        };
        if how.in_files() {
            ensure!(
                !test.is_empty(),
                "`data.test.own: files`: its node file names no test rows; give `test`, or `holdout`"
            );
            return Ok(Some(test));
        }
        let rows = how.draw(k, own, &stream.child("test", k as u64))?;
        Ok(Some(cut(own, &rows)))
    }

    /// What several settings must fulfil together if this is what the set is for.
    pub(crate) fn fits(&self, own: &Task) -> Result<()> {
        let wrong = self.unfit(own).into_iter();
        let wrong: Vec<String> = wrong
            .map(|(name, text)| format!("`{name}`: {text}"))
            .collect();
        ensure!(wrong.is_empty(), wrong.join("; "));
        Ok(())
    }

    /// Which settings do not go together if this is what the set is for, and why.
    fn unfit(&self, own: &Task) -> Vec<(&'static str, String)> {
        let clients = self.clients();
        let groups = match own.kind {
            TaskKind::Classes(n) => n,
            TaskKind::MultiLabel(n) => n + 1, // and those without a finding
            TaskKind::Numbers { .. } => self.label_groups.unwrap_or(1),
            TaskKind::Pixels { .. } | TaskKind::Image { .. } => 1,
        };
        let numbers = matches!(own.kind, TaskKind::Numbers { .. });
        let label_groups = match self.label_groups {
            Some(_) if !numbers => Err(anyhow!(
                "labels of `{}` are no numbers; leave it out",
                self.set.name()
            )),
            Some(_) if !self.split().by_class() => Err(anyhow!(
                "has no effect on a split that does not look at labels; leave it out"
            )),
            _ => Ok(()),
        };
        let split = match &self.split() {
            split if split.by_class() && numbers && self.label_groups.is_none() => Err(anyhow!(
                "labels of `{}` are numbers, and there are no classes to split by; set `label-groups: 10`, or use iid, size or by-file",
                self.set.name()
            )),
            split if own.kind.is_dense() && split.by_class() => Err(anyhow!(
                "images of `{}` have no class of their own to split by, since every pixel has a class or a value; use iid, size or by-file",
                self.set.name()
            )),
            Split::Classes(each) => check_covering(clients, groups, *each),
            Split::RandomClasses(each) => check_first_classes(clients, groups, *each),
            Split::ClassBlocks(each) => class_blocks(clients, groups, *each).map(|_| ()),
            Split::Size(Sizes::Shares(shares)) => check_shares(shares, clients),
            Split::Published(PublishedSplit { alpha, seed }) => {
                published::find(self.set.name(), *alpha, *seed)
                    .and_then(|table| table.check(clients))
            }
            Split::ByFile => check_files(self.set.name(), self.set.sources(), clients),
            Split::ByUser => check_users(self.set.name(), self.set.users(), clients),
            Split::Own => check_own(self),
            Split::Iid | Split::Dirichlet(_) | Split::Shards(_) | Split::Size(_) => Ok(()),
        };
        let order = checked(&self.class_order, |order| self.check_order(order, own));
        let normalise = checked(&self.normalise, |by| self.set.check_normalise(own, by));
        let public = checked(&self.public, |of| of.fits(&self.set, own));
        let test = checked(&self.test, |test| self.fits_tests(test));
        let domains = checked(&self.domains, |of| of.check(own).map_err(Error::msg));
        let noise = checked(&self.feature_noise, |of| of.fits(&self.set, own, clients));
        let undersampled = match &self.undersampled {
            Some(_) if self.domains.is_some() => Err(anyhow!(
                "images that are to be reconstructed cannot be turned; leave `domains` out"
            )),
            Some(_) if self.feature_noise.is_some() => Err(anyhow!(
                "images that are to be reconstructed get no noise; leave `feature-noise` out"
            )),
            Some(how) => how.task(own).map(drop),
            None => Ok(()),
        };
        let features = match &self.features {
            Some(how) => self.fits_features(how, own),
            None => Ok(()),
        };
        [
            ("class-order", order),
            ("split", split),
            ("label-groups", label_groups),
            ("normalise", normalise),
            ("public", public),
            ("test", test),
            ("domains", domains),
            ("feature-noise", noise),
            ("undersampled", undersampled),
            ("features", features),
        ]
        .into_iter()
        .filter_map(|(name, found)| Some((name, found.err()?.to_string())))
        .collect()
    }

    /// Every class once, and nothing that goes by the files' numbers.
    fn check_order(&self, order: &[usize], own: &Task) -> Result<()> {
        let TaskKind::Classes(n) = own.kind else {
            bail!(
                "`{}` has no single class for each row; leave it out",
                self.set.name()
            );
        };
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        ensure!(
            sorted.iter().copied().eq(0..n),
            "{order:?}; it must name each of the classes 0 to {} of `{}` once",
            n - 1,
            self.set.name()
        );
        ensure!(
            !matches!(self.split(), Split::Published(_)),
            "a published split lists row numbers of the files; leave it out"
        );
        Ok(())
    }
}

/// Checks a setting that is given.
fn checked<T>(setting: &Option<T>, check: impl FnOnce(&T) -> Result<()>) -> Result<()> {
    setting.as_ref().map_or(Ok(()), check)
}

/// What the program does to clients' rows it cannot do where they are not.
fn check_own(spec: &DataSpec) -> Result<()> {
    let cannot = [
        ("class-order", spec.class_order.is_some()),
        ("domains", spec.domains.is_some()),
        ("feature-noise", spec.feature_noise.is_some()),
        ("validation", spec.validation != 0.0),
    ];
    match cannot.iter().find(|(_, there)| *there) {
        Some((name, _)) => bail!(
            "each client owns its rows, and `{name}` is for rows that are shared out; leave it out"
        ),
        None => Ok(()),
    }
}
