//! The federation's door: unusable answers, releases, budgets, and what clients spend.

use fl_core::message::{Logits, Nothing, Params};
use fl_core::prelude::*;
use fl_core::privacy::Observer;
use fl_core::settings::{Value, read_yaml};
use fl_core::{
    Budget, CheckedSettings, Examples, Fault, Faults, Inputs, Labels, Parts, Problem, Role,
    RunOptions, SlotAssignment, TaskKind, linked_parts,
};
use fl_plugins as _;
use fl_sim::{Execution, Listener, Outcome, Setup, Watch, run};
use ndarray::{Array2, ArrayD, IxDyn};
use std::sync::{Arc, Mutex};

pub fn part(slot: &str, role: Role, name: &str, settings: &str) -> SlotAssignment {
    let decl = linked_parts()
        .into_iter()
        .find(|p| p.role == role && p.name == name)
        .unwrap_or_else(|| panic!("{role} `{name}` is not linked"));
    let settings: Value = serde_yaml::from_str(settings).expect("YAML");
    SlotAssignment {
        slot: slot.into(),
        clients: None,
        decl,
        settings: decl.read(&settings).expect("settings"),
    }
}

/// The protocol of this name with these settings in YAML.
pub fn protocol(name: &str, settings: &str) -> Arc<dyn Protocol> {
    let part = part("", Role::Protocol, name, settings);
    let make = BuildContext {
        task: Task {
            input: vec![2],
            kind: TaskKind::Classes(2),
        },
        stream: Stream::root(1),
    };
    Arc::from(fl_core::protocol(part.decl, &part.settings, &make).expect("a protocol"))
}

/// Six clients with ten examples each.
pub fn federation(
    protocol: Arc<dyn Protocol>,
    parts: Vec<SlotAssignment>,
    faults: Faults,
    budget: Option<Budget>,
) -> Result<Outcome> {
    heard(protocol, parts, faults, budget, Vec::new())
}

/// As [`federation`], with listeners.
fn heard(
    protocol: Arc<dyn Protocol>,
    parts: Vec<SlotAssignment>,
    faults: Faults,
    budget: Option<Budget>,
    listeners: Vec<Box<dyn Listener + '_>>,
) -> Result<Outcome> {
    let inputs = Arc::new(Inputs::Dense {
        shape: vec![2],
        data: (0..120).map(|i| i as f32).collect(),
    });
    let labels = Arc::new(Labels::Classes {
        of: (0..60).map(|i| i % 2).collect(),
        classes: 2,
    });
    let all = Examples::all(inputs, labels)?;
    let clients = (0..6)
        .map(|k| all.pick(&(10 * k..10 * (k + 1)).collect::<Vec<_>>()))
        .collect();
    run(Setup {
        execution: Execution {
            threads: 2,
            listeners,
            ..Execution::default()
        },
        ..Setup::new(
            protocol,
            Arc::new(Parts::new(parts)),
            RunOptions {
                faults,
                budgets: Vec::from_iter(budget),
                ..RunOptions::new(1, all.task())
            },
            clients,
            all.pick(&[0, 1]),
        )
    })
}

/// No client.
fn nobody() -> std::ops::RangeInclusive<u32> {
    std::ops::RangeInclusive::new(1, 0)
}

/// Clients 1, 2 and 3, or `whose`, answer what cannot be used; what the server makes of the others
/// is kept in `mean`.
struct Faulty {
    bad: &'static str,
    whose: std::ops::RangeInclusive<u32>,
    mean: Arc<Mutex<Vec<f32>>>,
}

const AGGREGATOR: AggregatorSlot<Params, Params> = AggregatorSlot::new("aggregator", "");
const PRIVACY: MechanismSlot<Logits> = MechanismSlot::new("privacy", "");
const MODEL: TrainerSlot = TrainerSlot::new("model", "");
const NUMBERS: Exchange<Params, Params> = Exchange::new("numbers");

fn numbers(n: usize, value: f32) -> Params {
    Params([("w".to_string(), ArrayD::from_elem(IxDyn(&[n]), value))].into())
}

impl Protocol for Faulty {
    fn declare(&self) -> Declaration<'_> {
        let numbers = NUMBERS.answered_by(|me, _| {
            let bad = self.whose.contains(&me.id());
            Ok(match (bad, self.bad) {
                (true, "error") => bail!("this client is out of paper"),
                (true, "panic") => panic!("index out of bounds"),
                (true, "nan") => numbers(2, f32::NAN),
                (true, "shape") => numbers(3, 1.0),
                _ => numbers(2, me.id() as f32),
            })
        });
        Declaration::new()
            .rounds(1)
            .exchange(numbers.into(&AGGREGATOR))
    }
    fn lead(&self, fed: &mut Server<'_>) -> Result<()> {
        fed.rounds(&mut (), |fed, (), round| {
            let sent = numbers(2, 0.0);
            let mean: Params = fed.run(round, &NUMBERS, |_| &sent)?;
            *self.mean.lock().unwrap() = mean.iter().copied().collect();
            Ok(())
        })
    }
}

#[test]
fn unusable_answers_fail_the_run_or_are_left_out_as_the_policy_says() {
    for aggregator in ["mean", "median"] {
        for bad in ["error", "panic", "nan", "shape"] {
            let mean = Arc::new(Mutex::new(Vec::new()));
            let protocol = Arc::new(Faulty {
                bad,
                whose: 1..=3,
                mean: mean.clone(),
            });
            let parts = || vec![part("aggregator", Role::Aggregator, aggregator, "{}")];
            let error = federation(protocol.clone(), parts(), strict(), None).unwrap_err();
            let error = format!("{error:#}");
            assert!(
                error.contains("round 1")
                    && error.contains("numbers")
                    && error.contains("client 1"),
                "{bad}: {error}"
            );

            let drop = Faults {
                on_error: Fault::Drop,
                on_nan: Fault::Drop,
                on_shape: Fault::Drop,
                ..strict()
            };
            federation(protocol, parts(), drop, None).unwrap();
            let expected = if aggregator == "mean" {
                (0.0 + 4.0 + 5.0) / 3.0
            } else {
                4.0
            };
            assert_eq!(
                *mean.lock().unwrap(),
                [expected, expected],
                "{aggregator}, {bad}: clients 0, 4 and 5 are left"
            );
        }
    }
}

pub fn strict() -> Faults {
    fl_core::settings::defaults()
}

#[test]
fn a_weight_beyond_belief_is_a_fault() {
    let protocol = || {
        Arc::new(Faulty {
            bad: "none",
            whose: nobody(),
            mean: Arc::default(),
        })
    };
    let parts = || vec![part("aggregator", Role::Aggregator, "mean", "{}")];
    let faults = Faults {
        max_weight: 9.0,
        ..strict()
    };
    let error = format!(
        "{:#}",
        federation(protocol(), parts(), faults.clone(), None).unwrap_err()
    );
    assert!(
        error.contains("client 0: weight 10;") && error.contains("at most 9 (faults.max-weight)"),
        "{error}"
    );
    let all_dropped = Faults {
        on_weight: Fault::Drop,
        ..faults
    };
    let error = federation(protocol(), parts(), all_dropped, None).unwrap_err();
    assert!(
        matches!(error.downcast_ref(), Some(Problem::NoAnswer(_))),
        "{error:#}"
    );
    assert!(
        format!("{error:#}").contains("all 6 were dropped"),
        "{error:#}"
    );
}

/// Releases one table of scores a round, at the server or at every client.
struct Releases {
    rounds: usize,
    at_clients: bool,
    seen: Arc<Mutex<Vec<f32>>>,
}

const SCORES: Exchange<Nothing, Logits> = Exchange::new("scores");

fn scores() -> Logits {
    Logits::new(vec![0], Array2::from_elem((1, 2), 0.5))
}

impl Protocol for Releases {
    fn declare(&self) -> Declaration<'_> {
        let answer = SCORES.answered_by(|_, _| Ok(scores())).each_round();
        let all = Declaration::new()
            .rounds(self.rounds)
            .slot(PRIVACY.spec().required());
        all.exchange(if self.at_clients {
            answer.releases(&PRIVACY)
        } else {
            answer.releases_at_server(&PRIVACY)
        })
    }
    fn lead(&self, fed: &mut Server<'_>) -> Result<()> {
        fed.rounds(&mut (), |fed, (), round| {
            let all = fed.everyone();
            let first = fed
                .collect(round, &SCORES, |_| &Nothing)?
                .iter()
                .next()
                .map(|m| m.body.clone());
            let mut z = first.unwrap_or_else(scores);
            if !self.at_clients {
                fed.release(&SCORES, round, &mut z, &all)?;
            }
            self.seen.lock().unwrap().extend(z.values.iter());
            Ok(())
        })
    }
}

/// Two scores, each clipped to 1, gamma 0.5: sensitivity 4, scale 2, epsilon 2 a release.
fn noisy(accountant: bool) -> Vec<SlotAssignment> {
    let mut parts = vec![part(
        "privacy",
        Role::Privacy,
        "laplace-logits",
        "{gamma: 0.5, clip: 1.0}",
    )];
    if accountant {
        parts.push(part("accountant", Role::Accountant, "basic", "{}"));
    }
    parts
}

/// Epsilon against an observer; `None`: nothing is guaranteed.
fn epsilon(outcome: &Outcome, against: Observer) -> Option<f64> {
    let all = outcome.privacy.as_ref().expect("somebody accounts");
    all[&against].guarantee().map(|g| g.epsilon)
}

#[test]
fn server_releases_add_up_and_disjoint_clients_do_not() {
    let releases = |at_clients, accountant| {
        let protocol = Arc::new(Releases {
            rounds: 3,
            at_clients,
            seen: Arc::default(),
        });
        federation(protocol, noisy(accountant), strict(), None).unwrap()
    };
    let (at_server, at_clients) = (releases(false, true), releases(true, true));
    for observer in [Observer::Clients, Observer::Readers] {
        let all = "three releases of everybody's data";
        assert_eq!(epsilon(&at_server, observer), Some(6.0), "{all}");
        let own = "each of six clients released three times, of its own data";
        assert_eq!(epsilon(&at_clients, observer), Some(6.0), "{own}");
    }
    let all = "the server has seen everything";
    assert_eq!(epsilon(&at_server, Observer::Server), None, "{all}");
    assert_eq!(epsilon(&at_clients, Observer::Server), Some(6.0));
    assert_eq!(
        releases(false, false).privacy,
        None,
        "noise without an accountant guarantees nothing"
    );
}

#[test]
fn a_budget_refuses_before_anything_is_spent() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let protocol = Arc::new(Releases {
        rounds: 5,
        at_clients: false,
        seen: seen.clone(),
    });
    let budget: Budget = read_yaml("{epsilon: 1.5}").unwrap();
    let error = federation(protocol.clone(), noisy(true), strict(), Some(budget)).unwrap_err();
    assert!(
        matches!(error.downcast_ref(), Some(Problem::Budget(_))),
        "{error:#}"
    );
    let text = format!("{error:#}");
    assert!(
        text.contains("round 1") && text.contains("to 2.0000 of a budget of 1.5"),
        "{text}"
    );
    assert!(seen.lock().unwrap().is_empty());
    // what was paid for stands, and the rounds end there
    let budget: Budget = read_yaml("{epsilon: 4.5}").unwrap();
    let ended = federation(protocol, noisy(true), strict(), Some(budget)).unwrap();
    assert_eq!(epsilon(&ended, Observer::Readers), Some(4.0));
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 4, "two releases of two numbers came out");
    assert!(
        seen.iter().all(|v| *v != 0.5) && seen[0] != seen[2],
        "each with noise of its own: {seen:?}"
    );
}

#[test]
fn an_event_without_a_price_stops_the_run() {
    let mut parts = noisy(true);
    parts[0] = part("privacy", Role::Privacy, "laplace-logits", "{gamma: 0.5}");
    let protocol = Arc::new(Releases {
        rounds: 1,
        at_clients: false,
        seen: Arc::default(),
    });
    let error = federation(protocol, parts, strict(), None).unwrap_err();
    assert!(
        matches!(error.downcast_ref(), Some(Problem::Unpriced(_))),
        "{error:#}"
    );
    assert!(
        format!("{error:#}").contains("set `clip` in laplace-logits"),
        "{error:#}"
    );
}

#[test]
fn a_budget_without_an_accountant_is_refused() {
    let protocol = Arc::new(Releases {
        rounds: 1,
        at_clients: false,
        seen: Arc::default(),
    });
    let budget: Budget = read_yaml("{epsilon: 1}").unwrap();
    let error = federation(protocol, noisy(false), strict(), Some(budget)).unwrap_err();
    assert!(
        format!("{error:#}").contains("needs an accountant"),
        "{error:#}"
    );
}

fn faults(yaml: &str) -> Faults {
    read_yaml(yaml).unwrap_or_else(|e| panic!("{yaml}: {e}"))
}

/// The mean of what clients sent, under these policies; and what the run came to.
fn mean_under(
    bad: &'static str,
    whose: std::ops::RangeInclusive<u32>,
    yaml: &str,
) -> Result<(Vec<f32>, Outcome)> {
    let mean = Arc::new(Mutex::new(Vec::new()));
    let protocol = Arc::new(Faulty {
        bad,
        whose,
        mean: mean.clone(),
    });
    let parts = vec![part("aggregator", Role::Aggregator, "mean", "{}")];
    let outcome = federation(protocol, parts, faults(yaml), None)?;
    let mean = mean.lock().unwrap().clone();
    Ok((mean, outcome))
}

#[test]
fn who_answers_first_does_not_decide_what_shape_is_right() {
    let (mean, _) = mean_under("shape", 0..=0, "{on-shape: drop}").unwrap();
    assert_eq!(mean, [3.0, 3.0], "clients 1 to 5 are left");
    let error = mean_under("shape", 0..=0, "{}").unwrap_err();
    let error = format!("{error:#}");
    assert!(
        error.contains("client 0: `w` is [3] here, [2] in the message sent"),
        "{error}"
    );
}

/// Clients send their numbers, which count by `weight`; the combined number is kept in `mean`.
struct Weighs {
    weight: fn(f64) -> f64,
    mean: Arc<Mutex<Vec<f32>>>,
}

impl Protocol for Weighs {
    fn declare(&self) -> Declaration<'_> {
        let numbers = NUMBERS.answered_by(|me, _| Ok(numbers(2, me.id() as f32)));
        Declaration::new().exchange(numbers.into(&AGGREGATOR))
    }
    fn lead(&self, fed: &mut Server<'_>) -> Result<()> {
        fed.once("once", &mut (), |fed, (), round| {
            let sent = numbers(2, 0.0);
            let inbox = fed.collect(round, &NUMBERS, |_| &sent)?;
            let weigh = |mail: &ClientMessage<Params>| (self.weight)(f64::from(mail.from));
            let mean = fed.aggregate_with(&AGGREGATOR, round, &inbox, weigh)?;
            *self.mean.lock().unwrap() = mean.iter().copied().collect();
            Ok(())
        })
    }
}

#[test]
fn a_protocol_combines_answers_by_weights_of_its_own() {
    let combined = |aggregator: &str, weight: fn(f64) -> f64| {
        let mean = Arc::new(Mutex::new(Vec::new()));
        let protocol = Arc::new(Weighs {
            weight,
            mean: mean.clone(),
        });
        let parts = vec![part("aggregator", Role::Aggregator, aggregator, "{}")];
        let run = federation(protocol, parts, strict(), None);
        run.map(|_| mean.lock().unwrap().clone())
    };
    // (0 + 1 + 4 + 9 + 16 + 25) / (0 + 1 + 2 + 3 + 4 + 5), and the median looks at no weights
    assert_eq!(combined("mean", |id| id).unwrap(), [11.0 / 3.0; 2]);
    assert_eq!(combined("median", |id| id).unwrap(), [2.5; 2]);
    for bad in [|_: f64| 0.0, |_: f64| -1.0, |_: f64| f64::NAN] {
        let error = format!("{:#}", combined("mean", bad).unwrap_err());
        assert!(error.contains("weights for parts.aggregator"), "{error}");
    }
}

/// Parameters that nothing was sent for, of clients whose model the server knows as little.
struct Unasked;

const UNASKED: Exchange<Nothing, Params> = Exchange::new("unasked");

impl Protocol for Unasked {
    fn declare(&self) -> Declaration<'_> {
        let unasked = UNASKED.answered_by(|me, _| {
            let n = if me.id() == 0 { 3 } else { 2 };
            Ok(numbers(n, 1.0))
        });
        Declaration::new().exchange(unasked.into(&AGGREGATOR))
    }
    fn lead(&self, fed: &mut Server<'_>) -> Result<()> {
        fed.once("once", &mut (), |fed, (), round| {
            let _: Params = fed.run(round, &UNASKED, |_| &Nothing)?;
            Ok(())
        })
    }
}

#[test]
fn where_nothing_says_which_shape_is_right_nobody_is_blamed_for_it() {
    let parts = vec![part("aggregator", Role::Aggregator, "mean", "{}")];
    let faults = faults("{on-shape: drop, on-error: drop}");
    let error = federation(Arc::new(Unasked), parts, faults, None).unwrap_err();
    let error = format!("{error:#}");
    assert!(
        error.contains("that of client 0, and nothing says which of them is right"),
        "{error}"
    );
}

#[test]
fn what_happens_on_purpose_happens_to_whom_the_spec_says() {
    let all = |happen: &str, policy: &str| {
        mean_under(
            "none",
            nobody(),
            &format!("{{inject: [{happen}], {policy}}}"),
        )
    };
    let drop = "on-error: drop, on-nan: drop, on-shape: drop, on-weight: drop";
    for what in [
        "crash",
        "straggle",
        "never-answers",
        "nan",
        "shape",
        "weight",
    ] {
        let to = format!("{{what: {what}, clients: [0, 1-2]}}");
        let (mean, _) = all(&to, drop).unwrap();
        assert_eq!(mean, [4.0, 4.0], "{what}: clients 3 to 5 are left");
        let error = format!("{:#}", all(&to, "").unwrap_err());
        assert!(error.contains("client 0: "), "{what}: {error}");
        let other = format!("{{what: {what}, clients: 0, rounds: 2-9}}");
        assert_eq!(all(&other, "").unwrap().0, [2.5, 2.5], "there is one round");
    }
    // 5 * 1e30 and the rest
    let (mean, _) = all("{what: huge, clients: 5}", "").unwrap();
    assert!((mean[0] / 1e30 - 5.0 / 6.0).abs() < 1e-3, "{mean:?}");
    // the same seed, the same clients
    let some = || all("{what: crash, share: 0.5}", drop).unwrap();
    let ((a, one), (b, two)) = (some(), some());
    assert_eq!((a, one.digest), (b, two.digest));
}

#[test]
fn a_client_is_asked_again_as_often_as_the_policy_says() {
    // of six clients that fail half the time some fail first, and none ten times in a row
    let happen = "inject: [{what: crash, share: 0.5}]";
    let (mean, again) = mean_under(
        "none",
        nobody(),
        &format!("{{{happen}, on-error: {{retry: 50}}}}"),
    )
    .unwrap();
    assert_eq!(mean, [2.5, 2.5]);
    let (_, clean) = mean_under("none", nobody(), "{}").unwrap();
    assert_ne!(again.digest, clean.digest, "in another order");
    let gone = "inject: [{what: never-answers, clients: 0}]";
    let (mean, _) = mean_under(
        "none",
        nobody(),
        &format!("{{{gone}, on-error: {{retry: 2}}}}"),
    )
    .unwrap();
    assert_eq!(mean, [3.0, 3.0], "and is left out in the end");
}

#[test]
fn too_few_answers_stop_the_run_or_repeat_the_round() {
    let few = "min-answers: 5, on-error: drop, inject: [{what: crash, share: 0.3}]";
    let error = mean_under(
        "none",
        nobody(),
        "{min-answers: 4, on-error: drop, inject: [{what: crash, clients: 0-2}]}",
    );
    let error = error.unwrap_err();
    assert!(
        matches!(
            error.downcast_ref(),
            Some(Problem::TooFew {
                answers: 3,
                least: 4,
                ..
            })
        ),
        "{error:#}"
    );
    let text = format!("{error:#}");
    assert!(
        text.contains(
            "3 usable answers to `numbers` of 6; clients 0, 1 and 2 gave none that is usable; client 0: it crashed"
        ),
        "{text}"
    );
    // who crashes is drawn anew
    let repeated = mean_under(
        "none",
        nobody(),
        &format!("{{{few}, if-too-few: {{repeat: 100}}}}"),
    );
    let (mean, _) = repeated.unwrap();
    assert_eq!(mean.len(), 2);
}

/// A model that learns and cannot say anything.
struct Blind;

impl Trainer for Blind {
    fn fit(
        &mut self,
        _: &Samples,
        _: Target<'_>,
        _: &FitOptions<'_>,
        _: &Stream,
    ) -> Result<fl_core::FitReport> {
        Ok(fl_core::FitReport {
            steps: 1,
            loss: 0.0,
            falls: None,
        })
    }
    fn predict(&mut self, _: &Samples) -> Result<Array2<f32>> {
        bail!("it sees nothing")
    }
    fn save(&self) -> Result<Vec<u8>> {
        bail!("it has nothing to keep")
    }
    fn load(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn save_state(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
}

/// All clients train a model, which is evaluated and kept.
struct Alone;

const TRAIN: Exchange<Nothing, Nothing> = Exchange::new("training");

impl Protocol for Alone {
    fn declare(&self) -> Declaration<'_> {
        let train = TRAIN.answered_by(|me, _| {
            let pass = Training::epochs(1, 4).pass(Loss::CrossEntropy);
            me.fit_own(&MODEL, &pass).map(|_| Nothing)
        });
        Declaration::new()
            .rounds(1)
            .slot(MODEL.spec().lasting())
            .exchange(train)
    }
    fn lead(&self, fed: &mut Server<'_>) -> Result<()> {
        fed.rounds(&mut (), |fed, (), round| {
            fed.collect(round, &TRAIN, |_| &Nothing)?;
            fed.evaluate_clients(round, &MODEL)
        })?;
        fed.keep_clients(&MODEL)
    }
}

#[test]
fn a_model_that_cannot_be_evaluated_is_left_out_if_the_policy_says_so() {
    let models = |blind: std::ops::RangeInclusive<u32>| {
        let linear = part("model", Role::Trainer, "linear", "{}");
        let build = |_: &fl_core::BuildContext| {
            Ok(Box::new(Box::new(Blind) as Box<dyn Trainer>) as Box<dyn std::any::Any + Send>)
        };
        let some = SlotAssignment {
            clients: Some(vec![blind]),
            settings: CheckedSettings::new(Value::Null, build),
            ..linear.clone()
        };
        vec![some, linear]
    };
    let error = federation(Arc::new(Alone), models(1..=1), strict(), None).unwrap_err();
    let error = format!("{error:#}");
    assert!(
        error.contains("evaluating client 1: it sees nothing"),
        "{error}"
    );
    let drop = || faults("{on-error: drop}");
    let mut seen = Vec::new();
    let watch = Watch(|observer, what: &str, bytes: &[u8]| {
        if observer == Observer::Readers && what == "clients.accuracy" {
            seen.push(serde_json::from_slice::<serde_json::Value>(bytes).unwrap());
        }
    });
    let alone = Arc::new(Alone);
    let outcome = heard(alone, models(1..=1), drop(), None, vec![Box::new(watch)]).unwrap();
    assert!(
        outcome.metrics["clients.accuracy"].is_finite(),
        "{outcome:?}"
    );
    // the others' numbers stay theirs
    assert_eq!(seen[0]["clients"], serde_json::json!([0, 2, 3, 4, 5]));
    assert_eq!(seen[0]["each"].as_array().unwrap().len(), 5);
    let error = federation(Arc::new(Alone), models(0..=5), drop(), None).unwrap_err();
    assert!(
        format!("{error:#}").contains("no client can evaluate a model; client 0: it sees"),
        "{error:#}"
    );
}

const COHORT: SelectorSlot<Roster> = SelectorSlot::new("cohort", "");
const FIRST: Exchange<Nothing, Logits> = Exchange::new("first");
const SECOND: Exchange<Nothing, Logits> = Exchange::new("second");

/// Two exchanges through one mechanism, of which the server releases the first.
struct ReleasesFirst;

impl Protocol for ReleasesFirst {
    fn declare(&self) -> Declaration<'_> {
        let first = FIRST.answered_by(|_, _| Ok(scores()));
        let second = SECOND.answered_by(|_, _| Ok(scores()));
        Declaration::new()
            .exchange(first.releases_at_server(&PRIVACY))
            .exchange(second.releases_at_server(&PRIVACY))
    }
    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        server.once("once", &mut (), |server, (), round| {
            let all = server.everyone();
            server.collect(round, &FIRST, |_| &Nothing)?;
            server.collect(round, &SECOND, |_| &Nothing)?;
            server.release(&FIRST, round, &mut scores(), &all)
        })
    }
}

#[test]
fn the_release_of_an_exchange_does_not_stand_for_another() {
    let run = federation(Arc::new(ReleasesFirst), noisy(false), strict(), None);
    let error = format!("{:#}", run.unwrap_err());
    let told = "the protocol declares a release of `second` through parts.privacy at the server, and made none";
    assert!(error.contains(told), "{error}");
}

/// Two exchanges of one selector in each of three rounds.
struct DrawsOnce;

impl Protocol for DrawsOnce {
    fn declare(&self) -> Declaration<'_> {
        let first = FIRST.answered_by(|_, _| Ok(scores()));
        let second = SECOND.answered_by(|_, _| Ok(scores()));
        Declaration::new()
            .rounds(3)
            .exchange(first.to(&COHORT).each_round())
            .exchange(second.to(&COHORT).each_round())
    }
    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        server.rounds(&mut (), |server, (), round| {
            let from = |inbox: Inbox<Logits>| inbox.iter().map(|m| m.from).collect::<Vec<_>>();
            let first = from(server.collect(round, &FIRST, |_| &Nothing)?);
            let second = from(server.collect(round, &SECOND, |_| &Nothing)?);
            ensure!(first.len() == 3, "half of six: {first:?}");
            ensure!(first == second, "{first:?}, then {second:?}");
            ensure!(first == *server.cohort(round, &SECOND)?, "{first:?}");
            Ok(())
        })
    }
}

#[test]
fn a_selector_picks_once_in_a_round_for_all_its_exchanges() {
    let cohort = part("cohort", Role::Selector, "uniform", "{share: 0.5}");
    let done = federation(Arc::new(DrawsOnce), vec![cohort], strict(), None);
    assert_eq!(done.unwrap().rounds, 3);
}
