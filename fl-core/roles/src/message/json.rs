//! Messages as JSON: an object of nested lists of numbers, by the names of the tensors.

use super::bits::pack_bits;
use super::{AnyMessage, Bits, Column, Dtype, Message, Tensor, TensorMap, View, check};
use crate::Result;
use anyhow::{Context, bail, ensure};
use ndarray::{ArrayD, ArrayViewD, IxDyn};
use serde_json::{Map, Value as Json, json};

/// Reads a message. Its tensors have the types of [`Message::COLUMNS`], or of its wire form:
/// `levels` and `packed` are bytes. Floats that JSON cannot write are the texts `nan`, `inf` and
/// `-inf`, which no check accepts.
///
/// ```
/// use fl_core::message::{from_json, to_json, Counts};
/// let json = serde_json::json!({ "rows": [4, 9], "values": [[1, 2.5], [0, 3]] });
/// let counts: Counts = from_json(json.as_object().unwrap()).unwrap();
/// assert_eq!(counts.winners(), [1, 1]);
/// assert_eq!(to_json(&counts)["rows"], json["rows"]);
/// ```
///
/// # Errors
/// Names the tensor and its mistake: another shape, a number that its type does not hold, or an
/// unknown name. Also those of [`check`].
pub fn from_json<M: Message>(tensors: &Map<String, Json>) -> Result<M> {
    let made = parcel(M::COLUMNS, tensors).and_then(M::from_tensors);
    let message = made.with_context(|| format!("a {} message", M::KIND))?;
    check(&message)?;
    Ok(message)
}

/// Reads the tensors of a message with these columns.
pub(super) fn parcel(columns: &[Column], tensors: &Map<String, Json>) -> Result<TensorMap> {
    let one = |(name, value): (&String, &Json)| {
        let tensor = dtype(columns, name).and_then(|dtype| tensor(value, dtype));
        let tensor = tensor.with_context(|| format!("tensor `{name}`"))?;
        Ok((name.clone(), tensor))
    };
    let tensors = tensors.iter().map(one).collect::<Result<_>>()?;
    Ok(TensorMap::new(tensors))
}

/// Returns the tensors of a message; values packed for the wire are unpacked here.
pub fn to_json(message: &dyn AnyMessage) -> Json {
    let one = |(name, view): (std::borrow::Cow<'_, str>, View<'_>)| {
        let value = match view {
            // in its shortest form: 0.1, not 0.10000000149011612
            View::F32(a) => nested(a, &|x| {
                if x.is_finite() {
                    x.to_string().parse().map_or(Json::Null, Json::Number)
                } else {
                    word(f64::from(x))
                }
            }),
            View::F64(a) => nested(a, &|x| if x.is_finite() { json!(x) } else { word(x) }),
            View::U32(a) => nested(a, &|x| json!(x)),
            View::U8(b) => json!(b),
            View::I64(a) => nested(a, &|x| json!(x)),
            View::Bits(b) => {
                let bits: Vec<u8> = b.iter().map(u8::from).collect();
                let view = ArrayViewD::from_shape(IxDyn(b.shape()), &bits);
                view.map_or(Json::Null, |view| nested(view, &|x| json!(x)))
            }
        };
        (name.into_owned(), value)
    };
    Json::Object(message.content().into_iter().map(one).collect())
}

/// Returns the text for a number that JSON does not have.
fn word(x: f64) -> Json {
    match x {
        x if x.is_nan() => json!("nan"),
        x if x > 0.0 => json!("inf"),
        _ => json!("-inf"),
    }
}

/// The largest number of empty lists to write: a shape of a few bytes may stand for billions.
const EMPTY_LISTS: usize = 10_000;

fn nested<T: Copy>(a: ArrayViewD<'_, T>, number: &impl Fn(T) -> Json) -> Json {
    let outer = a.shape().iter().take_while(|n| **n > 0);
    let lists = outer.fold(1, |all: usize, n| all.saturating_mul(*n));
    if a.is_empty() && lists > EMPTY_LISTS {
        return json!([]);
    }
    match a.ndim() {
        0 => a.first().map_or(Json::Null, |x| number(*x)),
        _ => a.outer_iter().map(|inner| nested(inner, number)).collect(),
    }
}

/// Returns the type of the tensor called `name`.
fn dtype(columns: &[Column], name: &str) -> Result<Dtype> {
    // the wire forms of scores and votes
    const WIRE: [(&str, Dtype); 5] = [
        ("levels", Dtype::U8),
        ("packed", Dtype::U8),
        ("step", Dtype::U32),
        (".grid", Dtype::U32),
        (".shape", Dtype::U32),
    ];
    let named = |c: &&Column| c.name == name || c.name == "*";
    let known = columns.iter().find(named).map(|c| c.dtype);
    let wire = || WIRE.iter().find(|(n, _)| *n == name).map(|(_, d)| *d);
    known.or_else(wire).with_context(|| {
        let names: Vec<_> = columns.iter().map(|c| format!("`{}`", c.name)).collect();
        if names.is_empty() {
            "there are no tensors here".to_string()
        } else {
            format!("there is no such tensor; there are {}", names.join(", "))
        }
    })
}

fn tensor(value: &Json, dtype: Dtype) -> Result<Tensor> {
    fn of<T>(value: &Json, number: impl Fn(&Json) -> Result<T>) -> Result<ArrayD<T>> {
        let (mut shape, mut numbers) = (Vec::new(), Vec::new());
        flatten(value, 0, &mut shape, &mut numbers, &number)?;
        Ok(ArrayD::from_shape_vec(IxDyn(&shape), numbers)?)
    }
    Ok(match dtype {
        Dtype::F32 => Tensor::F32(of(value, |v| Ok(float(v)? as f32))?),
        Dtype::F64 => Tensor::F64(of(value, float)?),
        Dtype::U32 => Tensor::U32(of(value, |v| whole(v, u32::MAX).map(|n| n as u32))?),
        Dtype::U8 => {
            let bytes = of(value, |v| whole(v, u32::from(u8::MAX)).map(|n| n as u8))?;
            ensure!(bytes.ndim() == 1, "bytes are one list");
            Tensor::U8(bytes.into_raw_vec_and_offset().0)
        }
        Dtype::I64 => Tensor::I64(of(value, |v| {
            let n = v.as_i64();
            n.with_context(|| format!("64-bit whole numbers are due, found {}", short(v)))
        })?),
        Dtype::Bits => {
            let bits = of(value, |v| whole(v, 1).map(|n| n as u32))?;
            let packed = pack_bits(bits.iter().copied(), 1);
            Tensor::Bits(Bits::new(bits.shape().to_vec(), packed)?)
        }
    })
}

fn flatten<T>(
    value: &Json,
    depth: usize,
    shape: &mut Vec<usize>,
    out: &mut Vec<T>,
    number: &impl Fn(&Json) -> Result<T>,
) -> Result<()> {
    let Json::Array(items) = value else {
        ensure!(shape.len() == depth, "a list mixes numbers and lists");
        out.push(number(value)?);
        return Ok(());
    };
    if shape.len() == depth {
        ensure!(out.is_empty(), "a list mixes numbers and lists");
        shape.push(items.len());
    }
    ensure!(
        shape[depth] == items.len(),
        "its lists differ in length: {} and {}",
        shape[depth],
        items.len()
    );
    items
        .iter()
        .try_for_each(|v| flatten(v, depth + 1, shape, out, number))
}

fn float(value: &Json) -> Result<f64> {
    match value {
        Json::Number(n) => n.as_f64().context("a number beyond 64-bit floats"),
        Json::String(s) if matches!(s.as_str(), "nan" | "inf" | "-inf") => Ok(s.parse()?),
        other => bail!(
            "must be a number or a list of numbers, got {}",
            short(other)
        ),
    }
}

fn whole(value: &Json, most: u32) -> Result<u64> {
    // 3.0 is whole too
    let wide = value.as_u64().or_else(|| {
        let x = value.as_f64()?;
        (x.fract() == 0.0 && (0.0..=f64::from(most)).contains(&x)).then_some(x as u64)
    });
    wide.filter(|n| *n <= u64::from(most)).with_context(|| {
        format!(
            "whole numbers of 0..={most} are due, found {}",
            short(value)
        )
    })
}

fn short(value: &Json) -> String {
    let text = value.to_string();
    match text.char_indices().nth(40) {
        Some((at, _)) => format!("{}..", &text[..at]),
        None => text,
    }
}
