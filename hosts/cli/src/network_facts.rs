//! What `fl inspect` shows of a network: its layers, its parameters, its speed.

use anyhow::Result;
use fl_registry::{Catalogue, columns};
use serde_json::{Value as Json, json};
use std::str::FromStr;

/// The mini-batch whose steps are counted.
const BATCH: usize = 32;

/// The shape of a sample, as the user writes it: `3x32x32`.
#[derive(Clone)]
pub struct Sides(pub Vec<usize>);

impl FromStr for Sides {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let side = |text: &str| text.parse::<usize>().ok().filter(|side| *side > 0);
        let all: Option<Vec<usize>> = text.split('x').map(side).collect();
        let all = all.map(Self);
        all.ok_or("a shape is numbers from 1 with `x` between them, such as `3x32x32`")
    }
}

/// A network for an input.
pub struct NetworkFacts {
    input: Vec<usize>,
    outputs: String,
    /// The word of each layer, the shape of what it gives, and its parameters.
    layers: Vec<(String, Vec<usize>, usize)>,
    /// Steps of one thread in a second on this machine.
    steps_per_second: f64,
}

impl NetworkFacts {
    /// Those of a network that `dfdx` knows by this name. `input` is the shape of a sample; by
    /// default that of the network's paper.
    ///
    /// # Errors
    /// If the network does not take such an input.
    #[cfg(feature = "plugins")]
    pub fn of(name: &str, input: Option<&[usize]>, catalogue: &Catalogue) -> Result<Self> {
        let outline = fl_plugin_trainer_dfdx::outline(name, input)?;
        let part = catalogue.find(fl_core::Role::Trainer, "dfdx");
        let part = part.map_err(anyhow::Error::msg)?;
        let task = (&outline.task, outline.takes_words);
        let second = std::time::Duration::from_secs(1);
        let step = crate::bench::seconds_of_step(part, name, task, BATCH, second)?;
        let layers = outline.layers.into_iter();
        Ok(Self {
            outputs: outline.task.kind.to_string(),
            input: outline.task.input,
            layers: layers
                .map(|of| (of.layer, of.gives, of.parameters))
                .collect(),
            steps_per_second: 1.0 / step,
        })
    }

    /// No network is linked.
    #[cfg(not(feature = "plugins"))]
    pub fn of(_: &str, _: Option<&[usize]>, _: &Catalogue) -> Result<Self> {
        anyhow::bail!("this program links no networks")
    }

    fn parameters(&self) -> usize {
        self.layers.iter().map(|(.., parameters)| parameters).sum()
    }

    pub fn text(&self, width: usize) -> String {
        let shape = |of: &[usize]| {
            let sides: Vec<String> = of.iter().map(usize::to_string).collect();
            sides.join("x")
        };
        let mut rows = vec![["", "layer", "gives", "parameters"].map(String::from)];
        for (at, (layer, gives, parameters)) in self.layers.iter().enumerate() {
            let parameters = Some(*parameters).filter(|n| *n > 0);
            let parameters = parameters.map_or(String::new(), |n| n.to_string());
            rows.push([at.to_string(), layer.clone(), shape(gives), parameters]);
        }
        let speed = format!(
            "{:.3} steps a second on this machine: mini-batches of {BATCH}, Adam, one thread",
            self.steps_per_second
        );
        let facts = [
            ("input", shape(&self.input)),
            ("outputs", self.outputs.clone()),
            ("parameters", self.parameters().to_string()),
            ("speed", speed),
        ];
        let facts = facts.map(|(key, value)| [key.to_string(), value]);
        format!("{}\n{}", columns(&rows, width), columns(&facts, width))
    }

    pub fn json(&self) -> Json {
        let layers = self.layers.iter();
        let layers = layers.map(|(layer, gives, parameters)| {
            json!({ "layer": layer, "gives": gives, "parameters": parameters })
        });
        json!({
            "input": self.input, "outputs": self.outputs, "layers": layers.collect::<Vec<_>>(),
            "parameters": self.parameters(),
            "speed": {
                "steps-per-second": self.steps_per_second, "batch": BATCH, "optimiser": "adam",
                "threads": 1,
            },
        })
    }
}
