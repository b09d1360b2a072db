//! AsynDGAN (Chang, Qu, Zhang, Sabuncu, Chen, Zhang, Metaxas 2020): a generator at the server makes
//! images from label maps, and each client has a discriminator.
use crate::discriminator::DiscriminatorBatch;
use crate::image_translator::{
    self, DISCRIMINATOR, MAPS, PAINTER, STUDENT, ServerState, TranslatedImages,
};
use crate::messages::{ImagesOfMaps, InputValues};
use crate::protocol::SHOWN;
use crate::settings::Patches;
use fl_core::loss::sigmoid;
use fl_core::prelude::*;
use fl_core::{Problem, TaskKind};
use ndarray::{Array2, Axis, concatenate, s};
use std::collections::BTreeMap;

const JUDGE: Exchange<ImagesOfMaps, InputValues> =
    Exchange::new("slopes by images of its label maps");

settings! {
    /// A generator at the server makes images from the clients' label maps; discriminators at the
    /// clients train it, and a student learns from its images (AsynDGAN; Chang et al. 2020). The
    /// label maps themselves leave the clients.
    pub struct AsynDgan {
        /// Rounds of the generator.
        rounds: usize = 10, in 1..=1_000_000;
        /// Steps of the generator in one round.
        steps: usize = 100, in 1..=1_000_000;
        /// Label maps of each client in one step.
        batch: usize = 8, in 1..=100_000;
        /// Number of channels with one normally distributed number each, added to a label map so
        /// that two images of one map differ.
        noise: usize = 4, in 0..=1_000;
        /// Weight of the mean absolute distance to the client's own image besides the
        /// discriminator's loss. Published code: 100. The sign of its slope reveals for every
        /// number whether the private one is larger.
        l1: f64 = 0.0, in 0.0..=1e6;
        /// The regions that a discriminator judges: it must have as many outputs.
        patches: Patches = Patches::Whole;
        /// The student's training, on one generated image for each label map.
        student: Training = Training::epochs(50, 8);
    }
}

impl Protocol for AsynDgan {
    fn declare(&self) -> Declaration<'_> {
        let discriminator = DISCRIMINATOR
            .spec()
            .lasting()
            .with_task(self.patches.task_of_pairs())
            .needs(Ability::ByStep)
            .needs(Ability::InputGradient);
        let judge = JUDGE
            .answered_by(|client, made| self.judge(client, made))
            .times(self.rounds * self.steps)
            .made(self.batch);
        Declaration::new()
            .rounds(self.rounds)
            .measures([Measurement::server(&STUDENT)])
            .slot(image_translator::slot(self.noise, self.steps))
            .slot(Training::steps(self.steps, self.batch).needs(discriminator))
            .slot(self.student.clips(STUDENT.spec().at_server()))
            .exchange(MAPS.answered_by(|client, _| image_translator::own(client)))
            .exchange(image_translator::hidden(judge))
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        let mut known = ServerState::new();
        server.once("label-maps", &mut known, |server, known, round| {
            *known = image_translator::ask(server, round)?;
            Ok(())
        })?;
        server.rounds(&mut known, |server, known, round| {
            for step in 0..self.steps as u64 {
                self.step(server, round, known, &round.stream.child("step", step))?;
            }
            Ok(())
        })?;
        server.once("student", &mut known, |server, known, round| {
            let all: Vec<_> = known.values().map(|maps| maps.view()).collect();
            let maps = concatenate(Axis(0), &all)?;
            let painted =
                TranslatedImages::new(server, maps.view(), self.noise, &round.stream)?.images;
            let pass = self.student.pass(Loss::CrossEntropy);
            let target = Target::Pixels(maps.view());
            server.fit(&STUDENT, &round.stream, &painted, target, &pass)?;
            server.evaluate(round, &STUDENT)?;
            let shown: Vec<usize> = (0..maps.nrows().min(SHOWN)).collect();
            server.keep_images("made", &painted.pick(&shown))
        })?;
        server.keep_model(&PAINTER)?;
        server.keep_model(&STUDENT)
    }

    fn suits(&self, kind: TaskKind, _: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
        image_translator::suits(kind)
    }
}
plugin!(protocol "asyn-dgan" => AsynDgan,
    papers: ["Chang et al. 2020"]);

impl AsynDgan {
    /// Makes images from label maps of every client, lets each client judge its own, and trains the
    /// generator.
    fn step(
        &self,
        server: &mut Server<'_>,
        round: &Round,
        known: &ServerState,
        stream: &Stream,
    ) -> Result<()> {
        let drawn = known.iter().map(|(id, own)| {
            let stream = stream.child("maps", u64::from(*id));
            image_translator::draw(own.nrows(), self.batch, &stream)
        });
        let drawn: Vec<Vec<usize>> = drawn.collect();
        let maps = known.values().zip(&drawn);
        let maps: Vec<_> = maps.map(|(own, rows)| own.select(Axis(0), rows)).collect();
        let maps: Vec<_> = maps.iter().map(|maps| maps.view()).collect();
        let maps = concatenate(Axis(0), &maps)?;
        let painted = TranslatedImages::new(server, maps.view(), self.noise, stream)?;
        let values = painted.images.values();
        let made = |(at, (id, rows)): (usize, (&ClientId, Vec<usize>))| {
            let values = values.slice(s![at * self.batch..(at + 1) * self.batch, ..]);
            let of = rows.into_iter().map(|row| row as u32).collect();
            (
                *id,
                ImagesOfMaps {
                    values: values.to_owned(),
                    of,
                },
            )
        };
        let sent: BTreeMap<_, _> = known.keys().zip(drawn).enumerate().map(made).collect();
        let asked: Vec<ClientId> = known.keys().copied().collect();
        let judged = server.collect_from(round, &JUDGE, &asked, |id| &sent[&id])?;
        let mut slope = Array2::zeros(values.dim());
        for mail in judged.iter() {
            let (from, found, due) = (
                mail.from,
                mail.body.values.dim(),
                (self.batch, values.ncols()),
            );
            let text = || format!("client {from} sent slopes of {found:?} where {due:?} were due");
            Problem::shape_unless(found == due, text)?;
            let at = sent.keys().take_while(|id| **id < from).count() * self.batch;
            slope
                .slice_mut(s![at..at + self.batch, ..])
                .assign(&mail.body.values);
        }
        painted.learn(server, slope.view(), stream)
    }

    /// Trains the discriminator to separate the images made from its client's label maps from the
    /// client's own images. Returns the slope by the made images of their loss against it.
    fn judge(&self, client: &mut Client, sent: &ImagesOfMaps) -> Result<InputValues> {
        let judged = DiscriminatorBatch::pairs(client, sent)?;
        let n = judged.rows.len();
        Problem::shape_unless(n == sent.values.nrows() && n > 0, || {
            "images of label maps of another client, or none".into()
        })?;
        let parts = (self.patches.task())(client.task()).kind.outputs();
        let stream = client.stream(&DISCRIMINATOR);
        judged.train(client.model(&DISCRIMINATOR)?, parts, &stream)?;

        // the mean of -ln(1 - D) over images and parts
        let scores = client.model(&DISCRIMINATOR)?.predict(&judged.made)?;
        let by_scores =
            scores.mapv(|score| (sigmoid(f64::from(score)) / (n * parts) as f64) as f32);
        let slope = client
            .differentiable(&DISCRIMINATOR)?
            .vjp(&judged.made, by_scores.view())?;
        let width = sent.values.ncols();
        let mut slope = slope.slice(s![.., ..width]).to_owned();
        let weight = (self.l1 / sent.values.len() as f64) as f32;
        if weight > 0.0 {
            let real = judged.real.values();
            let far = &sent.values - &real.slice(s![.., ..width]);
            slope.zip_mut_with(&far, |slope, far| {
                *slope += weight * f32::from(u8::from(*far > 0.0))
                    - weight * f32::from(u8::from(*far < 0.0));
            });
        }
        Ok(InputValues { values: slope })
    }
}
