//! The wire form: a length, a header of names, types and shapes, then the numbers, little-endian.

use super::{AnyMessage, Bits, Dtype, Message, Tensor, TensorMap};
use crate::Result;
use anyhow::{Context, ensure};
use ndarray::{ArrayD, Dimension, IxDyn};

/// Returns the wire form. The inverse is [`decode`].
pub fn encode(message: &dyn AnyMessage) -> Vec<u8> {
    let tensors = message.sent();
    let head: Vec<(&str, u8, Vec<u64>)> = tensors
        .iter()
        .map(|(n, v)| {
            (
                &**n,
                v.dtype() as u8,
                v.shape().into_iter().map(|d| d as u64).collect(),
            )
        })
        .collect();
    let head =
        postcard::to_stdvec(&(message.kind(), head)).expect("plain data can be written to memory");
    let numbers: usize = tensors.iter().map(|(_, view)| view.bytes()).sum();
    let mut out = Vec::with_capacity(4 + head.len() + numbers);
    out.extend_from_slice(&(head.len() as u32).to_le_bytes());
    out.extend_from_slice(&head);
    for (_, view) in &tensors {
        view.feed(|bytes| out.extend_from_slice(bytes));
    }
    out
}

/// Reads the output of [`encode`].
///
/// # Errors
/// If `wire` is truncated, is of another kind, or its tensors are not those of an `M`. No
/// allocation is larger than `wire`.
pub fn decode<M: Message>(wire: &[u8]) -> Result<M> {
    M::from_tensors(parcel(wire, M::KIND)?).with_context(|| format!("a {} message", M::KIND))
}

/// Reads the tensors of a message of this kind.
pub(super) fn parcel(wire: &[u8], due: &str) -> Result<TensorMap> {
    let cut = || format!("a {due} message that is cut short ({} bytes)", wire.len());
    let (kind, head, rest) = read_head(wire).with_context(cut)?;
    ensure!(
        !kind.is_empty(),
        "bytes of another program where a {due} message was due"
    );
    ensure!(kind == due, "a message of kind {kind} where {due} was due");
    let (tensors, rest) = read_numbers(head, rest, &cut)?;
    ensure!(
        rest.is_empty(),
        "{} bytes too many after a {due} message",
        rest.len()
    );
    Ok(TensorMap::new(tensors))
}

/// Tensors by name, in the order of a message.
pub type OwnedTensors = Vec<(String, Tensor)>;

/// Reads a message of any kind at the beginning of `wire`, for programs that observe runs. Returns
/// its kind, its tensors, and the bytes after it.
///
/// # Errors
/// If `wire` does not begin with a whole message.
pub fn read_any(wire: &[u8]) -> Result<(String, OwnedTensors, &[u8])> {
    let cut = || format!("a message that is cut short ({} bytes)", wire.len());
    let (kind, head, rest) = read_head(wire).with_context(cut)?;
    let (tensors, rest) = read_numbers(head, rest, &cut)?;
    Ok((kind, tensors, rest))
}

/// Names, types and shapes of tensors.
type Head = Vec<(String, u8, Vec<u64>)>;

/// Reads a message's kind and the description of its tensors; returns the bytes after them.
fn read_head(wire: &[u8]) -> Option<(String, Head, &[u8])> {
    let (length, rest) = wire.split_first_chunk::<4>()?;
    let (head, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let (kind, head) = postcard::from_bytes(head).ok()?;
    Some((kind, head, rest))
}

/// Reads the numbers of tensors; returns the bytes after them. `cut` describes a message that ends
/// too early.
fn read_numbers<'w>(
    head: Head,
    mut rest: &'w [u8],
    cut: &dyn Fn() -> String,
) -> Result<(OwnedTensors, &'w [u8])> {
    let mut tensors = Vec::with_capacity(head.len());
    for (name, dtype, shape) in head {
        let dtype = Dtype::numbered(dtype.into())
            .with_context(|| format!("`{name}` has the unknown type {dtype}"))?;
        let length = shape
            .iter()
            .try_fold(dtype.bytes(1), |n, d| {
                n.checked_mul(usize::try_from(*d).ok()?)
            })
            .with_context(cut)?;
        let length = if dtype == Dtype::Bits {
            length.div_ceil(8)
        } else {
            length
        };
        let (bytes, after) = rest.split_at_checked(length).with_context(cut)?;
        rest = after;
        let shape = IxDyn(&shape.iter().map(|d| *d as usize).collect::<Vec<_>>());
        fn all<T, const N: usize>(
            shape: IxDyn,
            bytes: &[u8],
            from: impl Fn([u8; N]) -> T,
        ) -> Result<ArrayD<T>> {
            let all = bytes.as_chunks::<N>().0.iter().map(|c| from(*c));
            Ok(ArrayD::from_shape_vec(shape, all.collect())?)
        }
        let tensor = match dtype {
            Dtype::F32 => Tensor::F32(all(shape, bytes, f32::from_le_bytes)?),
            Dtype::F64 => Tensor::F64(all(shape, bytes, f64::from_le_bytes)?),
            Dtype::U32 => Tensor::U32(all(shape, bytes, u32::from_le_bytes)?),
            Dtype::U8 => Tensor::U8(bytes.to_vec()),
            Dtype::I64 => Tensor::I64(all(shape, bytes, i64::from_le_bytes)?),
            Dtype::Bits => Tensor::Bits(Bits::new(shape.slice().to_vec(), bytes.to_vec())?),
        };
        tensors.push((name, tensor));
    }
    Ok((tensors, rest))
}
