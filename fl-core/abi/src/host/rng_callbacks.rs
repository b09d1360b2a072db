//! What a library draws from its host during a call.

use super::call::{Call, serve};
use fl_roles::privacy::{Noise, NoiseDraws, ReleaseNoise};
use fl_roles::{Draws, Stream};
use std::ffi::c_void;

/// Adds noise of a scale to a number.
type Hide = fn(&mut NoiseDraws, f64, f64) -> f64;

impl Call<'_> {
    fn draw(&self, out: &mut [f64], one: impl Fn(&mut Draws) -> f64) {
        let Some(key) = self.key else {
            self.misuse("it asked for random numbers in a call that has none".into());
            return;
        };
        let mut state = self.state();
        let draws = state
            .draws
            .get_or_insert_with(|| Stream::from_key(key).draws().into());
        out.fill_with(|| one(draws));
    }

    fn hide(&self, what: &str, values: &mut [f64], scale: f64, one: Hide) {
        let Some(key) = self.key else {
            self.misuse("it asked for noise in a call that has none".into());
            return;
        };
        if !(scale > 0.0 && scale.is_finite()) {
            self.misuse(format!(
                "`{what}`: a scale must be finite and above 0, got {scale}"
            ));
            return;
        }
        let mut state = self.state();
        let noise = || {
            ReleaseNoise::of(Stream::from_key(key), self.noise)
                .draws()
                .into()
        };
        let draws = state.noise.get_or_insert_with(noise);
        for x in values {
            *x = one(draws, *x, scale);
        }
    }
}

pub(super) unsafe extern "C" fn fill_uniform(context: *mut c_void, out: *mut f64, n: usize) {
    // SAFETY: as `log`; `out` has room for `n` numbers that are not shared.
    unsafe { serve_numbers(context, out, n, |call, out| call.draw(out, Draws::uniform)) }
}

pub(super) unsafe extern "C" fn fill_normal(context: *mut c_void, out: *mut f64, n: usize) {
    // SAFETY: as `fill_uniform`.
    unsafe {
        serve_numbers(context, out, n, |call, out| {
            if call.noise == Noise::System {
                let what =
                    "it drew normal numbers; noise of the system is added with `add_gaussian`";
                call.misuse(what.into());
            } else {
                call.draw(out, Draws::normal);
            }
        });
    }
}

pub(super) unsafe extern "C" fn add_laplace(
    context: *mut c_void,
    values: *mut f64,
    n: usize,
    scale: f64,
) {
    let add = |call: &Call<'_>, values: &mut [f64]| {
        call.hide("add_laplace", values, scale, NoiseDraws::laplace);
    };
    // SAFETY: as `fill_uniform`, of `values`.
    unsafe { serve_numbers(context, values, n, add) }
}

pub(super) unsafe extern "C" fn add_gaussian(
    context: *mut c_void,
    values: *mut f64,
    n: usize,
    sigma: f64,
) {
    let add = |call: &Call<'_>, values: &mut [f64]| {
        call.hide("add_gaussian", values, sigma, NoiseDraws::gaussian);
    };
    // SAFETY: as `fill_uniform`, of `values`.
    unsafe { serve_numbers(context, values, n, add) }
}

/// Runs `f` with the numbers, if there are any.
///
/// # Safety
/// As [`serve`]; at `data` are `n` numbers that are not shared.
unsafe fn serve_numbers(
    context: *mut c_void,
    data: *mut f64,
    n: usize,
    f: impl FnOnce(&Call<'_>, &mut [f64]),
) {
    // SAFETY: as the caller says.
    unsafe {
        serve(context, (), |call| {
            if n > 0 && !data.is_null() {
                f(call, std::slice::from_raw_parts_mut(data, n));
            }
        });
    }
}
