//! Groups of a model's parameters, by the names of its layers.

use crate::message::Params;
use crate::settings::nearest;
use crate::{Parametric, Problem, Result};
use anyhow::ensure;
use ndarray::ArrayD;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the names of the model's tensors in these groups. A group is
///
/// * the name of a tensor or of a layer: `fc1` has `fc1.weight`, `fc1.bias`;
/// * `2-5`: the layers with these numbers, in a network whose layers have numbers;
/// * `head`: the last layer of such a network; `body`: all others. A layer of that name comes
///   first, and `body` is then all but the `head`;
/// * `norm`: the layers with buffers, and those whose `weight` has one number for each channel, as
///   in batch, group and layer normalisation.
///
/// A group with `-` before it is taken away; a list that begins with one begins with all tensors.
///
/// # Errors
/// If the model lacks a group, or no tensor is left.
pub fn parameters_in(groups: &[String], model: &dyn Parametric) -> Result<BTreeSet<String>> {
    let (tensors, buffers) = (model.params().0, model.buffers());
    let names = Names {
        tensors: &tensors,
        buffers: &buffers,
    };
    let all = || tensors.keys().cloned().collect::<BTreeSet<_>>();
    let mut found = match groups.first() {
        Some(first) if first.starts_with('-') => all(),
        _ => BTreeSet::new(),
    };
    for group in groups {
        match group.strip_prefix('-') {
            Some(gone) => {
                let gone = names.group(gone)?;
                found.retain(|name| !gone.contains(name));
            }
            None => found.extend(names.group(group)?),
        }
    }
    ensure!(
        !found.is_empty(),
        Problem::Lacks(format!(
            "the groups {} leave none of its parameters; it has {}",
            listed(groups.iter().map(String::as_str)),
            listed(names.known().iter().map(String::as_str))
        ))
    );
    Ok(found)
}

/// Returns parameters by the names of `model`: `head.weight` is the `weight` of its last layer, the
/// one called `head` or the last of those with numbers. So one message fits networks of different
/// depth.
///
/// # Errors
/// If there is such a name, and the model has no group `head`.
pub(crate) fn of_last_layer(params: &Params, model: &dyn Parametric) -> Result<Params> {
    let own = model.params();
    let rest = |name: &'_ str| name.strip_prefix("head.").map(String::from);
    let foreign = |name: &String| !own.0.contains_key(name) && rest(name).is_some();
    if !params.0.keys().any(foreign) {
        return Ok(params.clone());
    }
    let last = parameters_in(&["head".into()], model)?;
    let named = |name: &String| {
        let rest = rest(name).filter(|_| foreign(name))?;
        let same = |own: &&String| own.rsplit('.').next() == Some(&rest);
        last.iter().find(same).cloned()
    };
    let all = params.0.iter();
    let all =
        all.map(|(name, tensor)| (named(name).unwrap_or_else(|| name.clone()), tensor.clone()));
    Ok(all.collect())
}

fn listed<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<String> = all.map(|one| format!("`{one}`")).collect();
    all.join(", ")
}

/// The tensors of a model.
struct Names<'m> {
    tensors: &'m BTreeMap<String, ArrayD<f32>>,
    buffers: &'m BTreeSet<String>,
}

/// Returns the name of a tensor's layer.
fn layer_of(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(layer, _)| layer)
}

/// Returns the number of the layer at the top that a tensor belongs to.
fn number_of(name: &str) -> Option<u32> {
    name.split_once('.')
        .and_then(|(layer, _)| layer.parse().ok())
}

impl Names<'_> {
    fn those(&self, has: impl Fn(&str, &ArrayD<f32>) -> bool) -> BTreeSet<String> {
        let all = self.tensors.iter();
        let those = all.filter(|(name, tensor)| has(name, tensor));
        those.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the tensors of a group; none if it is unknown.
    fn find(&self, group: &str) -> BTreeSet<String> {
        let named = self.those(|name, _| {
            let rest = name.strip_prefix(group);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        if !named.is_empty() {
            return named;
        }
        match group {
            "head" => self.last_layer(),
            "body" => {
                let head = self.find("head");
                if head.is_empty() {
                    head
                } else {
                    self.those(|name, _| !head.contains(name))
                }
            }
            "norm" => self.those(|name, _| self.normalises(layer_of(name))),
            _ => {
                let range = group.split_once('-');
                let range = range.and_then(|(a, b)| Some(a.parse().ok()?..=b.parse().ok()?));
                range.map_or_else(BTreeSet::new, |range| {
                    self.those(|name, _| number_of(name).is_some_and(|n| range.contains(&n)))
                })
            }
        }
    }

    /// Returns the tensors of the last of several layers that all have numbers.
    fn last_layer(&self) -> BTreeSet<String> {
        let numbers: Option<BTreeSet<u32>> = self.tensors.keys().map(|n| number_of(n)).collect();
        match numbers {
            Some(numbers) if numbers.len() > 1 => {
                self.those(|name, _| number_of(name) == numbers.last().copied())
            }
            _ => BTreeSet::new(),
        }
    }

    fn normalises(&self, layer: &str) -> bool {
        let scale = self.tensors.get(&format!("{layer}.weight"));
        scale.is_some_and(|weight| weight.ndim() == 1)
            || self.buffers.iter().any(|buffer| layer_of(buffer) == layer)
    }

    fn group(&self, group: &str) -> Result<BTreeSet<String>> {
        let found = self.find(group);
        if found.is_empty() {
            let known = self.known();
            let near = nearest(group, known.iter().map(String::as_str));
            let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            let why = format!(
                "it has no parameters called `{group}`{near}; its groups are {}",
                listed(known.iter().map(String::as_str))
            );
            return Err(Problem::Lacks(why).into());
        }
        Ok(found)
    }

    /// Returns the groups that the model has, without ranges.
    fn known(&self) -> Vec<String> {
        let words = ["body", "head", "norm"].map(String::from);
        let top = |name: &String| name.split('.').next().unwrap_or_default().to_string();
        let mut layers: Vec<String> = self.tensors.keys().map(top).collect();
        layers.sort_by_key(|layer| (layer.parse::<u32>().ok(), layer.clone()));
        layers.dedup();
        let words = words.into_iter().filter(|word| !layers.contains(word));
        let words = words.filter(|word| !self.find(word).is_empty());
        words.chain(layers.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::IxDyn;

    struct Model(Params, BTreeSet<String>);

    impl Parametric for Model {
        fn params(&self) -> Params {
            self.0.clone()
        }
        fn buffers(&self) -> BTreeSet<String> {
            self.1.clone()
        }
        fn set_params(&mut self, _: &Params) -> Result<()> {
            unreachable!("groups only read a model")
        }
    }

    fn model(tensors: &[(&str, &[usize])], buffers: &[&str]) -> Model {
        let all = tensors.iter();
        let all = all.map(|(name, shape)| (name.to_string(), ArrayD::zeros(IxDyn(shape))));
        let buffers = buffers.iter().map(|name| name.to_string());
        Model(all.collect(), buffers.collect())
    }

    /// A network of `dfdx`: a convolution, group and batch normalisation, two linear layers.
    fn network() -> Model {
        let tensors: [(&str, &[usize]); 9] = [
            ("0.weight", &[4, 1, 3, 3]),
            ("1.weight", &[4]),
            ("1.bias", &[4]),
            ("2.0.running_mean", &[4]),
            ("2.0.bias", &[4]),
            ("3.weight", &[8, 4]),
            ("3.bias", &[8]),
            ("11.weight", &[2, 8]),
            ("11.bias", &[2]),
        ];
        model(&tensors, &["2.0.running_mean"])
    }

    fn of(groups: &str, model: &Model) -> Result<String> {
        let groups: Vec<String> = groups.split(' ').map(String::from).collect();
        let found: Vec<String> = parameters_in(&groups, model)?.into_iter().collect();
        Ok(found.join(" "))
    }

    #[test]
    fn exact_groups_are_layers_by_name_number_place_and_kind() {
        let network = network();
        let norm = "1.bias 1.weight 2.0.bias 2.0.running_mean";
        for (groups, wanted) in [
            ("head", "11.bias 11.weight"),
            ("body", &format!("0.weight {norm} 3.bias 3.weight")),
            ("norm", norm),
            ("2", "2.0.bias 2.0.running_mean"),
            ("3.bias", "3.bias"),
            ("3-20", "11.bias 11.weight 3.bias 3.weight"),
            ("-norm -head", "0.weight 3.bias 3.weight"),
            ("body -norm", "0.weight 3.bias 3.weight"),
            ("3 -3.bias", "3.weight"),
        ] {
            assert_eq!(of(groups, &network).unwrap(), wanted, "{groups}");
        }
        // a layer's own name comes first
        let tensors: [(&str, &[usize]); 3] = [
            ("fc.weight", &[2, 2]),
            ("head.weight", &[2, 2]),
            ("heads.weight", &[2, 2]),
        ];
        let named = model(&tensors, &[]);
        assert_eq!(of("head", &named).unwrap(), "head.weight");
        assert_eq!(of("body", &named).unwrap(), "fc.weight heads.weight");
    }

    #[test]
    fn exact_the_last_layer_is_known_by_its_place() {
        let network = network();
        let sent = model(&[("head.bias", &[2]), ("head.weight", &[2, 8])], &[]).0;
        let named = of_last_layer(&sent, &network).unwrap();
        assert_eq!(network.0.with(&named).unwrap(), network.0);
        assert!(named.0.keys().eq(["11.bias", "11.weight"]));
        // other names stay, and a layer of that name comes first
        let other = network.0.only(&["3.bias".to_string()].into());
        assert_eq!(of_last_layer(&other, &network).unwrap(), other);
        assert_eq!(
            of_last_layer(
                &sent,
                &model(&[("head.bias", &[2]), ("head.weight", &[2, 8])], &[])
            )
            .unwrap(),
            sent
        );
        let none = model(&[("bias", &[2]), ("weight", &[3, 2])], &[]);
        assert!(of_last_layer(&sent, &none).is_err());
    }

    #[test]
    fn a_group_that_a_model_lacks_is_named_with_those_that_it_has() {
        let error = of("haed", &network()).unwrap_err().to_string();
        assert_eq!(
            error,
            "it has no parameters called `haed`; did you mean `head`?; its groups are `body`, `head`, `norm`, `0`, `1`, `2`, `3`, `11`"
        );
        let linear = model(&[("bias", &[2]), ("weight", &[3, 2])], &[]);
        let error = of("head", &linear).unwrap_err().to_string();
        assert_eq!(
            error,
            "it has no parameters called `head`; its groups are `bias`, `weight`"
        );
        let error = of("-bias -weight", &linear).unwrap_err().to_string();
        assert_eq!(
            error,
            "the groups `-bias`, `-weight` leave none of its parameters; it has `bias`, `weight`"
        );
    }
}
