//! The public samples, as a spec says them.

use fl_core::settings::between;
use fl_core::{Task, TaskKind};
use fl_data_kit::{SetSpec, alike};

fl_core::settings! {
    /// The public samples.
    #[check(Public::check)]
    pub struct Public {
        /// Where they come from.
        from: PublicFrom;
        /// Are their labels public too (the labelled-public variant of FedKD)?
        labelled: bool = false;
        /// Number of them to keep, drawn at random. The others are not used; `from: {count: ..}`
        /// leaves them to the clients.
        size: Option<usize> = None, in 1..;
        /// Keep only `floor(queries * (public + test))` of them, drawn at random: FedKT's fraction
        /// of queries. The others are not used.
        queries: Option<f64> = None, in 0.0..=1.0;
        /// The weight of each class, for public samples of other classes than the clients': of the
        /// class with the largest weight all samples stay, of class `c`
        /// `floor(weight[c] / largest * samples)`, drawn at random. `size` and `queries` come
        /// after it.
        classes: Option<Vec<f64>> = None;
        /// Replaces a share of the samples by samples of another set, for public data that drift
        /// away from the clients'.
        mix: Option<Mix> = None;
    }
}

fl_core::settings! {
    /// Samples of another set among the public samples.
    pub struct Mix {
        /// The set; its training rows have inputs of the same shape. Their labels are not used.
        set: SetSpec;
        /// The share of the public samples that come from it: `round(share * samples)` of them,
        /// drawn at random.
        share: f64, in 0.0..=1.0;
    }
}

fl_core::choices! {
    /// Where public samples come from.
    pub enum PublicFrom {
        /// This share of every class of the training rows; the clients own the others.
        Share(f64, in between(0.0, 1.0)) = "share",
        /// Number of training rows, of every class in proportion; the clients own the others.
        Count(usize, in 1..) = "count",
        /// Half of the test rows, rounded down and drawn at random; the other half stays the test
        /// set (FedKT, images).
        HalfOfTest = "half-of-test",
        /// FedKT's split of a table: of the training rows 75 % for the clients, 12.5 % public, 12.5
        /// % test. The set's own test rows are not used.
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
            classes: None,
            mix: None,
        }
    }

    fn check(&self) -> Result<(), String> {
        let weights = self.classes.iter().flatten();
        match (self.size, self.queries) {
            (Some(_), Some(_)) => {
                Err("`size` and `queries` both say how many to keep; give one of them".into())
            }
            _ if self.labelled && self.mix.is_some() => Err(
                "`mix` adds samples whose labels mean something else; leave `labelled` out".into(),
            ),
            _ if weights.clone().any(|w| !(w.is_finite() && *w >= 0.0)) => {
                Err("`classes`: every weight must be a number of at least 0".into())
            }
            _ if self.classes.is_some() && !weights.clone().any(|w| *w > 0.0) => {
                Err("`classes`: a weight must be above 0".into())
            }
            _ => Ok(()),
        }
    }

    /// The sets that its samples come from, besides the clients' own.
    pub(crate) fn sets(&self) -> impl Iterator<Item = &SetSpec> {
        let whole = match &self.from {
            PublicFrom::Set(set) => Some(set),
            _ => None,
        };
        whole.into_iter().chain(self.mix.iter().map(|mix| &mix.set))
    }
}

impl PublicFrom {
    /// Are they rows that a client would own otherwise?
    pub(crate) fn of_clients(&self) -> bool {
        matches!(self, Self::Share(_) | Self::Count(_) | Self::Tabular)
    }
}

impl Public {
    /// Do these samples go with those of the clients?
    pub(crate) fn fits(&self, private: &SetSpec, own: &Task) -> anyhow::Result<()> {
        for set in self.sets() {
            self.set_fits(set, private, own)?;
        }
        let kind = match &self.from {
            PublicFrom::Set(set) => set.task().map(|task| task.kind),
            _ => Some(own.kind),
        };
        match (&self.classes, kind) {
            (Some(weights), Some(TaskKind::Classes(n))) => anyhow::ensure!(
                weights.len() == n,
                "`classes` has {} weights; there must be {n}, one for each class",
                weights.len()
            ),
            (Some(_), Some(_)) => anyhow::bail!(
                "`classes` needs samples that have one class each, and these have not; leave it out"
            ),
            _ => (),
        }
        Ok(())
    }

    /// Do samples of this set go with those of the clients?
    fn set_fits(&self, set: &SetSpec, private: &SetSpec, own: &Task) -> anyhow::Result<()> {
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
            "labels of `{}` are of another task ({}) than the private ones ({}); leave `labelled` out",
            set.name(),
            other.kind,
            own.kind
        );
        alike(set.columns(), private.columns())?;
        let classes = [set, private].map(SetSpec::classes);
        anyhow::ensure!(
            !self.labelled || classes.iter().any(|of| of.is_empty()) || classes[0] == classes[1],
            "its classes are {}, and the clients' {}; give both the same `classes`, in one order",
            classes[0].join(", "),
            classes[1].join(", ")
        );
        Ok(())
    }
}
