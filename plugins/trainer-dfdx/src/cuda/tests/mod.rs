//! The card's operations against the processor's, bit for bit, on the PTX interpreter.

mod kernels;
mod mutants;
mod nets;
mod operations;

use super::driver::{Card, Queue};
use fl_core::Draws;
use std::path::PathBuf;

/// The driver that tests open: the interpreter, which stands beside this program.
pub(super) fn fake_driver() -> Option<PathBuf> {
    let here = std::env::current_exe().ok()?;
    let name = format!(
        "{}fake_cuda{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    );
    Some(here.with_file_name(name))
}

fn queue() -> Queue {
    Queue::new(Card::open(0).unwrap()).unwrap()
}

/// Numbers around 0, some of them 0, of several sizes.
fn numbers(n: usize, draws: &mut Draws) -> Vec<f32> {
    let mut one = || match draws.below(12) {
        0 => 0.0,
        1 => -0.0,
        2 => (draws.normal() * 1e-3) as f32,
        _ => draws.normal() as f32,
    };
    (0..n).map(|_| one()).collect()
}

/// How many numbers differ in any bit, and the first that does.
fn differ(a: &[f32], b: &[f32]) -> Option<String> {
    if a.len() != b.len() {
        return Some(format!("{} numbers and {}", a.len(), b.len()));
    }
    let unlike = || (0..a.len()).filter(|i| a[*i].to_bits() != b[*i].to_bits());
    let first = unlike().next()?;
    let n = unlike().count();
    let (x, y) = (a[first], b[first]);
    Some(format!(
        "{n} of {} differ, at {first} {x:e} and {y:e}",
        a.len()
    ))
}
