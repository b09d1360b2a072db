//! What may cross between a client and the server.
//!
//! A message *is* a short list of named tensors ([`Message::tensors`]). From that one description follow its wire
//! form, its byte count, its digest and its checks; a part never writes any of them.

use crate::{Problem, Result};
use anyhow::{Context, bail, ensure};
use ndarray::{Array1, Array2, ArrayD, ArrayViewD, IxDyn};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

mod labels;
mod votes;
pub use labels::{ClassMeans, Mask, SoftLabels, class_means, softmax};
pub use votes::{Counts, Models, VoteSensitivity, Votes};

/// The numbers of one tensor, borrowed.
#[derive(Clone, Debug)]
pub enum View<'a> {
    /// 32-bit floats.
    F32(ArrayViewD<'a, f32>),
    /// 64-bit floats.
    F64(ArrayViewD<'a, f64>),
    /// 32-bit whole numbers: ids, labels, counts.
    U32(ArrayViewD<'a, u32>),
    /// Raw bytes: whole models, packed levels.
    U8(Cow<'a, [u8]>),
}

impl View<'_> {
    /// Shape.
    pub fn shape(&self) -> Vec<usize> {
        match self {
            Self::F32(a) => a.shape().to_vec(),
            Self::F64(a) => a.shape().to_vec(),
            Self::U32(a) => a.shape().to_vec(),
            Self::U8(b) => vec![b.len()],
        }
    }

    /// Shape; `None` for bytes, for the length of a model or of a packed table is its own business.
    pub(crate) fn table(&self) -> Option<&[usize]> {
        match self {
            Self::F32(a) => Some(a.shape()),
            Self::F64(a) => Some(a.shape()),
            Self::U32(a) => Some(a.shape()),
            Self::U8(_) => None,
        }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::F32(a) => 4 * a.len(),
            Self::F64(a) => 8 * a.len(),
            Self::U32(a) => 4 * a.len(),
            Self::U8(b) => b.len(),
        }
    }

    /// Passes the numbers, little-endian and in row order, to `sink` in pieces.
    fn feed(&self, mut sink: impl FnMut(&[u8])) {
        fn pieces<T: Copy, const N: usize>(
            all: &ArrayViewD<'_, T>,
            bytes: impl Fn(T) -> [u8; N],
            sink: &mut impl FnMut(&[u8]),
        ) {
            let mut buffer = Vec::with_capacity(8192);
            for x in all {
                buffer.extend_from_slice(&bytes(*x));
                if buffer.len() >= 8192 - N {
                    sink(&buffer);
                    buffer.clear();
                }
            }
            sink(&buffer);
        }
        match self {
            Self::F32(a) => pieces(a, f32::to_le_bytes, &mut sink),
            Self::F64(a) => pieces(a, f64::to_le_bytes, &mut sink),
            Self::U32(a) => pieces(a, u32::to_le_bytes, &mut sink),
            Self::U8(b) => sink(b),
        }
    }

    fn dtype(&self) -> u8 {
        match self {
            Self::F32(_) => 0,
            Self::F64(_) => 1,
            Self::U32(_) => 2,
            Self::U8(_) => 3,
        }
    }
}

/// The numbers of one tensor, owned.
#[derive(Clone, Debug, PartialEq)]
pub enum Tensor {
    /// 32-bit floats.
    F32(ArrayD<f32>),
    /// 64-bit floats.
    F64(ArrayD<f64>),
    /// 32-bit whole numbers.
    U32(ArrayD<u32>),
    /// Raw bytes.
    U8(Vec<u8>),
}

/// Named tensors, in the order a message lists them.
pub type Named<'a> = Vec<(Cow<'a, str>, View<'a>)>;

/// Tensors on their way back into a message.
#[derive(Debug, Default)]
pub struct Parcel(Vec<(String, Tensor)>);

impl Parcel {
    /// From tensors in the order of [`Message::tensors`].
    pub fn new(tensors: Vec<(String, Tensor)>) -> Self {
        Self(tensors)
    }

    /// Is this tensor there?
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(n, _)| n == name)
    }

    fn take(&mut self, name: &str) -> Result<Tensor> {
        let at = self
            .0
            .iter()
            .position(|(n, _)| n == name)
            .with_context(|| format!("no tensor `{name}`"))?;
        Ok(self.0.remove(at).1)
    }

    /// Takes the 32-bit floats called `name`.
    ///
    /// # Errors
    /// When there is no such tensor of that type.
    pub fn f32(&mut self, name: &str) -> Result<ArrayD<f32>> {
        match self.take(name)? {
            Tensor::F32(a) => Ok(a),
            _ => bail!("`{name}` is not f32"),
        }
    }

    /// As [`Parcel::f32`], `rows x columns`.
    ///
    /// # Errors
    /// When there is no such table.
    pub fn table(&mut self, name: &str) -> Result<Array2<f32>> {
        Ok(self.f32(name)?.into_dimensionality()?)
    }

    /// Takes the 64-bit floats called `name`; 32-bit ones are widened.
    ///
    /// # Errors
    /// When there is no such tensor of floats.
    pub fn f64(&mut self, name: &str) -> Result<ArrayD<f64>> {
        match self.take(name)? {
            Tensor::F64(a) => Ok(a),
            Tensor::F32(a) => Ok(a.mapv(f64::from)),
            _ => bail!("`{name}` is not f64"),
        }
    }

    /// Takes the whole numbers called `name`.
    ///
    /// # Errors
    /// When there is no such tensor of that type.
    pub fn u32(&mut self, name: &str) -> Result<ArrayD<u32>> {
        match self.take(name)? {
            Tensor::U32(a) => Ok(a),
            _ => bail!("`{name}` is not u32"),
        }
    }

    /// As [`Parcel::u32`], one-dimensional.
    ///
    /// # Errors
    /// When there is no such list.
    pub fn list(&mut self, name: &str) -> Result<Vec<u32>> {
        Ok(self
            .u32(name)?
            .into_dimensionality::<ndarray::Ix1>()?
            .to_vec())
    }

    /// Takes the bytes called `name`.
    ///
    /// # Errors
    /// When there is no such tensor of that type.
    pub fn bytes(&mut self, name: &str) -> Result<Vec<u8>> {
        match self.take(name)? {
            Tensor::U8(b) => Ok(b),
            _ => bail!("`{name}` is not bytes"),
        }
    }

    /// Everything that is left.
    pub fn rest(self) -> Vec<(String, Tensor)> {
        self.0
    }
}

/// What is known of an exchange before it happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Parameters of the model whose parameters travel.
    pub params: usize,
    /// Samples that the question is about.
    pub rows: usize,
    /// Model outputs.
    pub outputs: usize,
}

/// Anything a client and the server exchange.
pub trait Message: Clone + Debug + Send + Sync + 'static {
    /// The name users see in specs, errors and the journal.
    const KIND: &'static str;

    /// Its content. A tensor called `rows` holds sample ids and makes the message row-keyed: senders may speak about
    /// different samples, and only the other tensors' trailing dimensions must agree.
    fn tensors(&self) -> Named<'_>;

    /// What is sent: the content, unless it can be packed. A tensor whose name begins with a dot is known to the
    /// receiver from the spec; it travels for convenience and is not counted.
    fn wire(&self) -> Named<'_> {
        self.tensors()
    }

    /// The inverse of [`Message::tensors`], and of [`Message::wire`].
    ///
    /// # Errors
    /// When the tensors are not those of such a message.
    fn from_tensors(parcel: Parcel) -> Result<Self>;

    /// How many bytes one such message takes at most; `None` if that cannot be known before.
    fn expected(_: &Facts) -> Option<u64> {
        None
    }

    /// Checks beyond finite numbers, such as labels below the number of classes.
    ///
    /// # Errors
    /// When the message makes no sense.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// Are all numbers finite, and does the message's own check hold?
///
/// # Errors
/// Says which tensor and where.
pub fn check<M: Message>(message: &M) -> Result<()> {
    for (name, view) in &message.tensors() {
        let bad = match view {
            View::F32(a) => a
                .iter()
                .enumerate()
                .find(|(_, x)| !x.is_finite())
                .map(|(at, x)| (at, x.to_string())),
            View::F64(a) => a
                .iter()
                .enumerate()
                .find(|(_, x)| !x.is_finite())
                .map(|(at, x)| (at, x.to_string())),
            View::U32(_) | View::U8(_) => None,
        };
        if let Some((at, value)) = bad {
            bail!(Problem::NotFinite {
                tensor: name.to_string(),
                at,
                value
            });
        }
    }
    message.check()
}

/// Does a row-keyed answer speak only about samples that were asked about, and about each once? Others pass.
///
/// # Errors
/// Names the first row that does not belong.
pub fn check_rows<M: Message>(answer: &M, asked: &[u32]) -> Result<()> {
    let tensors = answer.tensors();
    let Some((_, View::U32(rows))) = tensors.iter().find(|(name, _)| name == "rows") else {
        return Ok(());
    };
    let mut left: BTreeSet<u32> = asked.iter().copied().collect();
    for id in rows {
        ensure!(
            left.remove(id),
            Problem::Shape(format!(
                "it speaks about sample {id}, which was not asked about or comes twice"
            ))
        );
    }
    Ok(())
}

/// Can two messages be combined: the same tensors of the same shapes, or, for row-keyed ones, the same trailing shapes?
///
/// # Errors
/// Says what differs, and how.
pub fn alike<M: Message>(one: &M, other: &M) -> Result<()> {
    let (a, b) = (one.tensors(), other.tensors());
    let keyed = a.iter().any(|(name, _)| name == "rows");
    let names = |t: &Named<'_>| {
        t.iter()
            .map(|(n, _)| format!("`{n}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    ensure!(
        a.len() == b.len() && a.iter().zip(&b).all(|(x, y)| x.0 == y.0),
        Problem::Shape(format!(
            "other tensors: {} here, {} in the first answer",
            names(&b),
            names(&a)
        ))
    );
    let from = usize::from(keyed);
    for ((name, x), (_, y)) in a.iter().zip(&b) {
        ensure!(
            x.table().map(|s| &s[from..]) == y.table().map(|s| &s[from..]),
            Problem::Shape(format!(
                "`{name}` is {:?} here, {:?} in the first answer",
                y.shape(),
                x.shape()
            ))
        );
    }
    Ok(())
}

/// SHA-256 of names, shapes and numbers.
pub fn digest<M: Message>(message: &M) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(M::KIND.as_bytes());
    for (name, view) in message.tensors() {
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
        hash.update([view.dtype()]);
        for d in view.shape() {
            hash.update((d as u64).to_le_bytes());
        }
        view.feed(|bytes| hash.update(bytes));
    }
    hash.finalize().into()
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut out, b| {
            let _ = write!(out, "{b:02x}");
            out
        })
}

/// Bytes of a message on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes {
    /// The numbers themselves.
    pub values: u64,
    /// Row ids: nothing when they are the ids asked about or simply `0, 1, 2, ...`, a bit mask for a part of the ids asked
    /// about, else 4 bytes each.
    pub keys: u64,
}

impl Bytes {
    /// Both together.
    pub fn total(self) -> u64 {
        self.values + self.keys
    }
}

impl std::ops::AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        self.values += other.values;
        self.keys += other.keys;
    }
}

/// Counts the bytes of a message that answers a question about the samples `asked` (if it was about samples).
pub fn bytes<M: Message>(message: &M, asked: Option<&[u32]>) -> Bytes {
    let mut count = Bytes::default();
    for (name, view) in message.wire() {
        match (&*name, &view) {
            ("rows", View::U32(rows)) => {
                count.keys += match asked {
                    Some(asked) if asked.iter().eq(rows.iter()) => 0,
                    None if rows.iter().copied().eq(0..rows.len() as u32) => 0,
                    Some(asked) if rows.len() <= asked.len() => asked.len().div_ceil(8) as u64,
                    _ => 4 * rows.len() as u64,
                }
            }
            (name, view) if !name.starts_with('.') => count.values += view.bytes() as u64,
            _ => {}
        }
    }
    count
}

/// The wire form. The inverse is [`decode`].
pub fn encode<M: Message>(message: &M) -> Vec<u8> {
    let tensors = message.wire();
    let mut out = Vec::new();
    let head: Vec<(&str, u8, Vec<u64>)> = tensors
        .iter()
        .map(|(n, v)| {
            (
                &**n,
                v.dtype(),
                v.shape().into_iter().map(|d| d as u64).collect(),
            )
        })
        .collect();
    let head = postcard::to_stdvec(&(M::KIND, head)).expect("plain data can be written to memory");
    out.extend_from_slice(&(head.len() as u32).to_le_bytes());
    out.extend_from_slice(&head);
    for (_, view) in &tensors {
        view.feed(|bytes| out.extend_from_slice(bytes));
    }
    out
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// When `wire` is cut short, is of another kind, or its tensors are not those of an `M`. Nothing larger than `wire`
/// is ever reserved.
pub fn decode<M: Message>(wire: &[u8]) -> Result<M> {
    let cut = || {
        format!(
            "a {} message that is cut short ({} bytes)",
            M::KIND,
            wire.len()
        )
    };
    let (length, rest) = wire.split_first_chunk::<4>().with_context(cut)?;
    let (head, mut rest) = rest
        .split_at_checked(u32::from_le_bytes(*length) as usize)
        .with_context(cut)?;
    let (kind, head): (String, Vec<(String, u8, Vec<u64>)>) =
        postcard::from_bytes(head).with_context(cut)?;
    ensure!(
        kind == M::KIND,
        "a message of kind {kind} where {} was due",
        M::KIND
    );
    let mut tensors = Vec::with_capacity(head.len());
    for (name, dtype, shape) in head {
        let size = [4usize, 8, 4, 1]
            .get(dtype as usize)
            .copied()
            .with_context(|| format!("`{name}` has the unknown type {dtype}"))?;
        let length = shape
            .iter()
            .try_fold(size, |n, d| n.checked_mul(usize::try_from(*d).ok()?))
            .with_context(cut)?;
        let (bytes, after) = rest.split_at_checked(length).with_context(cut)?;
        rest = after;
        let shape = IxDyn(&shape.iter().map(|d| *d as usize).collect::<Vec<_>>());
        fn numbers<T, const N: usize>(bytes: &[u8], from: fn([u8; N]) -> T) -> Vec<T> {
            bytes.as_chunks::<N>().0.iter().map(|c| from(*c)).collect()
        }
        let tensor = match dtype {
            0 => Tensor::F32(ArrayD::from_shape_vec(
                shape,
                numbers(bytes, f32::from_le_bytes),
            )?),
            1 => Tensor::F64(ArrayD::from_shape_vec(
                shape,
                numbers(bytes, f64::from_le_bytes),
            )?),
            2 => Tensor::U32(ArrayD::from_shape_vec(
                shape,
                numbers(bytes, u32::from_le_bytes),
            )?),
            _ => Tensor::U8(bytes.to_vec()),
        };
        tensors.push((name, tensor));
    }
    ensure!(
        rest.is_empty(),
        "{} bytes too many after a {} message",
        rest.len(),
        M::KIND
    );
    M::from_tensors(Parcel(tensors)).with_context(|| format!("a {} message", M::KIND))
}

fn list(values: &[u32]) -> View<'_> {
    View::U32(ndarray::ArrayView1::from(values).into_dyn())
}

/// Nothing to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nothing;

impl Message for Nothing {
    const KIND: &'static str = "nothing";
    fn expected(_: &Facts) -> Option<u64> {
        Some(0)
    }
    fn tensors(&self) -> Named<'_> {
        Vec::new()
    }
    fn from_tensors(_: Parcel) -> Result<Self> {
        Ok(Self)
    }
}

/// One number, such as the largest absolute score.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scalar(Array1<f32>);

impl Scalar {
    /// Wraps it.
    pub fn new(value: f32) -> Self {
        Self(Array1::from_elem(1, value))
    }
    /// The number.
    pub fn value(&self) -> f32 {
        self.0[0]
    }
}

impl Message for Scalar {
    const KIND: &'static str = "scalar";
    fn expected(_: &Facts) -> Option<u64> {
        Some(4)
    }
    fn tensors(&self) -> Named<'_> {
        vec![("value".into(), View::F32(self.0.view().into_dyn()))]
    }
    fn from_tensors(mut parcel: Parcel) -> Result<Self> {
        let value: Array1<f32> = parcel.f32("value")?.into_dimensionality()?;
        ensure!(
            value.len() == 1,
            Problem::Shape(format!("{} numbers where one was due", value.len()))
        );
        Ok(Self(value))
    }
}

/// Which public samples a question is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ids(pub Vec<u32>);

impl Message for Ids {
    const KIND: &'static str = "ids";
    fn expected(facts: &Facts) -> Option<u64> {
        Some(4 * facts.rows as u64)
    }
    fn tensors(&self) -> Named<'_> {
        vec![("ids".into(), list(&self.0))]
    }
    fn from_tensors(mut parcel: Parcel) -> Result<Self> {
        parcel.list("ids").map(Self)
    }
}

/// Named model parameters, or a difference of two such sets.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Params(pub BTreeMap<String, ArrayD<f32>>);

impl Message for Params {
    const KIND: &'static str = "params";
    fn expected(facts: &Facts) -> Option<u64> {
        Some(4 * facts.params as u64)
    }
    fn tensors(&self) -> Named<'_> {
        self.0
            .iter()
            .map(|(k, v)| (Cow::from(k.as_str()), View::F32(v.view())))
            .collect()
    }
    fn from_tensors(parcel: Parcel) -> Result<Self> {
        let mut all = BTreeMap::new();
        for (name, tensor) in parcel.rest() {
            match tensor {
                Tensor::F32(a) => all.insert(name, a),
                _ => bail!("parameter `{name}` is not f32"),
            };
        }
        Ok(Self(all))
    }
}

impl Params {
    /// Number of parameters.
    pub fn count(&self) -> usize {
        self.0.values().map(ArrayD::len).sum()
    }

    /// Every number, tensor by tensor in name order.
    pub fn iter(&self) -> impl Iterator<Item = &f32> {
        self.0.values().flatten()
    }

    /// Combines two sets number by number.
    ///
    /// # Errors
    /// When names or shapes differ.
    pub fn zip(&self, other: &Self, f: impl Fn(f32, f32) -> f32) -> Result<Self> {
        alike(self, other)?;
        let both = self.0.iter().zip(other.0.values());
        Ok(Self(
            both.map(|((k, a), b)| {
                (
                    k.clone(),
                    ndarray::Zip::from(a).and(b).map_collect(|x, y| f(*x, *y)),
                )
            })
            .collect(),
        ))
    }
}

/// An even grid that the values of a [`Logits`] message lie on, so that levels can be sent instead of floats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grid {
    /// Number of levels, at least 1.
    pub levels: u32,
    /// The value of level 0.
    pub lowest: f32,
    /// From one level to the next.
    pub step: f32,
}

impl Grid {
    /// Bits of one packed value: `ceil(log2(levels))`, at least 1.
    pub fn bits(&self) -> u32 {
        bits_for(self.levels)
    }

    /// The value of a level.
    pub fn value(&self, level: u32) -> f32 {
        (f64::from(self.lowest) + f64::from(level) * f64::from(self.step)) as f32
    }

    /// The level nearest to a value.
    pub fn level(&self, value: f32) -> u32 {
        let position = (f64::from(value) - f64::from(self.lowest)) / f64::from(self.step);
        // a step of 0 gives NaN, which the cast turns into level 0
        (position.round() as u32).min(self.levels.saturating_sub(1))
    }

    fn pack(&self, values: &Array2<f32>) -> Vec<u8> {
        pack_bits(values.iter().map(|v| self.level(*v)), self.bits())
    }

    fn unpack(&self, packed: &[u8], shape: (usize, usize)) -> Result<Array2<f32>> {
        Ok(unpack_bits(packed, shape, self.bits())?.mapv(|level| self.value(level)))
    }
}

/// Bits that tell `choices` apart: `ceil(log2(choices))`, at least 1.
fn bits_for(choices: u32) -> u32 {
    u64::from(choices.max(2))
        .next_power_of_two()
        .trailing_zeros()
}

/// Numbers below `2^bits`, `bits` each, the first in the lowest bits.
fn pack_bits(numbers: impl Iterator<Item = u32>, bits: u32) -> Vec<u8> {
    let (mut out, mut held, mut used) = (Vec::new(), 0u64, 0u32);
    for n in numbers {
        held |= u64::from(n) << used;
        used += bits;
        while used >= 8 {
            out.push(held as u8);
            held >>= 8;
            used -= 8;
        }
    }
    if used > 0 {
        out.push(held as u8);
    }
    out
}

/// Reads what [`pack_bits`] wrote.
fn unpack_bits(packed: &[u8], shape: (usize, usize), bits: u32) -> Result<Array2<u32>> {
    let (rows, columns) = shape;
    let (mut held, mut used, mut next) = (0u64, 0u32, packed.iter());
    let wanted = rows
        .checked_mul(columns)
        .and_then(|n| Some((n, n.checked_mul(bits as usize)?.div_ceil(8))));
    let n = wanted
        .filter(|(_, bytes)| *bytes == packed.len())
        .map(|(n, _)| n);
    let n = n.with_context(|| {
        format!(
            "{} bytes for {rows} x {columns} levels of {bits} bits",
            packed.len()
        )
    })?;
    let mut numbers = Vec::with_capacity(n);
    for _ in 0..n {
        while used < bits {
            held |= u64::from(*next.next().context("the levels end early")?) << used;
            used += 8;
        }
        numbers.push((held & ((1 << bits) - 1)) as u32);
        held >>= bits;
        used -= bits;
    }
    Ok(Array2::from_shape_vec(shape, numbers)?)
}

/// Raw class scores, one row per sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Logits {
    /// Ids of the samples.
    pub rows: Vec<u32>,
    /// `rows x classes`.
    pub values: Array2<f32>,
    /// Step, number of levels, lowest value and columns of the grid, floats as bits.
    packed: Option<[u32; 4]>,
}

impl Logits {
    /// One row of `values` per id in `rows`.
    pub fn new(rows: Vec<u32>, values: Array2<f32>) -> Self {
        Self {
            rows,
            values,
            packed: None,
        }
    }

    /// Sends levels instead of floats from now on: [`Grid::bits`] a value and one float for the step. Values move to
    /// their nearest level.
    pub fn pack(&mut self, grid: Grid) {
        self.values.mapv_inplace(|v| grid.value(grid.level(v)));
        self.packed = Some([
            grid.step.to_bits(),
            grid.levels,
            grid.lowest.to_bits(),
            self.values.ncols() as u32,
        ]);
    }

    /// Sends floats again; values stay as they are.
    pub fn unpack(&mut self) {
        self.packed = None;
    }

    /// The grid that the values are packed on, if they are.
    pub fn grid(&self) -> Option<Grid> {
        self.packed.map(|[step, levels, lowest, _]| Grid {
            levels,
            lowest: f32::from_bits(lowest),
            step: f32::from_bits(step),
        })
    }

    /// The largest absolute score.
    pub fn peak(&self) -> f32 {
        self.values.fold(0.0, |m, v| m.max(v.abs()))
    }
}

impl Message for Logits {
    const KIND: &'static str = "logits";
    fn expected(facts: &Facts) -> Option<u64> {
        Some(4 * (facts.rows * facts.outputs) as u64)
    }
    fn tensors(&self) -> Named<'_> {
        vec![
            ("rows".into(), list(&self.rows)),
            ("values".into(), View::F32(self.values.view().into_dyn())),
        ]
    }
    fn wire(&self) -> Named<'_> {
        match (&self.packed, self.grid()) {
            (Some(facts), Some(grid)) => vec![
                ("rows".into(), list(&self.rows)),
                ("levels".into(), View::U8(grid.pack(&self.values).into())),
                ("step".into(), list(&facts[..1])),
                (".grid".into(), list(&facts[1..])),
            ],
            _ => self.tensors(),
        }
    }
    fn from_tensors(mut parcel: Parcel) -> Result<Self> {
        let rows = parcel.list("rows")?;
        if !parcel.has("levels") {
            return Ok(Self::new(rows, parcel.table("values")?));
        }
        let (levels, step, grid) = (
            parcel.bytes("levels")?,
            parcel.list("step")?,
            parcel.list(".grid")?,
        );
        let (&[step], &[count, lowest, columns]) = (&step[..], &grid[..]) else {
            bail!(Problem::Shape("packed logits without their grid".into()));
        };
        let grid = Grid {
            levels: count,
            lowest: f32::from_bits(lowest),
            step: f32::from_bits(step),
        };
        let values = grid.unpack(&levels, (rows.len(), columns as usize))?;
        Ok(Self {
            rows,
            values,
            packed: Some([step, count, lowest, columns]),
        })
    }
    fn check(&self) -> Result<()> {
        ensure!(
            self.rows.len() == self.values.nrows(),
            Problem::Shape(format!(
                "{} ids for {} rows",
                self.rows.len(),
                self.values.nrows()
            ))
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logits() -> Logits {
        Logits::new(
            vec![4, 9, 11],
            Array2::from_shape_fn((3, 5), |(i, j)| {
                (i as f32 - 1.0) * 0.7 + j as f32 * 0.31 - 1.0
            }),
        )
    }

    fn params() -> Params {
        let tensor =
            |shape: &[usize]| ArrayD::from_shape_fn(IxDyn(shape), |i| i[0] as f32 * 0.3 - 1.0);
        Params(
            [
                ("w".to_string(), tensor(&[3, 2])),
                ("b".to_string(), tensor(&[4])),
            ]
            .into(),
        )
    }

    #[test]
    fn an_answer_is_about_what_was_asked_about() {
        assert!(check_rows(&logits(), &[11, 9, 5, 4]).is_ok());
        assert!(check_rows(&params(), &[]).is_ok());
        let twice = Logits::new(vec![4, 9, 4], logits().values);
        for (answer, asked) in [(logits(), &[4, 9][..]), (twice, &[4, 9, 11])] {
            let said = check_rows(&answer, asked).unwrap_err().to_string();
            assert!(said.contains("not asked about or comes twice"), "{said}");
        }
    }

    #[test]
    fn exact_what_is_encoded_decodes_to_the_same() {
        assert_eq!(decode::<Logits>(&encode(&logits())).unwrap(), logits());
        assert_eq!(decode::<Params>(&encode(&params())).unwrap(), params());
        assert_eq!(
            decode::<Ids>(&encode(&Ids(vec![3, 1]))).unwrap(),
            Ids(vec![3, 1])
        );
        assert_eq!(
            decode::<Scalar>(&encode(&Scalar::new(2.5)))
                .unwrap()
                .value(),
            2.5
        );
        assert_eq!(decode::<Nothing>(&encode(&Nothing)).unwrap(), Nothing);
    }

    #[test]
    fn exact_packed_levels_survive_the_wire_for_every_width() {
        for levels in [1, 2, 3, 5, 9, 200, 201, 1025, 70_000] {
            let mut packed = logits();
            let peak = packed.peak();
            packed.pack(Grid {
                levels,
                lowest: -peak,
                step: if levels == 1 {
                    0.0
                } else {
                    2.0 * peak / (levels - 1) as f32
                },
            });
            assert_eq!(
                decode::<Logits>(&encode(&packed)).unwrap(),
                packed,
                "{levels} levels"
            );
            let bits = f64::from(levels).log2().ceil().max(1.0) as usize;
            assert_eq!(
                bytes(&packed, Some(&[4, 9, 11])),
                Bytes {
                    values: (15 * bits).div_ceil(8) as u64 + 4,
                    keys: 0
                }
            );
        }
    }

    #[test]
    fn keys_cost_nothing_a_mask_or_ids() {
        let values = 60;
        assert_eq!(
            bytes(&logits(), Some(&[4, 9, 11])),
            Bytes { values, keys: 0 }
        );
        assert_eq!(
            bytes(&logits(), Some(&(0..17).collect::<Vec<_>>())),
            Bytes { values, keys: 3 }
        );
        assert_eq!(bytes(&logits(), None), Bytes { values, keys: 12 });
        let all = Logits::new(vec![0, 1, 2], logits().values);
        assert_eq!(bytes(&all, None), Bytes { values, keys: 0 });
    }

    #[test]
    fn every_cut_of_a_message_is_an_error() {
        let whole = encode(&logits());
        for cut in 0..whole.len() {
            assert!(
                decode::<Logits>(&whole[..cut]).is_err(),
                "{cut} of {} bytes",
                whole.len()
            );
        }
        let mut lying = whole.clone();
        lying[0..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(decode::<Logits>(&lying).is_err());
        assert_eq!(
            decode::<Params>(&whole).unwrap_err().to_string(),
            "a message of kind logits where params was due"
        );
    }

    #[test]
    fn nan_is_found_where_it_stands() {
        let mut bad = logits();
        bad.values[[1, 2]] = f32::NAN;
        assert_eq!(
            check(&bad).unwrap_err().to_string(),
            "`values` holds NaN at position 7; every number must be finite"
        );
    }

    #[test]
    fn only_trailing_shapes_of_row_keyed_messages_must_agree() {
        let few = Logits::new(vec![9], Array2::zeros((1, 5)));
        assert!(alike(&logits(), &few).is_ok());
        let narrow = Logits::new(vec![9], Array2::zeros((1, 4)));
        assert_eq!(
            alike(&logits(), &narrow).unwrap_err().to_string(),
            "`values` is [1, 4] here, [3, 5] in the first answer"
        );
        let mut other = params();
        other.0.insert("w".into(), ArrayD::zeros(IxDyn(&[2, 3])));
        assert_eq!(
            alike(&params(), &other).unwrap_err().to_string(),
            "`w` is [2, 3] here, [3, 2] in the first answer"
        );
    }

    #[test]
    fn a_digest_knows_names_shapes_and_numbers() {
        let mut other = params();
        other.0.get_mut("b").unwrap()[[0]] += 1e-6;
        let mut renamed = params();
        let w = renamed.0.remove("w").unwrap();
        renamed.0.insert("v".into(), w);
        assert_ne!(digest(&params()), digest(&other));
        assert_ne!(digest(&params()), digest(&renamed));
        assert_eq!(digest(&params()), digest(&params()));
    }
}
