//! [`SpecText`]: the spec that both sides must agree on before any request.

use anyhow::Context;
use fl_core::Result;
use fl_core::settings::Value;
use sha2::{Digest, Sha256};

/// A resolved spec for comparison by both sides: without settings that may differ between machines.
#[derive(Clone, Debug)]
pub struct SpecText {
    /// The text as written.
    pub yaml: String,
    value: Value,
    /// Whether clients own their data.
    pub(crate) own: bool,
    /// SHA-256 of its content, and of the data files.
    pub digest: [u8; 32],
}

impl SpecText {
    /// Parses a spec. `files` are the SHA-256 of the data files that the spec names, in
    /// hexadecimal: both sides must have the same.
    ///
    /// # Errors
    /// If it is no YAML.
    pub fn new(yaml: &str, files: &[String]) -> Result<Self> {
        let mut value: Value = serde_yaml::from_str(yaml).context("the resolved spec")?;
        if let Value::Mapping(spec) = &mut value {
            spec.iter_mut()
                .for_each(|(_, part)| leave_out_devices(part));
            // checkpoints and the ledger concern the leader only
            spec.remove("checkpoint");
            spec.remove("ledger");
            // the path of a library may differ between machines; its hash ensures that it is the
            // same
            for library in spec
                .get_mut("plugins")
                .and_then(Value::as_sequence_mut)
                .into_iter()
                .flatten()
            {
                if let Value::Mapping(library) = library {
                    library.remove("path");
                    library.remove("isolate");
                }
            }
            if !files.is_empty() {
                // so may the path of a data file
                spec.get_mut("data").into_iter().for_each(names_only);
                let files = files
                    .iter()
                    .map(|f| Value::from(f.as_str()))
                    .collect::<Vec<_>>();
                spec.insert("data files".into(), files.into());
            }
        }
        let digest = Sha256::digest(serde_yaml::to_string(&value)?).into();
        let split = value.get("data").and_then(|data| data.get("split"));
        let own = split.and_then(Value::as_str) == Some("own");
        let yaml = yaml.into();
        Ok(Self {
            yaml,
            value,
            own,
            digest,
        })
    }

    /// Returns the form for the other side: enough to show the differences.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn packed(&self) -> Result<Vec<u8>> {
        Ok(serde_yaml::to_string(&self.value)?.into_bytes())
    }

    /// Describes the differences between the leader's spec, from [`SpecText::packed`], and this
    /// one.
    pub fn differs(&self, leader: &[u8]) -> String {
        let Ok(there) = fl_registry::Document::values_of("spec", leader) else {
            return "the leader's spec cannot be read".into();
        };
        let at = differences(&there, &self.value);
        let of = |spec: &Value, path: &str| {
            let value = path.split('.').try_fold(spec, |value, key| value.get(key));
            let text = value.and_then(|v| serde_json::to_string(v).ok());
            text.unwrap_or_else(|| "nothing".into())
        };
        let one = |path: &String| {
            format!(
                "`{path}` is {} there, and {} here",
                of(&there, path),
                of(&self.value, path)
            )
        };
        match at.len() {
            0 => "it differs in its text, not in its values".into(),
            1..=3 => at.iter().map(one).collect::<Vec<_>>().join("; "),
            n => format!(
                "{}; and {} more",
                at[..3].iter().map(one).collect::<Vec<_>>().join("; "),
                n - 3
            ),
        }
    }
}

/// Removes the processor or card that a part runs on: no result depends on it.
pub fn leave_out_devices(value: &mut Value) {
    match value {
        Value::Sequence(all) => all.iter_mut().for_each(leave_out_devices),
        Value::Mapping(all) => {
            if all.contains_key("use") {
                all.remove("device");
            }
            all.iter_mut()
                .for_each(|(_, value)| leave_out_devices(value));
        }
        _ => {}
    }
}

/// Reduces absolute paths to the names of the files.
fn names_only(value: &mut Value) {
    match value {
        Value::String(text) => {
            let path = std::path::Path::new(text);
            if let (true, Some(name)) = (path.is_absolute(), path.file_name()) {
                *text = name.to_string_lossy().into_owned();
            }
        }
        Value::Sequence(all) => all.iter_mut().for_each(names_only),
        Value::Mapping(all) => all.iter_mut().for_each(|(_, value)| names_only(value)),
        _ => {}
    }
}

/// Returns the paths at which two specs differ, such as `protocol.rounds`.
pub fn differences(a: &Value, b: &Value) -> Vec<String> {
    fn walk(a: &Value, b: &Value, path: &str, out: &mut Vec<String>) {
        match (a, b) {
            (Value::Mapping(x), Value::Mapping(y)) => {
                let keys = x.keys().chain(y.keys().filter(|key| !x.contains_key(*key)));
                for key in keys {
                    let name = key.as_str().unwrap_or_default();
                    let path = match path {
                        "" => name.to_string(),
                        path => format!("{path}.{name}"),
                    };
                    let of =
                        |map: &serde_yaml::Mapping| map.get(key).cloned().unwrap_or(Value::Null);
                    walk(&of(x), &of(y), &path, out);
                }
            }
            (a, b) if a != b => out.push(path.into()),
            _ => {}
        }
    }
    let mut out = Vec::new();
    walk(a, b, "", &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_a_device_makes_no_other_spec() {
        let spec = |device: &str| {
            let model = format!("{{use: dfdx, net: lenet{device}}}");
            let yaml = format!("parts: {{model: [{model}], other: {model}}}");
            SpecText::new(&yaml, &[]).unwrap().digest
        };
        assert_eq!(spec(""), spec(", device: cuda"));
        assert_eq!(spec(", device: cpu"), spec(", device: cuda:1"));
        assert_ne!(spec(""), spec(", predict-batch: 4"));
    }
}
