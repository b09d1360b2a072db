//! What runs on two data sets prove about an observer.

use crate::bounds::Rates;
use crate::directions::{Directions, Observation};
use fl_core::privacy::Observer;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The most thresholds that are tried for one score.
const THRESHOLDS: usize = 64;
/// The most facts that are listed.
const LISTED: usize = 20;

/// A fact that separates all runs of the two worlds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Its name.
    pub field: String,
    /// Its values with the unit, and in the neighbour.
    pub values: [Vec<String>; 2],
    /// Number of runs of each world, in all of which it differs.
    pub runs: usize,
}

impl Difference {
    /// Returns whether all runs of one world have the same value, as without noise.
    pub fn is_fixed(&self) -> bool {
        self.values.iter().any(|of| of.len() == 1)
    }
}

/// The lower bound of epsilon that an audit proves for one observer, and its evidence.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LowerBound {
    /// The bound.
    pub epsilon: f64,
    /// The largest bound that this number of runs could have given.
    pub most: f64,
    /// What separates the worlds best.
    pub by: String,
    /// Of the runs of each world that were counted, those in which it was seen.
    pub counted: [usize; 2],
    /// The number of runs of each world that were counted.
    pub of: usize,
    /// Facts that differ in every run. More runs show whether their epsilon is unbounded.
    pub differs: Vec<Difference>,
    /// The number of such facts.
    pub different: usize,
    /// Of them, the number of those that look as if they had no noise ([`Difference::is_fixed`]).
    pub fixed: usize,
}

/// A score of every run: of each world, in the order of runs.
struct Score {
    name: String,
    of: [Vec<f64>; 2],
}

/// A score on one side of a threshold, and what the first half of the runs says of it.
struct Event {
    bound: f64,
    apart: usize,
    score: usize,
    threshold: f64,
    above: bool,
    /// Whether it is likelier in the first world.
    first: bool,
}

/// Judges what an observer saw in the runs of two worlds, equally many of each. The first half
/// selects score and threshold, the second half is counted. `error_rate` is the probability that
/// the bound is wrong.
pub fn judge(
    observer: Observer,
    worlds: [&[Observation]; 2],
    directions: &Directions,
    delta: f64,
    error_rate: f64,
) -> LowerBound {
    let n = worlds[0].len();
    let half = n / 2;
    let (train, test) = (
        Rates::new(half, error_rate / 2.0),
        Rates::new(n - half, error_rate / 2.0),
    );
    let differs = differences(observer, worlds, directions);
    let mut scores = of_facts(observer, worlds, directions, half);
    scores.extend(of_numbers(observer, worlds, directions, half));
    let mut best: Option<Event> = None;
    for (score, at) in scores.iter().zip(0..) {
        let taught = score.of.each_ref().map(|all| &all[..half]);
        for (threshold, above) in thresholds(taught) {
            let [a, b] = taught.map(|all| count(all, threshold, above));
            let event = Event {
                bound: train.epsilon(a.max(b), a.min(b), delta),
                apart: a.abs_diff(b),
                score: at,
                threshold,
                above,
                first: a >= b,
            };
            // of equal bounds the one with more runs told apart
            let better = |best: &Event| (event.bound, event.apart) > (best.bound, best.apart);
            if best.as_ref().is_none_or(better) {
                best = Some(event);
            }
        }
    }
    let different = differs.len();
    let fixed = differs.iter().filter(|d| d.is_fixed()).count();
    let mut shown = LowerBound {
        most: test.most(delta),
        by: "nothing".into(),
        of: n - half,
        differs: differs.into_iter().take(LISTED).collect(),
        different,
        fixed,
        ..LowerBound::default()
    };
    if let Some(event) = best {
        let score = &scores[event.score];
        let [a, b] = score.of.each_ref();
        let counted = [a, b].map(|all| count(&all[half..], event.threshold, event.above));
        let [a, b] = counted;
        shown.epsilon = if event.first {
            test.epsilon(a, b, delta)
        } else {
            test.epsilon(b, a, delta)
        };
        shown.by.clone_from(&score.name);
        shown.counted = counted;
    }
    shown
}

fn count(all: &[f64], threshold: f64, above: bool) -> usize {
    let all = all.iter();
    if above {
        all.filter(|x| **x >= threshold).count()
    } else {
        all.filter(|x| **x <= threshold).count()
    }
}

/// Thresholds between the scores of runs, each for both sides; the one in the widest gap first.
fn thresholds(of: [&[f64]; 2]) -> Vec<(f64, bool)> {
    let mut all = of.concat();
    all.sort_by(f64::total_cmp);
    all.dedup();
    let step = all.len().div_ceil(THRESHOLDS).max(1);
    let gap = |pair: &&[f64]| pair[1] - pair[0];
    let widest = all.windows(2).max_by(|a, b| gap(a).total_cmp(&gap(b)));
    let between = widest.into_iter().chain(all.windows(2).step_by(step));
    let both = between.flat_map(|pair| {
        let at = f64::midpoint(pair[0], pair[1]);
        [(at, true), (at, false)]
    });
    both.collect()
}

/// Names of facts that are not the same in all runs.
fn varying(worlds: [&[Observation]; 2]) -> BTreeSet<&str> {
    let all = worlds.into_iter().flatten();
    all.flat_map(|run| run.facts.keys().map(String::as_str))
        .collect()
}

/// A fact of a run; `None` if it is not there.
fn fact<'o>(run: &'o Observation, name: &str, baseline: Option<&'o str>) -> Option<&'o str> {
    let differs = run.facts.get(name);
    differs.map_or(baseline, |fact| fact.as_deref())
}

/// Facts of which no value is seen in both worlds, and that have few values.
fn differences(
    observer: Observer,
    worlds: [&[Observation]; 2],
    directions: &Directions,
) -> Vec<Difference> {
    let runs = worlds[0].len();
    let mut all = Vec::new();
    for name in varying(worlds) {
        let baseline = directions.baseline(observer, name);
        let values = worlds.map(|world| -> BTreeSet<_> {
            world.iter().map(|run| fact(run, name, baseline)).collect()
        });
        let few = values[0].len() + values[1].len() <= 2.max(runs / 4);
        if few && values[0].is_disjoint(&values[1]) {
            let text = |value: Option<&str>| value.unwrap_or("not there").to_string();
            all.push(Difference {
                field: name.into(),
                values: values.map(|of| of.into_iter().map(text).collect()),
                runs,
            });
        }
    }
    // what people can read comes first
    let hashed = |d: &Difference| d.field.ends_with(": content") || d.field.contains("digest");
    let values = |d: &Difference| d.values[0].len() + d.values[1].len();
    all.sort_by_key(|d| (!d.is_fixed(), values(d), hashed(d)));
    all
}

/// Scores of facts: how much likelier a value is in the first world; of a number that takes many
/// values, the number itself. Only the first `half` of the runs teaches them.
fn of_facts(
    observer: Observer,
    worlds: [&[Observation]; 2],
    directions: &Directions,
    half: usize,
) -> Vec<Score> {
    let mut scores = Vec::new();
    for name in varying(worlds.map(|world| &world[..half])) {
        let baseline = directions.baseline(observer, name);
        let mut counts: BTreeMap<_, [f64; 2]> = BTreeMap::new();
        for (at, world) in worlds.iter().enumerate() {
            for run in &world[..half] {
                counts.entry(fact(run, name, baseline)).or_default()[at] += 1.0;
            }
        }
        let number = |run: &Observation| -> Option<f64> {
            let number = fact(run, name, baseline)?.parse().ok();
            number.filter(|x: &f64| x.is_finite())
        };
        let likelier = |run: &Observation| {
            let seen = counts.get(&fact(run, name, baseline));
            seen.map_or(0.0, |[a, b]| libm::log((a + 0.5) / (b + 0.5)))
        };
        let of = if counts.len() <= half {
            worlds.map(|world| world.iter().map(likelier).collect())
        } else {
            let mut taught = worlds.iter().flat_map(|world| &world[..half]);
            // a text that nearly every run has alone teaches nothing
            if taught.any(|run| number(run).is_none()) {
                continue;
            }
            worlds.map(|world| world.iter().map(|run| number(run).unwrap_or(0.0)).collect())
        };
        scores.push(Score {
            name: name.into(),
            of,
        });
    }
    scores
}

/// Scores of messages and models: each alone, and all together.
fn of_numbers(
    observer: Observer,
    worlds: [&[Observation]; 2],
    directions: &Directions,
    half: usize,
) -> Vec<Score> {
    let names: BTreeSet<&String> = worlds
        .iter()
        .flat_map(|world| world[..half].iter())
        .flat_map(|run| run.numbers.keys())
        .collect();
    let n = worlds[0].len();
    let mut together = [
        ("all messages together", [vec![0.0; n], vec![0.0; n]]),
        ("all changes together", [vec![0.0; n], vec![0.0; n]]),
    ];
    let mut scores = Vec::new();
    for name in names {
        let there: Vec<f64> = worlds
            .iter()
            .flat_map(|world| world[..half].iter())
            .filter_map(|run| run.numbers.get(name).copied())
            .collect();
        let mean = there.iter().sum::<f64>() / there.len().max(1) as f64;
        // a message that was not sent says nothing here; that it was not is a fact
        let value = |run: &Observation| run.numbers.get(name).copied().unwrap_or(mean);
        let of = worlds.map(|world| world.iter().map(value).collect::<Vec<f64>>());
        let within: f64 = of.iter().map(|all| squares(&all[..half])).sum();
        let variance = within / (2 * half).saturating_sub(2).max(1) as f64;
        let shift = directions.shift(observer, name);
        let changes = name.ends_with(": change");
        if variance > 0.0 && shift > 0.0 {
            for (at, (_, sums)) in together.iter_mut().enumerate() {
                if at == 0 || changes {
                    for (sums, all) in sums.iter_mut().zip(&of) {
                        for (sum, x) in sums.iter_mut().zip(all) {
                            *sum += shift / variance * (x - mean);
                        }
                    }
                }
            }
        }
        scores.push(Score {
            name: name.clone(),
            of,
        });
    }
    for (name, of) in together {
        scores.push(Score {
            name: name.into(),
            of,
        });
    }
    scores
}

/// The sum of squared differences to the mean.
fn squares(all: &[f64]) -> f64 {
    let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
    all.iter().map(|x| (x - mean).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directions::Pilots;
    use crate::views::{View, Views};
    use fl_core::Stream;

    const SERVER: Observer = Observer::Server;

    fn view(fact: &str, numbers: &[f32]) -> Views {
        let view = View {
            facts: [("fact".to_string(), fact.to_string())].into(),
            numbers: [("message".to_string(), numbers.to_vec())].into(),
        };
        [(SERVER, view)].into()
    }

    /// Runs with Gaussian noise of 1 on two numbers; the unit moves them by `shift`.
    fn runs(shift: f32, fact: &dyn Fn(usize, usize) -> String) -> LowerBound {
        let mut draws = Stream::root(3).child("runs", 0).draws();
        let mut noisy = |mean: f32| [mean + draws.normal() as f32, draws.normal() as f32];
        let mut pilots = Pilots::default();
        for _ in 0..4 {
            let [x, y] = noisy(0.0);
            let one = view(&fact(0, 1000), &[x + shift, y]);
            pilots.add(one, &view(&fact(1, 1000), &[x, y]));
        }
        let directions = pilots.finish();
        let mut world = |at: usize| -> Vec<Observation> {
            let mean = if at == 0 { shift } else { 0.0 };
            (0..400)
                .map(|run| {
                    let mut views = view(&fact(at, run), &noisy(mean));
                    directions.reduce(SERVER, views.remove(&SERVER).unwrap())
                })
                .collect()
        };
        let (one, other) = (world(0), world(1));
        judge(SERVER, [&one, &other], &directions, 0.0, 0.05)
    }

    #[test]
    fn noise_bounds_what_is_shown_and_no_noise_shows_all_there_can_be() {
        let same = |_: usize, _: usize| "7".to_string();
        let (none, some, much) = (runs(0.0, &same), runs(1.0, &same), runs(20.0, &same));
        assert!(none.epsilon < 0.3, "{none:?}");
        assert!(some.epsilon > 0.6 && some.epsilon < some.most, "{some:?}");
        assert_eq!(much.epsilon, much.most, "{much:?}");
        assert!(some.differs.is_empty() && much.differs.is_empty());
    }

    #[test]
    fn a_fact_that_always_differs_is_named() {
        let shown = runs(0.0, &|world, _| (12 + world).to_string());
        assert_eq!(shown.epsilon, shown.most);
        assert_eq!(shown.differs[0].field, "fact");
        assert_eq!(shown.differs[0].values, [vec!["12"], vec!["13"]]);
        assert_eq!((shown.differs[0].runs, shown.fixed), (400, 1));
        // one of few values, but never the same in both worlds
        let shown = runs(0.0, &|world, run| (2 * (run % 5) + world).to_string());
        assert_eq!(
            (shown.epsilon, shown.different, shown.fixed),
            (shown.most, 1, 0),
            "{shown:?}"
        );
    }

    /// Randomised response of a large epsilon tells the truth in all of so few runs.
    #[test]
    fn what_runs_cannot_tell_from_noise_is_suspect_and_no_proof() {
        use crate::finding::Verdict;
        let fixed = runs(0.0, &|world, _| (12 + world).to_string());
        let varied = runs(0.0, &|world, run| (2 * (run % 5) + world).to_string());
        let none = runs(0.0, &|_, _| "7".to_string());
        for (shown, large) in [
            (&fixed, Verdict::Suspect),
            (&varied, Verdict::NotRefuted),
            (&none, Verdict::NotRefuted),
        ] {
            assert_eq!(Verdict::of(shown, Some(10.0)), large, "{shown:?}");
            assert_eq!(Verdict::of(shown, None), Verdict::NoClaim);
        }
        for shown in [fixed, varied] {
            assert_eq!(Verdict::of(&shown, Some(1.0)), Verdict::Broken, "{shown:?}");
        }
    }

    #[test]
    fn a_fact_that_is_new_in_every_run_says_nothing_and_one_that_leans_says_what_it_says() {
        let fresh = runs(0.0, &|world, run| format!("hash {}", 1000 * world + run));
        assert!(fresh.epsilon < 0.3 && fresh.differs.is_empty(), "{fresh:?}");
        // three of four runs against one of four: epsilon is ln 3
        let leans = runs(0.0, &|world, run| {
            let rare = run % 4 == 0;
            (rare == (world == 0)).to_string()
        });
        assert!(
            leans.epsilon > 0.6 && leans.epsilon < libm::log(3.0),
            "{leans:?}"
        );
    }

    #[test]
    fn half_of_the_runs_does_not_judge_itself() {
        // many useless facts: the best of them looks good in the half that selects it
        let mut draws = Stream::root(5).child("facts", 0).draws();
        let mut world = || -> Vec<Observation> {
            (0..60)
                .map(|_| Observation {
                    facts: (0..300)
                        .map(|at| (format!("fact {at:03}"), Some(draws.below(2).to_string())))
                        .collect(),
                    numbers: BTreeMap::new(),
                })
                .collect()
        };
        let (one, other) = (world(), world());
        let shown = judge(
            SERVER,
            [&one, &other],
            &Pilots::default().finish(),
            0.0,
            0.05,
        );
        assert!(shown.epsilon < 0.2, "{shown:?}");
    }
}
