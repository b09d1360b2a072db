//! Eq. 3 and 4: scores on a grid of levels, with three readings.
use fl_core::message::Grid;
use fl_core::prelude::*;

choices! {
    /// The reading of the quantiser.
    pub enum Rule {
        /// Eq. 4: `level = ceil(z / z_max * S / 2)`, `S + 1` levels from `-z_max`.
        Eq4 = "eq4",
        /// Eq. 3: the smallest of `S` grid points from `-z_max` to `z_max` that is not below `z`.
        Eq3 = "eq3",
        /// The published code: `trunc(z / z_max * S / 2 + 0.5)`, towards zero.
        Official = "official",
    }
}

choices! {
    /// The client whose largest absolute score is `z_max`.
    pub enum Scope {
        /// All clients, which agree on it in an additional exchange.
        Global = "global",
        /// Each client's own.
        PerClient = "per-client",
        /// A constant: larger scores are clipped. Only then can noise give a guarantee, because the
        /// bound does not depend on the data.
        Fixed(f64) = "fixed",
    }
}

settings! {
    /// Rounds every score to one of a few levels, which then take few bits each (FedKD, Eq. 3 and
    /// 4; Gong et al. 2022).
    #[check(Quantise::enough_levels)]
    pub struct Quantise {
        /// S, the quantisation scale. FedKD uses 200.
        levels: u32 = 200, in 1..=1_000_000;
        /// The reading of the quantiser.
        rule: Rule = Rule::Eq4;
        /// The client whose largest absolute score is `z_max`.
        z_max: Scope = Scope::Global;
    }
}

impl Quantise {
    fn enough_levels(&self) -> Result<(), String> {
        match (&self.rule, self.levels, &self.z_max) {
            (Rule::Eq3, 1, _) => Err("`rule: eq3` needs at least 2 levels".into()),
            // scores have 32 bits
            (_, _, Scope::Fixed(clip)) if !(*clip > 0.0 && *clip <= f64::from(f32::MAX)) => {
                Err(format!(
                    "z-max.fixed: must be above 0.0 and at most {:e}, got {clip:?}",
                    f32::MAX
                ))
            }
            _ => Ok(()),
        }
    }
}

impl Rule {
    /// Returns the level of a score; 0 if `z_max` is 0. Eq. 3 counts from 0 at `-z_max`, the others
    /// from 0 at a score of 0.
    pub fn level(&self, z: f64, z_max: f64, s: u32) -> i64 {
        if z_max == 0.0 {
            return 0;
        }
        // first the ratio: then z = z_max lies exactly on a level
        let (r, s) = (z / z_max, f64::from(s));
        (match self {
            Self::Eq4 => (r * s / 2.0).ceil(),
            Self::Eq3 => ((r + 1.0) * (s - 1.0) / 2.0).ceil().clamp(0.0, s - 1.0),
            Self::Official => (r * s / 2.0 + 0.5).trunc(),
        }) as i64
    }

    /// Returns the score of a level.
    pub fn value(&self, level: i64, z_max: f64, s: u32) -> f64 {
        let (level, s) = (level as f64, f64::from(s));
        match self {
            _ if z_max == 0.0 => 0.0,
            Self::Eq4 => level * 2.0 * z_max / s,
            Self::Eq3 => 2.0 * level * z_max / (s - 1.0) - z_max,
            Self::Official => level * z_max / (s / 2.0),
        }
    }

    fn grid(&self, z_max: f32, s: u32) -> Grid {
        let peak = f64::from(z_max);
        let (low, high) = (self.level(-peak, peak, s), self.level(peak, peak, s));
        let step = self.value(low + 1, peak, s) - self.value(low, peak, s);
        Grid {
            levels: (high - low + 1) as u32,
            lowest: self.value(low, peak, s) as f32,
            step: step as f32,
        }
    }
}

/// The mechanism of [`Quantise`].
pub struct Quantiser {
    settings: Quantise,
    agreed: Option<f32>,
}

impl PrivacyMechanism for Quantiser {
    type On = Logits;

    fn range(&self, z: &Logits) -> Option<f32> {
        (self.settings.z_max == Scope::Global).then(|| z.peak())
    }

    fn agree(&mut self, largest: f32) {
        self.agreed = Some(largest);
    }

    fn clip(&self, z: &mut Logits) -> Result<()> {
        let z_max = match self.settings.z_max {
            Scope::Fixed(clip) => {
                z.values
                    .mapv_inplace(|v| v.clamp(-clip as f32, clip as f32));
                clip as f32
            }
            Scope::Global => self.agreed.unwrap_or_else(|| z.peak()),
            Scope::PerClient => z.peak(),
        };
        let Quantise { rule, levels, .. } = &self.settings;
        let grid = rule.grid(z_max, *levels);
        let low = rule.level(-f64::from(z_max), f64::from(z_max), *levels);
        z.values.mapv_inplace(|v| {
            grid.value((rule.level(f64::from(v), f64::from(z_max), *levels) - low).max(0) as u32)
        });
        z.pack(grid);
        Ok(())
    }

    fn price(&self, _: &Logits, _: &Cohort) -> Result<PrivacyEvent> {
        Ok(PrivacyEvent::Unaccounted {
            why: "quantisation alone gives no guarantee that has a price".into(),
        })
    }

    fn perturb(&mut self, _: &mut Logits, _: &Cohort, _: &ReleaseNoise) -> Result<()> {
        Ok(())
    }
}
plugin!(privacy "quantise" => Quantise as Quantiser { agreed },
    papers: ["Gong et al. 2022"]);

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    fn quantised(rule: Rule, levels: u32, z: Logits) -> Logits {
        let mut out = z;
        Quantiser::from(Quantise {
            levels,
            rule,
            z_max: Scope::PerClient,
        })
        .clip(&mut out)
        .unwrap();
        out
    }

    #[test]
    fn packing_changes_no_value_and_quantising_twice_changes_nothing() {
        let z = Logits::new(
            vec![0, 1],
            array![[-4.0, -3.97, -0.02, 0.0], [0.013, 0.75, 3.33, 4.0]],
        );
        for rule in [Rule::Eq4, Rule::Eq3, Rule::Official] {
            for levels in [2, 5, 8, 200] {
                let q = quantised(rule.clone(), levels, z.clone());
                for (q, z) in q.values.iter().zip(&z.values) {
                    let exact = rule.value(rule.level(f64::from(*z), 4.0, levels), 4.0, levels);
                    assert!(
                        (f64::from(*q) - exact).abs() < 1e-6,
                        "{rule:?} {levels}: {z} became {q}, not {exact}"
                    );
                }
                assert_eq!(
                    fl_core::message::decode::<Logits>(&fl_core::message::encode(&q)).unwrap(),
                    q
                );
            }
        }
        let zero = Logits::new(vec![0], array![[0.0, 0.0]]);
        assert_eq!(quantised(Rule::Eq4, 200, zero.clone()).values, zero.values);
    }

    #[test]
    fn it_is_a_mechanism() {
        for z_max in [Scope::Global, Scope::PerClient, Scope::Fixed(3.0)] {
            for rule in [Rule::Eq4, Rule::Eq3, Rule::Official] {
                fl_conformance::mechanism(|| {
                    Quantiser::from(Quantise {
                        levels: 200,
                        rule: rule.clone(),
                        z_max: z_max.clone(),
                    })
                });
            }
        }
    }

    #[test]
    fn two_hundred_levels_take_one_byte_a_score() {
        let z = Logits::new(
            (0..10).collect(),
            array![[1.0f32, -2.0, 0.5, 0.25]]
                .broadcast((10, 4))
                .unwrap()
                .to_owned(),
        );
        let bytes = fl_core::message::bytes(
            &quantised(Rule::Eq4, 200, z),
            Some(&(0..10).collect::<Vec<_>>()),
        );
        assert_eq!(
            bytes.values,
            40 + 4,
            "a byte for each of 40 scores, a float for the step"
        );
    }
}
