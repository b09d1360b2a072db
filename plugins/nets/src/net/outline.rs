//! [`Outline`]: a known network, layer by layer.

use super::presets::KnownNet;
use super::{Layer, Net, NetSpec};
use anyhow::{Context, ensure};
use fl_core::settings::{Setting, Value};
use fl_core::{Result, Task, TaskKind};

/// A layer of a network, as the network's list has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerOutline {
    /// Its word in a spec: `conv`, `residual`.
    pub layer: String,
    /// The shape of what it gives for one sample.
    pub gives: Vec<usize>,
    /// Trainable parameters, with those of all layers inside it.
    pub parameters: usize,
}

/// A known network for an input.
#[derive(Clone, Debug)]
pub struct Outline {
    /// The input, and the classes of the network's data, most often 10: of each input, or of each
    /// pixel in a network for images of images.
    pub task: Task,
    /// Whether an input is a row of word numbers.
    pub takes_words: bool,
    /// All layers, in their order.
    pub layers: Vec<LayerOutline>,
}

impl Outline {
    /// Returns the number of trainable parameters.
    pub fn parameters(&self) -> usize {
        self.layers.iter().map(|layer| layer.parameters).sum()
    }
}

/// Describes a network for inputs of this shape, by default those of its paper.
///
/// # Errors
/// If no network has this name, or it does not take such inputs.
pub fn outline(name: &str, input: Option<&[usize]>) -> Result<Outline> {
    let net = KnownNet::named(name);
    let net = net.with_context(|| format!("no network is called `{name}`"))?;
    let layers = net.layers();
    let input = input.unwrap_or(net.usual_input()).to_vec();
    let classes = net.usual_classes();
    let kind = match (&net, &input[..]) {
        (KnownNet::UNet, [_, height, width]) => TaskKind::Pixels {
            classes,
            height: *height,
            width: *width,
        },
        _ => TaskKind::Classes(classes),
    };
    let task = Task::new(input, kind);
    let net = Net::new(&NetSpec::Named(net), &task)?;
    ensure!(
        net.shapes.len() == layers.len(),
        "{} shapes of {} layers",
        net.shapes.len(),
        layers.len()
    );
    let parameters = |at: usize| {
        let prefix = format!("{at}.");
        let own = net.entries.iter().filter(|entry| entry.trainable);
        let own = own.filter(|entry| entry.name.starts_with(&prefix));
        own.map(|entry| entry.range.len()).sum::<usize>()
    };
    let layer = |(at, (layer, gives)): (usize, (&Layer, &Vec<usize>))| LayerOutline {
        layer: word(layer),
        gives: gives.clone(),
        parameters: parameters(at),
    };
    let all = layers.iter().zip(&net.shapes).enumerate().map(layer);
    Ok(Outline {
        takes_words: net.takes_words(),
        layers: all.collect(),
        task,
    })
}

fn word(layer: &Layer) -> String {
    match layer.write() {
        Value::Mapping(of) => {
            let key = of.into_iter().next().map(|(key, _)| key);
            key.and_then(|key| key.as_str().map(String::from))
        }
        value => value.as_str().map(String::from),
    }
    .unwrap_or_default()
}
