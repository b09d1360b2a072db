//! What everybody has.

use crate::message::Ids;
use crate::{Examples, Problem, Result, Samples};
use anyhow::{Context, ensure};

/// The public data of a run: everybody has it.
#[derive(Clone, Debug)]
pub struct Public {
    samples: Samples,
    labelled: Option<Examples>,
    truth: Option<Examples>,
}

impl Public {
    /// Only inputs, as most methods want it.
    pub fn unlabelled(samples: Samples) -> Self {
        Self {
            samples,
            labelled: None,
            truth: None,
        }
    }

    /// Inputs with labels.
    pub fn labelled(examples: Examples) -> Self {
        Self {
            samples: examples.samples.clone(),
            labelled: Some(examples.clone()),
            truth: Some(examples),
        }
    }

    /// The same, with labels that measurements may see and methods may not.
    pub fn with_truth(mut self, truth: Option<Examples>) -> Self {
        self.truth = truth.or(self.truth);
        self
    }

    /// Its inputs, the labels that methods may see, and those that only measurements may.
    pub(crate) fn whole(&self) -> (&Samples, Option<&Examples>, Option<&Examples>) {
        (&self.samples, self.labelled.as_ref(), self.truth.as_ref())
    }

    /// The inverse of [`Public::whole`].
    pub(crate) fn of_whole(
        samples: Samples,
        labelled: Option<Examples>,
        truth: Option<Examples>,
    ) -> Self {
        Self {
            samples,
            labelled,
            truth,
        }
    }

    /// The inputs.
    pub fn samples(&self) -> &Samples {
        &self.samples
    }

    /// The class of each sample if it is known, to measure how good a part is. A method that learns from it cheats.
    pub fn truth(&self) -> Option<Vec<u32>> {
        self.truth.as_ref().and_then(Examples::classes)
    }

    /// The labelled examples.
    ///
    /// # Errors
    /// When the spec keeps public labels from the protocol.
    pub fn examples(&self) -> Result<&Examples> {
        self.labelled
            .as_ref()
            .context("this needs labels of the public data; set `data.public.labelled: true`")
    }

    /// The samples at these positions.
    ///
    /// # Errors
    /// When a position is not below the number of public samples.
    pub fn pick(&self, ids: &Ids) -> Result<Samples> {
        let n = self.samples().len();
        ensure!(
            ids.0.iter().all(|id| (*id as usize) < n),
            Problem::Shape(format!("a public sample beyond {n}"))
        );
        Ok(self
            .samples()
            .pick(&ids.0.iter().map(|id| *id as usize).collect::<Vec<_>>()))
    }
}
