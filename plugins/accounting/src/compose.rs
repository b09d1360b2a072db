//! Composition of privacy losses by Fourier transforms.

use crate::fourier::{Fourier, power, times};
use crate::losses::{Losses, Release, Way};

/// A release, and its number of repetitions.
pub type Times = (Release, f64);

/// The most points of a sum. A sum that needs more keeps a coarser bound.
const MOST_POINTS: f64 = (1u64 << 22) as f64;
/// A wider range of losses counts as infinite.
const MOST_SPAN: f64 = 1e15;
/// The grid is refined until epsilon changes by no more than this share.
const CLOSE: f64 = 5e-4;
/// The part of the tails that is cut off counts as lost: this share of delta, and less than that of
/// epsilon.
const CUT_OFF: f64 = 1e-5;

/// Returns an upper bound of the epsilon of all these releases at `delta`.
pub fn epsilon(all: &[Times], delta: f64) -> f64 {
    if !all.iter().all(|(release, _)| release.is_noisy()) {
        return f64::INFINITY;
    }
    let variation: f64 = all.iter().map(|(release, n)| n * release.variation()).sum();
    if variation <= delta {
        return 0.0;
    }
    let one = |way| Sum { all, way, delta }.epsilon();
    if all.iter().all(|(release, _)| release.is_symmetric()) {
        one(Way::Removed)
    } else {
        one(Way::Removed).max(one(Way::Added))
    }
}

struct Sum<'a> {
    all: &'a [Times],
    way: Way,
    delta: f64,
}

impl Sum<'_> {
    fn epsilon(&self) -> f64 {
        let times: f64 = self.all.iter().map(|(_, n)| n).sum();
        // the tail of a normal variable is less than exp(-z^2 / 2)
        let cut = (2.0 * libm::log(times / (CUT_OFF * self.delta))).sqrt();
        let spans = self.all.iter().map(|(release, _)| release.range(cut));
        let spans = spans.map(|(a, b)| b - a);
        // a span that is no number is that of noise beside nothing
        let usable = |span| (0.0..=MOST_SPAN).contains(&span);
        if !spans.clone().all(usable) {
            return f64::INFINITY;
        }
        let span = spans.fold(0.0, f64::max);
        let spread = |(release, n): &Times| (release.variance(self.way, cut), *n);
        let spread = self.all.iter().map(spread);
        let (sum, most) = spread.fold((0.0, 0.0), |(sum, most), (v, n)| {
            (sum + n * v, f64::max(most, v))
        });
        let (mut step, least) = (
            (sum.sqrt() / 32.0)
                .min(most.sqrt())
                .max(sum.sqrt() / 65536.0)
                .max(span / 8192.0),
            span / (MOST_POINTS / 4.0),
        );
        let (mut best, mut orders) = (f64::INFINITY, None);
        loop {
            let on_grid = |(release, n): &Times| (release.on_grid(self.way, step, cut), *n);
            let grids = Grids {
                all: self.all.iter().map(on_grid).collect(),
                step,
            };
            let orders = orders.get_or_insert_with(|| grids.orders(self.delta));
            let Some(epsilon) = grids.epsilon(orders, self.delta) else {
                return best;
            };
            let close = best - epsilon <= CLOSE * epsilon;
            best = best.min(epsilon);
            if close || step / 2.0 < least {
                return best;
            }
            step /= 2.0;
        }
    }
}

/// Orders of the moments `E exp(order * loss)` that give good bounds of the tails.
struct Orders {
    /// For the loss whose tail has probability delta.
    middle: f64,
    /// For losses that nearly no mass exceeds.
    above: f64,
    /// For losses below and above which nearly no mass of the tilted sum lies: it would wrap around
    /// to the other end of the window.
    beyond: [f64; 2],
}

/// `ln` of the share of the tilted sum that may lie beyond one end of the window.
const LN_BEYOND: f64 = -14.0;

impl Orders {
    /// Finds the orders around `middle`, or around the order of Chernoff's bound.
    fn of(grids: &Grids, delta: f64, middle: Option<f64>) -> Self {
        let ln = libm::log(delta);
        // the least loss that has this tail, by Chernoff's bound
        let top = |ln_tail: f64, from: f64| {
            least(
                |order| (grids.ln_moment(order) - ln_tail) / order,
                from,
                1e10,
            )
        };
        let smallest = 1e-9 / grids.step;
        let middle = middle.unwrap_or_else(|| top(ln, smallest));
        let above = top(ln + libm::log(CUT_OFF), middle);
        let tilted = grids.ln_moment(middle);
        let end = |sign: f64| {
            let width = |t: f64| (grids.ln_moment(middle + sign * t) - tilted - LN_BEYOND) / t;
            middle + sign * least(width, smallest, 1e10)
        };
        Self {
            middle,
            above,
            beyond: [end(-1.0), end(1.0)],
        }
    }
}

/// `ln` of the largest growth of rounding errors relative to delta. The number of smaller orders to
/// try.
const LN_GROWN: f64 = 22.0;
const MOST_TRIES: usize = 12;

/// Returns where `f` is least for a number above 0, to a few percent; `f` falls and then rises. The
/// minimum lies in `from..from * times`.
fn least(f: impl Fn(f64) -> f64, from: f64, times: f64) -> f64 {
    let (mut a, mut b) = (libm::log(from), libm::log(from) + libm::log(times));
    while b - a > 0.05 {
        let (c, d) = (a + 0.382 * (b - a), a + 0.618 * (b - a));
        if f(libm::exp(c)) <= f(libm::exp(d)) {
            b = d
        } else {
            a = c
        }
    }
    libm::exp(f64::midpoint(a, b))
}

/// The losses of all releases on one grid.
struct Grids {
    all: Vec<(Losses, f64)>,
    step: f64,
}

impl Grids {
    /// `ln E exp(order * sum of losses)`.
    fn ln_moment(&self, order: f64) -> f64 {
        let each = |(losses, n): &(Losses, f64)| n * losses.ln_moment(order * self.step);
        self.all.iter().map(each).sum()
    }

    /// Returns orders that keep enough digits. If losses have a bound, Chernoff's order may be so
    /// large that the tilted sum lies far above epsilon. Its rounding errors would then grow by
    /// `exp(order * distance)`.
    fn orders(&self, delta: f64) -> Orders {
        let mut orders = Orders::of(self, delta, None);
        for _ in 0..MOST_TRIES {
            let Some(epsilon) = self.epsilon(&orders, delta) else {
                break;
            };
            let order = orders.middle;
            let ln_grown = self.ln_moment(order) - order * epsilon - libm::log(delta);
            if ln_grown < LN_GROWN {
                break;
            }
            orders = Orders::of(self, delta, Some(order / 4.0));
        }
        orders
    }

    /// Returns the least epsilon for which the sum satisfies delta; `None` if that needs too many
    /// points.
    fn epsilon(&self, orders: &Orders, delta: f64) -> Option<f64> {
        let step = self.step;
        let lost: f64 = self.all.iter().map(|(losses, n)| n * losses.infinite).sum();
        let lost = lost + CUT_OFF * delta;
        let ln_tilted = self.ln_moment(orders.middle);
        let ln_lost = libm::log(CUT_OFF * delta);
        let most = (self.ln_moment(orders.above) - ln_lost) / orders.above;
        let end =
            |order: f64| (self.ln_moment(order) - ln_tilted - LN_BEYOND) / (order - orders.middle);
        let [least, far] = orders.beyond.map(end);
        let most = most.max(far);
        let last = (most / step).ceil() + 1.0;
        let mut first = (least / step).floor().min(last - 2.0);
        let mut points = (last - first).max(2.0);
        while points < MOST_POINTS {
            let size = (points as usize).next_power_of_two();
            let window = (first as i64, size);
            if let Some(epsilon) = self.within(window, (orders.middle, ln_tilted), (lost, delta)) {
                return Some(epsilon);
            }
            // epsilon lies where the tilted sum has hardly any mass
            points = 2.0 * size as f64;
            first = last - points;
        }
        None
    }

    /// [`Grids::epsilon`] if the sum lies within these points of the grid: the first, and their
    /// number. `None`: it lies below them.
    fn within(
        &self,
        (first, points): (i64, usize),
        (order, ln_tilted): (f64, f64),
        (lost, delta): (f64, f64),
    ) -> Option<f64> {
        let step = self.step;
        let sum = self.tilted(order, points);
        // from the highest loss down: `tail` sums the masses so far, weighted by exp(this loss -
        // loss), and `spent` is the delta here
        let (mut tail, mut spent) = (0.0, lost);
        let (shrink, rest) = (libm::exp(-step), -libm::expm1(-step));
        for index in (first..first + points as i64).rev() {
            let more = spent + rest * tail;
            if more > delta {
                // between here and the point above
                let share: f64 = (delta - spent) / tail;
                let above = (index + 1) as f64 * step;
                return Some((above + libm::log1p(-share)).max(0.0));
            }
            if index < 0 {
                return Some(0.0);
            }
            let loss = index as f64 * step;
            let tilted = sum[index.rem_euclid(points as i64) as usize].max(0.0);
            spent = more;
            tail = tail * shrink + tilted * libm::exp(ln_tilted - order * loss);
        }
        None
    }

    /// Returns the distribution of the sum, times `exp(order * loss)` and scaled to 1, so that
    /// rounding does not hide the relevant part. It wraps around a circle of `points` points.
    fn tilted(&self, order: f64, points: usize) -> Vec<f64> {
        let fourier = Fourier::new(points);
        let mut product = vec![(1.0 / points as f64, 0.0); points / 2 + 1];
        let mut around = vec![0.0; points];
        for (losses, n) in &self.all {
            let ln_scale = losses.ln_moment(order * self.step);
            around.fill(0.0);
            for (loss, mass) in (losses.first..).zip(&losses.mass) {
                let tilt = libm::exp(order * self.step * loss as f64 - ln_scale);
                around[loss.rem_euclid(points as i64) as usize] += mass * tilt;
            }
            for (product, one) in product.iter_mut().zip(fourier.forward(&around)) {
                *product = times(*product, power(one, *n));
            }
        }
        // rounding leaves small values where the exact result is 0
        product[0].1 = 0.0;
        if let Some(last) = product.last_mut() {
            last.1 = 0.0;
        }
        fourier.backward(&product)
    }
}

impl Losses {
    /// `ln sum mass exp(t * point)`.
    fn ln_moment(&self, t: f64) -> f64 {
        // each end has some mass, so the largest term is not far below that of the larger end
        let last = self.first + self.mass.len() as i64 - 1;
        let most = (t * self.first as f64).max(t * last as f64);
        let terms = (self.first..).zip(&self.mass);
        let sum: f64 = terms
            .map(|(point, m)| m * libm::exp(t * point as f64 - most))
            .sum();
        most + libm::log(sum)
    }
}
