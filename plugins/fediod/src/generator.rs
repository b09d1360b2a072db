//! The generators of inputs: from noise, or from label maps.
use crate::image_translator::{self, PAINTER, ServerState, TranslatedImages, draw};
use crate::settings::{GenerateAndDistill, GeneratorInput};
use fl_core::prelude::*;
use ndarray::{ArrayView2, Axis, stack};

/// The slot of a generator that makes inputs from noise.
const MAKER: GeneratorSlot = GeneratorSlot::new("generator", "Makes the inputs, at the server.");

/// A batch of made inputs.
pub(crate) enum Batch {
    OfNoise(Samples),
    /// And the label map of each input: a client, and the position of its example.
    OfMaps(TranslatedImages, Vec<(ClientId, u32)>),
}

impl Batch {
    pub fn inputs(&self) -> &Samples {
        match self {
            Self::OfNoise(made) => made,
            Self::OfMaps(painted, _) => &painted.images,
        }
    }

    /// Returns whether client `id` judges an input: every client judges all, or those made from its
    /// label maps.
    pub fn judged_by(&self, id: ClientId, at: usize) -> bool {
        match self {
            Self::OfNoise(_) => true,
            Self::OfMaps(_, whose) => whose[at].0 == id,
        }
    }

    /// Lets their generator take a step against `slope`, the derivative of a loss by each of their
    /// numbers.
    pub fn learn(
        &self,
        server: &mut Server<'_>,
        slope: ArrayView2<'_, f32>,
        stream: &Stream,
    ) -> Result<()> {
        match self {
            Self::OfNoise(made) => server.generator(&MAKER)?.learn(made, slope),
            Self::OfMaps(painted, _) => painted.learn(server, slope, stream),
        }
    }
}

impl GenerateAndDistill {
    /// Makes `n` inputs: from noise, or from label maps drawn from those of all clients.
    pub(crate) fn make(
        &self,
        server: &mut Server<'_>,
        n: usize,
        maps: &ServerState,
        stream: &Stream,
    ) -> Result<Batch> {
        let GeneratorInput::LabelMaps(with) = &self.made_of else {
            return Ok(Batch::OfNoise(server.generator(&MAKER)?.sample(n, stream)?));
        };
        let whose = maps.iter().flat_map(|(id, maps)| {
            let rows = 0..maps.nrows() as u32;
            rows.map(|row| (*id, row))
        });
        let whose: Vec<(ClientId, u32)> = whose.collect();
        let drawn = draw(whose.len(), n, &stream.child("maps", 0));
        let whose: Vec<_> = drawn.into_iter().map(|at| whose[at]).collect();
        let drawn = whose.iter().map(|(id, row)| maps[id].row(*row as usize));
        let drawn = stack(Axis(0), &drawn.collect::<Vec<_>>())?;
        let painted = TranslatedImages::new(server, drawn.view(), with.noise, stream)?;
        Ok(Batch::OfMaps(painted, whose))
    }

    /// Returns the slot of the generator.
    pub(crate) fn maker(&self) -> SlotSpec {
        match &self.made_of {
            GeneratorInput::Noise => MAKER.spec().at_server(),
            GeneratorInput::LabelMaps(with) => image_translator::slot(with.noise, self.steps),
        }
    }

    pub(crate) fn keep_maker(&self, server: &mut Server<'_>) -> Result<()> {
        match &self.made_of {
            GeneratorInput::Noise => server.keep_generator(&MAKER),
            GeneratorInput::LabelMaps(_) => server.keep_model(&PAINTER),
        }
    }
}
