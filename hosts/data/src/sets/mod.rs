//! The sets that can be named in a spec.

mod adult;
mod files;
mod known;
mod load;

pub use files::{Entry, FileEntry, data_dir, list};
pub use known::{KNOWN, Known};
pub use load::{Set, load};

use crate::made::{blobs::Blobs, findings::MultiLabel, glyphs::Glyphs};
use crate::text::Words;
use anyhow::{Context, Result, ensure};
use fl_core::settings::defaults;
use fl_core::{Task, TaskKind};

fl_core::choices! {
    /// A set and its settings; its name alone stands for its defaults.
    pub enum SetSpec {
        /// Handwritten digits, 28 x 28 grey.
        Mnist = "mnist",
        /// Articles of clothing, 28 x 28 grey.
        FashionMnist = "fashion-mnist",
        /// Ten kinds of things, 32 x 32 in colour.
        Cifar10 = "cifar10",
        /// A hundred kinds of things, 32 x 32 in colour.
        Cifar100 = "cifar100",
        /// Chest X-rays, 28 x 28 grey, normal or pneumonia; has validation rows.
        PneumoniaMnist = "pneumoniamnist",
        /// Census rows as 123 yes/no features (LIBSVM's a9a).
        Adult = "adult",
        /// Census rows from UCI's own table: numbers, and one column per category; an unknown category is all 0.
        AdultRaw(AdultRaw) = "adult-raw",
        /// Eight numbers per pair of RNA sequences, as published: not on one scale.
        CodRna(CodRna) = "cod-rna",
        /// News in four topics.
        AgNews(Words) = "ag-news",
        /// Sentences of film reviews, for or against.
        Sst2(Words) = "sst2",
        /// Made here: a cloud of points per class.
        Blobs(Blobs) = "blobs",
        /// Made here: ten hand-drawn glyphs, 28 x 28 grey.
        Glyphs(Glyphs) = "glyphs",
        /// Made here: several glyphs may be present at once, some labels unknown.
        MultiLabel(MultiLabel) = "findings",
    }
}

fl_core::choices! {
    /// What is done to the columns of a table of numbers.
    pub enum Scale {
        /// Nothing.
        None = "none",
        /// `(value - mean) / std` with the training rows' mean and standard deviation of each column of numbers.
        Standard = "standard",
    }
}

fl_core::settings! {
    /// Settings of the set `adult-raw`.
    pub struct AdultRaw {
        /// What is done to its columns of numbers.
        scale: Scale = Scale::Standard;
    }
}

fl_core::settings! {
    /// Settings of the set `cod-rna`.
    pub struct CodRna {
        /// What is done to its columns.
        scale: Scale = Scale::None;
    }
}

impl SetSpec {
    /// The set of this name with its default settings.
    ///
    /// # Errors
    /// If no set has this name; says which there are.
    pub fn named(name: &str) -> Result<Self> {
        Self::all()
            .into_iter()
            .find(|set| set.name() == name)
            .with_context(|| {
                let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
                format!(
                    "no data set is called `{name}`; known: {}",
                    names.join(", ")
                )
            })
    }

    /// Every set with its default settings, in the order of [`KNOWN`].
    pub fn all() -> [Self; 13] {
        [
            Self::Mnist,
            Self::FashionMnist,
            Self::Cifar10,
            Self::Cifar100,
            Self::PneumoniaMnist,
            Self::Adult,
            Self::AdultRaw(defaults()),
            Self::CodRna(defaults()),
            Self::AgNews(Words::default()),
            Self::Sst2(Words::default()),
            Self::Blobs(Blobs::default()),
            Self::Glyphs(Glyphs::default()),
            Self::MultiLabel(MultiLabel::default()),
        ]
    }

    /// What is known about the set, whatever its settings.
    pub fn known(&self) -> &'static Known {
        &KNOWN[match self {
            Self::Mnist => 0,
            Self::FashionMnist => 1,
            Self::Cifar10 => 2,
            Self::Cifar100 => 3,
            Self::PneumoniaMnist => 4,
            Self::Adult => 5,
            Self::AdultRaw(_) => 6,
            Self::CodRna(_) => 7,
            Self::AgNews(_) => 8,
            Self::Sst2(_) => 9,
            Self::Blobs(_) => 10,
            Self::Glyphs(_) => 11,
            Self::MultiLabel(_) => 12,
        }]
    }

    /// Its name in a spec.
    pub fn name(&self) -> &'static str {
        self.known().name
    }

    /// How many classes or findings it has.
    pub fn classes(&self) -> usize {
        match self {
            Self::Blobs(blobs) => blobs.classes,
            Self::MultiLabel(findings) => findings.findings,
            _ => self.known().classes,
        }
    }

    /// What is to be learnt from it, known without loading it: [`load`] refuses files with inputs of another shape.
    pub fn task(&self) -> Task {
        let input = match self {
            Self::Blobs(blobs) => vec![blobs.features],
            Self::AgNews(words) | Self::Sst2(words) => vec![words.width],
            _ => self.known().shape.to_vec(),
        };
        let kind = match self {
            Self::MultiLabel(_) => TaskKind::MultiLabel(self.classes()),
            _ => TaskKind::Classes(self.classes()),
        };
        Task { input, kind }
    }

    /// Do this many means and standard deviations fit the set?
    pub(crate) fn check_normalise(&self, means: usize, stds: usize) -> Result<()> {
        ensure!(
            !matches!(self, Self::Adult | Self::AgNews(_) | Self::Sst2(_)),
            "the rows of `{}` are mostly 0 and stay so; leave `normalise` away",
            self.name()
        );
        let wanted = self.task().input[0];
        ensure!(
            means == wanted && stds == wanted,
            "{means} means and {stds} standard deviations; there must be {wanted} of each, one per channel or column"
        );
        Ok(())
    }

    /// (training rows, test rows) of a set that the program makes itself.
    fn made_rows(&self) -> Option<(usize, usize)> {
        match self {
            Self::Blobs(Blobs { train, test, .. })
            | Self::Glyphs(Glyphs { train, test, .. })
            | Self::MultiLabel(MultiLabel { train, test, .. }) => Some((*train, *test)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
