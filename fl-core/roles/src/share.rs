//! Shares of a number of things, such as `trim: 0.29` of 100 clients, as whole numbers.

/// What the rounding of a decimal share, of a quotient and of a product can do to it, and more.
const ROUNDING: f64 = 4.0 * f64::EPSILON;

/// Returns `floor(share n)` of a share that is written as a decimal number: 29 for 0.29 of 100,
/// though the product of these two floating-point numbers is below 29. `share` is at least 0.
pub fn floor_share(share: f64, n: usize) -> usize {
    (share * n as f64 * (1.0 + ROUNDING)).floor() as usize
}

/// Returns `ceil(share n)` of a share that is written as a decimal number: 7 for 0.07 of 100,
/// though the product of these two floating-point numbers is above 7. `share` is at least 0.
pub fn ceil_share(share: f64, n: usize) -> usize {
    (share * n as f64 * (1.0 - ROUNDING)).ceil() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_shares_are_those_of_the_decimal_numbers() {
        for thousandths in 0..=1000_usize {
            let share: f64 = format!("{}e-3", thousandths).parse().unwrap();
            for n in (0..2000).chain([60_000, 1_000_000, 123_456_789]) {
                let exact = thousandths * n;
                assert_eq!(floor_share(share, n), exact / 1000, "{share} of {n}");
                assert_eq!(ceil_share(share, n), exact.div_ceil(1000), "{share} of {n}");
            }
        }
        // two that the plain product misses
        assert_eq!(((0.29 * 100.0) as usize, floor_share(0.29, 100)), (28, 29));
        assert_eq!(
            ((0.07_f64 * 100.0).ceil() as usize, ceil_share(0.07, 100)),
            (8, 7)
        );
    }
}
