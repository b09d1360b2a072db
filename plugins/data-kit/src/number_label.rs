//! Settings of labels that are numbers.

use fl_core::settings::above;
use fl_core::{LabelScale, Loss};

fl_core::choices! {
    /// The loss of models that learn a number. Differences are on the label's scale.
    pub enum NumberLoss {
        /// The squared error.
        Mse = "mse",
        /// The absolute error.
        Mae = "mae",
        /// Huber's loss (1964): half the squared error up to this difference, linear beyond.
        Huber(f64, in above(0.0)) = "huber",
    }
}

impl NumberLoss {
    /// Returns the loss.
    pub fn loss(&self) -> Loss {
        match self {
            Self::Mse => Loss::Mse,
            Self::Mae => Loss::Mae,
            Self::Huber(delta) => Loss::Huber { delta: *delta },
        }
    }
}

fl_core::settings! {
    /// A number to predict. Models learn `(number - centre) / spread`, and errors are reported in
    /// the number's own unit.
    #[check(NumberLabel::check)]
    pub struct NumberLabel {
        /// The number that an output of 0 stands for, such as the middle of the known range. If it
        /// is left out, the mean of the clients' rows.
        centre: Option<f64> = None;
        /// The difference that an output of 1 stands for, such as half of the known range. If it is
        /// left out, the standard deviation in the clients' rows.
        spread: Option<f64> = None, in above(0.0);
        /// The loss of models that learn it.
        loss: NumberLoss = NumberLoss::Mse;
    }
}

impl NumberLabel {
    fn check(&self) -> Result<(), String> {
        if self.centre.is_some() == self.spread.is_some() {
            Ok(())
        } else {
            Err("give both `centre` and `spread`, or none of them".into())
        }
    }

    /// Returns the scale, if the spec states it.
    pub fn scale(&self) -> Option<LabelScale> {
        let (centre, spread) = self.centre.zip(self.spread)?;
        Some(LabelScale { centre, spread })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_stated_whole_or_not_at_all() {
        let read = |text: &str| fl_core::settings::read_yaml::<NumberLabel>(text);
        let stated = read("{centre: 50, spread: 20, loss: {huber: 1.5}}").unwrap();
        let (centre, spread) = (50.0, 20.0);
        assert_eq!(stated.scale(), Some(LabelScale { centre, spread }));
        assert_eq!(stated.loss.loss(), Loss::Huber { delta: 1.5 });
        let half = format!("{:#}", read("{centre: 50}").unwrap_err());
        assert!(half.contains("give both `centre` and `spread`"), "{half}");
    }
}
