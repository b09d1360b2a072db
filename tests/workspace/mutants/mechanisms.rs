//! Flawed privacy mechanisms: Laplace noise on clipped scores, and what can be wrong with it.

use super::Mutant;
use fl_conformance::{Neighbours, check};
use fl_core::AnyMechanism;
use fl_core::prelude::*;
use fl_core::privacy::Unit;

const CLIP: f32 = 2.0;
const SCALE: f64 = 0.5;

#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    Nothing,
    Quiet,
    Silent,
    OneDraw,
    Normal,
    FixedSeed,
    Process,
    NoBound,
    HalfReach,
    Shrinks,
    SaysNorm,
    KeepsMore,
    Subsampled,
    Grows,
    Bare,
    Beside,
}

struct Noise(Flaw, u64);

impl PrivacyMechanism for Noise {
    type On = Logits;

    fn clip(&self, z: &mut Logits) -> Result<()> {
        match self.0 {
            Flaw::NoBound => {}
            Flaw::Shrinks => z.values.mapv_inplace(|v| 0.9 * v.clamp(-CLIP, CLIP)),
            _ => z.values.mapv_inplace(|v| v.clamp(-CLIP, CLIP)),
        }
        Ok(())
    }

    fn norm_bound(&self) -> Option<f64> {
        (self.0 == Flaw::SaysNorm).then_some(f64::from(CLIP))
    }

    fn price(&self, z: &Logits, _: &Cohort) -> Result<PrivacyEvent> {
        if self.0 == Flaw::Subsampled {
            return Ok(PrivacyEvent::SubsampledGaussian {
                rate: 0.01,
                sensitivity: 2.0 * f64::from(CLIP) * (z.values.len() as f64).sqrt(),
                sigma: SCALE,
                unit: Unit::Party,
            });
        }
        let reach = if self.0 == Flaw::HalfReach { 1.0 } else { 2.0 };
        let sensitivity = reach * f64::from(CLIP) * z.values.len() as f64;
        Ok(PrivacyEvent::Laplace {
            sensitivity,
            scale: SCALE,
            unit: Unit::Party,
        })
    }

    fn perturb(&mut self, z: &mut Logits, _: &Cohort, noise: &ReleaseNoise) -> Result<()> {
        let fixed = Stream::root(9).child("noise", self.1);
        let mut bare = noise.stream().draws();
        let mut draws = match self.0 {
            Flaw::FixedSeed | Flaw::Process => ReleaseNoise::of(fixed, noise.kind()).draws(),
            _ => noise.draws(),
        };
        let first = draws.laplace(0.0, SCALE);
        self.1 += u64::from(self.0 == Flaw::Grows);
        let more = 1.0 + self.1 as f64;
        let mut hide = |v: f64| match self.0 {
            Flaw::Grows => draws.laplace(v, more * SCALE),
            Flaw::Quiet => draws.laplace(v, 0.8 * SCALE),
            Flaw::Bare => v + bare.laplace(SCALE),
            Flaw::Beside => v + draws.laplace(0.0, SCALE),
            Flaw::Silent => v,
            Flaw::OneDraw => v + first,
            // the same variance as the Laplace noise that it is sold as
            Flaw::Normal => draws.gaussian(v, SCALE * 2f64.sqrt()),
            _ => draws.laplace(v, SCALE),
        };
        z.values.mapv_inplace(|v| hide(f64::from(v)) as f32);
        Ok(())
    }

    fn queries(&self, z: &Logits) -> usize {
        z.rows.len()
    }

    fn truncate(&self, z: &mut Logits, n: usize) {
        let n = if self.0 == Flaw::KeepsMore {
            (n + 1).min(z.rows.len())
        } else {
            n
        };
        z.rows.truncate(n);
        z.values = z.values.slice(ndarray::s![..n, ..]).to_owned();
    }
}

pub fn all() -> Vec<Mutant> {
    use Flaw::*;
    let flaws = [
        ("without a flaw", None, Flaw::Nothing),
        (
            "a fifth too little noise",
            Some("its noise is that of its price"),
            Quiet,
        ),
        ("no noise", Some("its noise is that of its price"), Silent),
        (
            "one draw for all numbers",
            Some("its noise is that of its price"),
            OneDraw,
        ),
        (
            "normal noise sold as Laplace noise",
            Some("its noise is that of its price"),
            Normal,
        ),
        (
            "noise from a seed of its own",
            Some("other stream, other noise"),
            FixedSeed,
        ),
        (
            "noise from a counter of the process",
            Some("same stream, same noise"),
            Process,
        ),
        (
            "a bound that does not bound",
            Some("its sensitivity is that of its price"),
            NoBound,
        ),
        (
            "half the sensitivity",
            Some("its sensitivity is that of its price"),
            HalfReach,
        ),
        (
            "bounds more every time",
            Some("bounding twice is bounding once"),
            Shrinks,
        ),
        (
            "clamps each number, and says that it bounds the norm",
            Some("bounds only the norm, if it says so"),
            SaysNorm,
        ),
        (
            "one query too many",
            Some("keeps the first queries"),
            KeepsMore,
        ),
        (
            "a price for a hundredth of the clients",
            Some("its price assumes no sampling that did not take place"),
            Subsampled,
        ),
        (
            "a count of releases in no state",
            Some("state survives save and load"),
            Grows,
        ),
        (
            "noise from the bare numbers of the stream",
            Some("noise of the system lies on its grid"),
            Bare,
        ),
        (
            "noise on the grid beside numbers that are not",
            Some("noise of the system lies on its grid"),
            Beside,
        ),
    ];
    let counter = std::sync::atomic::AtomicU64::new(0);
    let kit = |flaw| {
        let make = || {
            let n = counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            <dyn AnyMechanism>::of(Noise(flaw, if flaw == Process { n } else { 0 }))
        };
        check::mechanism(&make, Neighbours::Replaced)
    };
    let mut all: Vec<Mutant> = flaws
        .into_iter()
        .map(|(name, wanted, flaw)| (name, wanted, kit(flaw)))
        .collect();
    // half the reach is enough when a message can only come or go, and not be another
    let removed = check::mechanism(
        &|| <dyn AnyMechanism>::of(Noise(HalfReach, 0)),
        Neighbours::Removed,
    );
    all.push((
        "half the sensitivity, for a client that comes or goes",
        None,
        removed,
    ));
    all
}
