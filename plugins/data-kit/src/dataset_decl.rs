//! How a data set gets its name in specs, and which sets are linked.

use crate::dataset::{DataSet, Problem};
use fl_core::Description;
use fl_core::settings::{Reader, Setting, Settings, Value};
use std::any::TypeId;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

/// A data set whose settings can be copied and written, whatever its type.
#[doc(hidden)]
pub trait AnySet: DataSet {
    fn located(&self, folder: &Path) -> (Arc<dyn AnySet>, Vec<Problem>);
    fn settings(&self) -> Value;
}

impl<S: DataSet + Settings + Clone> AnySet for S {
    fn located(&self, folder: &Path) -> (Arc<dyn AnySet>, Vec<Problem>) {
        let mut set = self.clone();
        let problems = set.locate(folder);
        (Arc::new(set), problems)
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
        signature: String::new(),
    }
}

/// Used by [`data_set!`](crate::data_set!).
#[doc(hidden)]
pub fn read<S: AnySet + Settings>(value: &Value, reader: &mut Reader) -> Option<Arc<dyn AnySet>> {
    <S as Setting>::read(value, reader).map(|set| Arc::new(set) as Arc<dyn AnySet>)
}
