//! Bounds, prices, hides.

use crate::message::Message;
use crate::privacy::ReleaseNoise;
use crate::{Cohort, PrivacyEvent, Result};

/// Bounds what one client can change, says what a release costs, then hides the rest with noise.
pub trait PrivacyMechanism: Send {
    /// What it protects.
    type On: Message;

    /// Limits one client's range: clips, quantises, subsamples. Not random.
    ///
    /// # Errors
    /// When the message cannot be bounded.
    fn clip(&self, message: &mut Self::On) -> Result<()>;

    /// A number that every client reports so that all bound alike (FedKD's `z_max`); the largest comes back through
    /// [`PrivacyMechanism::agree`]. `None`: no such number is needed.
    fn range(&self, _message: &Self::On) -> Option<f32> {
        None
    }

    /// The largest [`PrivacyMechanism::range`] of all clients.
    fn agree(&mut self, _largest: f32) {}

    /// What releasing `message`, made from the data of `cohort`, would cost; asked before it is done. A price that counts on
    /// a random draw of clients ([`PrivacyEvent::SubsampledGaussian`], [`PrivacyEvent::FixedSizeGaussian`]) is believed only
    /// if the cohort was drawn like that.
    ///
    /// # Errors
    /// When there is no honest answer for this message.
    fn price(&self, message: &Self::On, cohort: &Cohort) -> Result<PrivacyEvent>;

    /// Adds the noise, all of it through `noise`: with noise of the system ([`crate::privacy::Noise::System`]) it is exact.
    /// Does nothing for a mechanism that only bounds.
    ///
    /// # Errors
    /// When the message cannot be perturbed.
    fn perturb(
        &mut self,
        message: &mut Self::On,
        cohort: &Cohort,
        noise: &ReleaseNoise,
    ) -> Result<()>;

    /// How many queries `message` answers one by one, such as the rows of vote counts; a budget may then pay for the
    /// first few only.
    fn queries(&self, _message: &Self::On) -> usize {
        1
    }

    /// Leaves only the first `n` queries, `n` at most [`PrivacyMechanism::queries`].
    fn truncate(&self, _message: &mut Self::On, _n: usize) {}

    /// What the release has cost; asked after [`PrivacyMechanism::perturb`]. It may be less than the `price`, if the
    /// noise decides what is released, but never more.
    fn actual_cost(&self, price: PrivacyEvent) -> PrivacyEvent {
        price
    }

    /// What it keeps from one release to the next, for a run that stops and goes on. Empty: there is none.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes back what [`PrivacyMechanism::save`] gave.
    ///
    /// # Errors
    /// When `state` is not a state of this part.
    fn load(&mut self, _state: &[u8]) -> Result<()> {
        Ok(())
    }
}
