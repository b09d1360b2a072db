//! Losses of `(1 - rate) N(0) + rate N(shift)` against `N(0)`, and integrals over them.

/// Returns the probability that a normal variable is below `z`.
pub(crate) fn tail(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

/// Returns the density of a normal variable at `z`.
pub(crate) fn density(z: f64) -> f64 {
    libm::exp(-0.5 * z * z) / (2.0 * std::f64::consts::PI).sqrt()
}

/// Returns the loss at `z` for Gaussian noise, if the unit is removed.
pub(crate) fn gaussian_loss(rate: f64, shift: f64, z: f64) -> f64 {
    let full = shift * (z - 0.5 * shift);
    match rate {
        1.0 => full,
        _ if full > 30.0 => {
            libm::log(rate) + full + libm::log1p((1.0 - rate) / rate * libm::exp(-full))
        }
        _ => libm::log1p(rate * libm::expm1(full)),
    }
}

/// Returns the `z` at which that loss is `loss`; minus infinity if the loss is always larger.
pub(crate) fn place_of(rate: f64, shift: f64, loss: f64) -> f64 {
    let full = match rate {
        1.0 => loss,
        _ if loss > 30.0 => loss - libm::log(rate) + libm::log1p((rate - 1.0) * libm::exp(-loss)),
        _ => {
            let inner = libm::expm1(loss) / rate;
            if inner > -1.0 {
                libm::log1p(inner)
            } else {
                return f64::NEG_INFINITY;
            }
        }
    };
    full / shift + 0.5 * shift
}

/// Nodes and weights of the Gauss-Legendre rule of four points on `-1..1`.
const NODES: [(f64, f64); 4] = [
    (-0.861_136_311_594_052_6, 0.347_854_845_137_453_85),
    (-0.339_981_043_584_856_3, 0.652_145_154_862_546_2),
    (0.339_981_043_584_856_3, 0.652_145_154_862_546_2),
    (0.861_136_311_594_052_6, 0.347_854_845_137_453_85),
];

/// Width in standard deviations of a piece that one rule integrates, to 13 digits.
const PIECE: f64 = 0.1;

/// Calls `node(z, weight)` for a quadrature of `from..to`.
pub(crate) fn pieces((from, to): (f64, f64), node: &mut dyn FnMut(f64, f64)) {
    let pieces = ((to - from) / PIECE).ceil();
    let half = 0.5 * (to - from) / pieces;
    for piece in 0..pieces as usize {
        let middle = from + half * (2 * piece + 1) as f64;
        for (x, w) in NODES {
            node(middle + half * x, half * w);
        }
    }
}
