//! What an observer of releases can tell of one unit of data, from below: outcomes may be merged,
//! since an observer who tells fewer apart learns no more.

use fl_core::PrivacyEvent;
use fl_core::privacy::{Neighbours, Unit};

/// Probabilities of outcomes, in each of two worlds.
pub type Outcomes = Vec<(f64, f64)>;

/// Outcomes with log ratios in one cell of this width are merged.
const CELL: f64 = 0.05;
/// Number of cells on each side of 0.
const CELLS: i32 = 600;
const EDGES: u32 = 80;

/// The probability of `from..to` for standard normal noise on `mean`.
fn mass(from: f64, to: f64, mean: f64) -> f64 {
    let below = |x: f64| 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2);
    let (from, to) = (from - mean, to - mean);
    // the smaller tail has more digits
    if from > 0.0 {
        below(-from) - below(-to)
    } else {
        below(to) - below(from)
    }
}

/// Standard normal noise, on `shifts[0]` in one world and `shifts[1]` in the other with a chance of
/// `rate`, and else on 0.
fn normal(shifts: [f64; 2], rate: f64, edges: u32) -> Outcomes {
    let [low, high] = [shifts[0].min(shifts[1]).min(0.0), shifts[0].max(shifts[1])];
    let width = (high - low + 12.0) / f64::from(edges);
    let inner = (0..=edges).map(|k| low - 6.0 + width * f64::from(k));
    let mut cuts = vec![f64::NEG_INFINITY];
    cuts.extend(inner);
    cuts.push(f64::INFINITY);
    let of = |cut: &[f64], shift| {
        (1.0 - rate) * mass(cut[0], cut[1], 0.0) + rate * mass(cut[0], cut[1], shift)
    };
    let pair = |cut: &[f64]| (of(cut, shifts[0]), of(cut, shifts[1]));
    cuts.windows(2).map(pair).collect()
}

/// An answer that tells the worlds apart with this epsilon.
fn answer(epsilon: f64) -> Outcomes {
    let right = 1.0 / (1.0 + libm::exp(-epsilon));
    vec![(right, 1.0 - right), (1.0 - right, right)]
}

/// Everything that an observer saw about one unit.
pub struct Loss {
    /// The sum of the squares of all shifts of Gaussian noise on all data.
    square: f64,
    cells: Vec<(f64, f64)>,
}

impl Loss {
    pub fn none() -> Self {
        let mut cells = vec![(0.0, 0.0); 2 * CELLS as usize + 1];
        cells[CELLS as usize] = (1.0, 1.0);
        Self { square: 0.0, cells }
    }

    fn add(&mut self, outcomes: &Outcomes) {
        let mut cells = vec![(0.0, 0.0); self.cells.len()];
        for (p, q) in self.cells.iter().filter(|(p, q)| p + q > 0.0) {
            for (a, b) in outcomes {
                let (p, q) = (p * a, q * b);
                let ratio = libm::log(p / q) / CELL;
                // no number if both are 0
                let cell = ratio.clamp(-f64::from(CELLS), f64::from(CELLS)).floor() as i32 + CELLS;
                let into = &mut cells[cell as usize];
                *into = (into.0 + p, into.1 + q);
            }
        }
        self.cells = cells;
    }

    /// Adds a release. One unit is in it as `times` units, as a party of another split may be.
    pub fn see(&mut self, event: &PrivacyEvent, times: usize, (unit, pairs): (Unit, Neighbours)) {
        let k = times as f64;
        let removed_example = unit == Unit::Example && pairs == Neighbours::Removed;
        match event {
            PrivacyEvent::Gaussian {
                sensitivity, sigma, ..
            } => self.square += (k * sensitivity / sigma) * (k * sensitivity / sigma),
            // one row less makes every lot smaller
            PrivacyEvent::FixedSizeGaussian {
                sensitivity, sigma, ..
            } if removed_example => self.square += (sensitivity / sigma) * (sensitivity / sigma),
            PrivacyEvent::FixedSizeGaussian {
                k: drawn,
                of,
                sensitivity,
                sigma,
                ..
            } => self.add(&normal(
                [0.0, sensitivity / sigma],
                *drawn as f64 / *of as f64,
                EDGES,
            )),
            PrivacyEvent::SubsampledGaussian {
                rate,
                sensitivity,
                sigma,
                ..
            } => {
                let shift = sensitivity / sigma;
                let other = match pairs {
                    Neighbours::Removed => 0.0,
                    // by its opposite
                    Neighbours::Replaced => -shift,
                };
                self.add(&normal([other, shift], *rate, EDGES));
            }
            PrivacyEvent::Laplace {
                sensitivity, scale, ..
            } => {
                let a = k * sensitivity / scale;
                let (tail, far) = (0.5, 0.5 * libm::exp(-a));
                self.add(&vec![(tail, far), (0.5 - far, 0.5 - far), (far, tail)]);
            }
            // one voter more may change every vote
            PrivacyEvent::Pure { epsilon, times, .. } => {
                let more = if removed_example { 3.0 } else { 1.0 };
                (0..*times).for_each(|_| self.add(&answer(k * more * epsilon)));
            }
            other => panic!("{other} is not in a history"),
        }
    }

    /// The least epsilon that these releases can have at this delta.
    pub fn epsilon(mut self, delta: f64) -> f64 {
        if self.square > 0.0 {
            let shift = self.square.sqrt();
            self.add(&normal([0.0, shift], 1.0, 8 * EDGES));
        }
        let sum = |epsilon: f64| -> (f64, f64) {
            let e = libm::exp(epsilon);
            let over = |p: f64, q: f64| (p - e * q).max(0.0);
            let cells = self.cells.iter();
            cells.fold((0.0, 0.0), |(x, y), (p, q)| {
                (x + over(*p, *q), y + over(*q, *p))
            })
        };
        // sums of doubles are rounded
        let shows = |epsilon| {
            let (x, y) = sum(epsilon);
            x.max(y) > delta * (1.0 + 1e-6) + 1e-12
        };
        let (mut low, mut high) = (0.0, 60.0);
        while high - low > 1e-7 {
            let middle = f64::midpoint(low, high);
            if shows(middle) {
                low = middle
            } else {
                high = middle
            }
        }
        low
    }
}

#[test]
fn bounded_the_loss_of_known_releases_is_just_below_theirs() {
    let pairs = (Unit::Example, Neighbours::Replaced);
    let gaussian = PrivacyEvent::Gaussian {
        sensitivity: 1.0,
        sigma: 4.0,
        unit: Unit::Example,
    };
    let mut loss = Loss::none();
    (0..4).for_each(|_| loss.see(&gaussian, 2, pairs));
    // the exact epsilon of a shift of 1 at 1e-5 (Balle and Wang 2018)
    let found = loss.epsilon(1e-5);
    assert!((4.30..4.378).contains(&found), "{found}");
    let pure = PrivacyEvent::Pure {
        epsilon: 0.3,
        times: 4,
        unit: Unit::Example,
    };
    let mut loss = Loss::none();
    loss.see(&pure, 1, pairs);
    let found = loss.epsilon(0.0);
    assert!((1.19..1.2001).contains(&found), "{found}");
}
