//! The parameters that a distance covers.

use fl_core::message::Params;
use fl_core::prelude::*;

/// Returns those numbers of all clients.
pub(crate) fn points(trained: &Inbox<Params>, layers: &[String]) -> Result<Vec<Vec<f32>>> {
    trained
        .iter()
        .map(|mail| counted(&mail.body, layers))
        .collect()
}

pub(crate) fn views(all: &[Vec<f32>]) -> Vec<&[f32]> {
    all.iter().map(Vec::as_slice).collect()
}

/// Returns the numbers that the distance covers.
pub(crate) fn counted(params: &Params, layers: &[String]) -> Result<Vec<f32>> {
    if layers.is_empty() {
        return Ok(params.flat());
    }
    let unknown = |layer: &&String| !params.0.keys().any(|name| name.starts_with(*layer));
    if let Some(layer) = layers.iter().find(unknown) {
        let names: Vec<&str> = params.0.keys().map(String::as_str).collect();
        bail!(
            "protocol.layers: no parameter's name begins with `{layer}`; there are {}",
            names.join(", ")
        );
    }
    let of_layers = params
        .0
        .iter()
        .filter(|(name, _)| layers.iter().any(|l| name.starts_with(l)));
    Ok(of_layers
        .flat_map(|(_, tensor)| tensor.iter().copied())
        .collect())
}
