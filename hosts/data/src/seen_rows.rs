//! The hashes of rows as they are loaded, and which of them became public.

use crate::assembled::RowIdentity;
use crate::public::{Public, PublicFrom};
use crate::shared_rows::RowHash;
use fl_core::Examples;

/// The ids of the public samples in the sets that they come from.
#[derive(Default)]
pub(crate) struct Taken {
    /// Of those of `from`.
    pub whole: Vec<u32>,
    /// Of those of `mix`.
    pub mixed: Vec<u32>,
}

/// The hashes of rows by their ids.
#[derive(Default)]
pub(crate) struct SeenRows<H> {
    /// Of the clients' set.
    pub own: Vec<H>,
    /// Of its test rows.
    pub tested: Vec<H>,
    /// Of each other set, in the order of loading.
    pub others: Vec<Vec<H>>,
}

impl<H: Copy> SeenRows<H> {
    /// Those of the public samples; none if the rows that they were taken from have no hashes.
    pub fn public(&self, how: &Public, taken: &Taken) -> Vec<H> {
        let from = match how.from {
            PublicFrom::HalfOfTest => &self.tested,
            PublicFrom::Set(_) => &self.others[0],
            _ => &self.own,
        };
        let mut all = if from.is_empty() {
            Vec::new()
        } else {
            of_ids(&taken.whole, from)
        };
        if let Some(mixed) = self.others.last().filter(|_| !taken.mixed.is_empty()) {
            all.extend(of_ids(&taken.mixed, mixed));
        }
        all
    }
}

impl SeenRows<RowHash> {
    /// The hashes of each client's rows, with those of its tests if they are its own, and of the
    /// public rows.
    pub fn identity(
        &mut self,
        clients: &[Examples],
        tests: &[Examples],
        mut public: Vec<RowHash>,
    ) -> RowIdentity {
        let own = |own: &Examples| of_ids(own.samples.ids(), &self.own);
        let mut clients: Vec<_> = clients.iter().map(own).collect();
        if tests.is_empty() {
            public.extend(&self.tested)
        } else {
            for (own, tests) in clients.iter_mut().zip(tests) {
                own.extend(of_ids(tests.samples.ids(), &self.tested));
            }
            self.own.append(&mut self.tested);
        }
        RowIdentity { clients, public }
    }
}

pub(crate) fn of_ids<H: Copy>(ids: &[u32], all: &[H]) -> Vec<H> {
    ids.iter().map(|id| all[*id as usize]).collect()
}
