//! Clients whose images look different: each belongs to a domain, and is tested in its own.

use crate::rows::joined;
use anyhow::{Context, Result, ensure};
use fl_core::{Examples, Inputs, Samples, Task};
use std::sync::Arc;

fl_core::settings! {
    /// Clients belong to domains in turn: client `k` to domain `k mod n` of `n`. Its examples look
    /// like that, and so do those that its own model is tested with; the test set has every test
    /// row once in each domain.
    pub struct Domains {
        /// Degrees by which square images are turned to the left: 0, 90, 180 or 270, one for each
        /// domain.
        turned: Vec<u32>, in 0..=270;
    }
}

impl Domains {
    pub(crate) fn check(&self, task: &Task) -> Result<(), String> {
        if self.turned.is_empty() || self.turned.iter().any(|d| d % 90 != 0) {
            return Err("`turned` must name at least one of 0, 90, 180 and 270".into());
        }
        if task.kind.is_dense() {
            return Err("images whose pixels have classes or values are not turned: take a set with domains of its own, such as `cells`, and `split: by-file`".into());
        }
        match task.input[..] {
            [_, height, width] if height == width => Ok(()),
            _ => Err(format!(
                "only square images can be turned, and these inputs are {:?}",
                task.input
            )),
        }
    }

    /// Every client's examples as its domain has them.
    pub(crate) fn turn_all(&self, clients: &mut [Examples]) -> Result<()> {
        for (domain, degrees) in self.turned.iter().enumerate() {
            let mut turned: Option<Arc<Inputs>> = None;
            for own in clients.iter_mut().skip(domain).step_by(self.turned.len()) {
                let rows: Vec<usize> = own.samples.ids().iter().map(|id| *id as usize).collect();
                let inputs = match &turned {
                    Some(inputs) => inputs.clone(),
                    None => Arc::new(turn(own.samples.inputs(), degrees / 90)?),
                };
                turned = Some(inputs.clone());
                *own = Examples::all(inputs, own.labels().clone())?.pick(&rows);
            }
        }
        Ok(())
    }

    /// All test rows in every domain, one domain after the other, and those of each client's
    /// domain.
    pub(crate) fn test(
        &self,
        test: &Examples,
        clients: usize,
    ) -> Result<(Examples, Vec<Examples>)> {
        let n = test.len();
        let rows: Vec<usize> = test.samples.ids().iter().map(|id| *id as usize).collect();
        let turned = self.turned.iter().map(|degrees| {
            let turned = turn(test.samples.inputs(), degrees / 90)?;
            Ok(Samples::all(Arc::new(turned.select(&rows))))
        });
        let turned: Vec<Samples> = turned.collect::<Result<_>>()?;
        let labels = test.labels().select(&rows.repeat(turned.len()));
        let all = turned.into_iter().reduce(|all, next| joined(&all, &next));
        let all = all.context("there is no domain")?;
        let all = Examples::all(all.inputs().clone(), Arc::new(labels))?;
        let domains: Vec<Examples> = (0..self.turned.len())
            .map(|d| all.pick(&(d * n..(d + 1) * n).collect::<Vec<_>>()))
            .collect();
        let own = (0..clients).map(|k| domains[k % domains.len()].clone());
        Ok((all, own.collect()))
    }
}

/// Square images, turned to the left by `quarters` quarter turns.
fn turn(inputs: &Inputs, quarters: u32) -> Result<Inputs> {
    let shape = inputs.shape();
    let [_, side, across] = shape[..] else {
        anyhow::bail!("only images can be turned, and these inputs are {shape:?}");
    };
    ensure!(side == across, "only square images can be turned");
    // where the number at (y, x) of the turned image stands in the one before
    let from: Vec<usize> = (0..side * side)
        .map(|at| (0..quarters).fold((at / side, at % side), |(y, x), _| (x, side - 1 - y)))
        .map(|(y, x)| y * side + x)
        .collect();
    Ok(match inputs {
        Inputs::Bytes {
            shape,
            data,
            mean,
            std,
        } => Inputs::Bytes {
            shape: *shape,
            data: planes(data, &from),
            mean: mean.clone(),
            std: std.clone(),
        },
        Inputs::Dense { shape, data } => Inputs::Dense {
            shape: shape.clone(),
            data: planes(data, &from),
        },
        Inputs::Sparse { .. } => anyhow::bail!("sparse rows are no images"),
    })
}

fn planes<T: Copy>(data: &[T], from: &[usize]) -> Vec<T> {
    let planes = data.chunks(from.len());
    planes
        .flat_map(|plane| from.iter().map(|at| plane[*at]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_images_turn_to_the_left() {
        let image = Inputs::Dense {
            shape: vec![1, 2, 2],
            data: vec![1.0, 2.0, 3.0, 4.0],
        };
        let turned = |quarters| match turn(&image, quarters).unwrap() {
            Inputs::Dense { data, .. } => data,
            other => panic!("{other:?}"),
        };
        assert_eq!(turned(0), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(turned(1), [2.0, 4.0, 1.0, 3.0]);
        assert_eq!(turned(2), [4.0, 3.0, 2.0, 1.0]);
        assert_eq!(turned(3), [3.0, 1.0, 4.0, 2.0]);
    }
}
