//! The examples that a client learns, with labels that an attacker may have changed.
use crate::slots::LABELS;
use fl_core::message::Votes;
use fl_core::prelude::*;
use fl_core::{Examples, Labels};
use ndarray::Array2;
use std::sync::Arc;

/// Returns the client's own examples, with the labels that it learns.
pub(crate) fn learnt(client: &mut Client) -> Result<Examples> {
    let own = client.own().clone();
    let (true, Labels::Classes { of, classes }) = (client.has(&LABELS), &**own.labels()) else {
        ensure!(
            !client.has(&LABELS),
            "parts.labels changes classes, and these examples do not have one class each"
        );
        return Ok(own);
    };
    let ids = own.samples.ids();
    let column = Array2::from_shape_fn((ids.len(), 1), |(row, _)| of[ids[row] as usize]);
    let votes = Votes::new(ids.to_vec(), column, *classes);
    let inbox = Inbox::new(vec![ClientMessage::new(client.id(), 1.0, votes)])?;
    let given = client.attack(&LABELS, None, &inbox)?;
    ensure!(
        given.rows == ids && given.voters() == 1 && given.classes() == *classes,
        "parts.labels: gave other examples, classes or voters than it got"
    );
    let mut labels = of.clone();
    for (id, class) in ids.iter().zip(&given.labels) {
        labels[*id as usize] = *class;
    }
    let labels = Labels::Classes {
        of: labels,
        classes: *classes,
    };
    let all = Examples::all(own.samples.inputs().clone(), Arc::new(labels))?;
    Ok(all.pick(&ids.iter().map(|id| *id as usize).collect::<Vec<_>>()))
}
