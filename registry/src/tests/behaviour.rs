use super::*;
use crate::SourcePosition;
use fl_core::settings::{Step, to_json};
use fl_core::{Fault, Role};
use serde_json::json;

#[test]
fn a_good_spec_gives_everything_a_run_needs() {
    let spec = read(GOOD).unwrap();
    assert_eq!(
        (spec.name.as_str(), spec.seed, spec.evaluate_every),
        ("good", 7, 10)
    );
    assert_eq!(spec.data.clients, 10);
    assert_eq!(
        (&spec.faults.on_nan, &spec.faults.on_error),
        (&Fault::Fail, &Fault::Fail)
    );
    assert_eq!(spec.budget.as_ref().unwrap().epsilon, 8.0);
    assert_eq!(
        spec.make_protocol(&crate::catalogue::any_make())
            .unwrap()
            .slots()
            .len(),
        6
    );
    let slots: Vec<_> = spec
        .parts
        .iter()
        .map(|f| (f.slot.as_str(), f.clients.clone()))
        .collect();
    assert_eq!(
        slots[..2],
        [
            ("model", Some(vec![0..=3])),
            ("model", Some(vec![4..=4, 6..=9]))
        ]
    );
    // what is for all comes last in its slot, and settings are complete
    assert!(slots[2..].iter().all(|(_, clients)| clients.is_none()));
    let sgd =
        spec.parts.iter().nth(1).unwrap().settings.value["optimiser"]["sgd"]["momentum"].as_f64();
    assert_eq!(sgd, Some(0.9));
}

#[test]
fn the_resolved_spec_reads_back_as_itself() {
    let tricky = GOOD.replace(
        "{ use: net }",
        "{ use: net, label: \"1e3: [\\tx]\\n 'y'\\n\" }",
    );
    for (text, set) in [
        (GOOD, None),
        (&tricky, None),
        (GOOD, Some("parts.privacy.sigma=~")),
        (GOOD, Some("budget=~")),
        (
            GOOD,
            Some("parts.model=[{clients: 5, use: net}, {use: net}]"),
        ),
    ] {
        let spec = read_with(text, &set.into_iter().collect::<Vec<_>>()).unwrap();
        let written = spec.yaml().unwrap();
        let again = read(&written).unwrap_or_else(|e| panic!("{e}\n{written}"));
        assert_eq!(again.resolved, spec.resolved);
        assert_eq!(again.yaml().unwrap(), written);
    }
    let spec = read_with(GOOD, &["parts.privacy.sigma=~"]).unwrap();
    assert!(spec.resolved["parts"]["privacy"]["sigma"].is_null());
    insta::assert_snapshot!(spec.yaml().unwrap(), @"
    name: good
    seed: 7
    data:
      clients: 10
      classes: 3
      public:
        size: 5
        labelled: false
    protocol:
      use: rounds
      rounds: 50
      local:
        epochs: 5
        batch: 32
      noise: true
    parts:
      model:
      - clients: 0-3
        use: net
        outputs: 3
        optimiser: frozen
        label: ''
      - clients:
        - 4
        - 6-9
        use: net
        outputs: 3
        optimiser:
          sgd:
            lr: 0.1
            momentum: 0.9
        label: ''
      - use: net
        outputs: null
        optimiser: frozen
        label: ''
      cohort:
        use: uniform
        share: 0.5
      aggregator:
        use: mean
        trim: 0.1
      privacy:
        use: gaussian
        clip: 1.0
        sigma: null
      accountant:
        use: rdp
        delta: 0.00001
    budget:
      epsilon: 8.0
      against: readers
      delta: null
    evaluate:
      every: 10
    faults:
      on-error: fail
      on-nan: fail
      on-shape: fail
      on-weight: fail
      max-weight: 1000000.0
      min-answers: 1
      if-too-few: stop
      inject: []
    noise: seeded
    checkpoint:
      every:
        seconds: 20.0
      keep: true
    ");
}

#[test]
fn the_schema_accepts_what_the_reader_accepts() {
    let schema = catalogue().schema::<Toy>();
    assert!(jsonschema::meta::is_valid(&schema));
    let schema = jsonschema::validator_for(&schema).unwrap();
    let json = |text: &str| to_json(&serde_yaml::from_str(text).unwrap());
    let distil = "name: d\ndata: {public: {size: 1}}\nprotocol: {use: distil}\n\
        parts: {teacher: {use: net}, ensemble: {use: mean-scores}}";
    let two = "name: d\ndata: {clients: 2}\nprotocol: {use: rounds, rounds: 1}\n\
        parts: {model: [{clients: 0, use: net}, {clients: [1], use: net}], aggregator: {use: mean}, cohort: {use: uniform}}";
    for good in [GOOD, distil, two] {
        let spec = read(good).unwrap();
        for value in [json(good), to_json(&spec.resolved)] {
            let wrong: Vec<_> = schema.iter_errors(&value).map(|e| e.to_string()).collect();
            assert!(wrong.is_empty(), "{good}\n{wrong:?}");
        }
    }
    for (from, to) in [
        ("use: mean", "use: meen"),
        ("rounds: 50", "rounds: 0"),
        ("rounds: 50", "rouns: 5"),
        ("seed: 7", "sed: 7"),
        ("share: 0.5", "share: 1.5"),
        ("name: good", "name: a/b"),
        ("clients: 0-3", "clients: 0..3"),
    ] {
        let bad = GOOD.replace(from, to);
        assert!(read(&bad).is_err() && !schema.is_valid(&json(&bad)), "{to}");
    }
}

#[test]
fn the_schema_is_sorted() {
    fn check(value: &serde_json::Value) {
        if let Some(map) = value.as_object() {
            assert!(map.keys().is_sorted());
            map.values().for_each(check);
        }
        value.as_array().into_iter().flatten().for_each(check);
    }
    check(&catalogue().schema::<Toy>());
    assert_eq!(catalogue().schema::<Toy>(), catalogue().schema::<Toy>());
}

/// Line and column of the first mistake.
fn first(text: &str) -> (usize, usize) {
    match read(text).err().unwrap().0[0].place {
        SourcePosition::Text { line, column } => (line, column),
        SourcePosition::Set(_) => panic!("not set from outside"),
    }
}

#[test]
fn places_are_exact() {
    let tail = "data: {}\nparts: {model: {use: net}, aggregator: {use: mean}}\n";
    let with = |protocol: &str| format!("name: n\n{tail}protocol: {protocol}\n");
    assert_eq!(first(&with("{ use: rounds, rounds: 0 }")), (4, 34));
    assert_eq!(first(&with("{ use: rounds,\n  rounds:\n      0 }")), (6, 7));
    assert_eq!(first(&with("{\"use\":\"rounds\",\"rounds\":0}")), (4, 36));
    assert_eq!(
        first(&with("\n  use: rounds\n  rounds: 'many\n    lines'")),
        (6, 11)
    );
    assert_eq!(
        first(&with("\n  ? rounds\n  : 0\n  ? use\n  : rounds")),
        (6, 5)
    );
    // characters, not bytes; carriage returns and a byte-order mark do not count
    let net = "{use: net, label: 'äöü', outputs: 0}";
    assert_eq!(
        first(&with("{use: rounds, rounds: 1}").replace("{use: net}", net)),
        (3, 50)
    );
    let crlf = with("{ use: rounds, rounds: 0 }").replace('\n', "\r\n");
    assert_eq!(first(&format!("\u{feff}{crlf}")), (4, 34));
    // after a literal block and an anchor
    let literal = with("\n  use: rounds\n  rounds: 0").replace(
        "{use: net}",
        "\n    use: net\n    label: |\n      a\n       b\n\n  ",
    );
    let literal = literal
        .replace("parts: {model:", "parts:\n  model:")
        .replace(", aggregator: {use: mean}}", "aggregator: {use: mean}");
    assert_eq!(first(&literal), (13, 11), "{literal}");
}

#[test]
fn anchors_work_and_say_where() {
    let text = "\
name: n
data: &d {}
protocol: { use: rounds, rounds: &many 5, local: { epochs: *many, batch: *many } }
parts:
  model: [{ clients: 0, use: net, optimiser: &o { sgd: { lr: 1, momentum: 2 } } }, { use: net, optimiser: *o }]
  aggregator: { use: mean, trim: *many }
";
    insta::assert_snapshot!(wrong(text), @"
    mine.yaml:5:75  parts.model[0] (trainer `net`): optimiser.sgd.momentum: must be in 0.0..1.0, got 2.0
    mine.yaml:5:75  parts.model[1] (trainer `net`): optimiser.sgd.momentum: must be in 0.0..1.0, got 2.0
    mine.yaml:6:34  parts.aggregator (aggregator `mean`): trim: must be in 0.0..0.5, got 5.0
    ");
    let good = text
        .replace("momentum: 2", "momentum: 0.2")
        .replace("trim: *many", "trim: 0.2");
    assert_eq!(
        read(&good).unwrap().stages[0].settings.value["local"]["batch"].as_u64(),
        Some(5)
    );
}

#[test]
fn a_set_that_loses_an_earlier_one_is_a_mistake() {
    let wrong = |set: &[&str]| match super::read_with(super::GOOD, set) {
        Ok(_) => String::new(),
        Err(mistakes) => mistakes.to_string(),
    };
    let lost = wrong(&["protocol.rounds=3", "protocol={use: rounds}"]);
    let due = "it replaces `protocol`, and `protocol.rounds`, which was set before it, is lost";
    assert!(
        lost.contains(due) && lost.contains("`protocol.use`"),
        "{lost}"
    );
    // given again, or after it, or not set before
    for set in [
        &["protocol.rounds=3", "protocol={use: rounds, rounds: 4}"][..],
        &["protocol={use: rounds}", "protocol.rounds=3"],
        &[
            "protocol={use: rounds}",
            "protocol={use: rounds, rounds: 4}",
        ],
    ] {
        let said = wrong(set);
        assert!(!said.contains("is lost"), "{said}");
    }
}

#[test]
fn values_set_from_outside_win() {
    let set = [
        "protocol.rounds=9",
        "protocol.rounds=5",
        "protocol.local={epochs: 2}",
        "parts.model[1].optimiser.sgd.momentum=0.5",
        "parts.model[0]={clients: 0-3, use: net, label: yes}",
        "budget=~",
        "seed=0x10",
        "evaluate.every=3",
    ];
    let spec = read_with(GOOD, &set).unwrap();
    assert_eq!(spec.stages[0].settings.value["rounds"].as_u64(), Some(5));
    assert_eq!(
        spec.stages[0].settings.value["local"]["batch"].as_u64(),
        Some(32)
    );
    assert_eq!(
        spec.parts.iter().nth(1).unwrap().settings.value["optimiser"]["sgd"]["momentum"].as_f64(),
        Some(0.5)
    );
    assert_eq!(
        spec.parts.iter().next().unwrap().settings.value["label"].as_str(),
        Some("yes")
    );
    assert_eq!((spec.seed, spec.evaluate_every, spec.budget), (16, 3, None));
    // only the alias that was named changes
    let text = GOOD.replace(
        "cohort: { use: uniform, share: 0.5 }",
        "cohort: &c { use: uniform, share: 0.5 }",
    );
    let spec = read_with(&text, &["parts.cohort.share=0.25"]).unwrap();
    assert_eq!(
        spec.resolved["parts"]["cohort"]["share"].as_f64(),
        Some(0.25)
    );
    let all = [
        "name=n",
        "data={}",
        "protocol={use: rounds, rounds: 1}",
        "parts.model.use=net",
        "parts.aggregator.use=mean",
    ];
    assert_eq!(read_with("", &all).unwrap().name, "n");
}

#[test]
fn the_catalogue_finds_and_describes() {
    let all = catalogue();
    assert_eq!(all.find(Role::Aggregator, "mean").unwrap().name, "mean");
    let slot =
        fl_core::AggregatorSlot::<fl_core::message::Params, fl_core::message::Params>::new("a", "")
            .spec();
    assert_eq!(
        all.fitting(&slot)
            .iter()
            .map(|p| p.name)
            .collect::<Vec<_>>(),
        ["mean", "trimmed-mean"]
    );
    let twice = all.find(Role::Trainer, "net").unwrap();
    let error = Catalogue::new(vec![twice, twice])
        .err()
        .unwrap()
        .to_string();
    assert_eq!(
        error,
        "two parts are called trainer `net`: one from fl-registry, one from fl-registry"
    );
    let rounds = all.find(Role::Protocol, "rounds").unwrap();
    let text = [
        all.list(None, 100),
        all.inspect(
            all.find(Role::Privacy, "gaussian").unwrap(),
            "gaussian",
            100,
        ),
        all.inspect(rounds, rounds.name, 100),
    ];
    insta::assert_snapshot!(text.join("----\n"), @r#"
    protocol
      distil  All clients answer about public samples once.
      picky   Needs much of its parts.
      rounds  Parameters go round and round.
    aggregator
      mean          params -> params  Averages.
      mean-scores   logits -> logits  Averages.
      trimmed-mean  params -> params  Averages.
    selector
      sure     samples  Chooses by scores.
      uniform  clients  A part of the clients, each as likely as any other.
    privacy mechanism
      gaussian  params  Clips and adds noise.
      noisy     logits  Noise that has a price or not.
    trainer
      able  A model with settable abilities.
      net   A network.
    accountant
      pure  Prices what is pure.
      rdp   Counts in Renyi divergences.
    ----
    gaussian: a privacy mechanism, params, from fl-registry

    Clips and adds noise.

      setting  kind    default        range         meaning
      clip     number  must be given  above 0.0     Largest norm.
      sigma    number  1              at least 0.0  Noise.

      accepted by  rounds.privacy
    ----
    rounds: a protocol, from fl-registry

    Parameters go round and round.

      setting       kind           default                   range        meaning
      rounds        whole number   must be given             in 1..=1000  How many.
      local         mapping        { batch: 32, epochs: 1 }               Training at home.
      local.epochs  whole number   1                         at least 1   Passes over the data.
      local.batch   whole number   32                        at least 1   Examples at a time.
      noise         true or false  true                                   Is the result released with
                                                                          noise?

      slot               takes                                        for
      model              a trainer                                    What is trained.
      cohort             a selector, clients                optional  Who trains.
      aggregator         an aggregator, params -> params              Makes one of many.
      privacy            a privacy mechanism, params        optional  Hides who took part.
      before-aggregator  an aggregator, params ->           optional  Changes the list of the clients'
                         params-list                                  parameters before the aggregator
                                                                      combines it.
      accountant         an accountant                      optional  Prices every release; a run
                                                                      without one states no guarantee.

      exchange  payload           times  releases
      train     params -> params  1      privacy
    "#);
    let shown = all.inspect_json(rounds, rounds.name);
    assert_eq!(shown["slots"][2]["signature"], json!("params -> params"));
    assert_eq!(shown["settings"][0]["required"], json!(true));
    assert_eq!(shown["questions"][0]["releases"], json!(["privacy"]));
    assert_eq!(
        all.list_json(Some(Role::Aggregator))
            .as_array()
            .unwrap()
            .len(),
        3
    );
}

#[test]
fn a_mistake_can_be_matched_on() {
    let mistakes = read(&GOOD.replace("share: 0.5", "share: 2")).err().unwrap();
    let path = ["parts", "cohort", "share"].map(|k| Step::Key(k.into()));
    assert_eq!((mistakes.0.len(), &mistakes.0[0].path[..]), (1, &path[..]));
}
