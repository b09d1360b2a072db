//! A generator of images from label maps (Isola, Zhu, Zhou, Efros 2017: pix2pix): a trainer that
//! takes a map and noise, and whose outputs are the numbers of an image.
use crate::messages::{InputValues, LabelMaps};
use fl_core::prelude::*;
use fl_core::{Length, Problem, TaskKind};
use ndarray::{Array2, ArrayView2, Axis, concatenate};
use std::collections::BTreeMap;

/// The label maps of a client's examples.
pub(crate) const MAPS: Exchange<Nothing, LabelMaps> = Exchange::new("label maps");

/// The label maps of each client, `images x pixels`.
pub(crate) type ServerState = BTreeMap<ClientId, Array2<u8>>;

/// Checks that the task has label maps.
pub(crate) fn suits(kind: TaskKind) -> Result<(), String> {
    match kind {
        TaskKind::Pixels { .. } => Ok(()),
        _ => Err("label maps are painted, so every pixel must have a class".into()),
    }
}

/// Collects the label maps of all clients.
pub(crate) fn ask(server: &mut Server<'_>, round: &Round) -> Result<ServerState> {
    let kind = server.task().kind;
    let (classes, pixels) = (kind.classes(), kind.outputs() / kind.classes());
    let told = server.collect(round, &MAPS, |_| &Nothing)?;
    let maps = told.iter().map(|mail| {
        let of = mail.body.classes.clone();
        let right = of.len().is_multiple_of(pixels) && of.iter().all(|c| usize::from(*c) < classes);
        let text = || {
            format!(
                "client {} sent no label maps of {kind}: {} numbers",
                mail.from,
                of.len()
            )
        };
        Problem::shape_unless(right && !of.is_empty(), text)?;
        let maps = Array2::from_shape_vec((of.len() / pixels, pixels), of)?;
        Ok((mail.from, maps))
    });
    maps.collect()
}

/// Answers [`MAPS`] at a client.
pub(crate) fn own(client: &Client) -> Result<LabelMaps> {
    let maps = client
        .own()
        .masks()
        .context("examples without label maps")?;
    Ok(LabelMaps {
        classes: maps.of().iter().copied().collect(),
    })
}

/// Draws the positions of `n` out of `of`, each as often as another as far as possible.
pub(crate) fn draw(of: usize, n: usize, stream: &Stream) -> Vec<usize> {
    let order = stream.draws().permutation(of);
    order.iter().copied().cycle().take(n).collect()
}

/// The slot of the generator of images.
pub(crate) const PAINTER: TrainerSlot = TrainerSlot::new(
    "generator",
    "Paints label maps at the server. Its input has a channel for each class and the channels of noise; its output is an image.",
);
/// A client's model that separates made inputs from its own.
pub(crate) const DISCRIMINATOR: TrainerSlot = TrainerSlot::new(
    "discriminator",
    "A client's discriminator, which tells real from made inputs. Each client may have another.",
);
/// The model that learns at the server.
pub(crate) const STUDENT: TrainerSlot = TrainerSlot::new("student", "The server's model.");
/// The mechanism on the slopes that leave a client.
pub(crate) const SLOPES_PRIVACY: MechanismSlot<Params> = MechanismSlot::new(
    "slopes-privacy",
    "Clips and perturbs the slopes by a batch that leave a client, as one tensor `inputs`.",
);

/// Declares the slot of the generator from maps with `noise` channels beside them, which takes
/// `steps` steps in a round.
pub(crate) fn slot(noise: usize, steps: usize) -> SlotSpec {
    let painter = PAINTER.spec().at_server().with_task(task(noise));
    Training::steps(steps, 1)
        .needs(painter)
        .needs(Ability::Loss(Loss::Mse))
        .needs(Ability::ByStep)
}

/// Releases the slopes by inputs that leave a client.
pub(crate) fn hidden<'p, D: Message>(
    slopes: Declared<'p, D, InputValues>,
) -> Declared<'p, D, InputValues> {
    slopes.releases_as(
        &SLOPES_PRIVACY,
        |_, slopes| {
            let values = slopes.values.clone().into_dyn();
            Ok(Params([("inputs".to_string(), values)].into()))
        },
        |_, _, mut released| {
            let values = released.0.remove("inputs");
            let values = values.context("the mechanism lost its tensor")?;
            let values = values.into_dimensionality()?;
            Ok(InputValues { values })
        },
    )
}

/// Converts label maps to images for models: a channel for each class, 1 where a pixel has it.
pub fn channels(maps: ArrayView2<'_, u8>, classes: usize) -> Array2<f32> {
    let pixels = maps.ncols();
    Array2::from_shape_fn((maps.nrows(), classes * pixels), |(i, at)| {
        f32::from(u8::from(usize::from(maps[[i, at % pixels]]) == at / pixels))
    })
}

/// Returns the map from the run's task to the generator's: from a channel for each class and
/// `noise` channels of noise to the numbers of an input.
pub(crate) fn task(noise: usize) -> impl Fn(&Task) -> Task + Send + Sync + 'static {
    move |of| {
        Task::new(
            with_channels(noise + of.kind.classes(), of),
            TaskKind::Classes(of.width()),
        )
    }
}

/// Returns the shape of `channels` channels of the size of an image.
pub(crate) fn with_channels(channels: usize, of: &Task) -> Vec<usize> {
    let sides = of.input.iter().skip(1).copied();
    std::iter::once(channels).chain(sides).collect()
}

/// Images made from label maps.
pub(crate) struct TranslatedImages {
    canvas: Samples,
    pub images: Samples,
}

impl TranslatedImages {
    /// Makes images from `maps` with `noise` normally distributed numbers beside each, a channel
    /// for each number.
    pub fn new(
        server: &mut Server<'_>,
        maps: ArrayView2<'_, u8>,
        noise: usize,
        stream: &Stream,
    ) -> Result<Self> {
        let task = server.task().clone();
        let mut draws = stream.child("noise", 0).draws();
        // one number for all pixels, so that it can control the whole image
        let drawn = Array2::from_shape_simple_fn((maps.nrows(), noise), || draws.normal() as f32);
        let pixels = maps.ncols();
        let size = (maps.nrows(), noise * pixels);
        let noisy = Array2::from_shape_fn(size, |(i, at)| drawn[[i, at / pixels]]);
        let map = channels(maps, task.kind.classes());
        let both = concatenate(Axis(1), &[map.view(), noisy.view()])?;
        let canvas = Samples::fresh(both, with_channels(noise + task.kind.classes(), &task))?;
        let images = server.model(&PAINTER)?.predict(&canvas)?;
        Ok(Self {
            canvas,
            images: Samples::fresh(images, task.input)?,
        })
    }

    /// Lets the generator take a step against `slope`, the derivative of a loss by each number of
    /// the images. Exact without batch normalisation and dropout.
    pub fn learn(
        &self,
        server: &mut Server<'_>,
        slope: ArrayView2<'_, f32>,
        stream: &Stream,
    ) -> Result<()> {
        let aim = aim(&self.images.values(), slope);
        let pass = FitOptions::new(Length::Steps(1), slope.nrows(), Loss::Mse);
        let aim = Target::Scores(aim.view());
        server.fit(&PAINTER, stream, &self.canvas, aim, &pass)
    }
}

/// Returns the target for which the slope of the mean squared distance is `slope`.
pub fn aim(images: &Array2<f32>, slope: ArrayView2<'_, f32>) -> Array2<f32> {
    images - &(&slope * (slope.len() as f32 / 2.0))
}
