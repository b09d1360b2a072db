//! What a ledger keeps, composes, refuses and finds.
mod joins;
mod loss;
mod prices;

use fl_core::privacy::UpperBound;
use fl_core::privacy::{Neighbours, Noise, Observer, Unit};
use fl_core::settings::Value;
use fl_core::{Accountant, BuildContext, Parts, PrivacyEvent, Role, SlotAssignment, Stream};
use fl_core::{Result, Task, TaskKind};
use fl_plugins as _;
use fl_privacy::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn make(id: &AccountantId) -> Result<Box<dyn Accountant>> {
    let known = fl_core::linked_parts();
    let mut known = known.into_iter();
    let decl = known
        .find(|part| part.role == Role::Accountant && part.name == id.name)
        .expect("a linked accountant");
    let settings: Value = serde_json::from_value(id.settings.clone())?;
    let parts = Parts::new(vec![SlotAssignment {
        slot: "accountant".into(),
        clients: None,
        decl,
        settings: decl.read(&settings)?,
    }]);
    let context = BuildContext {
        task: Task {
            input: vec![1],
            kind: TaskKind::Classes(2),
        },
        stream: Stream::root(0),
    };
    parts.build(Role::Accountant, "accountant", None, &context)
}

fn named(name: &str) -> AccountantId {
    let settings = match name {
        "basic" => serde_json::json!({}),
        _ => serde_json::json!({ "delta": 1e-5 }),
    };
    AccountantId {
        name: name.into(),
        settings,
    }
}

fn gaussian(sigma: f64, unit: Unit) -> PrivacyEvent {
    PrivacyEvent::Gaussian {
        sensitivity: 1.0,
        sigma,
        unit,
    }
}

/// Releases of the server.
fn server(times: u64, sigma: f64) -> Spending {
    spent(Releases {
        server: vec![(times, gaussian(sigma, Unit::Example))],
        clients: Vec::new(),
    })
}

/// The price is known at the end only.
fn unknown() -> Spending {
    Spending::default()
}

fn reservation(run: &str, most: Spending) -> Reservation {
    Reservation {
        id: RunId {
            run: run.into(),
            spec: "s".into(),
        },
        continues: None,
        time: String::new(),
        name: run.into(),
        seed: 1,
        data: DataId {
            name: "patients".into(),
            rows: "r".into(),
            split: "one".into(),
            dealt: false,
            key: "k".into(),
            ..DataId::default()
        },
        accountant: Some(named("rdp")),
        noise: Noise::System,
        claimed_by: Vec::new(),
        most,
    }
}

fn spent(releases: Releases) -> Spending {
    Spending {
        releases: Some(releases),
        ..Spending::default()
    }
}

fn begun(limit: Option<Limit>) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    DataLedger::init(&path, limit).unwrap();
    (dir, path)
}

fn head_of(path: &Path) -> PathBuf {
    path.with_file_name("l.head")
}

fn epsilon_of(all: &fl_core::privacy::Protections, observer: Observer) -> Option<f64> {
    all[&observer].guarantee().map(|g| g.epsilon)
}

/// The epsilon of the only data set against readers.
fn epsilon(path: &Path) -> Option<f64> {
    let ledger = DataLedger::open(path).unwrap();
    let sets = ledger.data_sets();
    assert_eq!(sets.len(), 1);
    epsilon_of(&sets[0].together(&make), Observer::Readers)
}

/// What one accountant says of these.
fn priced(name: &str, events: &[PrivacyEvent]) -> f64 {
    let mut accountant = make(&named(name)).unwrap();
    events.iter().for_each(|e| accountant.charge(e).unwrap());
    accountant.guarantee(None).unwrap().epsilon
}

fn close(found: Option<f64>, wanted: f64) {
    let found = found.expect("a guarantee");
    assert!((found / wanted - 1.0).abs() < 1e-9, "{found} of {wanted}");
}

#[test]
fn close_ten_runs_cost_what_their_accountant_composes() {
    for name in ["rdp", "pld"] {
        let (_dir, path) = begun(None);
        for run in 0..10 {
            let mut ledger = DataLedger::open(&path).unwrap();
            let mut one = reservation(&format!("run{run}"), server(30, 8.0));
            one.accountant = Some(named(name));
            ledger.reserve(one.clone(), &make).unwrap();
            // it ended early
            ledger.settle(&one.id, server(20, 8.0)).unwrap();
        }
        let all = vec![gaussian(8.0, Unit::Example); 200];
        let one = priced(name, &all[..20]);
        close(epsilon(&path), priced(name, &all));
        // and not their sum
        assert!(epsilon(&path).unwrap() < 6.0 * one);
    }
}

#[test]
fn close_different_accountants_add() {
    let (_dir, path) = begun(None);
    let mut ledger = DataLedger::open(&path).unwrap();
    let mut pld = reservation("b", server(5, 8.0));
    pld.accountant = Some(named("pld"));
    ledger
        .reserve(reservation("a", server(20, 8.0)), &make)
        .unwrap();
    ledger.reserve(pld, &make).unwrap();
    let all = vec![gaussian(8.0, Unit::Example); 20];
    let together = ledger.data_sets()[0].together(&make);
    let guarantee = together[&Observer::Readers].guarantee().unwrap();
    close(
        Some(guarantee.epsilon),
        priced("rdp", &all) + priced("pld", &all[..5]),
    );
    assert_eq!(guarantee.delta, 2e-5);
}

#[test]
fn a_reservation_counts_until_the_run_is_done() {
    let (_dir, path) = begun(None);
    let mut ledger = DataLedger::open(&path).unwrap();
    let of = |times| priced("rdp", &vec![gaussian(8.0, Unit::Example); times]);
    let one = reservation("a", server(30, 8.0));
    ledger.reserve(one.clone(), &make).unwrap();
    close(epsilon(&path), of(30)); // killed: all of it
    ledger.reserve(one.clone(), &make).unwrap();
    close(epsilon(&path), of(30)); // resumed: once
    ledger.settle(&one.id, server(20, 8.0)).unwrap();
    close(epsilon(&path), of(20));
    // a copy of its folder with another spec draws other noise
    let mut copy = one.clone();
    copy.id.spec = "longer".into();
    ledger.reserve(copy, &make).unwrap();
    close(epsilon(&path), of(50));
}

#[test]
fn the_first_that_goes_on_from_a_stop_replaces_it_and_every_copy_counts() {
    let of = |times| priced("rdp", &vec![gaussian(8.0, Unit::Example); times]);
    let from = |run: &str, times, stop| Reservation {
        continues: Some(stop),
        ..reservation(run, server(times, 8.0))
    };
    let one = reservation("a", server(30, 8.0));
    let (_dir, path) = begun(None);
    let mut ledger = DataLedger::open(&path).unwrap();
    ledger.reserve(one.clone(), &make).unwrap();
    let stop = ledger.stop(&one.id).unwrap();
    close(epsilon(&path), of(30));
    let longer = from("b", 40, stop);
    let forecast = ledger.forecast(&longer, &make);
    assert_eq!(forecast.others, 0, "it is the same run");
    ledger.reserve(longer.clone(), &make).unwrap();
    close(epsilon(&path), of(40));
    // killed and resumed
    ledger.reserve(longer.clone(), &make).unwrap();
    close(epsilon(&path), of(40));
    // the folder was copied at its stop; the copy goes on, and so does a copy of the copy
    ledger.stop(&longer.id).unwrap();
    let copy = from("c", 5, stop);
    ledger.reserve(copy.clone(), &make).unwrap();
    close(epsilon(&path), of(45));
    let again = ledger.stop(&copy.id).unwrap();
    assert_ne!(again, stop, "each stop has a number of its own");
    ledger.reserve(from("d", 7, again), &make).unwrap();
    close(epsilon(&path), of(47));
    ledger.reserve(from("e", 1, again), &make).unwrap();
    close(epsilon(&path), of(48));
    // one that was killed may have drawn noise that a run with another spec draws again
    let (_dir, path) = begun(None);
    let mut ledger = DataLedger::open(&path).unwrap();
    ledger.reserve(one, &make).unwrap();
    let mut other = reservation("a", server(40, 8.0));
    other.id.spec = "longer".into();
    ledger.reserve(other, &make).unwrap();
    close(epsilon(&path), of(70));
}

#[test]
fn a_budget_bounds_its_own_observer_and_those_who_see_less() {
    let budget = |against| Spending {
        releases: Some(server(30, 8.0).releases.unwrap()),
        budget: Some(OwnBudget {
            epsilon: 0.5,
            delta: 1e-5,
            against,
            protects: Some((Unit::Example, Neighbours::Removed)),
        }),
        ..Spending::default()
    };
    let all = priced("rdp", &vec![gaussian(8.0, Unit::Example); 30]);
    for (against, due) in [
        (Observer::Server, [0.5, 0.5, 0.5]),
        (Observer::Clients, [0.0, 0.5, 0.5]),
        (Observer::Readers, [0.0, all, 0.5]),
    ] {
        let (_dir, path) = begun(None);
        let mut ledger = DataLedger::open(&path).unwrap();
        ledger
            .reserve(reservation("a", budget(against)), &make)
            .unwrap();
        let together = ledger.data_sets()[0].together(&make);
        for (observer, due) in Observer::ALL.into_iter().zip(due) {
            let found = epsilon_of(&together, observer).unwrap();
            assert!((found - due).abs() < 1e-9, "{against}, {observer}: {found}");
        }
    }
    // without a plan nothing else bounds those who see more
    let (_dir, path) = begun(None);
    let mut ledger = DataLedger::open(&path).unwrap();
    let unplanned = Spending {
        releases: None,
        ..budget(Observer::Readers)
    };
    ledger.reserve(reservation("a", unplanned), &make).unwrap();
    let together = ledger.data_sets()[0].together(&make);
    assert!(together[&Observer::Clients].guarantee().is_none());
    assert_eq!(epsilon_of(&together, Observer::Readers), Some(0.5));
}

/// Rows by their numbers, split among parties.
fn data(parties: &[&[u8]], public: &[u8], dealt: bool) -> DataId {
    let row = |number: &u8| [*number; 32];
    let rows = |of: &[u8]| of.iter().map(row).collect::<Vec<_>>();
    let identity = fl_data::RowIdentity {
        clients: parties.iter().map(|own| rows(own)).collect(),
        public: rows(public),
    };
    let mut all = parties.concat();
    all.sort_unstable();
    let sharing = Sharing {
        dealt,
        pooled: false,
    };
    let key = RowKey::of(b"a secret");
    DataId::of("x".into(), &key, (&format!("{all:?}"), &identity), sharing)
}

#[test]
fn parties_of_several_splits_have_a_guarantee_only_if_one_split_is_the_finest() {
    let party = |data: DataId| {
        let of_all = spent(Releases {
            server: vec![(1, gaussian(8.0, Unit::Party))],
            clients: Vec::new(),
        });
        Reservation {
            data,
            ..reservation("r", of_all)
        }
    };
    let joint = |splits: &[DataId]| {
        let (_dir, path) = begun(None);
        let mut ledger = DataLedger::open(&path).unwrap();
        for (at, split) in splits.iter().enumerate() {
            let mut one = party(split.clone());
            one.id.run = at.to_string();
            ledger.reserve(one, &make).unwrap();
        }
        ledger.data_sets()[0].together(&make)[&Observer::Readers].clone()
    };
    let split = |parties: &[&[u8]]| data(parties, &[], false);
    let coarse = split(&[&[1, 2, 3, 4], &[5, 6]]);
    let fine = split(&[&[5, 6], &[1, 2], &[3], &[4]]);
    assert!(fine.lies_in(&coarse) && !coarse.lies_in(&fine));
    let said = joint(&[coarse.clone(), coarse.clone()]).to_string();
    assert!(said.contains(" for each party (replaced"), "{said}");
    let said = joint(&[coarse.clone(), fine.clone(), coarse.clone()]).to_string();
    assert!(
        said.contains(" for each party of the finest split (replaced"),
        "{said}"
    );
    for other in [
        // one row moved, a row more, another row, other groups
        split(&[&[1, 2, 3], &[4, 5, 6]]),
        split(&[&[1, 2, 3, 4, 7], &[5, 6]]),
        split(&[&[1, 2, 3, 9], &[5, 6]]),
        split(&[&[1, 2], &[3, 4, 5], &[6]]),
        data(&[&[1, 2], &[3, 4], &[5, 6]], &[], true),
        DataId {
            key: "another".into(),
            ..coarse.clone()
        },
    ] {
        let all = joint(&[coarse.clone(), other.clone()]);
        assert!(all.guarantee().is_none(), "{other:?}: {all}");
    }
    // a party that takes part in one run only has its guarantee there
    let more = split(&[&[1, 2, 3, 4], &[5, 6], &[7, 8]]);
    assert!(coarse.lies_in(&more) && !more.lies_in(&coarse));
    // an example may be of any party in each run
    let mut ledger_of = party(fine);
    ledger_of.most = server(1, 8.0);
    let mut other = ledger_of.clone();
    (other.id.run, other.data) = ("o".into(), split(&[&[1, 6], &[2, 3, 4, 5]]));
    let (_dir, path) = begun(None);
    let mut ledger = DataLedger::open(&path).unwrap();
    ledger.reserve(ledger_of, &make).unwrap();
    ledger.reserve(other, &make).unwrap();
    assert!(epsilon(&path).is_some());
}

#[test]
fn rows_that_another_run_makes_public_leave_nothing() {
    let own = data(&[&[1, 2], &[3]], &[9], false);
    let open = |public: &[u8]| data(&[&[5], &[6]], public, false);
    assert!(open(&[7, 3]).publishes(&own));
    assert!(!open(&[7, 9]).publishes(&own));
    let elsewhere = DataId {
        key: "another".into(),
        ..open(&[7])
    };
    assert!(elsewhere.publishes(&own), "nobody can tell");
    assert!(!elsewhere.publishes(&DataId {
        key: "another".into(),
        ..own
    }));
}

#[test]
fn equal_rows_or_one_name_are_one_data_set() {
    let (_dir, path) = begun(None);
    let mut ledger = DataLedger::open(&path).unwrap();
    let mut add = |run: &str, name: &str, rows: &str| {
        let mut one = reservation(run, server(1, 8.0));
        (one.data.name, one.data.rows) = (name.into(), rows.into());
        ledger.reserve(one, &make).unwrap();
        let sizes = ledger.data_sets().into_iter().map(|set| set.runs.len());
        sizes.collect::<Vec<_>>()
    };
    assert_eq!(add("a", "clinic", "1"), [1]);
    assert_eq!(add("b", "trial", "2"), [1, 1]);
    assert_eq!(add("c", "clinic", "3"), [2, 1]);
    // renamed
    assert_eq!(add("d", "other", "2"), [2, 2]);
    // it brings both together
    assert_eq!(add("e", "trial", "3"), [5]);
}

#[test]
fn close_clients_with_one_split_are_told_apart_and_others_are_not() {
    let clients = |split: &str, groups: &[(u32, u64)]| {
        let group = |(id, times): &(u32, u64)| ClientReleases {
            clients: vec![(*id, *id)],
            events: vec![(*times, gaussian(8.0, Unit::Example))],
        };
        let most = spent(Releases {
            server: Vec::new(),
            clients: groups.iter().map(group).collect(),
        });
        let mut one = reservation(&format!("{split}{groups:?}"), most);
        one.data.split = split.into();
        one
    };
    let of = |times| priced("rdp", &vec![gaussian(8.0, Unit::Example); times]);
    let total = |runs: &[Reservation]| {
        let (_dir, path) = begun(None);
        let mut ledger = DataLedger::open(&path).unwrap();
        for run in runs {
            ledger.reserve(run.clone(), &make).unwrap();
        }
        let all = ledger.data_sets()[0].together(&make);
        // the server sees them as well
        assert_eq!(
            epsilon_of(&all, Observer::Server),
            epsilon_of(&all, Observer::Readers)
        );
        epsilon_of(&all, Observer::Server)
    };
    let (a, b) = (
        clients("x", &[(0, 10), (1, 3)]),
        clients("x", &[(0, 2), (1, 20)]),
    );
    close(total(&[a.clone(), b]), of(23)); // client 1
    close(total(&[a, clients("y", &[(0, 2), (1, 20)])]), of(30)); // any row may be 0's, then 1's
}

#[test]
fn what_has_no_price_leaves_nothing_and_says_whose_it_is() {
    let (_dir, path) = begun(None);
    let mut ledger = DataLedger::open(&path).unwrap();
    let open = reservation("open", server(1, 8.0));
    ledger.reserve(open.clone(), &make).unwrap();
    ledger
        .seen(&open.id, Observer::Server, "an answer was left out")
        .unwrap();
    let together = |ledger: &DataLedger| ledger.data_sets()[0].together(&make);
    let all = together(&ledger);
    let text = all[&Observer::Server].to_string();
    assert_eq!(text, "nothing: an answer was left out (in open (seed 1))");
    assert!(all[&Observer::Readers].guarantee().is_some());
    // a party's and an example's guarantee
    let mut party = reservation("party", unknown());
    ledger.reserve(party.clone(), &make).unwrap();
    let text = together(&ledger)[&Observer::Readers].to_string();
    assert!(
        text.contains("the price of party (seed 1) is known only at its end"),
        "{text}"
    );
    let releases = Releases::of(&[gaussian(8.0, Unit::Party)], &BTreeMap::new());
    ledger.settle(&party.id, spent(releases)).unwrap();
    let text = together(&ledger)[&Observer::Readers].to_string();
    assert!(text.contains("do not add up"), "{text}");
    party.accountant = None;
    party.id.run = "bare".into();
    ledger.reserve(party, &make).unwrap();
    for observer in Observer::ALL {
        let text = together(&ledger)[&observer].to_string();
        assert!(
            text.contains("the run has no accountant (in party (seed 1))"),
            "{text}"
        );
    }
}

#[test]
fn a_limit_refuses_before_anything_is_reserved() {
    let limit = |epsilon, delta| Limit {
        epsilon,
        against: Observer::Readers,
        delta,
    };
    let ten = priced("rdp", &vec![gaussian(8.0, Unit::Example); 10]);
    let (_dir, path) = begun(Some(limit(ten, Some(1e-5))));
    let mut ledger = DataLedger::open(&path).unwrap();
    let one = reservation("a", server(6, 8.0));
    ledger.reserve(one.clone(), &make).unwrap();
    ledger
        .reserve(reservation("b", server(4, 8.0)), &make)
        .unwrap();
    let before = fs::read(&path).unwrap();
    let mut refused = |one: Reservation| {
        let error = ledger.reserve(one, &make).unwrap_err().to_string();
        assert!(
            error.contains("refused before anything was released"),
            "{error}"
        );
        assert_eq!(fs::read(&path).unwrap(), before);
        error
    };
    let error = refused(reservation("c", server(1, 8.0)));
    assert!(
        error.contains(&format!("{} is spent or reserved", UpperBound(ten))),
        "{error}"
    );
    let mut other = reservation("d", server(1, 800.0));
    other.accountant = Some(named("pld"));
    let error = refused(other);
    assert!(error.contains("would bring it to 2e-5"), "{error}");
    assert!(refused(reservation("e", unknown())).contains("known only at its end"));
    // it spent less than it could
    ledger.settle(&one.id, server(5, 8.0)).unwrap();
    ledger
        .reserve(reservation("c", server(1, 8.0)), &make)
        .unwrap();
}

#[test]
fn of_many_processes_at_once_no_more_get_in_than_the_limit_allows() {
    let limit = Limit {
        epsilon: priced("rdp", &vec![gaussian(8.0, Unit::Example); 10]),
        against: Observer::Readers,
        delta: None,
    };
    let (_dir, path) = begun(Some(limit));
    let run = |k: usize| {
        let mut ledger = DataLedger::open(&path).unwrap();
        let one = reservation(&format!("run{k}"), server(1, 8.0));
        let in_it = ledger.reserve(one.clone(), &make).is_ok();
        if in_it {
            ledger.settle(&one.id, one.most).unwrap();
        }
        in_it
    };
    let run = &run;
    let admitted: usize = std::thread::scope(|scope| {
        let all: Vec<_> = (0..30).map(|k| scope.spawn(move || run(k))).collect();
        all.into_iter()
            .map(|one| usize::from(one.join().unwrap()))
            .sum()
    });
    assert_eq!(admitted, 10);
    assert_eq!(DataLedger::open(&path).unwrap().entries().len(), 10);
}

fn a_ledger_with_runs() -> (tempfile::TempDir, PathBuf) {
    let (dir, path) = begun(None);
    let mut ledger = DataLedger::open(&path).unwrap();
    for k in 0..20 {
        let one = reservation(&format!("run{k}"), server(3, 1.0 + f64::from(k) / 7.0));
        ledger.reserve(one.clone(), &make).unwrap();
        if k % 3 != 0 {
            ledger.settle(&one.id, server(2, 1.5)).unwrap();
        }
    }
    (dir, path)
}

#[test]
fn a_thousand_changes_of_one_byte_are_all_found() {
    let (_dir, path) = a_ledger_with_runs();
    let head = head_of(&path);
    let mut draws = Stream::root(7).draws();
    for k in 0..1000 {
        // the head is short, so it gets every fifth change
        let file = if k % 5 == 0 { &head } else { &path };
        let whole = fs::read(file).unwrap();
        let mut bent = whole.clone();
        let at = draws.below(bent.len());
        bent[at] ^= 1 << draws.below(8);
        fs::write(file, &bent).unwrap();
        let error = DataLedger::open(&path).err().expect("a change is found");
        assert!(
            error.to_string().contains("no run may use this ledger"),
            "{error}"
        );
        fs::write(file, &whole).unwrap();
    }
    assert!(DataLedger::open(&path).is_ok());
}

#[test]
fn lines_that_are_cut_swapped_or_repeated_are_found() {
    let (_dir, path) = a_ledger_with_runs();
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let without = |at: usize| [&lines[..at], &lines[at + 1..]].concat().concat();
    let mut swapped = lines.clone();
    swapped.swap(3, 4);
    let repeated = [&lines[..5], &lines[4..]].concat().concat();
    for changed in [
        without(0),
        without(7),
        without(lines.len() - 1),
        swapped.concat(),
        repeated,
    ] {
        fs::write(&path, changed).unwrap();
        assert!(DataLedger::open(&path).is_err());
    }
    // half a line, of a process that was killed while it wrote
    fs::write(&path, format!("{text}{}", &lines[2][..90])).unwrap();
    let mut ledger = DataLedger::open(&path).unwrap();
    ledger
        .reserve(reservation("next", server(1, 2.0)), &make)
        .unwrap();
    let read = DataLedger::open(&path).unwrap();
    assert_eq!(read.entries(), ledger.entries());
    assert_eq!(read.entries().len(), 21);
}

#[test]
fn an_older_copy_is_found_by_what_knows_a_newer_head() {
    let (dir, path) = a_ledger_with_runs();
    let head = head_of(&path);
    let old = (fs::read(&path).unwrap(), fs::read(&head).unwrap());
    let mut ledger = DataLedger::open(&path).unwrap();
    let before = ledger.head();
    let newer = ledger
        .reserve(reservation("next", server(1, 2.0)), &make)
        .unwrap();
    assert!(ledger.check_contains(&before, "x").is_ok());
    // an older head alone changes nothing; older records alone are too short
    let new = (fs::read(&path).unwrap(), fs::read(&head).unwrap());
    fs::write(&head, &old.1).unwrap();
    let read = DataLedger::open(&path).unwrap();
    assert!(read.check_contains(&newer, "x").is_ok());
    fs::write(&head, &new.1).unwrap();
    fs::write(&path, &old.0).unwrap();
    assert!(DataLedger::open(&path).is_err());
    fs::write(&head, &old.1).unwrap();
    // both
    let restored = DataLedger::open(&path).unwrap();
    let error = restored
        .check_contains(&newer, "the run in r")
        .unwrap_err()
        .to_string();
    assert!(error.contains("an older copy was restored"), "{error}");
    assert!(error.contains("the run in r"), "{error}");
    // and it grew again since, in another way
    let mut other = restored;
    other
        .reserve(reservation("other", server(1, 2.0)), &make)
        .unwrap();
    assert!(other.check_contains(&newer, "x").is_err());
    assert!(other.check_contains(&before, "x").is_ok());
    // another ledger
    let second = dir.path().join("second");
    DataLedger::init(&second, None).unwrap();
    assert!(
        DataLedger::open(&second)
            .unwrap()
            .check_contains(&before, "x")
            .is_err()
    );
    // its text reads back
    let text: Head = newer.to_string().parse().unwrap();
    assert!(ledger.check_contains(&text, "x").is_ok());
}

#[test]
fn a_ledger_is_never_replaced_and_no_other_file_is_one() {
    let (dir, path) = begun(None);
    let error = DataLedger::init(&path, None).unwrap_err().to_string();
    assert!(error.contains("a ledger is never replaced"), "{error}");
    let missing = dir.path().join("missing");
    let error = DataLedger::open(&missing).err().unwrap().to_string();
    assert!(error.contains("fl ledger init"), "{error}");
    fs::remove_file(head_of(&path)).unwrap();
    assert!(DataLedger::open(&path).is_err());
    assert!(DataLedger::init(&path, None).is_err());
    // both files are lost, and the key is there
    fs::remove_file(&path).unwrap();
    let key = dir.path().join(format!("{}.key", path.display()));
    let before = fs::read(&key).unwrap();
    let error = DataLedger::init(&path, None).unwrap_err().to_string();
    assert!(
        error.contains("the key of a ledger that is lost; restore"),
        "{error}"
    );
    assert!(fs::read(&key).unwrap() == before && !path.exists());
}

#[test]
fn the_counts_of_votes_do_not_get_into_a_ledger() {
    use fl_core::message::VoteSensitivity;
    use fl_core::privacy::{VoteNoise, VoteRelease};
    let votes = PrivacyEvent::Votes(VoteRelease {
        noise: VoteNoise::Laplace { gamma: 0.1 },
        queries: 1,
        classes: 2,
        counts: Some(vec![vec![7777, 1]]),
        answered: None,
        sensitivity: VoteSensitivity::default(),
    });
    let all = Releases::of(&[votes], &BTreeMap::new());
    assert!(!serde_json::to_string(&all).unwrap().contains("7777"));
}

#[test]
fn equal_releases_are_counted_and_equal_clients_are_one_group() {
    let (a, b) = (gaussian(1.0, Unit::Party), gaussian(2.0, Unit::Party));
    let steps = PrivacyEvent::Repeated {
        times: 10,
        event: Box::new(a.clone()),
    };
    let own = vec![a.clone(), b.clone(), steps.clone()];
    let clients = (0..1000).map(|id| {
        (
            id,
            if id == 500 {
                vec![b.clone()]
            } else {
                own.clone()
            },
        )
    });
    let all = Releases::of(&[a.clone(), steps], &clients.collect());
    assert_eq!(all.server, [(11, a.clone())]);
    assert_eq!(all.clients.len(), 2);
    assert_eq!(all.of_client(999), [(11, a.clone()), (1, b.clone())]);
    assert_eq!(all.of_client(500), [(1, b.clone())]);
    assert_eq!(all.of_client(1000), []);
    let reps = Releases::representatives([&all].into_iter());
    assert_eq!(reps.into_iter().collect::<Vec<_>>(), [0, 500, 501, 1000]);
    let any = all.of_any_client();
    assert!(any.len() == 2 && any.contains(&(11, a)) && any.contains(&(1, b)));
}
