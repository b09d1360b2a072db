//! Named tensors: borrowed for serialisation, and owned for reading ([`TensorMap`]).

use crate::{Problem, Result};
use anyhow::{Context, bail};
use ndarray::{Array2, ArrayD, ArrayViewD};
use std::borrow::Cow;

/// The type of a tensor's numbers; the discriminant is that of the wire form and of the C
/// interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 32-bit floats.
    F32 = 0,
    /// 64-bit floats.
    F64 = 1,
    /// 32-bit whole numbers.
    U32 = 2,
    /// Bytes.
    U8 = 3,
    /// 64-bit whole numbers with a sign.
    I64 = 4,
    /// Packed bits.
    Bits = 5,
}

impl Dtype {
    /// Returns the type of this number; `None` if there is none.
    pub fn numbered(number: u32) -> Option<Self> {
        let all = [
            Self::F32,
            Self::F64,
            Self::U32,
            Self::U8,
            Self::I64,
            Self::Bits,
        ];
        all.get(number as usize).copied()
    }

    /// Returns the bytes of `n` numbers.
    pub fn bytes(self, n: usize) -> usize {
        match self {
            Self::F32 | Self::U32 => 4 * n,
            Self::F64 | Self::I64 => 8 * n,
            Self::U8 => n,
            Self::Bits => n.div_ceil(8),
        }
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::U32 => "u32",
            Self::U8 => "u8",
            Self::I64 => "i64",
            Self::Bits => "bits",
        })
    }
}

/// Bits in row order, eight in a byte, the first in the lowest bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits<'a> {
    shape: Vec<usize>,
    packed: Cow<'a, [u8]>,
}

impl<'a> Bits<'a> {
    /// Makes bits of this shape from exactly the bytes that they need; unused bits of the last byte
    /// are 0.
    ///
    /// # Errors
    /// If there are more or fewer bytes, or an unused bit is 1.
    pub fn new(shape: Vec<usize>, packed: impl Into<Cow<'a, [u8]>>) -> Result<Self> {
        let packed = packed.into();
        let n = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
        let spare = n.map_or(0, |n| (8 - n % 8) % 8);
        let clean = packed
            .last()
            .is_none_or(|last| spare == 0 || last >> (8 - spare) == 0);
        Problem::shape_unless(
            n.map(|n| n.div_ceil(8)) == Some(packed.len()) && clean,
            || format!("{} bytes for packed bits of shape {shape:?}", packed.len()),
        )?;
        Ok(Self { shape, packed })
    }

    /// Returns the shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the bytes.
    pub fn packed(&self) -> &[u8] {
        &self.packed
    }

    /// Iterates over the bits.
    pub fn iter(&self) -> impl Iterator<Item = bool> {
        let n = self.shape.iter().product();
        (0..n).map(|at: usize| self.packed[at / 8] >> (at % 8) & 1 == 1)
    }

    /// Returns the same bits, borrowed.
    pub fn view(&self) -> Bits<'_> {
        Bits {
            shape: self.shape.clone(),
            packed: (&*self.packed).into(),
        }
    }

    /// Returns an owned copy.
    pub fn into_owned(self) -> Bits<'static> {
        Bits {
            shape: self.shape,
            packed: self.packed.into_owned().into(),
        }
    }
}

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
    /// 64-bit whole numbers with a sign.
    I64(ArrayViewD<'a, i64>),
    /// Packed bits.
    Bits(Bits<'a>),
}

impl View<'_> {
    /// Returns the shape.
    pub fn shape(&self) -> Vec<usize> {
        match self {
            Self::U8(b) => vec![b.len()],
            other => other.table().unwrap_or_default().to_vec(),
        }
    }

    /// Returns the shape; `None` for bytes, because the length of a model or of a packed table may
    /// vary.
    #[doc(hidden)]
    pub fn table(&self) -> Option<&[usize]> {
        match self {
            Self::F32(a) => Some(a.shape()),
            Self::F64(a) => Some(a.shape()),
            Self::U32(a) => Some(a.shape()),
            Self::U8(_) => None,
            Self::I64(a) => Some(a.shape()),
            Self::Bits(b) => Some(&b.shape),
        }
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::U8(b) => b.len(),
            other => {
                let sizes = other.table().unwrap_or_default();
                other.dtype().bytes(sizes.iter().product())
            }
        }
    }

    /// Passes the numbers, little-endian and in row order, to `sink` in pieces.
    pub(super) fn feed(&self, mut sink: impl FnMut(&[u8])) {
        fn pieces<T: Copy, const N: usize>(
            all: &ArrayViewD<'_, T>,
            bytes: impl Fn(T) -> [u8; N],
            sink: &mut impl FnMut(&[u8]),
        ) {
            let mut buffer = [0; 8192];
            for piece in all
                .as_standard_layout()
                .as_slice()
                .unwrap_or(&[])
                .chunks(buffer.len() / N)
            {
                for (to, x) in buffer.as_chunks_mut().0.iter_mut().zip(piece) {
                    *to = bytes(*x);
                }
                sink(&buffer[..piece.len() * N]);
            }
        }
        match self {
            Self::F32(a) => pieces(a, f32::to_le_bytes, &mut sink),
            Self::F64(a) => pieces(a, f64::to_le_bytes, &mut sink),
            Self::U32(a) => pieces(a, u32::to_le_bytes, &mut sink),
            Self::U8(b) => sink(b),
            Self::I64(a) => pieces(a, i64::to_le_bytes, &mut sink),
            Self::Bits(b) => sink(&b.packed),
        }
    }

    /// Returns the numbers as 64-bit floats, in row order.
    pub fn to_f64(&self) -> Vec<f64> {
        match self {
            Self::F32(a) => a.iter().map(|x| f64::from(*x)).collect(),
            Self::F64(a) => a.iter().copied().collect(),
            Self::U32(a) => a.iter().map(|x| f64::from(*x)).collect(),
            Self::U8(b) => b.iter().map(|x| f64::from(*x)).collect(),
            Self::I64(a) => a.iter().map(|x| *x as f64).collect(),
            Self::Bits(b) => b.iter().map(|x| f64::from(u8::from(x))).collect(),
        }
    }

    /// Returns a copy of the numbers, in row order.
    pub fn to_tensor(&self) -> Tensor {
        match self {
            Self::F32(a) => Tensor::F32(a.as_standard_layout().into_owned()),
            Self::F64(a) => Tensor::F64(a.as_standard_layout().into_owned()),
            Self::U32(a) => Tensor::U32(a.as_standard_layout().into_owned()),
            Self::U8(b) => Tensor::U8(b.to_vec()),
            Self::I64(a) => Tensor::I64(a.as_standard_layout().into_owned()),
            Self::Bits(b) => Tensor::Bits(b.clone().into_owned()),
        }
    }

    /// Returns the type of its numbers.
    pub fn dtype(&self) -> Dtype {
        match self {
            Self::F32(_) => Dtype::F32,
            Self::F64(_) => Dtype::F64,
            Self::U32(_) => Dtype::U32,
            Self::U8(_) => Dtype::U8,
            Self::I64(_) => Dtype::I64,
            Self::Bits(_) => Dtype::Bits,
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
    /// 64-bit whole numbers with a sign.
    I64(ArrayD<i64>),
    /// Packed bits.
    Bits(Bits<'static>),
}

impl Tensor {
    /// Returns a view of the numbers.
    pub fn view(&self) -> View<'_> {
        match self {
            Self::F32(a) => View::F32(a.view()),
            Self::F64(a) => View::F64(a.view()),
            Self::U32(a) => View::U32(a.view()),
            Self::U8(b) => View::U8(b.into()),
            Self::I64(a) => View::I64(a.view()),
            Self::Bits(b) => View::Bits(b.view()),
        }
    }
}

/// Named tensors, in the order a message lists them.
pub type NamedTensors<'a> = Vec<(Cow<'a, str>, View<'a>)>;

/// Owned tensors to make a message from.
#[derive(Debug, Default)]
pub struct TensorMap(Vec<(String, Tensor)>);

impl TensorMap {
    /// Collects tensors in the order of [`crate::message::Message::tensors`].
    pub fn new(tensors: Vec<(String, Tensor)>) -> Self {
        Self(tensors)
    }

    /// Returns whether this tensor is there.
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

    /// Takes the tensor called `name`, whatever its numbers are.
    ///
    /// # Errors
    /// When there is no such tensor.
    pub fn rest_of(&mut self, name: &str) -> Result<Tensor> {
        self.take(name)
    }

    /// Takes the 32-bit floats called `name`.
    ///
    /// # Errors
    /// If there is no such tensor of that type.
    pub fn f32(&mut self, name: &str) -> Result<ArrayD<f32>> {
        match self.take(name)? {
            Tensor::F32(a) => Ok(a),
            _ => bail!("`{name}` is not f32"),
        }
    }

    /// As [`TensorMap::f32`], `rows x columns`.
    ///
    /// # Errors
    /// If there is no such table.
    pub fn table(&mut self, name: &str) -> Result<Array2<f32>> {
        Ok(self.f32(name)?.into_dimensionality()?)
    }

    /// Takes the 64-bit floats called `name`; 32-bit ones are widened.
    ///
    /// # Errors
    /// If there is no such tensor of floats.
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
    /// If there is no such tensor of that type.
    pub fn u32(&mut self, name: &str) -> Result<ArrayD<u32>> {
        match self.take(name)? {
            Tensor::U32(a) => Ok(a),
            _ => bail!("`{name}` is not u32"),
        }
    }

    /// As [`TensorMap::u32`], one-dimensional.
    ///
    /// # Errors
    /// If there is no such list.
    pub fn list(&mut self, name: &str) -> Result<Vec<u32>> {
        Ok(self
            .u32(name)?
            .into_dimensionality::<ndarray::Ix1>()?
            .to_vec())
    }

    /// Takes the bytes called `name`.
    ///
    /// # Errors
    /// If there is no such tensor of that type.
    pub fn bytes(&mut self, name: &str) -> Result<Vec<u8>> {
        match self.take(name)? {
            Tensor::U8(b) => Ok(b),
            _ => bail!("`{name}` is not bytes"),
        }
    }

    /// Returns all remaining tensors.
    pub fn rest(self) -> Vec<(String, Tensor)> {
        self.0
    }
}

/// Returns a view of a list of whole numbers.
pub(super) fn list(values: &[u32]) -> View<'_> {
    View::U32(ndarray::ArrayView1::from(values).into_dyn())
}
