//! [`Logits`]: raw class scores, as floats or as levels of a grid.

use super::bits::{bits_for, pack_bits, unpack_bits};
use super::{
    Column, Dtype, ExchangeShape, Message, NamedTensors, ROWS, SampleShape, TensorMap, View,
    checks::same_rows, tensors::list,
};
use crate::{Problem, Result};
use anyhow::bail;
use ndarray::Array2;
use serde::{Deserialize, Serialize};

/// An even grid for the values of a [`Logits`] message, so that levels can be sent in place of
/// floats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grid {
    /// Number of levels, at least 1.
    pub levels: u32,
    /// The value of level 0.
    pub lowest: f32,
    /// The distance between two levels.
    pub step: f32,
}

impl Grid {
    /// Returns the bits of one packed value: `ceil(log2(levels))`, at least 1.
    pub fn bits(&self) -> u32 {
        bits_for(self.levels)
    }

    /// Returns the value of a level.
    pub fn value(&self, level: u32) -> f32 {
        (f64::from(self.lowest) + f64::from(level) * f64::from(self.step)) as f32
    }

    /// Returns the level nearest to a value.
    pub fn level(&self, value: f32) -> u32 {
        let position = (f64::from(value) - f64::from(self.lowest)) / f64::from(self.step);
        // a step of 0 gives NaN, and the cast turns NaN into level 0
        (position.round() as u32).min(self.levels.saturating_sub(1))
    }

    fn pack(&self, values: &Array2<f32>) -> Vec<u8> {
        pack_bits(values.iter().map(|v| self.level(*v)), self.bits())
    }

    fn unpack(&self, packed: &[u8], shape: (usize, usize)) -> Result<Array2<f32>> {
        let levels = unpack_bits(packed, shape, self.bits())?;
        if let Some(high) = levels.iter().find(|level| **level >= self.levels) {
            bail!(Problem::Shape(format!(
                "level {high} of a grid of {} levels",
                self.levels
            )));
        }
        Ok(levels.mapv(|level| self.value(level)))
    }
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
    /// Makes a message with one row of `values` per id in `rows`.
    pub fn new(rows: Vec<u32>, values: Array2<f32>) -> Self {
        Self {
            rows,
            values,
            packed: None,
        }
    }

    /// Sends levels in place of floats from now on: [`Grid::bits`] a value and one float for the
    /// step. Values move to their nearest level.
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

    /// Returns the grid that the values are packed on, if they are.
    pub fn grid(&self) -> Option<Grid> {
        self.packed.map(|[step, levels, lowest, _]| Grid {
            levels,
            lowest: f32::from_bits(lowest),
            step: f32::from_bits(step),
        })
    }

    /// Returns the largest absolute score.
    pub fn peak(&self) -> f32 {
        self.values.fold(0.0, |m, v| m.max(v.abs()))
    }
}

impl Message for Logits {
    const KIND: &'static str = "logits";
    const DOC: &'static str =
        "Raw class scores; on the wire floats, or levels of a grid once they are packed.";
    const COLUMNS: &'static [Column] = &[
        ROWS,
        Column::new(
            "values",
            Dtype::F32,
            "rows x classes",
            "one score per class",
        ),
    ];
    fn expected(facts: &ExchangeShape) -> Option<u64> {
        Some(4 * (facts.rows * facts.outputs) as u64)
    }
    fn tensors(&self) -> NamedTensors<'_> {
        vec![
            ("rows".into(), list(&self.rows)),
            ("values".into(), View::F32(self.values.view().into_dyn())),
        ]
    }
    fn wire(&self) -> NamedTensors<'_> {
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
    fn from_tensors(mut parcel: TensorMap) -> Result<Self> {
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
        same_rows(self.rows.len(), self.values.nrows())
    }
    fn class_count(&self) -> Option<usize> {
        Some(self.values.ncols())
    }
    fn sample(outline: &mut SampleShape<'_>) -> Option<Self> {
        let rows = outline.rows();
        let shape = (rows.len(), outline.classes());
        let values = Array2::from_shape_simple_fn(shape, || outline.number());
        Some(Self::new(rows, values))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bytes, bytes, decode, encode, tests::logits};
    use super::*;

    #[test]
    fn a_level_beyond_the_grid_is_refused() {
        let mut packed = logits();
        packed.pack(Grid {
            levels: 4,
            lowest: 0.0,
            step: 1.0,
        });
        let mut wire = encode(&packed);
        let at = wire.len() - 16 - packed.values.len().div_ceil(4);
        wire[at] = 0xff;
        wire[at + packed.values.len().div_ceil(4) + 4] = 3;
        let error = format!("{:#}", decode::<Logits>(&wire).unwrap_err());
        assert!(error.contains("level 3 of a grid of 3 levels"), "{error}");
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
            let bits = libm::log2(f64::from(levels)).ceil().max(1.0) as usize;
            assert_eq!(
                bytes(&packed, Some(&[4, 9, 11])),
                Bytes {
                    values: (15 * bits).div_ceil(8) as u64 + 4,
                    keys: 0
                }
            );
        }
    }
}
