//! Parts on a message that only this library declares. `hosts/cli/tests/program/spreads.c` has the
//! same in C, and `hosts/python/tests/my_parts.py` in Python.

use fl_core::message::{
    Column, Dtype, ExchangeShape, Message, NamedTensors, SampleShape, Tensor, TensorMap, View,
};
use fl_core::prelude::*;
use ndarray::{Array1, Array2};

/// How far the scores of samples lie apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Spreads {
    /// Lowest and highest score, `samples x 2`.
    pub spread: Array2<f64>,
    /// How often the highest score changed its class.
    pub moves: Array1<i64>,
}

messages! { Spreads }

impl Message for Spreads {
    const KIND: &'static str = "test-spreads";
    const DOC: &'static str = "How far the scores of samples lie apart.";
    const COLUMNS: &'static [Column] = &[
        Column::new("spread", Dtype::F64, "rows x 2", "lowest and highest score"),
        Column::new("moves", Dtype::I64, "rows", "changes of the class"),
    ];

    fn tensors(&self) -> NamedTensors<'_> {
        vec![
            ("spread".into(), View::F64(self.spread.view().into_dyn())),
            ("moves".into(), View::I64(self.moves.view().into_dyn())),
        ]
    }

    fn from_tensors(mut parcel: TensorMap) -> Result<Self> {
        let Tensor::I64(moves) = parcel.rest_of("moves")? else {
            bail!("`moves` is no list of whole numbers");
        };
        let (spread, moves) = (
            parcel
                .f64("spread")?
                .into_dimensionality::<ndarray::Ix2>()?,
            moves.into_dimensionality::<ndarray::Ix1>()?,
        );
        ensure!(
            spread.dim() == (moves.len(), 2),
            "spreads of {:?} and moves of {} samples",
            spread.dim(),
            moves.len()
        );
        Ok(Self { spread, moves })
    }

    fn expected(shape: &ExchangeShape) -> Option<u64> {
        Some(24 * shape.rows as u64)
    }

    fn sample(shape: &mut SampleShape<'_>) -> Option<Self> {
        let n = 3;
        Some(Self {
            spread: Array2::from_shape_simple_fn((n, 2), || f64::from(shape.number())),
            moves: (0..n).map(|_| shape.draws.below(20) as i64 - 10).collect(),
        })
    }
}

settings! {
    /// For each sample the lowest and the highest score of all clients, and all moves.
    pub struct Widest {}
}

impl Aggregator for Widest {
    type In = Spreads;
    type Out = Spreads;

    fn aggregate(&mut self, _: &Round, inbox: &Inbox<Spreads>) -> Result<Spreads> {
        let mut all = inbox.iter().map(|mail| &mail.body);
        let mut out = all.next().context("an empty inbox")?.clone();
        for one in all {
            ndarray::azip!((index (_, column), to in &mut out.spread, &from in &one.spread) {
                *to = if column == 0 { to.min(from) } else { to.max(from) };
            });
            out.moves += &one.moves;
        }
        Ok(out)
    }

    fn claims(&self) -> Properties {
        Properties {
            order_free: true,
            weight_free: true,
            ..Properties::default()
        }
    }
}
plugin!(aggregator "rs-widest" => Widest);

settings! {
    /// Bounds spreads and adds Laplace noise to them; moves become 0.
    pub struct Blur {
        /// The largest absolute score.
        clip: f64 = 1.0, in above(0.0);
        /// The scale of the noise.
        scale: f64 = 1.0, in above(0.0);
    }
}

impl PrivacyMechanism for Blur {
    type On = Spreads;

    fn clip(&self, message: &mut Spreads) -> Result<()> {
        message
            .spread
            .mapv_inplace(|x| x.clamp(-self.clip, self.clip));
        message.moves.fill(0);
        Ok(())
    }

    fn price(&self, message: &Spreads, _: &Cohort) -> Result<PrivacyEvent> {
        Ok(PrivacyEvent::Laplace {
            sensitivity: 2.0 * self.clip * message.spread.len() as f64,
            scale: self.scale,
            unit: fl_core::privacy::Unit::Party,
        })
    }

    fn perturb(&mut self, message: &mut Spreads, _: &Cohort, noise: &ReleaseNoise) -> Result<()> {
        let mut draws = noise.draws();
        (message.spread).mapv_inplace(|x| draws.laplace(x, self.scale));
        Ok(())
    }
}
plugin!(privacy "rs-blur" => Blur);
