//! Small random histories of runs on six rows. What a ledger, a page and a study say of the runs
//! together is never less than what their observers can tell.

use crate::loss::Loss;
use crate::{data, gaussian, make, named, reservation};
use fl_core::privacy::{Guarantee, Neighbours, Noise, Observer, Protection, Protections, Unit};
use fl_core::{ClientId, Draws, PrivacyEvent, Stream};
use fl_privacy::*;
use fl_report::Run;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const ROWS: u8 = 6;

type Parties = Vec<Vec<u8>>;

/// A release that happened. Noise that is drawn once is released once, whoever counts it.
struct Happened {
    event: PrivacyEvent,
    /// `None`: the server's.
    client: Option<usize>,
    observers: Vec<Observer>,
    /// The pairs that a budget protects which is all that is known of it.
    budget: Option<Neighbours>,
    /// The parties of its run.
    parties: Parties,
}

/// A run as far as it has come.
#[derive(Clone)]
struct Line {
    reservation: Reservation,
    parties: Parties,
    at_server: Option<PrivacyEvent>,
    at_clients: Option<PrivacyEvent>,
    /// Names of what happened, step by step.
    steps: Vec<Vec<u64>>,
    /// Of these at most.
    planned: usize,
    /// Names of what the run's made inputs show to all its observers.
    made: Vec<u64>,
    /// What is charged to each client for that.
    carried: Vec<PrivacyEvent>,
    /// Observers who have seen something without a price.
    unpriced: Vec<Observer>,
    /// Whether its rows are at nodes: this machine does not know which they are.
    at_nodes: bool,
    /// Whether its ledger knows it.
    in_ledger: bool,
    folder: String,
    /// Whether another run went on in its folder.
    gone: bool,
    end: End,
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    /// It resumes under its own name.
    Killed,
    /// At a checkpoint, with this number in the ledger.
    Stopped(u64),
    Settled,
    /// By its budget; it is not done.
    Budget,
}

struct History {
    draws: Draws,
    unit: Unit,
    splits: [(Parties, bool); 2],
    /// By the name of the noise.
    happened: BTreeMap<u64, Happened>,
    lines: Vec<Line>,
    ledger: DataLedger,
    dir: PathBuf,
    /// For a reader of a failure.
    story: Vec<String>,
}

fn chance(draws: &mut Draws, share: f64) -> bool {
    draws.uniform() < share
}

/// Shares the rows out to two to four parties.
fn split(draws: &mut Draws) -> Parties {
    let n = 2 + draws.below(3);
    let mut parties = vec![Vec::new(); n];
    (1..=ROWS).for_each(|row| parties[draws.below(n)].push(row));
    parties.retain(|party| !party.is_empty());
    match parties.len() {
        1 => split(draws),
        _ => parties,
    }
}

/// Shares them out anew, equally, coarser, finer, or without one.
fn another(draws: &mut Draws, first: &Parties) -> Parties {
    let mut next = first.clone();
    match draws.below(5) {
        0 => next = split(draws),
        1 => {
            let last = next.pop().unwrap();
            next[0].extend(last);
        }
        2 => {
            let largest = (0..next.len()).max_by_key(|p| next[*p].len()).unwrap();
            let half = next[largest].len().div_ceil(2);
            let rest = next[largest].split_off(half);
            next.push(rest);
        }
        3 => _ = next[0].pop(),
        _ => {}
    }
    next.retain(|party| !party.is_empty());
    next
}

impl History {
    fn new(number: u64, seed: u64, dir: &Path) -> Self {
        let dir = dir.join(number.to_string());
        fs::create_dir(&dir).unwrap();
        DataLedger::init(&dir.join("l"), None).unwrap();
        let mut draws = Stream::root(seed).child("history", number).draws();
        let first = split(&mut draws);
        let second = another(&mut draws, &first);
        let splits = [first, second].map(|parties| (parties, chance(&mut draws, 0.15)));
        let unit = if chance(&mut draws, 0.6) {
            Unit::Party
        } else {
            Unit::Example
        };
        Self {
            draws,
            unit,
            story: vec![format!("{unit}, {splits:?}")],
            splits,
            happened: BTreeMap::new(),
            lines: Vec::new(),
            ledger: DataLedger::open(&dir.join("l")).unwrap(),
            dir,
        }
    }

    fn event(&mut self, accountant: &str, unit: Unit) -> PrivacyEvent {
        let sensitivity = 1.0;
        let sigma = 2.0 + 6.0 * self.draws.uniform();
        match (accountant, self.draws.below(8)) {
            ("basic", 0..4) | (_, 0) => PrivacyEvent::Laplace {
                sensitivity,
                scale: sigma,
                unit,
            },
            ("basic", _) | (_, 1) => PrivacyEvent::Pure {
                epsilon: 1.0 / sigma,
                times: 1 + self.draws.below(2),
                unit,
            },
            (_, 2) => PrivacyEvent::SubsampledGaussian {
                rate: 0.2,
                sensitivity,
                sigma: sigma / 4.0 + 0.5,
                unit,
            },
            (_, 3) => PrivacyEvent::FixedSizeGaussian {
                k: 2,
                of: 10,
                sensitivity,
                sigma: sigma / 4.0 + 0.5,
                unit,
            },
            _ => gaussian(sigma, unit),
        }
    }

    /// A run that has not begun.
    fn new_line(&mut self) -> Line {
        let (parties, dealt) = self.splits[self.draws.below(2)].clone();
        let accountant = ["rdp", "rdp", "pld", "basic"][self.draws.below(4)];
        let folder = format!("r{}", self.story.len());
        let place = self.draws.below(3);
        let unit = match (self.unit, chance(&mut self.draws, 0.05)) {
            (Unit::Party, true) => Unit::Example,
            (Unit::Example, true) => Unit::Party,
            (unit, false) => unit,
        };
        let at_server = (place != 1).then(|| self.event(accountant, unit));
        let at_clients = (place != 0).then(|| self.event(accountant, unit));
        let slices: Vec<&[u8]> = parties.iter().map(|party| &party[..]).collect();
        let mut line = Line {
            reservation: Reservation {
                accountant: Some(named(accountant)),
                data: data(&slices, &[], dealt),
                ..reservation(&folder, Spending::default())
            },
            parties,
            at_server,
            at_clients,
            steps: Vec::new(),
            planned: 0,
            made: Vec::new(),
            carried: Vec::new(),
            unpriced: Vec::new(),
            at_nodes: false,
            in_ledger: chance(&mut self.draws, 0.8),
            folder,
            gone: false,
            end: End::Killed,
        };
        if chance(&mut self.draws, 0.05) {
            let name = line.reservation.data.name.clone();
            line.reservation.data = DataId {
                name,
                ..DataId::default()
            };
            (line.at_nodes, line.in_ledger) = (true, false);
        }
        if chance(&mut self.draws, 0.3) {
            self.learn_from_made(&mut line);
        }
        let steps = 1 + self.draws.below(4);
        line.plan(steps);
        line
    }

    /// Takes made inputs of an earlier run that is done.
    fn learn_from_made(&mut self, line: &mut Line) {
        let done = self.lines.iter().filter(|of| of.end == End::Settled);
        let done: Vec<&Line> = done.collect();
        if done.is_empty() {
            return;
        }
        let maker = done[self.draws.below(done.len())];
        let run = Run::open_brief(&self.dir.join(&maker.folder)).unwrap();
        let released = made_releases(&run, &line.reservation.data, Noise::System).unwrap();
        line.made = [&maker.made[..], &maker.steps.concat()].concat();
        let known = match released {
            Ok(releases) => {
                let clients = releases.of_any_client();
                let all = releases.server.iter().chain(&clients);
                line.carried = all.map(repeated).collect();
                "its releases".into()
            }
            Err(why) => {
                line.unpriced = Observer::ALL.into();
                why
            }
        };
        let told = format!("{} learns of {}: {known}", line.folder, maker.folder);
        self.story.push(told);
    }

    /// Lets a run go on, and ends it somehow.
    fn go_on(&mut self, mut line: Line) {
        if line.in_ledger {
            let one = line.reservation.clone();
            self.ledger.reserve(one, &make).unwrap();
        }
        let left = line.planned - line.steps.len();
        let (clients, parties) = (line.parties.len(), line.parties.clone());
        for _ in 0..self.draws.below(left + 1) {
            let mut step = Vec::new();
            let drawn = (0..clients).filter(|_| chance(&mut self.draws, 0.7));
            let drawn: Vec<usize> = drawn.collect();
            let of_clients = line.at_clients.iter();
            let of_clients = of_clients.flat_map(|e| drawn.iter().map(move |c| (e, Some(*c))));
            let of_server = line.at_server.iter().map(|event| (event, None));
            for (event, client) in of_server.chain(of_clients) {
                let first = usize::from(client.is_none());
                step.push(self.happened.len() as u64);
                self.happened.insert(
                    self.happened.len() as u64,
                    Happened {
                        event: event.clone(),
                        client,
                        observers: Observer::ALL[first..].into(),
                        budget: None,
                        parties: parties.clone(),
                    },
                );
            }
            line.steps.push(step);
        }
        let id = &line.reservation.id.clone();
        line.end = match self.draws.below(10) {
            0..5 => End::Settled,
            5..7 if line.in_ledger => End::Stopped(self.ledger.stop(id).unwrap()),
            5..7 => End::Stopped(0),
            7 if line.carried.is_empty() => End::Budget,
            _ => End::Killed,
        };
        if line.end == End::Budget {
            self.bound(&mut line);
        }
        if line.end == End::Killed && chance(&mut self.draws, 0.15) {
            let observer = Observer::ALL[self.draws.below(3)];
            line.unpriced.push(observer);
            if line.in_ledger {
                self.ledger.seen(id, observer, "an answer is gone").unwrap();
            }
        }
        if line.end == End::Settled && line.in_ledger {
            let spent = line.spent(&self.happened).1;
            self.ledger.settle(id, spent).unwrap();
        }
        line.write(&self.dir, &self.happened);
        self.story.push(line.told());
        self.lines.push(line);
    }

    /// Gives a run a budget from its begin, and lets it spend that.
    fn bound(&mut self, line: &mut Line) {
        let against = Observer::ALL[self.draws.below(3)];
        let pairs = [Neighbours::Removed, Neighbours::Replaced][self.draws.below(2)];
        let epsilon = 0.1 + 0.5 * self.draws.uniform();
        let most = &mut line.reservation.most;
        if chance(&mut self.draws, 0.5) {
            most.releases = None;
        }
        let unknown = most.releases.is_none();
        most.budget = Some(OwnBudget {
            epsilon,
            delta: 1e-6,
            against,
            protects: Some((self.unit, pairs)),
        });
        let (bound, others): (Vec<_>, Vec<_>) =
            Observer::ALL.into_iter().partition(|of| against <= *of);
        // those who see more saw what was planned, or who knows what
        for name in line.steps.iter().flatten() {
            let happened = self.happened.get_mut(name).unwrap();
            happened.observers.retain(|of| others.contains(of));
        }
        let mut spend = |epsilon, observers: Vec<Observer>| {
            let name = self.happened.len() as u64;
            line.steps.push(vec![name]);
            let happened = Happened {
                event: PrivacyEvent::Laplace {
                    sensitivity: epsilon,
                    scale: 1.0,
                    unit: self.unit,
                },
                client: None,
                observers,
                budget: Some(pairs),
                parties: line.parties.clone(),
            };
            self.happened.insert(name, happened);
        };
        spend(epsilon, bound);
        if unknown {
            spend(30.0, others);
        }
        if line.in_ledger {
            let one = line.reservation.clone();
            self.ledger.reserve(one, &make).unwrap();
        }
    }

    /// Something happens: a run begins, resumes, or goes on from a stop, in its folder or a copy.
    fn act(&mut self) {
        let open = |of: &usize| matches!(self.lines[*of].end, End::Killed | End::Stopped(_));
        let open: Vec<usize> = (0..self.lines.len()).filter(open).collect();
        if open.is_empty() || chance(&mut self.draws, 0.4) {
            let line = self.new_line();
            return self.go_on(line);
        }
        let at = open[self.draws.below(open.len())];
        let mut line = self.lines[at].clone();
        line.gone = false;
        let longer = line.steps.len() + 1 + self.draws.below(3);
        let number = self.story.len();
        let in_place = !self.lines[at].gone && chance(&mut self.draws, 0.6);
        match line.end {
            End::Stopped(stop) => {
                line.reservation.id.run = format!("goes-on{number}");
                line.reservation.continues = line.in_ledger.then_some(stop);
                line.plan(longer);
            }
            // with the same spec it draws the same noise
            _ if in_place => _ = self.lines.remove(at),
            // and what it drew after its last checkpoint it draws anew with another
            _ => {
                line.reservation.id.spec = format!("other{number}");
                let saved = self.draws.below(line.steps.len() + 1);
                line.steps.truncate(saved);
                line.plan(longer);
            }
        }
        match (in_place, line.end) {
            (true, End::Stopped(_)) => self.lines[at].gone = true,
            (true, _) => {}
            (false, _) => line.folder = format!("copy{number}"),
        }
        self.go_on(line);
    }

    /// The names of all that this observer of these runs has seen.
    fn seen(&self, lines: &[&Line], observer: Observer) -> BTreeSet<u64> {
        let own = lines.iter().flat_map(|line| line.steps.concat());
        let own = own.filter(|name| self.happened[name].observers.contains(&observer));
        own.chain(lines.iter().flat_map(|line| line.made.clone()))
            .collect()
    }

    /// The largest loss of one unit that the claim is about.
    fn loss(&self, lines: &[&Line], observer: Observer, claim: &Guarantee) -> f64 {
        let lies = |unit: &[u8], party: &[u8]| unit.iter().all(|row| party.contains(row));
        let apart = |unit: &[u8], party: &[u8]| !unit.iter().any(|row| party.contains(row));
        let finest = |unit: &Vec<u8>| {
            let mut parties = lines.iter().flat_map(|line| &line.parties);
            parties.all(|party| lies(unit, party) || apart(unit, party))
        };
        let mut units: BTreeSet<Vec<u8>> = match claim.unit {
            Unit::Example => (1..=ROWS).map(|row| vec![row]).collect(),
            Unit::Party => lines.iter().flat_map(|line| line.parties.clone()).collect(),
        };
        if claim.finest_split {
            units.retain(finest);
            assert!(!units.is_empty(), "no split is the finest");
        }
        let seen = self.seen(lines, observer);
        let about = (claim.unit, claim.neighbours);
        let mut known: BTreeMap<String, f64> = BTreeMap::new();
        let mut most = 0.0f64;
        for unit in units {
            let mut touched: Vec<(&PrivacyEvent, usize)> = Vec::new();
            for name in &seen {
                let happened = &self.happened[name];
                let parties = happened.parties.iter().enumerate();
                let own = parties.filter(|(at, party)| {
                    !apart(&unit, party) && happened.client.is_none_or(|client| client == *at)
                });
                let rows = |party: &[u8]| unit.iter().filter(|row| party.contains(row)).count();
                // what protects an example shows each row of a party
                let each_row =
                    claim.unit == Unit::Party && protects(&happened.event) == Unit::Example;
                let own = own.map(|(_, party)| if each_row { rows(party) } else { 1 });
                let times = match happened.budget {
                    Some(pairs) if pairs != claim.neighbours => match (claim.unit, pairs) {
                        (Unit::Party, Neighbours::Replaced) => 1,
                        // to remove and to add
                        (_, Neighbours::Removed) => 2,
                        (Unit::Example, Neighbours::Replaced) => 3,
                    },
                    _ => 1,
                };
                touched.push((&happened.event, times * own.sum::<usize>()));
            }
            touched.retain(|(_, times)| *times > 0);
            let found = *known.entry(format!("{touched:?}")).or_insert_with(|| {
                let mut loss = Loss::none();
                for (event, times) in &touched {
                    loss.see(event, *times, about);
                }
                loss.epsilon(claim.delta)
            });
            most = most.max(found);
        }
        most
    }

    /// Compares what is said of these runs with what their observers can tell.
    fn compare(&self, who: &str, lines: &[&Line], said: &Protections, tally: &mut Tally) {
        for (observer, protection) in said {
            let Protection::Holds(claim) = protection else {
                tally.nothing += 1;
                continue;
            };
            let story = || self.story.join("\n");
            for line in lines {
                assert!(
                    !line.at_nodes || lines.len() == 1,
                    "{who} against {observer}: {protection}; the rows of {} are not known\n{}",
                    line.folder,
                    story()
                );
                assert!(
                    !line.unpriced.contains(observer),
                    "{who} against {observer}: {protection}; {} showed something without a price\n{}",
                    line.folder,
                    story()
                );
            }
            let loss = self.loss(lines, *observer, claim);
            assert!(
                loss <= claim.epsilon * (1.0 + 1e-9) + 1e-9,
                "{who} against {observer}: {protection}; an observer has {loss}\n{}",
                story()
            );
            tally.numbers += 1;
            if claim.epsilon > 0.0 {
                tally.closest = tally.closest.max(loss / claim.epsilon);
            }
            tally.several += usize::from(claim.finest_split);
        }
    }

    fn check(&self, tally: &mut Tally) {
        let ledger = DataLedger::open(&self.dir.join("l")).unwrap();
        let known: Vec<&Line> = self.lines.iter().filter(|line| line.in_ledger).collect();
        for set in ledger.data_sets() {
            self.compare("the ledger", &known, &set.together(&make), tally);
        }
        let shown: Vec<&Line> = self.lines.iter().filter(|line| !line.gone).collect();
        let open = |line: &&Line| Run::open_brief(&self.dir.join(&line.folder)).unwrap();
        let runs: Vec<Run> = shown.iter().map(open).collect();
        let entries = Entry::of_runs(runs.iter().map(|run| (run.label.clone(), run)));
        let sets = data_sets(&entries);
        assert_eq!(sets.len(), 1);
        let said = sets[0].together(&make);
        self.compare("the page", &shown, &said, tally);
        for line in self.lines.iter().filter(|line| line.end == End::Settled) {
            let ((alone, _), _) = line.spent(&self.happened);
            self.compare("the run", &[line], &alone, tally);
        }
        // pages and studies print that
        let named = runs.iter().map(|run| (run.label.clone(), run));
        let table = fl_study::joint(named, &make).filter(|_| runs.len() > 1);
        let rows: Vec<&Vec<String>> = table.iter().flat_map(|t| &t.section.rows).collect();
        for row in &rows {
            let about = said.iter().find(|(o, _)| o.to_string() == row[2]).unwrap();
            assert_eq!(row[3], about.1.to_string(), "{}", self.story.join("\n"));
        }
        // where a page shows the number of one run, it also shows what holds for all
        let settled = shown.iter().filter(|line| line.end == End::Settled);
        for line in settled.filter(|_| runs.len() > 1) {
            let ((alone, _), _) = line.spent(&self.happened);
            for (observer, _) in alone.iter().filter(|(_, p)| p.guarantee().is_some()) {
                assert!(
                    rows.iter().any(|row| row[2] == observer.to_string()),
                    "nothing is said of all runs against {observer}\n{}",
                    self.story.join("\n")
                );
            }
        }
    }
}

fn protects(event: &PrivacyEvent) -> Unit {
    match event {
        PrivacyEvent::Laplace { unit, .. }
        | PrivacyEvent::Pure { unit, .. }
        | PrivacyEvent::Gaussian { unit, .. }
        | PrivacyEvent::SubsampledGaussian { unit, .. }
        | PrivacyEvent::FixedSizeGaussian { unit, .. } => *unit,
        other => panic!("{other} is not in a history"),
    }
}

fn repeated((times, event): &(u64, PrivacyEvent)) -> PrivacyEvent {
    PrivacyEvent::Repeated {
        times: *times as usize,
        event: Box::new(event.seen_by(Observer::Readers)),
    }
}

impl Line {
    /// Reserves this number of steps.
    fn plan(&mut self, steps: usize) {
        self.planned = steps;
        let times = |event: &PrivacyEvent| (steps as u64, event.clone());
        let mut events: Counted = self.at_clients.iter().map(times).collect();
        events.extend(counted(&self.carried));
        let why = |observer: &Observer| (*observer, vec!["it saw something".into()]);
        self.reservation.most = Spending {
            releases: Some(Releases {
                server: self.at_server.iter().map(times).collect(),
                clients: vec![ClientReleases {
                    clients: vec![(0, ClientId::MAX)],
                    events,
                }],
            }),
            budget: None,
            nothing: self.unpriced.iter().map(why).collect(),
        };
    }

    /// What it has released, and what counts of it; with the guarantees of the run alone.
    fn spent(
        &self,
        happened: &BTreeMap<u64, Happened>,
    ) -> ((Protections, Option<Releases>), Spending) {
        let mut server = Vec::new();
        let each = 0..self.parties.len() as ClientId;
        let mut clients: BTreeMap<ClientId, Vec<PrivacyEvent>> =
            each.map(|client| (client, self.carried.clone())).collect();
        for name in self.steps.iter().flatten() {
            let Happened { event, client, .. } = &happened[name];
            match client {
                None => server.push(event.clone()),
                Some(at) => clients
                    .entry(*at as ClientId)
                    .or_default()
                    .push(event.clone()),
            }
        }
        let releases = Releases::of(&server, &clients);
        let id = self.reservation.accountant.as_ref().unwrap();
        let of = |observer| {
            let priced = if self.unpriced.contains(&observer) {
                Err("it saw something".into())
            } else {
                price(make(id).unwrap(), &releases, observer).map_err(|e| format!("{e:#}"))
            };
            let holds = |guarantee| Guarantee {
                after_split: self.reservation.data.dealt,
                noise: Noise::System,
                ..guarantee
            };
            let said = priced.map_or_else(
                |why| Protection::nothing(vec![why]),
                |guarantee| Protection::Holds(holds(guarantee)),
            );
            (observer, said)
        };
        let privacy: Protections = Observer::ALL.into_iter().map(of).collect();
        let nothing = privacy.iter().filter_map(|(observer, said)| match said {
            Protection::Nothing { nothing, .. } => Some((*observer, nothing.clone())),
            Protection::Holds(_) => None,
        });
        let spending = Spending {
            nothing: nothing.collect(),
            releases: Some(releases),
            budget: None,
        };
        let shown = Releases::shown(true, &server, &clients, &privacy);
        ((privacy, shown), spending)
    }

    /// Writes its folder, as far as a page reads it.
    fn write(&self, dir: &Path, happened: &BTreeMap<u64, Happened>) {
        let folder = dir.join(&self.folder);
        fs::create_dir_all(&folder).unwrap();
        let put = |name: &str, text: String| fs::write(folder.join(name), text).unwrap();
        put("spec.yaml", "{ name: x, seed: 1 }".into());
        put("run.json", json!({ "book": self.reservation }).to_string());
        let seen: BTreeMap<&str, Option<f64>> = Observer::ALL
            .iter()
            .map(|o| (o.name(), (!self.unpriced.contains(o)).then_some(0.0)))
            .collect();
        let cost = json!({ "step": "round 1", "round": 1, "bytes_up": 0, "bytes_down": 0, "privacy": seen });
        put("costs.jsonl", format!("{cost}\n"));
        if self.end == End::Settled {
            let ((privacy, releases), _) = self.spent(happened);
            let summary =
                json!({ "outcome": { "privacy": privacy, "digest": "d" }, "releases": releases });
            put("outcome.json", summary.to_string());
        }
    }

    fn told(&self) -> String {
        let Reservation {
            id,
            continues,
            data,
            accountant,
            most,
            ..
        } = &self.reservation;
        let end = match self.end {
            End::Settled => "done".into(),
            End::Stopped(at) => format!("stopped at {at}"),
            End::Killed => "killed".into(),
            End::Budget => format!("{:?}", most.budget),
        };
        format!(
            "{} ({id:?}, from {continues:?}; {}): {:?}, dealt {}, server {:?}, clients {:?}, {} of {} steps, {end}",
            self.folder,
            if self.in_ledger {
                "ledger"
            } else {
                "no ledger"
            },
            accountant.as_ref().map(ToString::to_string),
            data.dealt,
            self.at_server,
            self.at_clients,
            self.steps.len(),
            self.planned,
        )
    }
}

/// The comparisons.
#[derive(Debug, Default)]
struct Tally {
    /// Those with a number.
    numbers: usize,
    /// Those of the finest of several splits.
    several: usize,
    /// Those without a number.
    nothing: usize,
    /// The largest loss, as a share of the number.
    closest: f64,
}

/// `FL_HISTORIES` and `FL_SEED` make other and more histories: `tests/bench/joins.sh`.
#[test]
fn bounded_no_history_of_runs_reveals_more_than_is_said_of_it() {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let (all, seed) = (
        number("FL_HISTORIES").unwrap_or(200),
        number("FL_SEED").unwrap_or(1),
    );
    let mut tally = Tally::default();
    for history in 0..all {
        // each record is synced, which a disk takes long for
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        };
        let dir = dir.unwrap();
        let mut one = History::new(history, seed, dir.path());
        for _ in 0..2 + one.draws.below(4) {
            one.act();
        }
        one.check(&mut tally);
    }
    eprintln!("{tally:?}");
    // both kinds are there, and the numbers are not far from the truth
    assert!(tally.numbers > all as usize, "{tally:?}");
    assert!(tally.nothing > all as usize / 2, "{tally:?}");
    assert!(tally.several > 0 && tally.closest > 0.9, "{tally:?}");
}

/// Inputs that a run made of its rows show what it released, to parties that it covers.
#[test]
fn made_inputs_count_only_where_their_guarantee_covers_the_rows() {
    let dir = tempfile::tempdir().unwrap();
    let made = |unit: Unit, dealt: bool| {
        let parties: Parties = vec![vec![1, 2], vec![3, 4], vec![5, 6]];
        let slices: Vec<&[u8]> = parties.iter().map(|party| &party[..]).collect();
        let event = gaussian(4.0, unit);
        let mut line = Line {
            reservation: Reservation {
                accountant: Some(named("rdp")),
                data: data(&slices, &[], dealt),
                ..reservation("made", Spending::default())
            },
            at_server: Some(event.clone()),
            at_clients: None,
            steps: vec![vec![0]],
            planned: 0,
            made: Vec::new(),
            carried: Vec::new(),
            unpriced: Vec::new(),
            at_nodes: false,
            in_ledger: false,
            folder: "made".into(),
            gone: false,
            end: End::Settled,
            parties,
        };
        line.plan(1);
        let happened = Happened {
            event,
            client: None,
            observers: Observer::ALL.into(),
            budget: None,
            parties: line.parties.clone(),
        };
        line.write(dir.path(), &[(0, happened)].into());
        Run::open_brief(&dir.path().join("made")).unwrap()
    };
    let (same, coarser): (&[&[u8]], &[&[u8]]) =
        (&[&[1, 2], &[3, 4], &[5, 6]], &[&[1, 2, 3, 4], &[5, 6]]);
    let finer: &[&[u8]] = &[&[1], &[2], &[3, 4], &[5, 6]];
    let (parties, split) = (Some("other parties than those"), Some("rows after a split"));
    for (unit, made_dealt, own, own_dealt, why) in [
        (Unit::Party, false, same, false, None),
        (Unit::Party, false, finer, false, None),
        (Unit::Party, false, coarser, false, parties),
        (Unit::Example, false, coarser, false, None),
        (Unit::Party, true, same, false, split),
        (Unit::Example, true, same, false, split),
        (Unit::Example, true, same, true, None),
    ] {
        let own = data(own, &[], own_dealt);
        let run = made(unit, made_dealt);
        match (made_releases(&run, &own, Noise::System).unwrap(), why) {
            (Ok(releases), None) => assert_eq!(releases.server.len(), 1),
            (Err(told), Some(why)) => assert!(told.contains(why), "{told}"),
            (found, why) => panic!("{unit}: {found:?}, and not {why:?}"),
        }
    }
}
