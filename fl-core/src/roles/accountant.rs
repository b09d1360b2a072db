//! Keeps the privacy ledger.

use crate::privacy::{Composition, Guarantee, Ledger};
use crate::{PrivacyEvent, Result};

/// Keeps the privacy ledger and turns it into a guarantee.
pub trait Accountant: Send {
    /// Takes one event in. An event without a price is an error ([`crate::Problem::Unpriced`]), never free.
    ///
    /// # Errors
    /// When this accountant cannot price `event`.
    fn charge(&mut self, event: &PrivacyEvent) -> Result<()>;

    /// The guarantee for everything charged so far, and for `next` if there is one.
    ///
    /// # Errors
    /// When `next` has no price here.
    fn guarantee(&self, next: Option<&PrivacyEvent>) -> Result<Guarantee>;

    /// Takes in the ledgers of several clients; `how` says whether their data are disjoint.
    ///
    /// # Errors
    /// When one of their events has no price here.
    fn merge(&mut self, ledgers: &[Ledger], how: Composition) -> Result<()>;
}
