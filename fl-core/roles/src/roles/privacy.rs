//! [`PrivacyMechanism`]: the role that bounds, prices and perturbs a release.

use crate::message::Message;
use crate::privacy::ReleaseNoise;
use crate::{Cohort, PrivacyEvent, Result};

/// Bounds the contribution of one client, prices a release, and adds the noise.
pub trait PrivacyMechanism: Send {
    /// The message that it protects.
    type On: Message;

    /// Bounds one client's message: clips, quantises, subsamples. Not random.
    ///
    /// # Errors
    /// If the message cannot be bounded.
    fn clip(&self, message: &mut Self::On) -> Result<()>;

    /// Returns the largest Euclidean norm that [`PrivacyMechanism::clip`] lets pass, if it only
    /// shortens longer messages to it and replaces those that are not finite by zeros. A trainer
    /// may then clip for it ([`crate::Parametric::clipped_gradients`]).
    fn norm_bound(&self) -> Option<f64> {
        None
    }

    /// Returns a number that every client reports, so that all use one bound (FedKD's `z_max`).
    /// [`PrivacyMechanism::agree`] gets the largest. `None`: no such number is needed.
    fn range(&self, _message: &Self::On) -> Option<f32> {
        None
    }

    /// Sets the largest [`PrivacyMechanism::range`] of all clients.
    fn agree(&mut self, _largest: f32) {}

    /// Returns the cost of releasing `message`, made from the data of `cohort`; called before the
    /// release. A price may assume a random draw of clients ([`PrivacyEvent::SubsampledGaussian`],
    /// [`PrivacyEvent::FixedSizeGaussian`]). It is then accepted only if the cohort was drawn like
    /// that.
    ///
    /// # Errors
    /// If there is no sound price for this message.
    fn price(&self, message: &Self::On, cohort: &Cohort) -> Result<PrivacyEvent>;

    /// Adds the noise, all of it through `noise`; with system noise
    /// ([`crate::privacy::Noise::System`]) it is exact. Does nothing for a mechanism that only
    /// bounds.
    ///
    /// # Errors
    /// If the message cannot be perturbed.
    fn perturb(
        &mut self,
        message: &mut Self::On,
        cohort: &Cohort,
        noise: &ReleaseNoise,
    ) -> Result<()>;

    /// Returns the number of separate queries in `message`, such as the rows of vote counts. A
    /// budget may pay for the first few only.
    fn queries(&self, _message: &Self::On) -> usize {
        1
    }

    /// Keeps only the first `n` queries, `n` at most [`PrivacyMechanism::queries`].
    fn truncate(&self, _message: &mut Self::On, _n: usize) {}

    /// Returns the actual cost of the release; called after [`PrivacyMechanism::perturb`]. It may
    /// be less than the `price` if the noise decides how much is released, but never more.
    fn actual_cost(&self, price: PrivacyEvent) -> PrivacyEvent {
        price
    }

    /// Returns the state that lasts between releases, for a run that stops and resumes. Empty if
    /// there is none.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Restores a state from [`PrivacyMechanism::save`].
    ///
    /// # Errors
    /// If `state` is not a state of this part.
    fn load(&mut self, _state: &[u8]) -> Result<()> {
        Ok(())
    }
}
