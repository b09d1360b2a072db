//! Prices of several runs that add up, and those that do not.

use crate::{begun, gaussian, make, named, reservation, server, spent};
use fl_core::PrivacyEvent;
use fl_core::privacy::{Neighbours, Noise, Observer, Unit};
use fl_privacy::*;

#[test]
fn prices_of_other_neighbours_do_not_add_up_whoever_makes_them() {
    let poisson = spent(Releases {
        server: vec![(
            3,
            PrivacyEvent::SubsampledGaussian {
                rate: 0.1,
                sensitivity: 1.0,
                sigma: 4.0,
                unit: Unit::Example,
            },
        )],
        clients: Vec::new(),
    });
    let fixed = spent(Releases {
        server: vec![(
            3,
            PrivacyEvent::FixedSizeGaussian {
                k: 4,
                of: 40,
                sensitivity: 1.0,
                sigma: 4.0,
                unit: Unit::Example,
            },
        )],
        clients: Vec::new(),
    });
    let reserved = |neighbours| Spending {
        releases: None,
        budget: Some(OwnBudget {
            epsilon: 1.0,
            delta: 1e-5,
            against: Observer::Server,
            protects: Some((Unit::Example, neighbours)),
        }),
        ..Spending::default()
    };
    let full = server(3, 4.0);
    let (removed, replaced) = (Some(Neighbours::Removed), Some(Neighbours::Replaced));
    for (first, second, due) in [
        (&poisson, &fixed, None),
        (&poisson, &full, removed),
        (&full, &full, replaced),
        (&fixed, &reserved(Neighbours::Replaced), replaced),
        (&fixed, &reserved(Neighbours::Removed), None),
        (&poisson, &reserved(Neighbours::Replaced), None),
        (&full, &reserved(Neighbours::Removed), removed),
    ] {
        let (_dir, path) = begun(None);
        let mut ledger = DataLedger::open(&path).unwrap();
        let mut pld = reservation("b", second.clone());
        pld.accountant = Some(named("pld"));
        ledger
            .reserve(reservation("a", first.clone()), &make)
            .unwrap();
        ledger.reserve(pld, &make).unwrap();
        let together = &ledger.data_sets()[0].together(&make)[&Observer::Readers];
        let found = together.guarantee().map(|guarantee| guarantee.neighbours);
        assert_eq!(found, due, "{together}");
    }
}

#[test]
fn prices_of_other_units_do_not_add_up() {
    let (_dir, path) = begun(None);
    let mut ledger = DataLedger::open(&path).unwrap();
    for (name, unit) in [("a", Unit::Example), ("b", Unit::Party)] {
        let releases = Releases {
            server: vec![(1, gaussian(4.0, unit))],
            clients: Vec::new(),
        };
        let mut one = reservation(name, spent(releases));
        one.accountant = Some(named(if name == "a" { "rdp" } else { "pld" }));
        ledger.reserve(one, &make).unwrap();
    }
    let together = &ledger.data_sets()[0].together(&make)[&Observer::Readers];
    assert!(
        together
            .to_string()
            .contains("one example and for one party do not add up"),
        "{together}"
    );
}

#[test]
fn noise_that_follows_a_seed_in_one_run_does_so_in_all_together() {
    for second in [Noise::System, Noise::Seeded] {
        let (_dir, path) = begun(None);
        let mut ledger = DataLedger::open(&path).unwrap();
        for (name, noise) in [("a", Noise::System), ("b", second)] {
            let mut one = reservation(name, server(1, 4.0));
            one.noise = noise;
            ledger.reserve(one, &make).unwrap();
        }
        let together = &ledger.data_sets()[0].together(&make)[&Observer::Readers];
        assert_eq!(together.guarantee().unwrap().noise, second);
    }
}
