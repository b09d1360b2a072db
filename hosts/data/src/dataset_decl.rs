//! How a data set gets its name in specs, and which sets are linked.

use crate::dataset::{DataSet, Problem, Rows};
use crate::facts::DataSetFacts;
use crate::folder::Folder;
use crate::normalise::Normalise;
use anyhow::Result;
use fl_core::settings::{Reader, Setting, Settings, Value};
use fl_core::{Description, Inputs, Task};
use std::any::TypeId;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// [`DataSet`] without what only a type can say.
#[doc(hidden)]
pub trait AnySet: Debug + Send + Sync {
    fn facts(&self) -> DataSetFacts;
    fn task(&self) -> Option<Task>;
    fn rows(&self, folder: &Folder<'_>) -> Result<Rows>;
    fn scale(&self, train: &Inputs) -> Option<Normalise>;
    fn located(&self, folder: &Path) -> (Arc<dyn AnySet>, Vec<Problem>);
    fn lacks(&self, tested: bool) -> Option<&'static str>;
    fn sources(&self) -> Option<usize>;
    fn paths(&self, folder: &Folder<'_>) -> Vec<PathBuf>;
    fn private(&self, folder: &Folder<'_>) -> Vec<PathBuf>;
    fn settings(&self) -> Value;
}

impl<S: DataSet> AnySet for S {
    fn facts(&self) -> DataSetFacts {
        DataSet::facts(self)
    }
    fn task(&self) -> Option<Task> {
        DataSet::task(self)
    }
    fn rows(&self, folder: &Folder<'_>) -> Result<Rows> {
        DataSet::load(self, folder)
    }
    fn scale(&self, train: &Inputs) -> Option<Normalise> {
        DataSet::scale(self, train)
    }
    fn located(&self, folder: &Path) -> (Arc<dyn AnySet>, Vec<Problem>) {
        let mut set = self.clone();
        let problems = set.locate(folder);
        (Arc::new(set), problems)
    }
    fn lacks(&self, tested: bool) -> Option<&'static str> {
        DataSet::lacks(self, tested)
    }
    fn sources(&self) -> Option<usize> {
        DataSet::sources(self)
    }
    fn paths(&self, folder: &Folder<'_>) -> Vec<PathBuf> {
        DataSet::paths(self, folder)
    }
    fn private(&self, folder: &Folder<'_>) -> Vec<PathBuf> {
        DataSet::private(self, folder)
    }
    fn settings(&self) -> Value {
        self.write()
    }
}

/// A set as specs see it.
pub struct SetDecl {
    /// Its name in specs.
    pub name: &'static str,
    /// The crate that it comes from.
    pub origin: &'static str,
    /// What it says about itself.
    pub describe: fn() -> Description,
    #[doc(hidden)]
    pub read: fn(&Value, &mut Reader) -> Option<Arc<dyn AnySet>>,
    #[doc(hidden)]
    pub type_id: fn() -> TypeId,
}

impl Debug for SetDecl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} from {}", self.name, self.origin)
    }
}

inventory::collect!(&'static SetDecl);

/// Every set that is linked into this program, by name.
pub fn linked_sets() -> Vec<&'static SetDecl> {
    let mut all: Vec<_> = inventory::iter::<&'static SetDecl>
        .into_iter()
        .copied()
        .collect();
    all.sort_by_key(|set| (set.name, set.origin));
    all
}

/// Registers a set: `data_set!("mnist" => Mnist);`
#[macro_export]
macro_rules! data_set {
    ($name:literal => $set:ty) => {
        const _: () = {
            static DECL: $crate::dataset_decl::SetDecl = $crate::dataset_decl::SetDecl {
                name: $name,
                origin: env!("CARGO_PKG_NAME"),
                describe: $crate::dataset_decl::describe::<$set>,
                read: $crate::dataset_decl::read::<$set>,
                type_id: std::any::TypeId::of::<$set>,
            };
            $crate::__private::inventory::submit! { &DECL }
        };
    };
}

/// Used by [`data_set!`](crate::data_set!).
#[doc(hidden)]
pub fn describe<S: Settings>() -> Description {
    Description {
        doc: S::doc(),
        fields: S::fields(),
        schema: S::schema(),
        signature: String::new(),
    }
}

/// Used by [`data_set!`](crate::data_set!).
#[doc(hidden)]
pub fn read<S: DataSet>(value: &Value, reader: &mut Reader) -> Option<Arc<dyn AnySet>> {
    <S as Setting>::read(value, reader).map(|set| Arc::new(set) as Arc<dyn AnySet>)
}
