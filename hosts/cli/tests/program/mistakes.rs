//! What `fl check` finds before anything is trained, in specs of the methods that come with it.

use crate::common::{fails, fl, quick, root};

/// What is wrong with a quick spec when this is set.
fn wrong(spec: &str, set: &[&str]) -> String {
    let spec = format!("specs/quick/{spec}");
    let mut args = vec!["check", &spec];
    set.iter().for_each(|set| args.extend(["--set", set]));
    let (code, said) = fails(&root(), &args);
    assert_eq!(code, 2, "{said}");
    said
}

#[test]
fn what_cannot_work_is_found_before_the_run() {
    let forest = |slot: &str| format!("parts.{slot}={{use: forest}}");
    let data = "data.public={from: {share: 0.3}}";
    let cases: &[(&str, &[&str], &str)] = &[
        // where an aggregator needs training losses
        (
            "dp-sgd.yaml",
            &["parts.aggregator={use: q-fedavg, lr: 0.1}"],
            "needs the training loss of each client, and clients do not train for `parameters after local training`; use another aggregator",
        ),
        (
            "dp-fedavg.yaml",
            &["parts.aggregator={use: afl}"],
            "this protocol shows it no training loss; use another aggregator",
        ),
        // where every pixel has a class
        (
            "segmentation.yaml",
            &["parts.model={use: linear}"],
            "a linear model learns classes or labels of a whole input",
        ),
        (
            "segmentation.yaml",
            &[&forest("model")],
            "trees learn tasks of classes, or of one number, not of 2 classes of 32x32 pixels",
        ),
        (
            "segmentation.yaml",
            &["protocol.use=feddf", data],
            "FedDF takes the mean of class probabilities of whole inputs",
        ),
        (
            "segmentation.yaml",
            &["protocol={use: two-tier-vote}", data],
            "it does not work for 2 classes of 32x32 pixels: votes are for one class of several",
        ),
        (
            "segmentation.yaml",
            &[
                "protocol={use: generate-and-distill, made-of: label-maps}",
                data,
            ],
            "`made-of` label maps lets only the owner of a map judge its image",
        ),
        (
            "segmentation.yaml",
            &["protocol={use: co-distill, labels: soft}", data],
            "use `labels: scores`",
        ),
        (
            "fedavg.yaml",
            &["protocol={use: asyn-dgan}"],
            "it does not work for 4 classes: label maps are painted",
        ),
        (
            "fedkd-multi-label.yaml",
            &["protocol={use: two-tier-vote}"],
            "votes are for one class of several",
        ),
        (
            "fedkd-multi-label.yaml",
            &["protocol={use: class-distill}"],
            "class means are of inputs with one class each",
        ),
        (
            "fedkd-multi-label.yaml",
            &["protocol={use: co-distill}"],
            "inputs with one class each; use `labels: scores`",
        ),
        (
            "fedkd.yaml",
            &["protocol.public-labels=true"],
            "`public-labels` needs labels of the public samples",
        ),
        (
            "fedkd-multi-label.yaml",
            &["protocol={use: generate-and-distill}"],
            "the teachers' probabilities are those of one class out of several",
        ),
        (
            "fedkd-multi-label.yaml",
            &["protocol={use: dense}"],
            "a made input has one class out of several",
        ),
        (
            "segmentation.yaml",
            &["parts.model.net=lenet"],
            "needs an image [channels, height, width], got [84]",
        ),
        (
            "segmentation.yaml",
            &["data.split={dirichlet: {alpha: 0.5}}"],
            "have no class of their own to split by",
        ),
        // where images are made
        (
            "reconstruction.yaml",
            &[&forest("teacher")],
            "trees learn tasks of classes, or of one number, not of images of 1x28x28 values",
        ),
        (
            "reconstruction.yaml",
            &["protocol.loss={kl: 2}"],
            "cannot minimise the loss kl",
        ),
        (
            "reconstruction.yaml",
            &["protocol={use: two-tier-vote}"],
            "it does not work for images of 1x28x28 values: votes are for one class of several",
        ),
        (
            "reconstruction.yaml",
            &["protocol={use: generate-and-distill}"],
            "the teachers' probabilities are those of classes, and these are images of 1x28x28 values",
        ),
        (
            "reconstruction.yaml",
            &["protocol={use: asyn-dgan}"],
            "label maps are painted",
        ),
        (
            "reconstruction.yaml",
            &["data.domains={turned: [0, 90]}"],
            "leave `domains` out",
        ),
        (
            "reconstruction.yaml",
            &["parts.teacher.net=lenet"],
            "needs an image [channels, height, width], got [84]",
        ),
        (
            "solo.yaml",
            &["parts.model={use: dfdx, net: logistic, dice: 1.0}"],
            "`dice` is for tasks where every pixel has a class",
        ),
        (
            "fedkd.yaml",
            &[&forest("student")],
            "cannot minimise the loss mae",
        ),
        (
            "fedavg.yaml",
            &[&forest("model")],
            "no parameters to combine",
        ),
        (
            "fedavg.yaml",
            &["parts.model=[{clients: 0-4, use: linear}]"],
            "no part here is for the server",
        ),
        (
            "fedavg.yaml",
            &[
                "parts.model=[{clients: 0, use: dfdx, net: [{linear: 4}, relu, outputs]}, {use: linear}]",
            ],
            "they differ",
        ),
        (
            "fedavg.yaml",
            &["protocol.use=feddf"],
            "FedDF learns from public samples",
        ),
        (
            "scaffold.yaml",
            &["parts.model={use: dfdx, net: [outputs], optimiser: {adam: {lr: 0.01}}}"],
            "its steps are not all one learning rate times the gradient",
        ),
        (
            "fednova.yaml",
            &["parts.model.optimiser={sgd: {lr: 0.05, momentum: 0.9}}"],
            "its steps are not all one learning rate times the gradient",
        ),
        (
            "dp-fedavg.yaml",
            &["budget={epsilon: 5, delta: 1e-6, against: readers}"],
            "budget.delta: is 1e-6, but the accountant guarantees at 1e-3",
        ),
        // of a random sample
        (
            "dp-fedavg.yaml",
            &["parts.accountant={use: analytic-gaussian}"],
            "its release has no price in accountant `analytic-gaussian`",
        ),
        (
            "dp-sgd.yaml",
            &["parts.accountant={use: analytic-gaussian}"],
            "its release has no price in accountant `analytic-gaussian`",
        ),
        // which draws more examples than a made-up client has
        (
            "fedmd-nfdp.yaml",
            &["parts.accountant={use: rdp}"],
            "its release has no price in accountant `rdp`",
        ),
        (
            "fedmd-nfdp.yaml",
            &[
                "parts.sampling={use: sample-examples, k: 55}",
                "budget={epsilon: 5}",
            ],
            "its price depends on the data, so no budget can be kept",
        ),
        // the means of features are combined
        (
            "fedproto.yaml",
            &[
                "parts.model=[{clients: 0, use: dfdx, net: [{linear: 8}, relu, outputs]}, {use: dfdx, net: [{linear: 9}, relu, outputs]}]",
            ],
            "it has 9 features, and parts.model[0] has 8: protocol `fedproto` combines them; give all clients networks with as many",
        ),
        (
            "fedavg.yaml",
            &["protocol.initial=nowhere"],
            "nowhere cannot be read",
        ),
        (
            "selective-fd.yaml",
            &["parts.client-filter={use: energy}"],
            "set `protocol.filter-on: scores`",
        ),
        (
            "selective-fd.yaml",
            &["protocol.pretrain={epochs: 1}", data],
            "`pretrain` learns from labelled public samples",
        ),
        (
            "selective-fd.yaml",
            &["protocol.reply=hard", &forest("model")],
            "each of its trainings starts again",
        ),
        (
            "fedkd-multi-label.yaml",
            &[
                "protocol={use: co-distill, labels: {scores: {}}, filter-on: scores}",
                "parts={model: {use: linear}, ensemble: {use: mean-logits}, client-filter: {use: confidence}}",
            ],
            "it chooses by the scores of one class for each sample",
        ),
        (
            "selective-fd.yaml",
            &["protocol.filter-on=features", "parts.model={use: forest}"],
            "no layer of features",
        ),
        (
            "fedkd.yaml",
            &["parts.accountant={use: basic}"],
            "no price in accountant `basic`",
        ),
        (
            "fedavg.yaml",
            &["protocol={use: fedproxy}"],
            "did you mean `fedprox`?",
        ),
        (
            "fedavg.yaml",
            &["protocol.rounds=-1"],
            "must be in 1..=1000000, got -1",
        ),
        (
            "fedkd.yaml",
            &["data.public={from: {count: 4001}}"],
            "4001 of 4000 training rows",
        ),
    ];
    for (spec, set, says) in cases {
        let said = wrong(spec, set);
        assert!(said.contains(says), "{spec} {set:?}: {said}");
    }
}

const PATE: &str = "
name: pate
data: { set: blobs, clients: 5, public: { from: { share: 0.2 } } }
protocol: { use: pate, teachers: 10 }
parts: { teacher: {use: linear}, student: {use: linear}, vote: {use: majority-vote},
  privacy: {use: laplace-votes, gamma: 0.5}, accountant: {use: pate-moments, unit: party} }
";

/// What users of other programs try, and what their editors do.
#[test]
fn a_mistake_says_where_the_setting_is_or_what_the_text_lacks() {
    let spec = "name: a
seed: 1
data: { set: MNIST, clients: 4 }
protocol: { use: fedavg, rounds: 2, local: { epochs: 1, batch: 8, lr: 0.1 } }
parts:
  model: { use: dfdx, net: lenet, momentum: 0.9 }
  aggregator: { use: mean }
  attack: { use: label-flip, clients: [0, 1] }
";
    let dir = tempfile::tempdir().unwrap();
    let of = |text: &str| {
        std::fs::write(dir.path().join("a.yaml"), text).unwrap();
        let (code, said) = fails(dir.path(), &["check", "a.yaml"]);
        assert_eq!(code, 2, "{said}");
        said
    };
    let error = of(spec);
    let lr = "; there is `parts.model.optimiser.sgd.lr` and `parts.model.optimiser.adam.lr`\n";
    for part in [
        "got `MNIST`; did you mean `mnist`?",
        lr,
        "; there is `parts.model.optimiser.sgd.momentum`\n",
        "but `label-flip` is votes; it fits parts.labels; these fit: gaussian",
    ] {
        assert!(error.contains(part), "{part}\n{error}");
    }
    for (text, says) in [
        (
            "data:\n  set: mnist\n   clients: 4\n",
            ":3:4  not YAML: this line is indented by 3 and the line before it, which needs nothing below it, by 2;",
        ),
        (
            "data:\n    set: mnist\n  clients: 4\n",
            ":3:3  not YAML: this line is indented by 2, and its neighbours by 4",
        ),
        (
            "data: {\n  set: 'mn]ist'\nname: a\nparts: { model: 1 }\n",
            ":1:7  not YAML: this `{` is not closed",
        ),
        (
            "data:\n  set: mnist\n  clients:6\n\n# later\nname: a\n",
            ":3:3  not YAML: put a space after `clients:`\n",
        ),
        (
            "parts:\n  aggregator: { use: mean }\n  model: { share: [-] }\n",
            ":3:20  not YAML: a `-` alone is no value: write a value in its place",
        ),
        (
            "parts:\n  model: { use: dfdx, # net {\n  aggregator: { use: mean }\n",
            ":2:10  not YAML: this `{` is not closed",
        ),
    ] {
        let error = of(text);
        assert!(error.contains(says), "{says}\n{error}");
    }
}

#[test]
fn a_number_of_309_digits_is_refused_where_it_stands() {
    let dir = tempfile::tempdir().unwrap();
    let spec = std::fs::read_to_string(quick("fedavg")).unwrap();
    let digits = "9".repeat(309);
    for (from, to, place, why) in [
        ("lr: 0.1", format!("lr: {digits}"), "11:", "a finite number"),
        (
            "lr: 0.1",
            format!("lr: -{digits}"),
            "11:",
            "a finite number",
        ),
        (
            "rounds: 5",
            format!("rounds: {digits}"),
            "9:",
            "at most 18446744073709551615",
        ),
        (
            "seed: 1",
            format!("seed: {digits}"),
            "4:",
            "at most 18446744073709551615",
        ),
        (
            "alpha: 0.5",
            format!("alpha: {digits}"),
            "8:",
            "a finite number",
        ),
        (
            "clients: 5",
            format!("clients: -{digits}"),
            "7:",
            "a whole number",
        ),
    ] {
        assert!(spec.contains(from), "{spec}");
        std::fs::write(dir.path().join("huge.yaml"), spec.replace(from, &to)).unwrap();
        let (_, said) = fails(dir.path(), &["check", "huge.yaml"]);
        let at = format!("huge.yaml:{place}");
        assert!(said.contains(&at) && said.contains(why), "{to}: {said}");
    }
}

#[test]
fn a_price_that_no_run_can_have_is_found_before_the_run() {
    // the data of all parties are pooled: the influence of a whole party is unknown
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("pate.yaml"), PATE).unwrap();
    let (code, said) = fails(dir.path(), &["check", "pate.yaml"]);
    assert!(
        code == 2 && said.contains("parts.privacy (privacy mechanism `laplace-votes`): its release has no price in accountant `pate-moments`"),
        "{said}"
    );
    crate::common::out(
        dir.path(),
        &[
            "check",
            "pate.yaml",
            "--set",
            "parts.accountant.unit=example",
        ],
    );
    // nor how many examples a client has
    let counts = "parts.counts-privacy={use: laplace-votes, gamma: 0.1}";
    let set = [counts, "parts.accountant={use: pate-moments, unit: party}"];
    let said = wrong("fedavg.yaml", &set);
    let unpriced = "parts.counts-privacy (privacy mechanism `laplace-votes`): its release has no price in accountant `pate-moments`";
    assert!(said.contains(unpriced), "{said}");
    // one slot, of the server and of all clients
    let clips = |clip: &str, rest: &str| {
        format!(
            "parts.server-privacy=[{{clients: 0-49, use: gaussian-update, clip: {clip}}}, {{use: gaussian-update, clip: 2.0{rest}}}]"
        )
    };
    let said = wrong("dp-fedavg.yaml", &[&clips("1.0", "")]);
    let another = "parts.server-privacy[1] (privacy mechanism `gaussian-update`): it differs from parts.server-privacy[0]";
    assert!(said.contains(another), "{said}");
    let said = wrong("dp-fedavg.yaml", &[&clips("2.0", ", clients: 50-99")]);
    let nobody = "no part here is for the server, which needs a privacy mechanism too";
    assert!(said.contains(nobody), "{said}");
    let set = [
        "check",
        "specs/quick/dp-fedavg.yaml",
        "--set",
        &clips("2.0", ""),
    ];
    crate::common::out(&root(), &set);
    // at the clients each may have its own
    let own = "parts.privacy=[{clients: 0-1, use: gaussian-update, clip: 1.0}, {use: gaussian-update, clip: 2.0}]";
    let set = ["check", "specs/quick/fedavg-private.yaml", "--set", own];
    crate::common::out(&root(), &set);
}

#[test]
fn a_bound_that_single_precision_does_not_keep_is_refused() {
    for (spec, slot) in [
        ("fedavg-private.yaml", "privacy"),
        ("dp-fedavg.yaml", "server-privacy"),
        ("dp-sgd.yaml", "example-privacy"),
    ] {
        for clip in ["1e-31", "1e-41", "1e-300"] {
            let said = wrong(spec, &[&format!("parts.{slot}.clip={clip}")]);
            assert!(said.contains("clip: must be at least 1e-30, got"), "{said}");
        }
    }
}

#[test]
fn a_module_of_python_is_for_the_program_that_has_python() {
    let dir = tempfile::tempdir().unwrap();
    let spec = dir.path().join("mine.yaml");
    std::fs::write(&spec, "name: mine\nplugins:\n  - module: mine\n").unwrap();
    let (code, said) = fails(dir.path(), &["check", "mine.yaml"]);
    assert_eq!(code, 3, "{said}");
    let wanted = "mine.yaml:3:13  plugins[0].module: plugin mine: it is a Python module, and this program has no Python: run the spec with";
    assert!(said.starts_with(wanted), "{said}");
    std::fs::write(
        &spec,
        "name: mine\nplugins:\n  - { module: mine, isolate: {} }\n",
    )
    .unwrap();
    let (code, said) = fails(dir.path(), &["check", "mine.yaml"]);
    assert!(code == 3 && said.contains("leave out `isolate`"), "{said}");
    // the same, named from outside
    let (code, said) = fails(dir.path(), &["list", "--plugin", "mine.py"]);
    assert!(
        code == 3 && said.contains("it is a Python module"),
        "{said}"
    );
    for (plugin, wanted) in [
        (
            "{ module: 1x }",
            "plugins[0]: `module` must be a name as Python imports it",
        ),
        (
            "{ sha256: x }",
            "plugins[0]: must have a `path`, that of a library, a `module` or a `package`",
        ),
    ] {
        std::fs::write(&spec, format!("name: mine\nplugins: [{plugin}]\n")).unwrap();
        let (code, said) = fails(dir.path(), &["check", "mine.yaml"]);
        assert!(code == 2 && said.contains(wanted), "{said}");
    }
}

#[test]
fn a_wrong_name_in_a_slot_lists_the_parts_that_fit_it() {
    let said = wrong("fedavg.yaml", &["parts.before-aggregator={use: clip}"]);
    let listed = crate::common::flat(&said);
    assert!(listed.contains("no aggregator is called `clip`"), "{said}");
    assert!(!listed.contains("krum"), "{said}");
    assert!(listed.contains("nearest-neighbour-mixing"), "{said}");
}

#[test]
fn a_setting_of_a_set_says_where_it_is_for_the_set_of_the_spec() {
    let of = |data: &str| {
        let data = format!("data={data}");
        let said = wrong("dp-sgd.yaml", &[&data]);
        let (_, places) = said.split_once("; there is ").expect(&said);
        places.lines().next().unwrap().to_string()
    };
    // a person's own rows, where no set or one without such a setting is named
    assert_eq!(of("{train: a.csv}"), "`data.set.files.train`");
    assert_eq!(of("{set: mnist, train: a.csv}"), "`data.set.files.train`");
    assert_eq!(of("{set: {blobs: {}}, train: 5}"), "`data.set.blobs.train`");
    assert_eq!(of("{set: blobs, train: 5}"), "`data.set.blobs.train`");
}

#[test]
fn a_value_in_the_place_of_settings_gets_a_form_to_write() {
    let said = wrong("dp-sgd.yaml", &["data.split={dirichlet: 0.5}"]);
    let due = "data.split.dirichlet: must be a mapping of settings such as `{ alpha: .. }` (known: \
        alpha, reading, min-size), got 0.5";
    assert!(said.contains(due), "{said}");
}

/// Finds nothing wrong with a quick spec when this is set; returns the notes.
fn fine(spec: &str, set: &[&str]) -> String {
    let spec = format!("specs/quick/{spec}");
    let mut args = vec!["check", &spec];
    set.iter().for_each(|set| args.extend(["--set", set]));
    let done = fl(&root(), &args);
    let notes = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{args:?}: {notes}");
    notes
}

/// A model in a slot, by more of its settings.
fn net(slot: &str, net: &str, more: &str) -> String {
    format!("parts.{slot}={{use: dfdx, net: {net}, {more}}}")
}

#[test]
fn a_mean_of_control_variates_needs_all_clients() {
    let mean = "protocol.server-control=mean";
    let said = wrong("scaffold.yaml", &[mean]);
    let due = "`parts.cohort` may leave clients out: leave the cohort empty, or write `changes`";
    assert!(said.contains(due), "{said}");
    fine("scaffold.yaml", &[mean, "parts.cohort=null"]);
}

#[test]
fn the_momentum_of_fednova_is_that_of_its_optimiser() {
    let model = |more: &str| net("model", "[outputs]", more);
    let other = "its steps are not those of gradient descent with momentum 0.9";
    for more in [
        "optimiser: {adam: {lr: 0.01}}",
        "optimiser: {sgd: {lr: 0.01}}",
        "optimiser: {sgd: {lr: 0.01, momentum: 0.5}}",
        "optimiser: {sgd: {lr: 0.01, momentum: 0.9, nesterov: true}}",
        "optimiser: {sgd: {lr: 0.01, momentum: 0.9}}, schedule: {cosine: {to: 0}}",
    ] {
        let set = ["protocol.momentum=0.9", &model(more)];
        let said = wrong("fednova.yaml", &set);
        assert!(said.contains(other), "{more}: {said}");
    }
    let same = model("optimiser: {sgd: {lr: 0.01, momentum: 0.9}}");
    fine("fednova.yaml", &["protocol.momentum=0.9", &same]);
    let kept = ["protocol.momentum=0.9", "protocol.fresh=false", &same];
    let said = wrong("fednova.yaml", &kept);
    assert!(said.contains("`fresh` must be true"), "{said}");
    let said = wrong("fednova.yaml", &[&same]);
    assert!(said.contains("are not all one learning rate"), "{said}");
}

#[test]
fn a_schedule_over_a_training_needs_the_training_in_one_piece() {
    let rates = "optimiser: {sgd: {lr: 0.1}}, schedule:";
    let turns = "protocol={use: feddf, rounds: 1, training: {steps: 60, batch: 64}, patience: 10}";
    let fedrep = "protocol={use: fedrep, rounds: 2, local: {epochs: 2, batch: 16}, head: {epochs: 1, batch: 16}}";
    let babu = "protocol={use: fedavg, rounds: 2, local: {epochs: 2, batch: 16}, share: [body], freeze-rest: true}";
    let small = "[{linear: 4}, outputs]";
    let image = "[{conv: {out: 2, kernel: 4}}, outputs]";
    for (spec, slot, layers, more) in [
        ("cronus.yaml", "model", "[outputs]", "name=x"),
        ("fediod.yaml", "student", "[outputs]", "name=x"),
        ("fediod.yaml", "discriminator", image, "name=x"),
        ("feddf.yaml", "model", "[outputs]", turns),
        ("fedavg.yaml", "model", small, fedrep),
        ("fedavg.yaml", "model", small, babu),
        ("fedproto.yaml", "model", small, "protocol.freeze=[body]"),
    ] {
        let with = |schedule: &str| net(slot, layers, &format!("{rates} {schedule}"));
        let said = wrong(spec, &[more, &with("{cosine: {to: 0}}")]);
        let due = "say after how many `steps` the schedule ends";
        assert!(said.contains(due), "{spec}: {said}");
        fine(spec, &[more, &with("{cosine: {steps: 2}}")]);
    }
    let pass = |slot: &str| net(slot, "[outputs]", &format!("{rates} cosine"));
    fine("cronus.yaml", &["protocol.order=own-first", &pass("model")]);
    // one epoch at a time it has an effect, which is told
    let said = fine("fedkd.yaml", &["protocol.passes=2", &pass("student")]);
    assert!(said.contains("begins again in each epoch"), "{said}");
    // a training of one mini-batch
    let due = "none has more than one mini-batch";
    let one = "protocol.local={steps: 1, batch: 8}";
    let said = wrong("fednova.yaml", &[one, &pass("model")]);
    assert!(said.contains(due), "{said}");
    let one = "protocol.student={epochs: 1, batch: 5000}";
    let said = fine("fedkd.yaml", &[one, &pass("student")]);
    assert!(said.contains(due), "{said}");
}

#[test]
fn what_a_plain_gradient_leaves_out_is_refused_where_steps_follow_it() {
    let apfl = "protocol={use: apfl, rounds: 2, local: {epochs: 1, batch: 16}}";
    let per = "protocol={use: per-fedavg, rounds: 2, local: {epochs: 1, batch: 16}}";
    let plain = net("model", "[outputs]", "optimiser: {sgd: {lr: 0.1}}");
    let dropped = "[{dropout: 0.5}, outputs]";
    let dropout = net("model", dropped, "optimiser: {sgd: {lr: 0.1}}");
    let normed = "[{linear: 4}, batch-norm, relu, outputs]";
    let norm = net("model", normed, "optimiser: {sgd: {lr: 0.1}}");
    let decay = "optimiser: {sgd: {lr: 0.1, weight-decay: 0.5}}";
    let decay = net("model", "[outputs]", decay);
    let alone = "its optimiser and learning rate have no effect: protocol `per-fedavg`";
    for method in [apfl, per] {
        for (model, due) in [
            (
                "parts.model={use: linear, lr: 0.1, l2: 0.5}",
                "(it has weight decay)",
            ),
            (&decay, "(it has weight decay)"),
            (&dropout, "(it has dropout)"),
            (&norm, "(it has batch normalisation)"),
        ] {
            let said = wrong("fedavg.yaml", &[method, model]);
            assert!(said.contains(due), "{method}, {model}: {said}");
        }
        let said = fine("fedavg.yaml", &[method, &plain]);
        assert_eq!(said.contains(alone), method == per, "{said}");
    }
    let tuned = [per, "protocol.tune={epochs: 1}", &plain];
    assert!(!fine("fedavg.yaml", &tuned).contains(alone));
    let images = [apfl, "data.set=glyphs"];
    let flip = "optimiser: {sgd: {lr: 0.1}}, augment: [flip]";
    let flip = net("model", "[outputs]", flip);
    let said = wrong("fedavg.yaml", &[&images[..], &[&flip]].concat());
    assert!(said.contains("(it has augment)"), "{said}");
    let together = "protocol.order={together: 0.5}";
    let said = wrong("cronus.yaml", &[together, &dropout]);
    assert!(said.contains("(it has dropout)"), "{said}");
    // trainings that are not on own rows, too
    let of = |slot: &str| net(slot, normed, "optimiser: {sgd: {lr: 0.1}}");
    let small = "a training of the protocol has a `batch` of 1, so it would take no step";
    for (base, model, training) in [
        (
            "fedavg.yaml",
            of("model"),
            "protocol.tune={epochs: 1, batch: 1}",
        ),
        (
            "cronus.yaml",
            of("model"),
            "protocol.distil={epochs: 1, batch: 1}",
        ),
        (
            "fedkd.yaml",
            of("student"),
            "protocol.student={epochs: 1, batch: 1}",
        ),
        (
            "fedkt.yaml",
            of("final"),
            "protocol.final-model={epochs: 1, batch: 1}",
        ),
        (
            "feddf.yaml",
            of("model"),
            "protocol.training={epochs: 1, batch: 1}",
        ),
    ] {
        let said = wrong(base, &[training, &model]);
        assert!(said.contains(small), "{base}, {training}: {said}");
    }
}
