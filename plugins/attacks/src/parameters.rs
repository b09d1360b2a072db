//! Attacks on the parameters of an answer.
use fl_core::message::alike;
use fl_core::prelude::*;

/// An attacker's knowledge about one number of the model.
pub struct AttackerView {
    /// The number that the server sent.
    pub sent: f64,
    /// The number after honest training; the mean over several trainings.
    pub honest: f64,
    /// The deviation between several honest trainings, 0 for one.
    pub deviation: f64,
    /// A draw from the standard normal distribution.
    pub noise: f64,
}

/// An attack on one number of the model.
pub trait Forge: Send {
    /// Returns the number to answer with.
    fn forge(&self, known: &AttackerView) -> f64;

    /// Returns whether it needs several honest trainings.
    fn compares(&self) -> bool {
        false
    }
}

/// A [`Forge`] as a part: an aggregator of honest training results into an attack.
#[derive(Debug)]
pub struct Attacker<A>(A);

impl<A: Forge> From<A> for Attacker<A> {
    fn from(attack: A) -> Self {
        Self(attack)
    }
}

impl<A: Forge> Aggregator for Attacker<A> {
    type In = Params;
    type Out = Params;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let sent: &Params = round
            .sent()
            .context("an attack changes the message sent, and there is none")?;
        let trained: Vec<&Params> = inbox.iter().map(|mail| &mail.body).collect();
        alike(sent, trained[0]).context("the message sent and the trained parameters")?;
        if self.0.compares() && trained.len() < 2 {
            round.note(
                "one training has no deviation, so this attack changes nothing; set `protocol.attacker-trainings`",
            );
        }
        let mut forged = sent.clone();
        let (mut each, n) = (Vec::new(), trained.len() as f64);
        let mut numbers: Vec<_> = trained.iter().map(|params| params.iter()).collect();
        let mut draws = round.stream.child("attack", 0).draws();
        for number in forged.0.values_mut().flatten() {
            each.clear();
            each.extend(
                numbers
                    .iter_mut()
                    .filter_map(|it| it.next())
                    .map(|x| f64::from(*x)),
            );
            let honest = each.iter().sum::<f64>() / n;
            let square = each
                .iter()
                .map(|x| (x - honest) * (x - honest))
                .sum::<f64>()
                / n;
            *number = self.0.forge(&AttackerView {
                sent: f64::from(*number),
                honest,
                deviation: square.sqrt(),
                noise: draws.normal(),
            }) as f32;
        }
        Ok(forged)
    }

    fn needs(&self) -> RequiredInputs {
        RequiredInputs::SENT
    }
}

settings! {
    /// Moves as far in the opposite direction, `sent - scale (honest - sent)` (sign flipping; Li et
    /// al. 2019).
    pub struct SignFlip {
        /// Factor of the distance.
        scale: f64 = 1.0, in above(0.0);
    }
}
impl Forge for SignFlip {
    fn forge(&self, k: &AttackerView) -> f64 {
        k.sent - self.scale * (k.honest - k.sent)
    }
}
plugin!(attack "sign-flip" => SignFlip as Attacker<SignFlip>,
    papers: ["Li et al. 2019"]);

settings! {
    /// Answers with the parameters that the server sent plus normal noise, without training
    /// (Blanchard et al. 2017).
    pub struct Gaussian {
        /// Its standard deviation on every number.
        std: f64 = 1.0, in above(0.0);
    }
}
impl Forge for Gaussian {
    fn forge(&self, k: &AttackerView) -> f64 {
        k.sent + self.std * k.noise
    }
}
plugin!(attack "gaussian" => Gaussian as Attacker<Gaussian>,
    papers: ["Blanchard et al. 2017"]);

settings! {
    /// Shifts every number a little, within the differences of honest clients (A Little Is Enough;
    /// Baruch et al. 2019): `honest + z deviation`, over several trainings of the attacker.
    pub struct LittleIsEnough {
        /// Number of deviations.
        z: f64 = 1.5, in above(0.0);
    }
}
impl Forge for LittleIsEnough {
    fn forge(&self, k: &AttackerView) -> f64 {
        k.honest + self.z * k.deviation
    }
    fn compares(&self) -> bool {
        true
    }
}
plugin!(attack "little-is-enough" => LittleIsEnough as Attacker<LittleIsEnough>,
    papers: ["Baruch et al. 2019"]);

settings! {
    /// Moves a little in the opposite direction (inner-product manipulation; Xie et al. 2020),
    /// `sent - epsilon (honest - sent)`. The step is so small that the answer lies among the honest
    /// ones, yet its inner product with their mean is negative.
    pub struct InnerProduct {
        /// Size of the step.
        epsilon: f64 = 0.1, in above(0.0);
    }
}
impl Forge for InnerProduct {
    fn forge(&self, k: &AttackerView) -> f64 {
        k.sent - self.epsilon * (k.honest - k.sent)
    }
}
plugin!(attack "inner-product" => InnerProduct as Attacker<InnerProduct>,
    papers: ["Xie et al. 2020"]);

settings! {
    /// Replaces the shared model by the attacker's own (model replacement; Bagdasaryan et al.
    /// 2020), `sent + scale (own - sent)`. Together with `label-flip`, a model that was trained on
    /// wrong labels.
    pub struct Replacement {
        /// Number of clients that it outweighs: the number of clients, divided by that of
        /// attackers, replaces a plain mean.
        scale: f64 = 10.0, in above(0.0);
    }
}
impl Forge for Replacement {
    fn forge(&self, k: &AttackerView) -> f64 {
        k.sent + self.scale * (k.honest - k.sent)
    }
}
plugin!(attack "replacement" => Replacement as Attacker<Replacement>,
    papers: ["Bagdasaryan et al. 2020"]);
