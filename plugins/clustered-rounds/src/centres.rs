//! Several models in one message.
use fl_core::message::{
    Column, ExchangeShape, Message, NamedTensors, Params, SampleShape, TensorMap,
};
use fl_core::prelude::Context;
use fl_core::{Problem, Result};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The parameters of every centre.
#[derive(Clone, Debug, PartialEq)]
pub struct Centres(pub Vec<Params>);

fl_core::messages! { Centres }

impl Message for Centres {
    const KIND: &'static str = "centres";
    const DOC: &'static str = "The parameters of every centre, in the order of their numbers.";
    const COLUMNS: &'static [Column] = &[];
    /// Returns the size of one centre.
    fn expected(facts: &ExchangeShape) -> Option<u64> {
        Params::expected(facts)
    }
    fn tensors(&self) -> NamedTensors<'_> {
        let mut all = Vec::new();
        for (j, centre) in self.0.iter().enumerate() {
            // six digits, so that names sort like the centres
            let under =
                |(name, view): (Cow<'_, str>, _)| (Cow::from(format!("{j:06}.{name}")), view);
            all.extend(centre.tensors().into_iter().map(under));
        }
        all
    }
    fn from_tensors(parcel: TensorMap) -> Result<Self> {
        let mut all: BTreeMap<usize, Vec<_>> = BTreeMap::new();
        for (name, tensor) in parcel.rest() {
            let place = name
                .split_once('.')
                .and_then(|(j, rest)| Some((j.parse().ok()?, rest)));
            let (j, rest): (usize, &str) = place
                .with_context(|| Problem::Shape(format!("tensor `{name}` is of no centre")))?;
            all.entry(j).or_default().push((rest.to_string(), tensor));
        }
        let read = |tensors| Params::from_tensors(TensorMap::new(tensors));
        all.into_values().map(read).collect::<Result<_>>().map(Self)
    }
    fn sample(outline: &mut SampleShape<'_>) -> Option<Self> {
        Some(Self(vec![
            Params::sample(outline)?,
            Params::sample(outline)?,
        ]))
    }
}
