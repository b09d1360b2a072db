//! The digests of the quick specs, by which a program is told from one that computes something
//! else.

use std::collections::{BTreeMap, BTreeSet};

/// Each quick spec on a line: its name, its digest, its protocol, and its other parts and data set.
const QUICK: &str = include_str!("../../../specs/quick/digests.txt");

/// The digits of a digest that are compared.
const DIGITS: usize = 8;

/// A line of [`QUICK`].
struct QuickSpec {
    name: &'static str,
    digest: &'static str,
    protocol: &'static str,
    parts: BTreeSet<&'static str>,
}

fn quick_specs() -> impl Iterator<Item = QuickSpec> {
    let lines = QUICK.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        Some(QuickSpec {
            name: words.next()?,
            digest: words.next()?.get(..DIGITS)?,
            protocol: words.next()?,
            parts: words.collect(),
        })
    })
}

/// The protocol, the other parts and the data set of a resolved spec.
pub(crate) struct UsedParts {
    protocol: String,
    parts: BTreeSet<String>,
}

impl UsedParts {
    pub fn of(resolved: &serde_yaml::Value) -> Self {
        let mut parts = BTreeSet::new();
        collect(resolved, &mut parts);
        let first = resolved.get("stages").and_then(|stages| stages.get(0));
        let protocol = first.unwrap_or(resolved).get("protocol");
        let protocol = protocol.and_then(|p| p.get("use"));
        let protocol = protocol.and_then(|name| name.as_str()).unwrap_or_default();
        parts.remove(protocol);
        let set = resolved.get("data").and_then(|data| data.get("set"));
        let set = set.and_then(|set| set.as_str().or(set.as_mapping()?.keys().next()?.as_str()));
        parts.extend(set.map(String::from));
        Self {
            protocol: protocol.into(),
            parts,
        }
    }

    /// Returns what this program computes for the quick specs that have a part in common with the
    /// run: the first digits of their digests.
    pub fn digests(&self) -> BTreeMap<String, String> {
        let shares = |quick: &QuickSpec| {
            let parts = || quick.parts.iter().any(|part| self.parts.contains(*part));
            quick.protocol == self.protocol || parts()
        };
        let found = quick_specs().filter(shares);
        found.map(|q| (q.name.into(), q.digest.into())).collect()
    }

    /// Names the quick specs that suggest that this program comes to other results than one with
    /// these digests: those of the same protocol that changed; and where every quick spec with one
    /// of the other parts changed, those.
    pub fn changed(&self, then: &BTreeMap<String, String>) -> BTreeSet<&'static str> {
        let known: Vec<(QuickSpec, bool)> = quick_specs()
            .filter_map(|quick| {
                let changed = then.get(quick.name)? != quick.digest;
                Some((quick, changed))
            })
            .collect();
        let of_protocol = known.iter().filter(|(q, _)| q.protocol == self.protocol);
        let mut names: BTreeSet<&str> = of_protocol
            .filter(|(_, changed)| *changed)
            .map(|(quick, _)| quick.name)
            .collect();
        for part in &self.parts {
            let with = || known.iter().filter(|(q, _)| q.parts.contains(&part[..]));
            if with().all(|(_, changed)| *changed) {
                names.extend(with().map(|(quick, _)| quick.name));
            }
        }
        names
    }
}

/// Collects every `use` at any depth.
fn collect(value: &serde_yaml::Value, parts: &mut BTreeSet<String>) {
    use serde_yaml::Value;
    match value {
        Value::Mapping(map) => {
            for (key, value) in map {
                match (key.as_str(), value.as_str()) {
                    (Some("use"), Some(part)) => _ = parts.insert(part.into()),
                    _ => collect(value, parts),
                }
            }
        }
        Value::Sequence(all) => all.iter().for_each(|value| collect(value, parts)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(spec: &str) -> UsedParts {
        UsedParts::of(&serde_yaml::from_str(spec).unwrap())
    }

    #[test]
    fn only_what_a_run_has_in_common_with_quick_specs_tells_programs_apart() {
        let fedkt = used(
            "{ data: { set: { mnist: {} } }, protocol: { use: two-tier-vote }, parts: { teacher: [{ use: dfdx }], tier1: { use: majority-vote } } }",
        );
        let now = fedkt.digests();
        // of its protocol, and of its trainer; a run of clusters has nothing in common with it
        for name in ["fedkt", "fedkt-l1", "fedkd", "fediod"] {
            assert!(now.contains_key(name), "{name} is not in {now:?}");
        }
        assert!(!now.contains_key("fesem"), "{now:?}");
        assert!(fedkt.changed(&now).is_empty());
        let changed = |of: &dyn Fn(&str) -> bool| {
            let mut then = now.clone();
            then.iter_mut()
                .filter(|(name, _)| of(name))
                .for_each(|(_, digest)| *digest = "0".into());
            fedkt.changed(&then)
        };
        // its protocol changed
        assert_eq!(
            changed(&|name| name == "fedkt-l1"),
            BTreeSet::from(["fedkt-l1"])
        );
        // another protocol changed that shares the trainer
        assert!(changed(&|name| name == "fediod").is_empty());
        // the trainer changed, and with it all that have it
        let trainer = changed(&|name| !name.starts_with("fedkt"));
        assert!(trainer.contains("fediod") && !trainer.contains("fedkt"));
        // quick specs that came later say nothing
        assert!(fedkt.changed(&BTreeMap::new()).is_empty());
    }
}
