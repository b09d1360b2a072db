//! What a check of a spec finds once its data are known: a model to start from that learnt other
//! classes or columns, training steps that draw no row, and a budget below the first release.

use crate::error::NotRun;
use crate::prepare::{self, protocol_context};
use crate::sinks;
use anyhow::{Context, ensure};
use fl_core::privacy::MinibatchSampling;
use fl_core::settings::{Setting as _, Step};
use fl_core::{
    ClientId, Examples, ExchangeSpec, InitialModel, LabelScale, Labels, Parts, Protocol, Role,
    Task, TaskKind, Trainer, first_names, named_clients,
};
use fl_data::{Assembled, DataSpec, FeatureMap, KeptModel, Split};
use fl_data_kit::column_match::{is_input, told_apart};
use fl_privacy::Plan;
use fl_registry::{Catalogue, DataSection as _, Document, Mistakes, Spec, any_make};
use fl_sim::Manifest;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Names that a message lists.
const LISTED: usize = 20;
/// The largest difference of two means, in standard deviations, and of two deviations, as a share,
/// that is none.
const SAME: f32 = 0.01;

/// What a user should know of a spec with its data.
#[derive(Default)]
pub struct DataNotes {
    /// For everyone who sees the run.
    pub notes: Vec<String>,
    /// For those who may know how many rows a client has.
    pub of_sizes: Vec<String>,
}

impl DataNotes {
    /// Returns all of them.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        self.notes.iter().chain(&self.of_sizes)
    }
}

/// Reads the data of a checked spec, as far as they are in the data directory `dir`. Returns what a
/// user should know of them and of its ledger.
///
/// # Errors
/// The mistake at its place in `document`: if the data cannot be read, and as [`check_data`]; if
/// the spec has sinks and this program has none.
pub fn noted_data(
    document: &Document,
    spec: &Spec<DataSpec>,
    dir: &Path,
    catalogue: &Catalogue,
) -> Result<Vec<String>, Mistakes> {
    sinks::check(document, spec)?;
    let mut notes = Vec::new();
    let found = check_with_data(spec, dir, catalogue, &mut |text| {
        notes.push(text.to_string());
    });
    let found = found.map_err(|error| {
        let text = format!("{error:#}");
        let (at, text) = placed(&text);
        Mistakes(vec![document.mistake_at(&at, text)])
    })?;
    notes.extend(found.all().cloned());
    notes.extend(spec.data.missing(dir));
    Ok(notes)
}

/// Splits an error such as `protocol.initial: ..`, or ``data: `split`: ..``, into the place in the
/// spec and the text.
fn placed(error: &str) -> (Vec<Step>, &str) {
    let section = |path: &str| ["data", "protocol", "stages", "parts", "ledger"].contains(&path);
    let split = error.split_once(": ");
    let split = split.filter(|(path, _)| path.split('.').next().is_some_and(section));
    let Some((path, text)) = split else {
        return (Vec::new(), error);
    };
    // the setting of the data that the text begins with, such as `split` or `data.test.own`
    let of_data = text.strip_prefix('`').filter(|_| path == "data");
    let of_data = of_data.and_then(|text| text.split_once("`: "));
    let setting = |c: char| c.is_ascii_lowercase() || "-.".contains(c);
    let of_data = of_data.filter(|(name, _)| name.chars().all(setting));
    let (below, text) = of_data.unwrap_or(("", text));
    let below = below.strip_prefix("data.").unwrap_or(below);
    let keys = path.split('.').chain(below.split('.'));
    let keys = keys.filter(|key| !key.is_empty());
    (keys.map(|key| Step::Key(key.into())).collect(), text)
}

/// Checks a spec with its data, if they are a user's own, or in the data directory `dir` and the
/// check needs them. Passes to `warn` what is known of them.
///
/// # Errors
/// As [`check_data`]; if the data cannot be read.
fn check_with_data(
    spec: &Spec<DataSpec>,
    dir: &Path,
    catalogue: &Catalogue,
    warn: &mut dyn FnMut(&str),
) -> anyhow::Result<DataNotes> {
    ensure!(
        spec.ledger.is_none() || !matches!(spec.data.split(), Split::Own),
        "ledger: {}",
        fl_privacy::AT_NODES
    );
    let ledger_fault = fl_privacy::ledger_fault(spec);
    ledger_fault.iter().for_each(|fault| warn(fault));
    let ledger = spec.ledger.as_ref().filter(|_| ledger_fault.is_none());
    let task = spec.data.task().unwrap_or_else(|| any_make().task);
    let protocol = spec.make_protocol(&protocol_context(spec, &task))?;
    let steps = |asked: &ExchangeSpec| asked.flow.steps.is_some();
    // what the program makes itself is soon there
    let made = spec.data.paths(dir).is_empty();
    let needed = spec.data.test.is_some()
        || (made && (spec.data.split().draws_again() || spec.data.public.is_some()))
        || protocol.declare().loads.is_some()
        || spec.data.kept_model().is_some()
        || spec.budget.is_some()
        || ledger.is_some()
        || protocol.exchanges().iter().any(steps);
    if spec.data.is_read() || (needed && spec.data.missing(dir).is_none()) {
        let data = prepare::data_with_notes(spec, dir, warn)?;
        let mut found = check_data(spec, &data)?;
        if spec.parts.has("accountant") || ledger.is_some() {
            let plan = Plan::new(spec, &data)?;
            found.of_sizes.extend(plan.large_delta());
            if ledger.is_some() {
                let forecast = fl_privacy::forecast(spec, &data, &plan, catalogue)?;
                let refused = forecast.and_then(|forecast| forecast.refused);
                found
                    .notes
                    .extend(refused.map(|why| format!("the run will be refused: {why}")));
            }
            found.notes.extend(plan.above_budget);
        }
        return Ok(found);
    }
    spec.data.idle_clients().iter().for_each(|note| warn(note));
    Ok(DataNotes::default())
}

/// Checks a spec with its data.
///
/// # Errors
/// If the model that it starts from has other classes, columns or scales, or does not fit; if the
/// model of its features has other columns or scales; if no client ever draws a row.
pub fn check_data(spec: &Spec<DataSpec>, data: &Assembled) -> anyhow::Result<DataNotes> {
    let protocol = spec.make_protocol(&protocol_context(spec, &data.task))?;
    let mut notes = check_lots(spec, data, protocol.as_ref())?;
    check_features(spec, data)?;
    if crops(spec) {
        notes.notes.extend(data.no_black.iter().cloned());
    }
    if let Some(initial) = protocol.declare().loads {
        let parts = spec.parts.in_slots(protocol.slots());
        notes
            .notes
            .extend(check_start(spec, data, &parts, &initial)?);
    }
    Ok(notes)
}

/// What the inputs and outputs of a run's models stand for; `run.json` has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Meaning {
    /// The data set.
    set: String,
    task: Task,
    /// The classes in the order of the outputs: their names, or their numbers in the data.
    classes: Vec<String>,
    /// Do the data give names?
    named: bool,
    /// The columns that a model sees, and how they are read; empty if they have no names.
    columns: Vec<(String, String)>,
    /// How texts become numbers, if they are no columns.
    texts: Option<serde_json::Value>,
    /// Mean and standard deviation that are taken from each channel or column.
    scale: Option<(Vec<f32>, Vec<f32>)>,
    /// Were the inputs images of bytes? An older fl did not write it.
    #[serde(default)]
    bytes: Option<bool>,
    /// What the inputs are put through after that.
    #[serde(default)]
    features: Option<serde_json::Value>,
    /// The hash of these features, if public samples or a kept model decide them.
    #[serde(default)]
    components: Option<String>,
    /// The scale of each number to predict.
    #[serde(default)]
    label: Vec<LabelScale>,
}

impl Meaning {
    fn new(spec: &Spec<DataSpec>, data: &Assembled) -> Self {
        let named = !data.classes.is_empty();
        let natural = || (0..data.task.kind.classes()).collect();
        let numbers = spec.data.class_order.clone().unwrap_or_else(natural);
        let used = |(_, how): &&(String, String)| is_input(how);
        let plain = |how: &str| how.trim_end_matches(" (inferred)").to_string();
        let columns = data.columns.iter().filter(used);
        let set = spec.resolved.get("data").and_then(|data| data.get("set"));
        let leaf = || set?.get("files")?.get("format")?.get("leaf");
        Self {
            set: spec.data.set.name().into(),
            task: data.task.clone(),
            classes: if named {
                data.classes.clone()
            } else {
                numbers.iter().map(usize::to_string).collect()
            },
            named,
            columns: match &data.columns[..] {
                // arrays and images have one input, without a name of its own
                [_] => Vec::new(),
                _ => columns
                    .map(|(name, how)| (name.clone(), plain(how)))
                    .collect(),
            },
            texts: leaf().and_then(|leaf| serde_json::to_value(leaf).ok()),
            scale: (data.normalise.as_ref()).map(|of| (of.mean.clone(), of.std.clone())),
            bytes: Some(data.bytes),
            features: spec
                .data
                .features
                .as_ref()
                .and_then(|how| match how.kept_model() {
                    // `components` says which, wherever its file lies
                    Some(_) => Some("kept-model".into()),
                    None => serde_json::to_value(how.write()).ok(),
                }),
            components: data.features.as_ref().and_then(FeatureMap::hash),
            label: match &**data.test.labels() {
                Labels::Numbers(of) => of.scales().to_vec(),
                _ => Vec::new(),
            },
        }
    }

    /// Returns how `kept`, of an earlier run, differs from this one: what the model has, what this
    /// run has, and what to do.
    fn differs(&self, kept: &Self) -> Option<[String; 3]> {
        let (now, then) = (&self.classes, &kept.classes);
        if self.named == kept.named && now != then {
            let [a, b] = [now, then].map(|names| sorted(names));
            let advice = if a == b {
                "give this run the order of the model, by `classes` or `class-order` in `data`"
            } else {
                "give this run the classes of the model, by `classes` in `data.set`"
            };
            let told = |names: &[String]| format!("the classes {}", listed(names));
            return Some([told(then), told(now), advice.into()]);
        }
        let (now, then) = (&self.columns, &kept.columns);
        if !now.is_empty() && !then.is_empty() && now != then {
            let advice = "give this run the columns of the model, in their order, by `columns` in `data.set` and the order of the file";
            let told = |of: &[(String, String)], other: &[(String, String)]| {
                let beside = other
                    .iter()
                    .map(|(_, how)| &how[..])
                    .chain(std::iter::repeat(""));
                let named = of.iter().zip(beside).map(|((name, how), other)| {
                    let [how, _] = told_apart(how, other);
                    format!("{name} ({how})")
                });
                format!("the columns {}", listed(&named.collect::<Vec<_>>()))
            };
            return Some([told(then, now), told(now, then), advice.into()]);
        }
        let task = |of: &Task| format!("inputs of shape {:?} and {}", of.input, of.kind);
        let texts = said("inputs that are no texts", |how| {
            format!("texts as numbers by {how}")
        });
        let scale = said("inputs that are not normalised", |(mean, std)| {
            format!("inputs normalised by {{ mean: {mean:?}, std: {std:?} }}")
        });
        let features = said("inputs that are put through no `features`", |how| {
            format!("features of inputs by {how}")
        });
        let components = said("features that are not known", |hash: &String| {
            format!(
                "features with the SHA-256 {}..",
                hash.get(..12).unwrap_or(hash)
            )
        });
        let label = |of: &Vec<LabelScale>| {
            let each = of.iter().map(|LabelScale { centre, spread }| {
                format!("{{ centre: {centre}, spread: {spread} }}")
            });
            format!("numbers scaled by {}", each.collect::<Vec<_>>().join(", "))
        };
        let bytes = |of: &Option<bool>| {
            let kind = kind_of_inputs(of.unwrap_or_default());
            format!("inputs that are {kind}")
        };
        let typed = "give this run inputs of the type of the model's";
        let bytes = apart(&kept.bytes, &self.bytes, bytes, typed);
        let inputs = "give this run the inputs and classes of the model";
        let texts_too = "give this run the `format` of the model";
        let normalise = "write the `data.normalise` of the model into this spec";
        let scale = apart(&kept.scale, &self.scale, scale, normalise);
        let put = "write the `data.features` of the model into this spec";
        let decided =
            "give this run the public samples, or the kept model, that decided the features";
        let all = [
            apart(&kept.task, &self.task, task, inputs),
            apart(&kept.texts, &self.texts, texts, texts_too),
            bytes.filter(|_| kept.bytes.and(self.bytes).is_some()),
            scale.filter(|_| !same_scale(&self.scale, &kept.scale)),
            apart(&kept.features, &self.features, features, put),
            apart(&kept.components, &self.components, components, decided),
            apart(
                &kept.label,
                &self.label,
                label,
                "state the scale of the model in `label`",
            ),
        ];
        all.into_iter().flatten().next()
    }

    /// Returns why nothing compares the classes of both, if nothing does.
    fn unknown(&self, kept: &Self) -> Option<String> {
        let unnamed = !self.named && !kept.named && self.set != kept.set;
        let numbers = matches!(self.task.kind, TaskKind::Numbers { .. });
        (!numbers && (unnamed || self.named != kept.named)).then(|| {
            format!(
                "was kept by a run on `{}`, and this run is on `{}`: no names say whether both have the same classes",
                kept.set, self.set
            )
        })
    }
}

/// Whether a part crops images.
fn crops(spec: &Spec<DataSpec>) -> bool {
    let crops = |value: &serde_yaml::Value| {
        let mut changes = value.get("augment")?.as_sequence()?.iter();
        changes
            .any(|change| change.get("crop").is_some())
            .then_some(())
    };
    let mut parts = spec.parts.iter();
    parts.any(|part| crops(&part.settings.value).is_some())
}

/// Compares a property of a kept model with that of this run. If they differ, returns the text of
/// each, and the advice.
fn apart<T: PartialEq>(
    kept: &T,
    own: &T,
    told: impl Fn(&T) -> String,
    advice: &str,
) -> Option<[String; 3]> {
    (kept != own).then(|| [told(kept), told(own), advice.into()])
}

/// Makes the text of a property that a run may lack.
fn said<T>(none: &str, some: impl Fn(&T) -> String) -> impl Fn(&Option<T>) -> String {
    move |of| of.as_ref().map_or(none.into(), &some)
}

/// What the inputs of rows are.
pub(crate) fn kind_of_inputs(bytes: bool) -> &'static str {
    if bytes {
        "images of bytes, which are divided by 255"
    } else {
        "numbers, which are not divided"
    }
}

fn sorted(names: &[String]) -> Vec<&String> {
    let mut names: Vec<&String> = names.iter().collect();
    names.sort();
    names
}

fn listed(names: &[String]) -> String {
    first_names(names, LISTED)
}

fn same_scale(a: &Option<(Vec<f32>, Vec<f32>)>, b: &Option<(Vec<f32>, Vec<f32>)>) -> bool {
    let (Some((mean, std)), Some((other, deviation))) = (a, b) else {
        return a == b;
    };
    let close = |((a, b), (s, t)): ((&f32, &f32), (&f32, &f32))| {
        (a - b).abs() <= SAME * s && (s - t).abs() <= SAME * s
    };
    let means = mean.iter().zip(other);
    mean.len() == other.len() && means.zip(std.iter().zip(deviation)).all(close)
}

/// Writes what the models of a run learn into its manifest.
pub(crate) fn describe(
    manifest: &mut Manifest,
    spec: &Spec<DataSpec>,
    data: &Assembled,
) -> anyhow::Result<()> {
    manifest.meaning = Some(serde_json::to_value(Meaning::new(spec, data))?);
    Ok(())
}

/// Checks that the kept model of the run's features learnt inputs as this run has them.
fn check_features(spec: &Spec<DataSpec>, data: &Assembled) -> anyhow::Result<()> {
    let run = spec.data.kept_model().and_then(KeptModel::run);
    let kept = run.map(Manifest::meaning_in).transpose()?.flatten();
    let Some(kept) = kept.map(serde_json::from_value::<Meaning>).transpose()? else {
        return Ok(());
    };
    let who = "data.features.kept-model.file: the model";
    if kept.features.is_some() {
        return Err(NotRun::usage(format!(
            "{who} learnt features (`data.features` of its run), and not the inputs that this run has; name a model without"
        )));
    }
    // what it learnt of them does not matter
    let Meaning {
        columns,
        texts,
        scale,
        bytes,
        ..
    } = Meaning::new(spec, data);
    let now = Meaning {
        columns,
        texts,
        scale,
        bytes,
        ..kept.clone()
    };
    match now.differs(&kept) {
        Some([then, now, advice]) => Err(NotRun::usage(format!(
            "{who} is for {then}, and this run has {now}; {advice}"
        ))),
        None => Ok(()),
    }
}

/// Checks the model in `file` that the run starts from; returns a note if its classes are unknown.
fn check_start(
    spec: &Spec<DataSpec>,
    data: &Assembled,
    parts: &Parts,
    initial: &InitialModel,
) -> anyhow::Result<Option<String>> {
    let InitialModel {
        slot,
        setting,
        file,
    } = initial;
    let who = format!("protocol.{setting}: {file}");
    // models/NAME in the folder of a run
    let folder = Path::new(file).parent().and_then(Path::parent);
    let kept = folder.map(Manifest::meaning_in).transpose()?.flatten();
    let kept: Option<Meaning> = kept.map(serde_json::from_value).transpose()?;
    let now = Meaning::new(spec, data);
    let note = match &kept {
        Some(kept) => {
            if let Some([then, now, advice]) = now.differs(kept) {
                return Err(NotRun::usage(format!(
                    "{who} is for {then}, and this run has {now}; {advice}, or copy the file out of its run folder, and fl takes it as it is"
                )));
            }
            now.unknown(kept).map(|why| format!("{who} {why}"))
        }
        None => Some(format!(
            "{who} is not in the folder of a run that says what its models learnt: make sure that its classes and columns are those of this run, in the same order and scaled alike"
        )),
    };
    let bytes = std::fs::read(file).with_context(|| format!("{who} cannot be read"))?;
    let make = spec.part_context(&parts.task(slot, &data.task));
    let mut model: Box<dyn Trainer> = parts.build(Role::Trainer, slot, None, &make)?;
    match model.load(&bytes) {
        Ok(()) => Ok(note),
        Err(error) => Err(NotRun::usage(format!(
            "{who} does not fit parts.{slot}: {error:#}; `{setting}` takes a model as its run kept it, runs/RUN/models/NAME, and not what `fl export` makes of it"
        ))),
    }
}

/// Checks that steps whose gradients are released draw rows.
fn check_lots(
    spec: &Spec<DataSpec>,
    data: &Assembled,
    protocol: &dyn Protocol,
) -> anyhow::Result<DataNotes> {
    let mut notes = DataNotes::default();
    // what is at nodes is not known here
    if matches!(spec.data.split(), Split::Own) {
        return Ok(notes);
    }
    let sizes = data.clients.iter().map(Examples::len);
    let sizes: Vec<usize> = if protocol.pools_data() {
        vec![sizes.sum()]
    } else {
        sizes.collect()
    };
    for (slot, lots) in steps(spec, &data.task, protocol) {
        let with_rows = || sizes.iter().enumerate().filter(|(_, n)| **n > 0);
        let few: Vec<(ClientId, usize)> = with_rows()
            .filter(|(_, n)| lots.lot(**n) < 1.0)
            .map(|(id, n)| (id as ClientId, *n))
            .collect();
        let Some(largest) = few.iter().map(|(_, n)| *n).max() else {
            continue;
        };
        let rate = lots.rate;
        let ids: Vec<ClientId> = few.iter().map(|(id, _)| *id).collect();
        let clients = named_clients(&ids);
        let mean = rate * largest as f64;
        if !lots.fixed {
            notes.of_sizes.push(format!(
                "parts.{slot}: a step of {clients} draws less than one row on average (at most {largest} rows x {rate} = {mean:.2}), so it learns mostly noise: raise the `rate` of `sampling`"
            ));
        } else if few.len() == with_rows().count() {
            let least = 1.0 / largest as f64;
            return Err(NotRun::usage(format!(
                "parts.{slot}: no client ever draws a row, so noise alone would train the model: a step draws the share {rate} of a client's rows, rounded down, and the largest client has {largest} ({largest} x {rate} = {mean:.2}); set the `rate` of `sampling` to at least {least:.2e}, or `draw: poisson`"
            )));
        } else {
            notes.of_sizes.push(format!(
                "parts.{slot}: no step of {clients} draws a row, so noise alone trains there: a step draws the share {rate} of a client's rows, rounded down, which is 0 of {largest} or fewer; raise the `rate` of `sampling`, or set `draw: poisson`"
            ));
        }
    }
    Ok(notes)
}

/// Returns the slots whose mechanism releases steps of training, and how each step draws rows.
fn steps(
    spec: &Spec<DataSpec>,
    task: &Task,
    protocol: &dyn Protocol,
) -> Vec<(&'static str, MinibatchSampling)> {
    let parts = spec.parts.in_slots(protocol.slots());
    let make = spec.part_context(task);
    let mut all = protocol.exchanges();
    all.retain(|asked| parts.asks(asked, &make));
    let steps = all.iter().filter_map(|asked| asked.flow.steps);
    steps.filter(|(slot, _)| parts.has(slot)).collect()
}

/// Says, for a node, which steps draw none of its own `rows`.
///
/// # Errors
/// If the protocol cannot be made.
pub(crate) fn steps_without_rows(
    spec: &Spec<DataSpec>,
    task: &Task,
    rows: usize,
) -> anyhow::Result<Vec<String>> {
    let protocol = spec.make_protocol(&protocol_context(spec, task))?;
    let all = steps(spec, task, protocol.as_ref()).into_iter();
    let few = all.filter(|(_, lots)| lots.fixed && rows > 0 && lots.lot(rows) < 1.0);
    let told = |(slot, lots): (&str, MinibatchSampling)| {
        let rate = lots.rate;
        format!(
            "parts.{slot}: no step draws one of its {rows} rows, so noise alone trains there: a step draws the share {rate}, rounded down; the spec needs a larger `rate` of `sampling`, or `draw: poisson`"
        )
    };
    Ok(few.map(told).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|name| name.to_string()).collect()
    }

    /// What a run on two columns says.
    fn kept() -> Meaning {
        let job = "one of 7 categories: a, b, c, d, e, f, g".to_string();
        Meaning {
            set: "files".into(),
            task: Task {
                input: vec![8],
                kind: TaskKind::Classes(2),
            },
            classes: names(&["no", "yes"]),
            named: true,
            columns: vec![
                ("age".into(), "a number, not scaled".into()),
                ("job".into(), job),
            ],
            texts: None,
            scale: Some((vec![0.5], vec![0.2])),
            components: None,
            bytes: None,
            features: None,
            label: Vec::new(),
        }
    }

    fn said(change: impl Fn(&mut Meaning)) -> String {
        let mut now = kept();
        change(&mut now);
        let text = serde_json::to_string(&kept()).unwrap();
        let kept = serde_json::from_str(&text).unwrap();
        match now.differs(&kept) {
            Some([then, now, _]) => format!("{then} / {now}"),
            None => now.unknown(&kept).unwrap_or_default(),
        }
    }

    #[test]
    fn what_models_learn_is_the_same_or_the_difference_is_told() {
        assert_eq!(said(|_| ()), "");
        assert_eq!(
            said(|now| now.set = "other".into()),
            "",
            "names are the same"
        );
        assert_eq!(
            said(|now| now.scale = Some((vec![0.501], vec![0.2005]))),
            ""
        );
        type Change<'a> = &'a dyn Fn(&mut Meaning);
        let differences: [(Change<'_>, &str); 8] = [
            (
                &|now| now.label = vec![LabelScale::of(&[1.0, 3.0])],
                "numbers scaled by  / numbers scaled by { centre: 2, spread: 1 }",
            ),
            (
                &|now| now.classes.reverse(),
                "the classes no, yes / the classes yes, no",
            ),
            (
                &|now| now.columns.swap(0, 1),
                "the columns age (a number, not scaled), job (one of 7 categories: a, b, c, d, e, f, ..) / the columns job (one of 7 categories: a, b, c, d, e, f, ..), age (a number, not scaled)",
            ),
            (
                &|now| now.columns[1].1 = now.columns[1].1.replace(", g", ", h"),
                "the columns age (a number, not scaled), job (one of 7 categories: a, b, c, d, e, f, g) / the columns age (a number, not scaled), job (one of 7 categories: a, b, c, d, e, f, h)",
            ),
            (
                &|now| now.task.input = vec![9],
                "inputs of shape [8] and 2 classes / inputs of shape [9] and 2 classes",
            ),
            (
                &|now| now.texts = Some(json!({ "alphabet": "abc" })),
                "inputs that are no texts / texts as numbers by {\"alphabet\":\"abc\"}",
            ),
            (
                &|now| now.scale = Some((vec![0.5], vec![0.3])),
                "inputs normalised by { mean: [0.5], std: [0.2] } / inputs normalised by { mean: [0.5], std: [0.3] }",
            ),
            (
                &|now| (now.named, now.classes) = (false, names(&["0", "1"])),
                "was kept by a run on `files`, and this run is on `files`: no names say whether both have the same classes",
            ),
        ];
        for (change, due) in differences {
            assert_eq!(said(change), due);
        }
    }
}
