//! [`tensor_fields!`](crate::tensor_fields!): messages whose fields are tensors.

use super::{TensorMap, View, tensors::list};
use crate::Result;
use ndarray::{Array, Dimension};

/// A field of a message that is one tensor.
pub trait TensorField: Sized {
    /// Returns the tensor.
    fn tensor(&self) -> View<'_>;
    /// Takes the tensor of this name.
    ///
    /// # Errors
    /// If there is none, or it has another type or number of dimensions.
    fn take(from: &mut TensorMap, name: &str) -> Result<Self>;
}

impl<D: Dimension> TensorField for Array<f32, D> {
    fn tensor(&self) -> View<'_> {
        View::F32(self.view().into_dyn())
    }
    fn take(from: &mut TensorMap, name: &str) -> Result<Self> {
        Ok(from.f32(name)?.into_dimensionality()?)
    }
}

impl<D: Dimension> TensorField for Array<u32, D> {
    fn tensor(&self) -> View<'_> {
        View::U32(self.view().into_dyn())
    }
    fn take(from: &mut TensorMap, name: &str) -> Result<Self> {
        Ok(from.u32(name)?.into_dimensionality()?)
    }
}

impl TensorField for Vec<u32> {
    fn tensor(&self) -> View<'_> {
        list(self)
    }
    fn take(from: &mut TensorMap, name: &str) -> Result<Self> {
        from.list(name)
    }
}

impl TensorField for Vec<u8> {
    fn tensor(&self) -> View<'_> {
        View::U8(self.as_slice().into())
    }
    fn take(from: &mut TensorMap, name: &str) -> Result<Self> {
        from.bytes(name)
    }
}

/// Writes `tensors` and `from_tensors` of a [`Message`](crate::message::Message) whose fields are
/// tensors ([`TensorField`](crate::message::TensorField)): each has the name of its field.
#[macro_export]
macro_rules! tensor_fields {
    ($($field:ident),+ $(,)?) => {
        fn tensors(&self) -> $crate::message::NamedTensors<'_> {
            vec![$((
                stringify!($field).into(),
                $crate::message::TensorField::tensor(&self.$field),
            )),+]
        }
        fn from_tensors(mut parcel: $crate::message::TensorMap) -> $crate::Result<Self> {
            Ok(Self {
                $($field: $crate::message::TensorField::take(&mut parcel, stringify!($field))?),+
            })
        }
    };
}
