//! Comparison of messages and tables, number by number.

use anyhow::Context;
use fl_core::Result;
use fl_core::message::{AnyMessage, Erased, NamedTensors, Tensor, TensorMap, View};
use ndarray::{Array2, ArrayD, Zip};

/// Formats six significant digits, without trailing zeros or negative zero.
pub(crate) fn digits(x: f64) -> String {
    let rounded: f64 = format!("{x:.5e}").parse().unwrap_or(x);
    if rounded == 0.0 {
        return "0".into();
    }
    if (1e-4..1e9).contains(&rounded.abs()) {
        format!("{rounded}")
    } else {
        format!("{rounded:e}")
    }
}

/// Formats `1 once and 2 the other time`, with enough digits to distinguish them.
fn both(x: f64, y: f64) -> String {
    let (short_x, short_y) = (digits(x), digits(y));
    if short_x == short_y {
        format!("{x:e} once and {y:e} the other time")
    } else {
        format!("{short_x} once and {short_y} the other time")
    }
}

/// Returns the numbers of a tensor.
pub(crate) fn numbers(view: &View<'_>) -> Vec<f64> {
    match view {
        View::F32(a) => a.iter().map(|x| f64::from(*x)).collect(),
        View::F64(a) => a.iter().copied().collect(),
        View::U32(a) => a.iter().map(|x| f64::from(*x)).collect(),
        View::U8(b) => b.iter().map(|x| f64::from(*x)).collect(),
        View::I64(a) => a.iter().map(|x| *x as f64).collect(),
        View::Bits(b) => b.iter().map(|x| f64::from(u8::from(x))).collect(),
    }
}

/// Returns the numbers of all tensors of floats.
pub(crate) fn floats(message: &dyn AnyMessage) -> Vec<f64> {
    let tensors = message.content();
    let floats = tensors
        .iter()
        .filter(|(_, v)| matches!(v, View::F32(_) | View::F64(_)));
    floats.flat_map(|(_, v)| numbers(v)).collect()
}

/// Returns the numbers of all tensors of whole numbers.
pub(crate) fn whole(message: &dyn AnyMessage) -> Vec<u32> {
    let tensors = message.content();
    let whole = tensors
        .iter()
        .filter(|(_, v)| matches!(v, View::U32(_) | View::U8(_)));
    whole
        .flat_map(|(_, v)| numbers(v))
        .map(|x| x as u32)
        .collect()
}

/// Describes where two messages differ by more than `tolerance`; 0 requires the same bits.
pub(crate) fn difference(
    one: &dyn AnyMessage,
    other: &dyn AnyMessage,
    tolerance: f64,
) -> Option<String> {
    let (a, b) = (&one.content(), &other.content());
    let outline = |t: &NamedTensors<'_>| {
        let each = t
            .iter()
            .map(|(name, v)| format!("`{name}` {:?}", v.shape()));
        each.collect::<Vec<_>>().join(", ")
    };
    if outline(a) != outline(b) {
        return Some(format!(
            "it holds {} once and {} the other time",
            outline(a),
            outline(b)
        ));
    }
    a.iter()
        .zip(b)
        .find_map(|((name, x), (_, y))| apart(name, &x.to_f64(), &y.to_f64(), tolerance))
}

/// Describes where two tables differ by more than `tolerance`; 0 requires the same bits.
pub(crate) fn apart_tables(
    one: &Array2<f32>,
    other: &Array2<f32>,
    tolerance: f64,
) -> Option<String> {
    if one.dim() != other.dim() {
        return Some(format!(
            "the shape is {:?} once and {:?} the other time",
            one.dim(),
            other.dim()
        ));
    }
    let numbers = |t: &Array2<f32>| View::F32(t.view().into_dyn()).to_f64();
    apart("scores", &numbers(one), &numbers(other), tolerance)
}

fn apart(name: &str, one: &[f64], other: &[f64], tolerance: f64) -> Option<String> {
    let same = |x: f64, y: f64| {
        if tolerance == 0.0 {
            x.to_bits() == y.to_bits()
        } else {
            (x - y).abs() <= tolerance
        }
    };
    let mut pairs = one.iter().zip(other).enumerate();
    let (at, (x, y)) = pairs.find(|(_, (x, y))| !same(**x, **y))?;
    Some(format!("number {at} of `{name}` is {}", both(*x, *y)))
}

/// Returns the message with `f` of every float.
pub(crate) fn map(message: &dyn AnyMessage, mut f: impl FnMut(f64) -> f64) -> Result<Erased> {
    let tensors = message.content().into_iter().map(|(name, view)| {
        let tensor = match view.to_tensor() {
            Tensor::F32(a) => Tensor::F32(a.mapv(|x| f(f64::from(x)) as f32)),
            Tensor::F64(a) => Tensor::F64(a.mapv(&mut f)),
            other => other,
        };
        (name.into_owned(), tensor)
    });
    let parcel = TensorMap::new(tensors.collect());
    let of = message.message_type();
    of.from_tensors(parcel)
        .with_context(|| format!("the kit could not rebuild a {} message", of.kind))
}

/// Returns the sum of the absolute differences of two tensors of the same shape.
pub(crate) fn distance(one: &ArrayD<f32>, other: &ArrayD<f32>) -> f64 {
    Zip::from(one)
        .and(other)
        .fold(0.0, |sum, x, y| sum + (f64::from(*x) - f64::from(*y)).abs())
}
