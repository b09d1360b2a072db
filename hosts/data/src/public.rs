//! The public samples, as a spec says them.

use crate::column_match::alike;
use crate::dataset_spec::SetSpec;
use fl_core::Task;
use fl_core::settings::between;

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

impl PublicFrom {
    /// Are they rows that a client would own otherwise?
    pub(crate) fn of_clients(&self) -> bool {
        matches!(self, Self::Share(_) | Self::Count(_) | Self::Tabular)
    }
}

impl Public {
    /// Do these samples go with those of the clients?
    pub(crate) fn fits(&self, private: &SetSpec, own: &Task) -> anyhow::Result<()> {
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
