//! [`Public`]: the data that the server and all clients share.

use crate::message::Ids;
use crate::{Examples, Problem, Result, Samples};
use anyhow::Context;
use std::sync::Arc;

/// The public data of a run, which the server and all clients have.
#[derive(Clone, Debug)]
pub struct Public {
    samples: Samples,
    labelled: Option<Examples>,
    truth: Option<Examples>,
}

impl Public {
    /// Returns a run's public data, or the error that it has none.
    #[doc(hidden)]
    pub fn required(of_run: Option<Arc<Self>>) -> Result<Arc<Self>> {
        of_run.context("this protocol needs public data; add `data.public` to the spec")
    }

    /// Wraps inputs without labels, as most methods need.
    pub fn unlabelled(samples: Samples) -> Self {
        Self {
            samples,
            labelled: None,
            truth: None,
        }
    }

    /// Wraps inputs with labels.
    pub fn labelled(examples: Examples) -> Self {
        Self {
            samples: examples.samples.clone(),
            labelled: Some(examples.clone()),
            truth: Some(examples),
        }
    }

    /// Adds labels that measurements may use and methods may not.
    pub fn with_truth(mut self, truth: Option<Examples>) -> Self {
        self.truth = truth.or(self.truth);
        self
    }

    /// Its inputs, the labels that methods may see, and those that only measurements may.
    #[doc(hidden)]
    pub fn whole(&self) -> (&Samples, Option<&Examples>, Option<&Examples>) {
        (&self.samples, self.labelled.as_ref(), self.truth.as_ref())
    }

    /// The inverse of [`Public::whole`].
    #[doc(hidden)]
    pub fn of_whole(samples: Samples, labelled: Option<Examples>, truth: Option<Examples>) -> Self {
        Self {
            samples,
            labelled,
            truth,
        }
    }

    /// Returns the inputs.
    pub fn samples(&self) -> &Samples {
        &self.samples
    }

    /// Returns the class of each sample if known, to measure a part's quality. A method must not
    /// learn from it.
    pub fn truth(&self) -> Option<Vec<u32>> {
        self.truth.as_ref().and_then(Examples::classes)
    }

    /// Returns the labelled examples.
    ///
    /// # Errors
    /// If the spec hides public labels from the protocol.
    pub fn examples(&self) -> Result<&Examples> {
        self.labelled
            .as_ref()
            .context("this needs labels of the public data; set `data.public.labelled: true`")
    }

    /// Returns the samples at these positions.
    ///
    /// # Errors
    /// If a position is not below the number of public samples.
    pub fn pick(&self, ids: &Ids) -> Result<Samples> {
        let n = self.samples().len();
        Problem::shape_unless(ids.0.iter().all(|id| (*id as usize) < n), || {
            format!("a public sample beyond {n}")
        })?;
        Ok(self
            .samples()
            .pick(&ids.0.iter().map(|id| *id as usize).collect::<Vec<_>>()))
    }
}
