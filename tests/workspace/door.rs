//! The federation's door: unusable answers, releases, budgets, and what clients spend.

use fl_core::message::{Logits, Nothing, Params};
use fl_core::prelude::*;
use fl_core::privacy::Observer;
use fl_core::settings::{Value, read_yaml};
use fl_core::{
    Budget, Examples, Fault, Faults, Filled, Inputs, Labels, Parts, Problem, Role, RunOptions,
    linked_parts,
};
use fl_plugins as _;
use fl_sim::{Outcome, Setup, run};
use ndarray::{Array2, ArrayD, IxDyn};
use std::sync::{Arc, Mutex};

pub fn part(slot: &str, role: Role, name: &str, settings: &str) -> Filled {
    let decl = linked_parts()
        .into_iter()
        .find(|p| p.role == role && p.name == name)
        .unwrap_or_else(|| panic!("{role} `{name}` is not linked"));
    let settings: Value = serde_yaml::from_str(settings).expect("YAML");
    Filled {
        slot: slot.into(),
        clients: None,
        decl,
        settings,
    }
}

/// Six clients with ten examples each.
fn federation(
    protocol: Arc<dyn Protocol>,
    parts: Vec<Filled>,
    faults: Faults,
    budget: Option<Budget>,
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
        name: "door",
        protocol_name: "door",
        protocol,
        parts: Arc::new(Parts::new(parts)),
        options: RunOptions {
            seed: 1,
            noise: Default::default(),
            task: all.task(),
            faults,
            budget,
            evaluate_every: 1,
        },
        clients,
        public: None,
        test: all.pick(&[0, 1]),
        client_tests: Vec::new(),
        threads: 2,
        folder: None,
        resumed: None,
        wire: false,
        stop_after: None,
        client_cache: None,
        watch: None,
        exposed: Vec::new(),
        progress: Box::new(|_, _, _| {}),
        warn: Box::new(|_| {}),
    })
}

/// Clients 1, 2 and 3 answer what cannot be used; what the server makes of the others is kept in `mean`.
struct Faulty {
    bad: &'static str,
    mean: Arc<Mutex<Vec<f32>>>,
}

const NUMBERS: Ask<Nothing, Params> = Ask::new("numbers");

impl Protocol for Faulty {
    fn slots(&self) -> Vec<Slot> {
        vec![Slot::aggregator::<Params, Params>("aggregator", "")]
    }
    fn questions(&self) -> Vec<Asked> {
        vec![NUMBERS.asked()]
    }
    fn lead(&self, fed: &mut Federation<'_>) -> Result<()> {
        fed.rounds(1, &mut (), |fed, (), round| {
            let all = fed.everyone();
            let mean: Params = fed.gather("aggregator", round, &NUMBERS, &all, |_| &Nothing)?;
            *self.mean.lock().unwrap() = mean.iter().copied().collect();
            Ok(())
        })
    }
    fn answer(&self, me: &mut Client, question: Question<'_>) -> Result<Answer> {
        question
            .on(&NUMBERS, me, |me, _| {
                let (n, value) = match (me.id(), self.bad) {
                    (1..=3, "error") => bail!("this client is out of paper"),
                    (1..=3, "panic") => panic!("index out of bounds"),
                    (1..=3, "nan") => (2, f32::NAN),
                    (1..=3, "shape") => (3, 1.0),
                    (id, _) => (2, id as f32),
                };
                Ok(Params(
                    [("w".to_string(), ArrayD::from_elem(IxDyn(&[n]), value))].into(),
                ))
            })
            .end()
    }
}

#[test]
fn unusable_answers_fail_the_run_or_are_left_out_as_the_policy_says() {
    for aggregator in ["mean", "median"] {
        for bad in ["error", "panic", "nan", "shape"] {
            let mean = Arc::new(Mutex::new(Vec::new()));
            let protocol = Arc::new(Faulty {
                bad,
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
        error.contains("client 0") && error.contains("weight 10"),
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

const SCORES: Ask<Nothing, Logits> = Ask::new("scores");

fn scores() -> Logits {
    Logits::new(vec![0], Array2::from_elem((1, 2), 0.5))
}

impl Protocol for Releases {
    fn slots(&self) -> Vec<Slot> {
        vec![Slot::privacy::<Logits>("privacy", ""), Slot::accountant()]
    }
    fn questions(&self) -> Vec<Asked> {
        let scores = SCORES.asked().times(self.rounds);
        vec![match self.at_clients {
            true => scores.releases("privacy"),
            false => scores.releases_at_server("privacy"),
        }]
    }
    fn lead(&self, fed: &mut Federation<'_>) -> Result<()> {
        fed.rounds(self.rounds, &mut (), |fed, (), round| {
            let all = fed.everyone();
            let first = fed
                .ask(round, &SCORES, &all, |_| &Nothing)?
                .iter()
                .next()
                .map(|m| m.body.clone());
            let mut z = first.unwrap_or_else(scores);
            if !self.at_clients {
                fed.release("privacy", round, &mut z, &all)?;
            }
            self.seen.lock().unwrap().extend(z.values.iter());
            Ok(())
        })
    }
    fn answer(&self, me: &mut Client, question: Question<'_>) -> Result<Answer> {
        question
            .on(&SCORES, me, |me, _| {
                let mut z = scores();
                if self.at_clients {
                    me.release("privacy", &mut z)?;
                }
                Ok(z)
            })
            .end()
    }
}

/// Two scores, each clipped to 1, gamma 0.5: sensitivity 4, scale 2, epsilon 2 a release.
fn noisy(accountant: bool) -> Vec<Filled> {
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
    let budget: Budget = read_yaml("{epsilon: 4.5}").unwrap();
    let error = federation(protocol, noisy(true), strict(), Some(budget)).unwrap_err();
    assert!(
        matches!(error.downcast_ref(), Some(Problem::Budget(_))),
        "{error:#}"
    );
    let text = format!("{error:#}");
    assert!(
        text.contains("round 3")
            && text.contains("to 6.0000 of a budget of 4.5")
            && text.contains("2 releases so far, epsilon 4.0000"),
        "{text}"
    );
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
