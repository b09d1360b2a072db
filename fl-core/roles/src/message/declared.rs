//! [`MessageDecl`] and [`Declared`]: messages whose kind was declared at run time, by tensors
//! alone.

use super::bits::pack_bits;
use super::{
    AnyMessage, Bits, Column, Dtype, Erased, ExchangeShape, MessageType, NamedTensors, SampleShape,
    SensitivityNorm, Tensor,
};
use crate::sealed::SealedMessage;
use crate::{Problem, Result};
use anyhow::{Context, bail, ensure};
use ndarray::{ArrayD, IxDyn};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A library's declaration of a message kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MessageDecl {
    /// Its name: 1 to 64 of `a-z`, `0-9` and `-`.
    pub kind: String,
    /// A description in one line.
    pub doc: String,
    /// Its tensors, at least one unless the message is open.
    #[serde(default)]
    pub tensors: Vec<ColumnDecl>,
    /// Only its own protocol makes and reads it: it holds any tensors, in any order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// What one unit of data can change.
    #[serde(default)]
    pub reach: SensitivityNorm,
    /// Name and kind of each message in it, whose tensors are `NAME.tensor`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<(String, String)>,
}

/// A tensor of a [`MessageDecl`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnDecl {
    /// Its name; `*` stands for any name, and for any number of tensors. `rows` holds ids of
    /// samples and makes the message row-keyed. A name that begins with a dot marks a tensor that
    /// the receiver knows and that is not counted.
    pub name: String,
    /// The type of its numbers.
    #[serde(rename = "type")]
    pub dtype: Dtype,
    /// Sizes from the outside in, `rows x classes`: a number, or a name that stands for one size
    /// throughout a message. `any` is any shape, and an empty text is a single number.
    pub shape: String,
    /// Its content.
    #[serde(default)]
    pub doc: String,
}

impl From<&MessageType> for MessageDecl {
    fn from(of: &MessageType) -> Self {
        let column = |c: &Column| ColumnDecl {
            name: c.name.into(),
            dtype: c.dtype,
            shape: c.shape.into(),
            doc: c.doc.into(),
        };
        let own = |(name, kind): &(&str, &str)| (name.to_string(), kind.to_string());
        Self {
            kind: of.kind.into(),
            doc: of.doc.into(),
            tensors: of.columns.iter().map(column).collect(),
            open: of.columns.is_empty(),
            reach: of.reach,
            fields: of.fields.iter().map(own).collect(),
        }
    }
}

/// The most tensors of a declaration, and the most dimensions of one.
const TENSORS: usize = 100;
const DIMENSIONS: usize = 16;
/// The longest text of a declaration.
const TEXT: usize = 1000;

impl MessageDecl {
    /// Parses the shapes of its tensors.
    pub(super) fn shapes(&self) -> Result<Vec<Shape>> {
        let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        ensure!(
            (1..=64).contains(&self.kind.len())
                && self.kind.chars().all(word)
                && !self.kind.starts_with('-'),
            "a message is called {:?}; a name is 1 to 64 of a-z, 0-9 and `-`",
            self.kind.chars().take(80).collect::<String>()
        );
        let kind = &self.kind;
        let texts = self
            .tensors
            .iter()
            .flat_map(|c| [&c.name, &c.shape, &c.doc]);
        let fields = self.fields.iter().flat_map(|(name, kind)| [name, kind]);
        for text in texts.chain(fields).chain([&self.doc]) {
            let bad = text.len() > TEXT || text.chars().any(char::is_control);
            ensure!(
                !bad,
                "message `{kind}`: a text has control characters or more than {TEXT} bytes"
            );
        }
        ensure!(
            (usize::from(!self.open)..=TENSORS).contains(&self.tensors.len()),
            "message `{kind}` has {} tensors; 1 to {TENSORS} are possible",
            self.tensors.len()
        );
        ensure!(
            self.fields.len() <= TENSORS,
            "message `{kind}` has {} messages in it; at most {TENSORS} are possible",
            self.fields.len()
        );
        let one = |(at, c): (usize, &ColumnDecl)| {
            let twin = self.tensors[..at].iter().any(|other| other.name == c.name);
            ensure!(!twin, "it is declared twice");
            ensure!(!c.name.is_empty(), "a tensor needs a name");
            if c.name == "rows" {
                let ids = c.dtype == Dtype::U32 && c.shape == "rows";
                ensure!(
                    ids,
                    "`rows` holds ids of samples: its type is u32 and its shape `rows`"
                );
            }
            let shape = Shape::read(&c.shape)?;
            let flat = shape.0.as_ref().is_none_or(|sizes| sizes.len() == 1);
            ensure!(
                c.dtype != Dtype::U8 || flat,
                "bytes have one dimension; its shape is {:?}",
                c.shape
            );
            Ok(shape)
        };
        let all = self.tensors.iter().enumerate();
        let named = |(at, c)| {
            one((at, c)).with_context(|| format!("message `{kind}`, tensor `{}`", c.name))
        };
        all.map(named).collect()
    }

    /// Returns whether it declares the same type as `known`. Docs may differ.
    pub(super) fn says_what(&self, known: &MessageType) -> bool {
        let own = self.tensors.iter().map(|c| (&*c.name, c.dtype, &*c.shape));
        let columns = known.columns.iter().map(|c| (c.name, c.dtype, c.shape));
        own.eq(columns) && self.reach == known.reach
    }

    /// Returns its tensors in one line.
    pub(super) fn outline(&self) -> String {
        let one = |c: &ColumnDecl| format!("`{}` of {} [{}]", c.name, c.dtype, c.shape);
        let all: Vec<_> = self.tensors.iter().map(one).collect();
        match self.reach {
            SensitivityNorm::Any => all.join(", "),
            SensitivityNorm::Sum => all.join(", ") + " (a sum)",
            SensitivityNorm::Stated => all.join(", ") + " (with its reach)",
        }
    }
}

/// The shape of a declared tensor: a size for each dimension; `None` is any shape.
#[derive(Clone, Debug)]
pub(super) struct Shape(Option<Vec<Size>>);

#[derive(Clone, Debug)]
enum Size {
    Fixed(usize),
    Variable(String),
}

impl Shape {
    fn read(text: &str) -> Result<Self> {
        if text == "any" {
            return Ok(Self(None));
        }
        let one = |word: &str| {
            let letter = |c: char| c.is_ascii_lowercase() || c == '-';
            match word.parse() {
                Ok(n) => Ok(Size::Fixed(n)),
                Err(_) if !word.is_empty() && word.chars().all(letter) => {
                    Ok(Size::Variable(word.into()))
                }
                Err(_) => bail!(
                    "its shape is {text:?}; a shape is `any`, or sizes such as `rows x classes x 4`"
                ),
            }
        };
        let words = text.split(" x ").filter(|_| !text.is_empty());
        let sizes = words.map(one).collect::<Result<Vec<_>>>()?;
        ensure!(
            sizes.len() <= DIMENSIONS,
            "its shape has {} dimensions; at most {DIMENSIONS} are possible",
            sizes.len()
        );
        Ok(Self(Some(sizes)))
    }

    /// Checks a tensor against this shape; names keep the size of their first occurrence.
    fn hold<'s>(&'s self, found: &[usize], named: &mut BTreeMap<&'s str, usize>) -> bool {
        let Some(due) = &self.0 else { return true };
        due.len() == found.len()
            && due.iter().zip(found).all(|(due, n)| match due {
                Size::Fixed(due) => due == n,
                Size::Variable(name) => named.entry(name).or_insert(*n) == n,
            })
    }

    /// Returns the shape when names have these sizes; `None` if one has none.
    fn sizes(&self, of: impl Fn(&str) -> Option<usize>) -> Option<Vec<usize>> {
        let sizes = self.0.as_ref()?.iter();
        sizes
            .map(|size| match size {
                Size::Fixed(n) => Some(*n),
                Size::Variable(name) => of(name),
            })
            .collect()
    }
}

/// A message of a kind without a Rust type here: its tensors, in the order of the declaration.
#[derive(Clone, Debug)]
pub struct Declared {
    of: &'static MessageType,
    tensors: Vec<(String, Tensor)>,
    classes: Option<usize>,
}

impl Declared {
    /// Sorts tensors and checks them against the declaration.
    pub(super) fn new(
        of: &'static MessageType,
        shapes: &[Shape],
        mut tensors: Vec<(String, Tensor)>,
    ) -> Result<Self> {
        if of.columns.is_empty() {
            let mut names: Vec<&str> = tensors.iter().map(|(name, _)| &**name).collect();
            names.sort_unstable();
            let twice = names.windows(2).find(|two| two[0] == two[1]);
            ensure!(twice.is_none(), "a tensor occurs twice: {twice:?}");
            return Ok(Self {
                of,
                tensors,
                classes: None,
            });
        }
        // tensors with free names come last, by name
        let place = |name: &str| of.columns.iter().position(|c| c.name == name);
        tensors.sort_by(|(a, _), (b, _)| {
            let key = |name| place(name).unwrap_or(usize::MAX);
            key(a).cmp(&key(b)).then_with(|| a.cmp(b))
        });
        let any = place("*");
        let mut named = BTreeMap::new();
        for (at, (name, tensor)) in tensors.iter().enumerate() {
            ensure!(
                at == 0 || tensors[at - 1].0 != *name,
                "tensor `{name}` occurs twice"
            );
            let Some(column) = place(name).or(any) else {
                let known: Vec<_> = of.columns.iter().map(|c| format!("`{}`", c.name)).collect();
                bail!(
                    "no tensor is called `{name}`; there are {}",
                    known.join(", ")
                );
            };
            let (column, shape) = (&of.columns[column], &shapes[column]);
            let view = tensor.view();
            ensure!(
                view.dtype() == column.dtype,
                "`{name}` is {}, and {} was due",
                view.dtype(),
                column.dtype
            );
            Problem::shape_unless(shape.hold(&view.shape(), &mut named), || {
                format!(
                    "`{name}` is {:?} where `{}` was due",
                    view.shape(),
                    column.shape
                )
            })?;
        }
        let missing = of
            .columns
            .iter()
            .find(|c| c.name != "*" && !tensors.iter().any(|(n, _)| n == c.name));
        if let Some(missing) = missing {
            bail!("no tensor `{}`", missing.name);
        }
        let classes = named.get("classes").copied();
        Ok(Self {
            of,
            tensors,
            classes,
        })
    }

    /// See [`MessageType::expected`].
    pub(super) fn expected(
        of: &MessageType,
        shapes: &[Shape],
        facts: &ExchangeShape,
    ) -> Option<u64> {
        let known = |name: &str| match name {
            "rows" => Some(facts.rows),
            "classes" => Some(facts.outputs),
            _ => None,
        };
        if of.columns.is_empty() {
            return None;
        }
        let counted = of
            .columns
            .iter()
            .zip(shapes)
            .filter(|(c, _)| !c.name.starts_with('.'));
        counted
            .map(|(c, shape)| {
                let one = c.name != "*";
                let sizes = shape.sizes(known).filter(|_| one)?;
                let bytes = c.dtype.bytes(sizes.into_iter().product());
                Some(bytes as u64)
            })
            .sum()
    }

    /// See [`MessageType::sample`].
    pub(super) fn sample(
        of: &'static MessageType,
        shapes: &[Shape],
        outline: &mut SampleShape<'_>,
    ) -> Self {
        // without ids of samples all messages of an inbox have one shape
        let keyed = of.columns.iter().any(|c| c.name == "rows");
        let rows = if keyed { outline.rows() } else { vec![0, 1, 2] };
        let (classes, voters) = (outline.classes(), outline.voters());
        let known = |name: &str| {
            Some(match name {
                "rows" => rows.len(),
                "classes" => classes,
                "voters" => voters,
                _ => 3,
            })
        };
        let tensors = of.columns.iter().zip(shapes).map(|(column, shape)| {
            let sizes = shape.sizes(known).unwrap_or_else(|| vec![2, 3]);
            let shape = IxDyn(&sizes);
            let tensor = match (column.name, column.dtype) {
                ("rows", _) => Tensor::U32(ndarray::Array1::from(rows.clone()).into_dyn()),
                (_, Dtype::F32) => {
                    Tensor::F32(ArrayD::from_shape_simple_fn(shape, || outline.number()))
                }
                (_, Dtype::F64) => Tensor::F64(ArrayD::from_shape_simple_fn(shape, || {
                    f64::from(outline.number())
                })),
                (_, Dtype::U32) => Tensor::U32(ArrayD::from_shape_simple_fn(shape, || {
                    outline.draws.below(10) as u32
                })),
                (_, Dtype::I64) => Tensor::I64(ArrayD::from_shape_simple_fn(shape, || {
                    outline.draws.below(20) as i64 - 10
                })),
                (_, Dtype::Bits) => {
                    let bits = (0..sizes.iter().product()).map(|_| outline.draws.below(2) as u32);
                    let packed = pack_bits(bits, 1);
                    Tensor::Bits(Bits::new(sizes, packed).expect("as many bits as the shape says"))
                }
                (_, Dtype::U8) => Tensor::U8(
                    (0..sizes.iter().product())
                        .map(|_| outline.draws.below(256) as u8)
                        .collect(),
                ),
            };
            let name = if column.name == "*" { "w" } else { column.name };
            (name.to_string(), tensor)
        });
        let tensors = tensors.collect();
        Self {
            of,
            tensors,
            classes: Some(classes),
        }
    }
}

impl SealedMessage for Declared {}

impl AnyMessage for Declared {
    fn message_type(&self) -> &'static MessageType {
        self.of
    }
    fn content(&self) -> NamedTensors<'_> {
        let each = self.tensors.iter();
        each.map(|(name, tensor)| (name.as_str().into(), tensor.view()))
            .collect()
    }
    fn sent(&self) -> NamedTensors<'_> {
        self.content()
    }
    /// Only a [`MessageType`] makes such a message, already checked, and nothing changes it.
    fn check_content(&self) -> Result<()> {
        Ok(())
    }
    fn classes(&self) -> Option<usize> {
        self.classes
    }
    fn copy(&self) -> Erased {
        Box::new(self.clone())
    }
    fn become_other(&mut self, other: Erased) -> Result<()> {
        let other: Self = other.take()?;
        ensure!(
            std::ptr::eq(self.of, other.of),
            "a {} message where {} was due",
            other.of.kind,
            self.of.kind
        );
        *self = other;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::View;
    use super::super::{Counts, bytes, check, digest, encode, message_type, to_json};
    use super::*;
    use crate::Stream;
    use serde_json::json;

    fn decl(value: serde_json::Value) -> MessageDecl {
        serde_json::from_value(value).unwrap()
    }

    fn spreads() -> &'static MessageType {
        let decl = decl(
            json!({"kind": "test-spreads", "doc": "How far scores lie apart.", "tensors": [
            {"name": "rows", "type": "u32", "shape": "rows"},
            {"name": "spread", "type": "f64", "shape": "rows x classes"},
            {"name": ".classes", "type": "u32", "shape": ""},
            {"name": "*", "type": "u8", "shape": "any"}]}),
        );
        MessageType::declare(&decl, "one.so").unwrap()
    }

    fn parts(tensors: Vec<(&str, Tensor)>) -> Result<Erased> {
        let tensors = tensors
            .into_iter()
            .map(|(n, t)| (n.to_string(), t))
            .collect();
        spreads().from_tensors(crate::message::TensorMap::new(tensors))
    }

    fn f64s(shape: &[usize]) -> Tensor {
        Tensor::F64(ArrayD::from_elem(IxDyn(shape), 0.5))
    }

    fn u32s(shape: &[usize]) -> Tensor {
        Tensor::U32(ArrayD::from_elem(IxDyn(shape), 7))
    }

    #[test]
    fn exact_a_declared_message_survives_wire_and_json_in_one_order() {
        let of = spreads();
        let all = || {
            vec![
                ("b", Tensor::U8(vec![3])),
                (".classes", u32s(&[])),
                ("a", Tensor::U8(vec![1, 2])),
                ("spread", f64s(&[2, 3])),
                ("rows", u32s(&[2])),
            ]
        };
        let message = parts(all()).unwrap();
        let names: Vec<_> = message
            .content()
            .iter()
            .map(|(n, _)| n.to_string())
            .collect();
        assert_eq!(names, ["rows", "spread", ".classes", "a", "b"]);
        check(&*message).unwrap();
        let turned = parts(all().into_iter().rev().collect()).unwrap();
        assert_eq!(digest(&*turned), digest(&*message));
        let back = of.decode(&encode(&*message)).unwrap();
        assert_eq!(digest(&*back), digest(&*message));
        let back = of
            .from_json(to_json(&*message).as_object().unwrap())
            .unwrap();
        assert_eq!(digest(&*back), digest(&*message));
        assert_eq!(
            (message.classes(), message.kind()),
            (Some(3), "test-spreads")
        );
        // six numbers of 8 bytes and three bytes; the ids are not the requested ones; `.classes` is
        // known
        assert_eq!(
            bytes(&*message, None),
            super::super::Bytes {
                values: 51,
                keys: 8
            }
        );
        assert!(message.get::<Declared>().is_ok());
        let error = message.get::<Counts>().unwrap_err().to_string();
        assert!(
            error.contains("test-spreads") && error.contains("Counts"),
            "{error}"
        );
    }

    #[test]
    fn a_declared_message_is_held_to_its_declaration() {
        let error = |tensors| format!("{:#}", parts(tensors).unwrap_err());
        for (tensors, says) in [
            (
                vec![
                    ("rows", u32s(&[2])),
                    ("spread", f64s(&[3, 1])),
                    (".classes", u32s(&[])),
                ],
                "`spread` is [3, 1] where `rows x classes` was due",
            ),
            (
                vec![("rows", u32s(&[2])), ("spread", f64s(&[2]))],
                "where `rows x classes`",
            ),
            (
                vec![("rows", u32s(&[2])), ("spread", u32s(&[2, 1]))],
                "`spread` is u32, and f64 was due",
            ),
            (
                vec![("rows", u32s(&[2])), ("spread", f64s(&[2, 1]))],
                "no tensor `.classes`",
            ),
            (
                vec![("rows", u32s(&[2])), ("rows", u32s(&[2]))],
                "occurs twice",
            ),
        ] {
            let found = error(tensors);
            assert!(found.contains(says), "{found}, not {says}");
        }
        let nan = vec![
            ("rows", u32s(&[1])),
            (
                "spread",
                Tensor::F64(ArrayD::from_elem(IxDyn(&[1, 1]), f64::NAN)),
            ),
            (".classes", u32s(&[])),
        ];
        assert!(
            check(&*parts(nan).unwrap())
                .unwrap_err()
                .to_string()
                .contains("`spread` holds NaN")
        );
    }

    #[test]
    fn samples_of_a_declared_message_are_legal_and_alike() {
        let mut draws = Stream::root(1).draws();
        let mut outline = SampleShape::new(2, &|draws| draws.normal() as f32, &mut draws);
        let one = spreads().sample(&mut outline).unwrap();
        outline.client(1);
        let other = spreads().sample(&mut outline).unwrap();
        super::super::alike(&*one, &*other).unwrap();
        let facts = ExchangeShape {
            rows: 4,
            outputs: 3,
            ..ExchangeShape::default()
        };
        assert_eq!(
            spreads().expected(&facts),
            None,
            "any number of other tensors"
        );
        let plain = decl(
            json!({"kind": "test-plain", "doc": "", "tensors": [{"name": "a", "type": "f32", "shape": "rows x classes x 2"}]}),
        );
        let plain = MessageType::declare(&plain, "one.so").unwrap();
        assert_eq!(plain.expected(&facts), Some(96));
        // it has no ids, so all clients have as many rows
        let mut draws = Stream::root(2).draws();
        let mut outline = SampleShape::new(9, &|draws| draws.normal() as f32, &mut draws);
        let first = plain.sample(&mut outline).unwrap();
        for client in 1..9 {
            outline.client(client);
            super::super::alike(&*first, &*plain.sample(&mut outline).unwrap()).unwrap();
        }
    }

    #[test]
    fn exact_signed_numbers_and_packed_bits_survive_wire_and_json() {
        let decl = decl(json!({"kind": "test-signs", "doc": "", "tensors": [
            {"name": "shift", "type": "i64", "shape": "n"},
            {"name": "mask", "type": "bits", "shape": "n x 3"}]}));
        let of = MessageType::declare(&decl, "one.so").unwrap();
        let json = json!({"shift": [-3, i64::MAX], "mask": [[1, 0, 1], [0, 1, 1]]});
        let message = of.from_json(json.as_object().unwrap()).unwrap();
        assert_eq!(to_json(&*message), json);
        let View::Bits(mask) = &message.content()[1].1 else {
            panic!("no bits");
        };
        assert_eq!(
            (mask.packed(), mask.shape()),
            (&[0b11_0101][..], &[2, 3][..])
        );
        let wire = encode(&*message);
        assert_eq!(digest(&*of.decode(&wire).unwrap()), digest(&*message));
        // two numbers of 8 bytes, and six bits
        assert_eq!(bytes(&*message, None).total(), 17);
        for cut in 0..wire.len() {
            assert!(of.decode(&wire[..cut]).is_err(), "cut at {cut}");
        }
        let mut spare = wire.clone();
        *spare.last_mut().unwrap() |= 0x80;
        let error = format!("{:#}", of.decode(&spare).unwrap_err());
        assert!(
            error.contains("1 bytes for packed bits of shape [2, 3]"),
            "{error}"
        );
        let two = json!({"shift": [0, 0], "mask": [[1, 0, 2], [0, 1, 1]]});
        let error = format!("{:#}", of.from_json(two.as_object().unwrap()).unwrap_err());
        assert!(
            error.contains("whole numbers of 0..=1 are due, found 2"),
            "{error}"
        );
        let mut draws = Stream::root(1).draws();
        let made = of.sample(&mut SampleShape::new(
            1,
            &|draws| draws.normal() as f32,
            &mut draws,
        ));
        check(&*made.unwrap()).unwrap();
    }

    #[test]
    fn one_kind_is_declared_in_one_way() {
        spreads();
        assert!(std::ptr::eq(
            spreads(),
            message_type("test-spreads").unwrap()
        ));
        let mut other = MessageDecl::from(spreads());
        other.doc = "Other words.".into();
        assert!(std::ptr::eq(
            MessageType::declare(&other, "two.so").unwrap(),
            spreads()
        ));
        other.tensors.pop();
        let error = MessageType::declare(&other, "two.so")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("one.so says `rows` of u32 [rows]") && error.contains("two.so says"),
            "{error}"
        );
        // a kind with a linked Rust type becomes that type
        let counts = MessageDecl::from(message_type("counts").unwrap());
        let counts = MessageType::declare(&counts, "two.so").unwrap();
        assert!(counts.origin().ends_with("Counts"), "{}", counts.origin());
        let lying = MessageDecl {
            reach: SensitivityNorm::Any,
            ..MessageDecl::from(counts)
        };
        let error = MessageType::declare(&lying, "two.so")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("Counts says") && error.contains("(with its reach)"),
            "{error}"
        );
        super::super::check_linked().unwrap();
    }

    #[test]
    fn declarations_that_cannot_be_are_refused() {
        for (value, says) in [
            (
                json!({"kind": "No", "doc": "", "tensors": []}),
                "a name is 1 to 64",
            ),
            (json!({"kind": "no", "doc": "", "tensors": []}), "0 tensors"),
            (
                json!({"kind": "no", "doc": "\u{1b}", "tensors": []}),
                "control characters",
            ),
            (
                json!({"kind": "no", "doc": "", "tensors": [{"name": "a", "type": "f32", "shape": "2 by 3"}]}),
                "a shape is `any`",
            ),
            (
                json!({"kind": "no", "doc": "", "tensors": [{"name": "a", "type": "u8", "shape": "2 x 3"}]}),
                "bytes have one dimension",
            ),
            (
                json!({"kind": "no", "doc": "", "tensors": [{"name": "rows", "type": "f32", "shape": "rows"}]}),
                "ids of samples",
            ),
            (
                json!({"kind": "no", "doc": "", "tensors": [{"name": "a", "type": "f32", "shape": "2"}, {"name": "a", "type": "f32", "shape": "2"}]}),
                "twice",
            ),
        ] {
            let error = format!(
                "{:#}",
                MessageType::declare(&decl(value), "one.so").unwrap_err()
            );
            assert!(error.contains(says), "{error}, not {says}");
        }
        assert!(message_type("no").is_none());
    }
}
