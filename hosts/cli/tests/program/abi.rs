//! A loaded part gives the bits of the linked one: Rust over 1,000 random inboxes, C against a twin
//! in Rust, and every part of the bundle through the C interface.

use crate::{common, library};
use fl_conformance::{Case, Values, check, classes, tasks};
use fl_core::message::{Counts, Logits, Message, Params, Votes, digest};
use fl_core::privacy::{Noise, ReleaseNoise};
use fl_core::settings::{Reader, Value};
use fl_core::{
    Accountant, BoxedAggregator, BoxedMechanism, BoxedPart, BoxedSelector, BuildContext, Candidate,
    ClientMessage, Cohort, FitOptions, Inbox, Length, Loss, PartDecl, PrivacyEvent, Role, Roster,
    Round, Samples, SharedExecutor, Stream, Target, TaskKind, Trainer, abi, linked_parts,
};
use fl_plugin_example_dynamic as _;
use fl_plugins as _;
use fl_registry::{Catalogue, Library, load};
use ndarray::Array2;
use std::sync::Arc;

fn named(parts: &[&'static PartDecl], role: Role, name: &str) -> &'static PartDecl {
    parts
        .iter()
        .find(|p| (p.role, p.name) == (role, name))
        .unwrap_or_else(|| panic!("no {role} `{name}`"))
}

fn build<B: BoxedPart>(decl: &PartDecl, settings: &str, make: &BuildContext) -> B {
    let settings: Value = serde_yaml::from_str(settings).unwrap();
    let part = decl.make(&settings, make);
    part.unwrap_or_else(|e| panic!("{} `{}`: {e:#}", decl.role, decl.name))
}

fn make() -> BuildContext {
    BuildContext {
        task: tasks().swap_remove(0),
        stream: Stream::root(3).child("make", 0),
    }
}

fn inbox<M: Message>(number: u64) -> Inbox<M> {
    let stream = Stream::root(0).child("inbox", number);
    let mut draws = stream.draws();
    let case = Case {
        number,
        clients: 1 + draws.below(9),
        values: if number % 4 == 3 {
            Values::Wild
        } else {
            Values::Plain
        },
    };
    let bodies: Vec<M> = case.messages(&mut draws);
    let mail = bodies
        .into_iter()
        .enumerate()
        .map(|(k, body)| ClientMessage {
            class_counts: Some(
                (0..classes(&body))
                    .map(|_| 1 + draws.below(20) as u32)
                    .collect(),
            ),
            training_loss: Some(3.0 * draws.uniform()),
            ..ClientMessage::new(3 * k as u32, 1.0 + draws.below(1000) as f64, body)
        });
    Inbox::new(mail.collect()).unwrap()
}

fn round(number: u64) -> Round {
    let threads: SharedExecutor = Arc::new(Backwards);
    let stream = Stream::root(1).child("round", number);
    let name = format!("round \"{number}\"\n");
    Round::new(name, number as usize, true, stream, threads)
}

/// Does the last chunk first, each on a thread of its own.
struct Backwards;

impl fl_core::Executor for Backwards {
    fn chunks(&self, data: &mut [f32], size: usize, work: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        std::thread::scope(|scope| {
            let chunks: Vec<_> = data.chunks_mut(size).enumerate().collect();
            for (i, chunk) in chunks.into_iter().rev() {
                scope.spawn(move || work(i, chunk));
            }
        });
    }
}

/// The same answers, bit for bit, to `n` inboxes one after the other; with a stop in the middle,
/// and folded.
fn same_aggregator<I: Message, O: Message>(
    linked: &PartDecl,
    loaded: &PartDecl,
    settings: &str,
    n: u64,
) {
    let new = |decl| build::<BoxedAggregator<I, O>>(decl, settings, &make());
    let (mut a, mut b) = (new(linked), new(loaded));
    assert_eq!((a.needs(), a.claims()), (b.needs(), b.claims()));
    // what is kept from round to round fits messages of one outline only
    let first = inbox::<I>(0);
    let sent = first
        .iter()
        .next()
        .map(|mail| mail.body.clone())
        .expect("an answer");
    let stateful = a.aggregate(&round(0).showing(sent), &first).is_ok() && !a.save().is_empty();
    (a, b) = (new(linked), new(loaded));
    for number in 0..n {
        let inbox = inbox::<I>(number);
        // clients were sent what looks like their answers
        let sent = inbox
            .iter()
            .next()
            .map(|mail| mail.body.clone())
            .expect("an answer");
        let shown = |number| round(number).showing(sent.clone());
        if stateful {
            (a, b) = (new(linked), new(loaded));
        }
        for turn in 0..1 + u64::from(stateful) {
            let at = shown(number + turn);
            let (x, y) = (a.aggregate(&at, &inbox), b.aggregate(&at, &inbox));
            match (x, y) {
                (Ok(x), Ok(y)) => assert_eq!(digest(&x), digest(&y), "`{}`, {number}", linked.name),
                (Err(x), Err(y)) => assert!(
                    format!("{y:#}").contains(&format!("{x:#}")),
                    "`{}`, inbox {number}: {x:#}, but {y:#}",
                    linked.name
                ),
                (x, y) => panic!("`{}`, inbox {number}: {x:?}, but {y:?}", linked.name),
            }
            assert_eq!(a.save(), b.save());
        }
        let state = b.save();
        b.load(&state).unwrap();
        let at = shown(number + 2);
        match (a.fold(&at), b.fold(&at)) {
            (Some(mut f), Some(mut g)) => {
                for mail in inbox.iter() {
                    f.add(mail.clone()).unwrap();
                    g.add(mail.clone()).unwrap();
                }
                let x = a.update(&at, f.finish().unwrap()).unwrap();
                let y = b.update(&at, g.finish().unwrap()).unwrap();
                assert_eq!(digest(&x), digest(&y), "`{}`, folded", linked.name);
                assert_eq!(a.save(), b.save());
            }
            (f, g) => assert_eq!(f.is_some(), g.is_some()),
        }
    }
}

fn same_mechanism<M: Message>(linked: &PartDecl, loaded: &PartDecl, settings: &str) {
    for number in 0..100 {
        let (mut a, mut b) = (
            build::<BoxedMechanism<M>>(linked, settings, &make()),
            build::<BoxedMechanism<M>>(loaded, settings, &make()),
        );
        let mut x = inbox::<M>(number).iter().next().unwrap().body.clone();
        let (mut y, stream) = (x.clone(), Stream::root(number));
        assert_eq!(a.range(&x), b.range(&y));
        if let Some(range) = a.range(&x) {
            a.agree(range);
            b.agree(range);
        }
        a.clip(&mut x).unwrap();
        b.clip(&mut y).unwrap();
        assert_eq!(digest(&x), digest(&y));
        assert_eq!(fl_core::message::encode(&x), fl_core::message::encode(&y));
        let (p, q) = (
            a.price(&x, &Cohort::all(7)).unwrap(),
            b.price(&y, &Cohort::all(7)).unwrap(),
        );
        assert_eq!(p, q);
        assert_eq!(a.queries(&x), b.queries(&y));
        let n = a.queries(&x).div_ceil(2);
        a.truncate(&mut x, n);
        b.truncate(&mut y, n);
        let kind = [Noise::Seeded, Noise::System][number as usize % 2];
        let noise = ReleaseNoise::of(stream, kind);
        a.perturb(&mut x, &Cohort::all(7), &noise).unwrap();
        b.perturb(&mut y, &Cohort::all(7), &noise).unwrap();
        assert_eq!(fl_core::message::encode(&x), fl_core::message::encode(&y));
        assert_eq!(a.actual_cost(p), b.actual_cost(q));
    }
}

fn same_selector(linked: &PartDecl, loaded: &PartDecl) {
    for number in 0..200 {
        let (mut draws, stream) = (Stream::root(number).draws(), Stream::root(number));
        let pool: Vec<_> = (0..1 + draws.below(30) as u32)
            .map(|id| Candidate {
                samples: Some(draws.below(500) as u64),
                loss: Some(draws.uniform()),
                id,
            })
            .collect();
        let chosen = [linked, loaded].map(|decl| {
            let mut part = build::<BoxedSelector<Roster>>(decl, "{}", &make());
            let round = Round::first().with_stream(stream.clone());
            assert_eq!(part.poll(&round, &pool).unwrap(), None, "all is known");
            (part.draw(), part.select(&round, &pool).unwrap())
        });
        assert_eq!(chosen[0], chosen[1], "`{}`", linked.name);
    }
}

fn same_trainer(linked: &PartDecl, loaded: &PartDecl, settings: &str) {
    for task in tasks() {
        let make = BuildContext {
            task: task.clone(),
            stream: Stream::root(5),
        };
        let TaskKind::Classes(classes) = task.kind else {
            continue;
        };
        let mut draws = Stream::root(2).draws();
        let values = Array2::from_shape_simple_fn((40, task.width()), || draws.normal() as f32);
        let x = Samples::fresh(values, task.input.clone()).unwrap();
        let of: Vec<u32> = (0..40).map(|_| draws.below(classes) as u32).collect();
        let pass = FitOptions::new(Length::Epochs(2), 7, Loss::CrossEntropy);
        let results = [linked, loaded].map(|decl| {
            let mut model: Box<dyn Trainer> = build(decl, settings, &make);
            let fitted = model
                .fit(&x, Target::Classes(&of), &pass, &Stream::root(8))
                .unwrap();
            let state = model.save_state().unwrap();
            model.load_state(&state).unwrap();
            let params = model.parametric().map(|p| {
                let mut params = p.params();
                params
                    .0
                    .values_mut()
                    .for_each(|t| t.mapv_inplace(|v| 0.5 * v));
                p.set_params(&params).unwrap();
                digest(&p.params())
            });
            let scores = model.predict(&x).unwrap();
            let slopes = model
                .differentiable()
                .map(|d| d.vjp(&x, scores.view()).unwrap());
            let features = model.features(&x).unwrap();
            (
                fitted,
                model.save().unwrap(),
                params,
                scores,
                slopes,
                features,
            )
        });
        assert_eq!(results[0], results[1], "`{}`", linked.name);
    }
}

/// The linked and the loaded accountant price alike, and refuse alike.
fn same_accountant(linked: &PartDecl, loaded: &PartDecl) {
    let events: Vec<PrivacyEvent> = serde_json::from_str(
        r#"[{"Laplace": {"sensitivity": 0.3, "scale": 7.1, "unit": "party"}},
            {"Gaussian": {"sensitivity": 0.1, "sigma": 9.3, "unit": "party"}},
            {"Unaccounted": {"why": "nothing is known"}}]"#,
    )
    .unwrap();
    let results = [linked, loaded].map(|decl| {
        let mut part: Box<dyn Accountant> = build(decl, "{}", &make());
        let mut out = Vec::new();
        for event in &events {
            let charged = part.charge(event);
            out.push(match charged {
                Ok(()) => "charged".to_string(),
                Err(e) => format!("{:?}", e.downcast_ref::<fl_core::Problem>().is_some()),
            });
            let all = part.guarantee(Some(event)).map_err(|_| ()).ok();
            out.push(format!("{all:?} {:?}", part.guarantee(None).ok()));
        }
        out
    });
    assert_eq!(results[0], results[1], "`{}`", linked.name);
}

fn same_part(linked: &'static PartDecl, loaded: &PartDecl, inboxes: u64) {
    let signature = (linked.describe)().signature;
    let settings = match linked.name {
        "dfdx" => "{net: [linear: 8, tanh, outputs]}",
        "laplace-counts" => "{scale: 4}",
        "q-fair-mean" => "{lr: 0.1}",
        "laplace-votes" => "{gamma: 0.5}",
        "gaussian-votes" => "{sigma: 2.0}",
        _ => "{}",
    };
    let about = |p: &PartDecl| {
        let about = (p.describe)();
        (about.doc, about.fields, about.signature)
    };
    assert_eq!(about(linked), about(loaded), "`{}`", linked.name);
    match (linked.role, signature.as_str()) {
        // `protocols.rs` runs them
        (Role::Protocol, _) => {}
        (Role::Aggregator, "params -> params") | (Role::Attack, "params") => {
            same_aggregator::<Params, Params>(linked, loaded, settings, inboxes);
        }
        (Role::Aggregator, "logits -> logits") => {
            same_aggregator::<Logits, Logits>(linked, loaded, settings, inboxes);
        }
        (Role::Aggregator, "votes -> counts") => {
            same_aggregator::<Votes, Counts>(linked, loaded, settings, inboxes);
        }
        (Role::Attack, "votes") => {
            same_aggregator::<Votes, Votes>(linked, loaded, settings, inboxes);
        }
        (Role::Privacy, "params") => same_mechanism::<Params>(linked, loaded, settings),
        (Role::Privacy, "logits") => same_mechanism::<Logits>(linked, loaded, settings),
        (Role::Privacy, "counts") if linked.name != "confident-votes" => {
            same_mechanism::<Counts>(linked, loaded, settings);
        }
        (Role::Selector, "clients") => same_selector(linked, loaded),
        (Role::Trainer, _) => same_trainer(linked, loaded, settings),
        (Role::Accountant, _) => same_accountant(linked, loaded),
        _ => eprintln!(
            "not compared: {} `{}` of {signature}",
            linked.role, linked.name
        ),
    }
}

#[test]
fn exact_loaded_is_linked_over_a_thousand_inboxes() {
    let file = library::beside("fl_plugin_example_dynamic");
    let loaded = load(&Library::at(&file)).unwrap();
    let names: Vec<_> = loaded.iter().map(|p| (p.role, p.name)).collect();
    assert_eq!(
        names,
        [
            (Role::Aggregator, "momentum-mean"),
            (Role::Selector, "by-size"),
            (Role::Privacy, "laplace-params"),
        ]
    );
    let linked = linked_parts();
    for part in loaded {
        assert_eq!(part.origin, file.display().to_string());
        same_part(named(&linked, part.role, part.name), part, 1000);
    }
}

#[test]
fn exact_every_part_of_the_bundle_is_the_same_through_the_c_interface() {
    // SAFETY: this program's own table.
    #[allow(unsafe_code, reason = "a table is a pointer")]
    let here = unsafe { abi::import(abi::library(), "here") }.unwrap();
    let papers = |part: &PartDecl| (part.papers.to_vec(), part.aliases.to_vec());
    for part in here {
        let linked = named(&linked_parts(), part.role, part.name);
        assert_eq!(papers(part), papers(linked), "{}", part.name);
    }
    let whole = library::beside("fl_hostile");
    assert_eq!(load(&Library::at(whole)).unwrap().len(), 6);
    let imported = abi::import_linked("here");
    assert!(imported.len() > 15, "{}", imported.len());
    for part in imported {
        same_part(named(&linked_parts(), part.role, part.name), part, 100);
    }
}

#[test]
fn the_kit_holds_for_loaded_parts() {
    let loaded = load(&Library::at(library::beside("fl_plugin_example_dynamic"))).unwrap();
    let mean = named(&loaded, Role::Aggregator, "momentum-mean");
    check::aggregator(&|| build(mean, "{}", &make())).unwrap();
    let cohort = named(&loaded, Role::Selector, "by-size");
    check::selector(
        &|| build::<BoxedSelector<Roster>>(cohort, "{}", &make()),
        true,
    )
    .unwrap();
    let noise = named(&loaded, Role::Privacy, "laplace-params");
    let neighbours = fl_conformance::Neighbours::Replaced;
    check::mechanism(&|| build(noise, "{}", &make()), neighbours).unwrap();
    let imported = abi::import_linked("here");
    let linear = named(&imported, Role::Trainer, "linear");
    check::trainer(&tasks(), &|make| {
        Ok(build::<Box<dyn Trainer>>(linear, "{}", make))
    })
    .unwrap();
    let basic = named(&imported, Role::Accountant, "basic");
    check::accountant(&|| build::<Box<dyn Accountant>>(basic, "{}", &make())).unwrap();
}

#[test]
fn exact_mistakes_in_settings_are_the_same() {
    let imported = abi::import_linked("here");
    for (role, name, settings) in [
        (Role::Aggregator, "trimmed-mean", "{trim: 0.7, trum: 1}"),
        (Role::Aggregator, "trimmed-mean", "{trim: .nan}"),
        (Role::Aggregator, "mean", "{weigh: sampels}"),
        (Role::Trainer, "dfdx", "{net: [linear: 0, rely, {pool: x}]}"),
        (Role::Trainer, "linear", "[1]"),
        (
            Role::Trainer,
            "linear",
            "{lr: 0.30000000000000004, l2: 1e-7}",
        ),
    ] {
        let settings: Value = serde_yaml::from_str(settings).unwrap();
        let read = [
            named(&linked_parts(), role, name),
            named(&imported, role, name),
        ]
        .map(|p| {
            let mut reader = Reader::default();
            let read = (p.check)(&settings, &mut reader);
            (read.map(|read| read.value), reader.mistakes)
        });
        assert_eq!(read[0], read[1], "`{name}`");
    }
}

#[test]
fn exact_a_mean_by_losses_in_c_is_the_linked_one() {
    if !library::cc() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("loss_mean.so");
    let source = common::root().join("hosts/cli/tests/program/loss_mean.c");
    library::compile(&source, &out, &["-Werror"]);
    let loaded = load(&Library::at(&out)).unwrap()[0];
    let linked = named(&linked_parts(), Role::Aggregator, "loss-weighted-mean");
    let new = |decl| build::<BoxedAggregator<Params, Params>>(decl, "{}", &make());
    let (mut a, mut b) = (new(linked), new(loaded));
    assert_eq!((a.needs(), a.claims()), (b.needs(), b.claims()));
    for number in 0..200 {
        let (round, inbox) = (round(number), inbox(number));
        let both = [&mut a, &mut b].map(|part| digest(&part.aggregate(&round, &inbox).unwrap()));
        assert_eq!(both[0], both[1], "inbox {number}");
    }
    // a message without a loss never reaches the library
    let all = inbox::<Params>(0);
    let without = all.iter().cloned().map(|mail| ClientMessage {
        training_loss: None,
        ..mail
    });
    let without = Inbox::new(without.collect()).unwrap();
    let error = b.aggregate(&round(0), &without).unwrap_err();
    assert!(
        format!("{error:#}").contains("its answer came without a training loss"),
        "{error:#}"
    );
    check::aggregator(&|| build(loaded, "{}", &make())).unwrap();
}

/// The C example's sums, in the same order.
fn twin(inbox: &Inbox<Params>, shrink: f64) -> Params {
    let total = inbox.total_weight();
    let mut out = inbox.iter().next().unwrap().body.clone();
    for (name, tensor) in &mut out.0 {
        for (i, x) in tensor.iter_mut().enumerate() {
            let mut sum = 0.0;
            for mail in inbox.iter() {
                let sent = mail.body.0[name].iter().nth(i).copied().unwrap();
                sum += mail.weight * f64::from(sent);
            }
            *x = (sum / total * shrink) as f32;
        }
    }
    out
}

#[test]
fn exact_the_c_example_is_its_twin_in_rust() {
    if !library::cc() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("c_mean.so");
    let source = common::root().join("plugins/example-c/c_mean.c");
    library::compile(&source, &out, &["-Werror"]);
    let decl = load(&Library::at(&out)).unwrap()[0];
    for shrink in [1.0, 0.3] {
        let settings = format!("{{shrink: {shrink}}}");
        let mut part: BoxedAggregator<Params, Params> = build(decl, &settings, &make());
        assert!(part.needs().samples && part.claims().order_free);
        for number in 0..200 {
            let inbox = inbox(number);
            let out = part.aggregate(&round(number), &inbox).unwrap();
            assert_eq!(
                digest(&out),
                digest(&twin(&inbox, shrink)),
                "inbox {number}"
            );
        }
    }
    check::aggregator(&|| build(decl, "{}", &make())).unwrap();
    // numbers that do not lie in row order
    let turned = |k: u32| {
        let tensor = Array2::from_shape_fn((3, 4), |(i, j)| (i * 4 + j) as f32 + k as f32 * 0.1);
        let mut tensor = tensor.reversed_axes();
        tensor.invert_axis(ndarray::Axis(0));
        ClientMessage::new(
            k,
            2.0,
            Params([("w".to_string(), tensor.into_dyn())].into()),
        )
    };
    let inbox = Inbox::new((0..3).map(turned).collect()).unwrap();
    let mut part: BoxedAggregator<Params, Params> = build(decl, "{}", &make());
    let out = part.aggregate(&round(0), &inbox).unwrap();
    assert_eq!(out, twin(&inbox, 1.0));

    // a whole run, through a spec that names the library
    let spec = std::fs::read_to_string(common::root().join("specs/quick/fedavg.yaml")).unwrap();
    let linked = dir.path().join("linked.yaml");
    std::fs::write(&linked, &spec).unwrap();
    let hash = sha256(&out_bytes(&dir.path().join("c_mean.so")));
    let plugins = format!("plugins: [{{path: c_mean.so, sha256: {hash}}}]\n");
    let loaded = plugins + &spec.replace("use: mean", "use: c-mean");
    std::fs::write(dir.path().join("loaded.yaml"), loaded).unwrap();
    let digests = ["linked.yaml", "loaded.yaml"]
        .map(|f| common::json(dir.path(), &["run", f, "--json"])["digest"].clone());
    assert_eq!(digests[0], digests[1]);
    let listed = common::out(dir.path(), &["list", "aggregator", "--plugin", "c_mean.so"]);
    assert!(listed.contains("c-mean"), "{listed}");
    let schema = common::out(dir.path(), &["schema", "--plugin", "c_mean.so"]);
    assert!(schema.contains("aggregator.c-mean") && schema.contains("exclusiveMinimum"));
}

fn out_bytes(path: &std::path::Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    let hash = sha2::Sha256::digest(bytes);
    hash.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn a_run_with_a_loaded_part_stops_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let file = library::beside("fl_plugin_example_dynamic");
    let file = file.to_str().unwrap();
    let spec = std::fs::read_to_string(common::root().join("specs/quick/fedavg.yaml")).unwrap();
    let spec = spec.replace("use: mean", "use: momentum-mean, beta: 0.5");
    std::fs::write(dir.path().join("s.yaml"), spec).unwrap();
    let run = |more: &[&str]| common::json(dir.path(), &[more, &["--json"]].concat());
    let whole = run(&["run", "s.yaml", "--plugin", file]);
    run(&[
        "run",
        "s.yaml",
        "--plugin",
        file,
        "--stop-after",
        "2",
        "--out",
        "half",
    ]);
    // the run folder's spec names the library
    let resumed = run(&["run", "--resume", "half"]);
    assert_eq!(whole["digest"], resumed["digest"]);
}

#[test]
fn a_library_that_is_named_twice_is_loaded_once() {
    let file = library::beside("fl_plugin_example_dynamic");
    let twice = [Library::at(&file), Library::at(&file)];
    let none = Catalogue::default();
    assert_eq!(none.with(&twice).unwrap().parts().len(), 3);
    let copy = tempfile::tempdir().unwrap();
    let other = copy.path().join("other.so");
    std::fs::copy(&file, &other).unwrap();
    let clash = none.with(&[Library::at(&file), Library::at(&other)]);
    let text = clash.err().unwrap().to_string();
    assert!(
        text.contains("two parts are called aggregator `momentum-mean`: one from ")
            && text.contains("example_dynamic")
            && text.contains("other.so"),
        "{text}"
    );
}
