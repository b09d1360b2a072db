//! Test rows of a client's own: those that its model is judged on, and that no client trains with.

use crate::public::PublicFrom;
use crate::section::DataSpec;
use crate::split::Groups;
use crate::split_spec::Split;
use anyhow::{Result, ensure};
use fl_core::settings::between;
use fl_core::{Examples, Stream, floor_share};

fl_core::settings! {
    /// Each client sets some of its own rows aside for tests. Its own model is tested with these,
    /// and so is the server's model, for each client.
    pub struct OwnTests {
        /// Share of a client's rows that it tests with: `floor(own * rows)` of them, but at least
        /// one, drawn at random. It trains with the others.
        own: f64, in between(0.0, 1.0);
        /// The rows that clients own before that.
        of: OwnTestsOf = OwnTestsOf::Train;
        /// Take the rows from every class in proportion; otherwise whatever their class.
        by_class: bool = true;
    }
}

fl_core::choices! {
    /// The rows that are shared out to clients who test with rows of their own.
    pub enum OwnTestsOf {
        /// The training rows of the set. Its test rows stay common to all.
        Train = "train",
        /// Training and test rows together, as in PFLlib. The common test rows are those of all
        /// clients together.
        All = "all",
    }
}

impl OwnTests {
    /// What it does to the rows of the set, the other settings must allow.
    pub(crate) fn fits(&self, spec: &DataSpec) -> Result<()> {
        if self.of == OwnTestsOf::Train {
            return Ok(());
        }
        let split = spec.split();
        let from = spec.public.as_ref().map(|public| &public.from);
        ensure!(
            !matches!(split, Split::ByFile | Split::ByUser | Split::Published(_)),
            "the split says only who owns the training rows; take `of: train`"
        );
        ensure!(
            !matches!(from, Some(PublicFrom::HalfOfTest | PublicFrom::Tabular)),
            "`of: all` gives the test rows to the clients, so `public` cannot divide them; take `of: train`"
        );
        ensure!(
            spec.domains.is_none(),
            "`domains` shows the common test rows in every domain, and `of: all` leaves none; take `of: train`"
        );
        Ok(())
    }

    /// Positions of the rows that client `k` of these rows tests with, ascending.
    ///
    /// # Errors
    /// If it owns less than two rows.
    pub(crate) fn draw(&self, k: usize, own: &Examples, stream: &Stream) -> Result<Vec<usize>> {
        let rows = own.len();
        ensure!(
            rows >= 2,
            "`data.test.own`: client {k} owns {rows} of the rows, and needs two, one to train and one to test with; \
             take fewer clients, or a split that gives each client more"
        );
        let aside = floor_share(self.own, rows).clamp(1, rows - 1);
        let draws = |group, n, count| stream.child("class", group as u64).draws().choose(n, count);
        match self.by_class {
            true => Groups::of(own).take(aside, draws),
            false => Ok(draws(0, rows, aside)),
        }
    }
}
