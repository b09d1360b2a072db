//! [`message!`](crate::message!): messages made of messages.

use super::{NamedTensors, TensorMap};
use crate::Result;
use std::borrow::Cow;

/// Declares a message that is made of other messages.
///
/// ```
/// use fl_core::message::{bytes, decode, encode, Message, Params};
/// fl_core::message! {
///     /// A model and the control variate that goes with it (SCAFFOLD).
///     pub struct Controlled: "controlled-params" { model: Params, control: Params }
/// }
/// let params = Params([("w".to_string(), ndarray::arr1(&[1.0f32, 2.0]).into_dyn())].into());
/// let sent = Controlled { control: params.zeros_like(), model: params };
/// let names: Vec<_> = sent.tensors().into_iter().map(|(name, _)| name.into_owned()).collect();
/// assert_eq!(names, ["model.w", "control.w"]);
/// assert_eq!(bytes(&sent, None).total(), 16);
/// assert_eq!(decode::<Controlled>(&encode(&sent)).unwrap(), sent);
/// ```
/// Tensors are named by field and name. Wire form, bytes, digest, checks and expected size are
/// those of all fields together, and each field is packed as it would be alone. Row ids inside are
/// ordinary numbers: a composite of row-keyed messages is not row-keyed. All its senders must
/// therefore send the same number of samples, and ids are counted.
#[macro_export]
macro_rules! message {
    ($(#[doc = $doc:literal])* $vis:vis struct $name:ident: $kind:literal {
        $($(#[doc = $about:literal])* $field:ident: $ty:ty),+ $(,)?
    }) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $name {
            $(
                #[doc = concat!("Its `", stringify!($field), ".` tensors.")]
                $(#[doc = $about])*
                pub $field: $ty,
            )+
        }

        impl $crate::message::Message for $name {
            const KIND: &'static str = $kind;
            const DOC: &'static str = concat!($($doc),*);
            const FIELDS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($field), <$ty as $crate::message::Message>::KIND)),+];
            fn tensors(&self) -> $crate::message::NamedTensors<'_> {
                let mut all = Vec::new();
                $($crate::message::put_under(&mut all, stringify!($field), self.$field.tensors());)+
                all
            }
            fn wire(&self) -> $crate::message::NamedTensors<'_> {
                let mut all = Vec::new();
                $($crate::message::put_under(&mut all, stringify!($field), self.$field.wire());)+
                all
            }
            fn from_tensors(parcel: $crate::message::TensorMap) -> $crate::Result<Self> {
                let [$($field),+] = $crate::message::split_fields(parcel, [$(stringify!($field)),+])?;
                Ok(Self { $($field: <$ty as $crate::message::Message>::from_tensors($field)?),+ })
            }
            fn expected(facts: &$crate::message::ExchangeShape) -> Option<u64> {
                let all = [$(<$ty as $crate::message::Message>::expected(facts)),+];
                all.into_iter().sum()
            }
            fn check(&self) -> $crate::Result<()> {
                $(self.$field.check()?;)+
                Ok(())
            }
            fn sample(outline: &mut $crate::message::SampleShape<'_>) -> Option<Self> {
                Some(Self { $($field: <$ty as $crate::message::Message>::sample(outline)?),+ })
            }
        }

        $crate::messages! { $name }
    };
}

/// Used by [`message!`](crate::message!). A leading dot, for a tensor that is not counted, stays in
/// front.
#[doc(hidden)]
pub fn put_under<'a>(all: &mut NamedTensors<'a>, field: &str, inner: NamedTensors<'a>) {
    let named = |name: &str| match name.strip_prefix('.') {
        Some(rest) => format!(".{field}.{rest}"),
        None => format!("{field}.{name}"),
    };
    all.extend(
        inner
            .into_iter()
            .map(|(name, view)| (Cow::Owned(named(&name)), view)),
    );
}

/// Used by [`message!`](crate::message!): the inverse of [`put_under`] for all fields at once.
#[doc(hidden)]
pub fn split_fields<const N: usize>(
    parcel: TensorMap,
    fields: [&str; N],
) -> Result<[TensorMap; N]> {
    let mut parts = fields.map(|_| Vec::new());
    for (name, tensor) in parcel.rest() {
        let (dot, inner) = match name.strip_prefix('.') {
            Some(rest) => (".", rest),
            None => ("", name.as_str()),
        };
        let place = inner.split_once('.').and_then(|(field, rest)| {
            let at = fields.iter().position(|f| *f == field)?;
            Some((at, rest))
        });
        let Some((at, rest)) = place else {
            anyhow::bail!("tensor `{name}` is of none of {}", fields.join(", "));
        };
        parts[at].push((format!("{dot}{rest}"), tensor));
    }
    Ok(parts.map(TensorMap::new))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{logits, params};
    use super::super::{
        Bytes, ExchangeShape, Grid, Logits, Message, Params, Votes, alike, bytes, check, decode,
        digest, encode,
    };
    use ndarray::array;

    crate::message! {
        /// A model and its control variate.
        struct Controlled: "controlled-params" { model: Params, control: Params }
    }
    crate::message! {
        /// Two packed messages.
        struct Both: "both" {
            /// The scores.
            scores: Logits,
            votes: Votes,
        }
    }

    fn controlled() -> Controlled {
        Controlled {
            control: params().zeros_like(),
            model: params(),
        }
    }

    #[test]
    fn exact_two_sets_of_parameters_are_one_message() {
        let sent = controlled();
        assert_eq!(decode::<Controlled>(&encode(&sent)).unwrap(), sent);
        let alone = bytes(&params(), None).total();
        assert_eq!(bytes(&sent, None).total(), 2 * alone);
        let facts = ExchangeShape {
            params: 10,
            ..ExchangeShape::default()
        };
        assert_eq!(Controlled::expected(&facts), Some(80));
        let swapped = Controlled {
            model: sent.control.clone(),
            control: sent.model.clone(),
        };
        assert_ne!(digest(&sent), digest(&swapped));
        assert_ne!(digest(&sent), digest(&params()));
    }

    #[test]
    fn differences_and_bad_numbers_are_named_by_field() {
        let (sent, mut other) = (controlled(), controlled());
        other.control.0.remove("w");
        let error = alike(&sent, &other).unwrap_err().to_string();
        assert!(error.contains("`control.w` in the first answer"), "{error}");
        other = controlled();
        other.control.0.get_mut("b").unwrap()[[2]] = f32::NAN;
        let error = check(&other).unwrap_err().to_string();
        assert!(
            error.contains("`control.b` holds NaN at position 2"),
            "{error}"
        );
        assert!(decode::<Controlled>(&encode(&params())).is_err());
    }

    #[test]
    fn exact_fields_are_packed_as_they_are_alone() {
        let mut scores = logits();
        scores.pack(Grid {
            levels: 5,
            lowest: -1.0,
            step: 0.5,
        });
        let votes = Votes::new(vec![3, 4], array![[0], [2]], 3);
        let sent = Both { scores, votes };
        assert_eq!(decode::<Both>(&encode(&sent)).unwrap(), sent);
        // 15 scores of 3 bits, the step, 2 votes of 2 bits; five ids, which are not keys here
        let due = Bytes {
            values: 6 + 4 + 1 + 20,
            keys: 0,
        };
        assert_eq!(bytes(&sent, None), due);
        let lying = Both {
            votes: Votes::new(vec![3], array![[7]], 3),
            ..sent
        };
        assert!(check(&lying).unwrap_err().to_string().contains("class 7"));
    }
}
