//! A protocol whose clients measure on rows that they have held back, linked and through the C
//! interface.

use crate::corrections::{CLIENTS, everybody};
use crate::federation::part;
use fl_core::abi::import_linked;
use fl_core::prelude::*;
use fl_core::{Examples, PartDecl, Parts, Role, RunOptions, linked_parts};
use fl_sim::{Outcome, Setup, run};
use std::sync::Arc;

const MODEL: TrainerSlot = TrainerSlot::new("model", "The model.");
const JUDGE: Exchange<Nothing, Scalar> = Exchange::new("error on held-out rows");

settings! {
    /// Each client trains, and measures its model on the rows that it has held back.
    struct Judges {
        /// Says that it does.
        says: bool = true;
    }
}

/// The share of rows whose class the model gets wrong.
fn error(model: &mut dyn Trainer, rows: &Examples) -> Result<f64> {
    let scores = model.predict(&rows.samples)?;
    let target = rows.target();
    let Target::Classes(classes) = target.view() else {
        bail!("the rows have no classes");
    };
    let wrong = scores.rows().into_iter().zip(classes);
    let wrong =
        wrong.filter(|(scores, class)| usize::from(scores[1] > scores[0]) != **class as usize);
    Ok(wrong.count() as f64 / rows.len() as f64)
}

impl Protocol for Judges {
    fn declare(&self) -> Declaration<'_> {
        let judge = JUDGE.answered_by(|client, _| {
            let pass = Training::epochs(3, 4).pass(client.task().kind.loss());
            client.fit_own(&MODEL, &pass)?;
            let rows = client.held_out()?;
            ensure!(rows.len() == 2, "a client has {} rows", rows.len());
            let wrong = error(client.model(&MODEL)?, &rows)?;
            client.measure("judged", 1.0 - wrong);
            Ok(Scalar::new(wrong as f32))
        });
        let judge = if self.says {
            judge.uses_held_out()
        } else {
            judge
        };
        Declaration::new()
            .slot(MODEL.spec().lasting())
            .exchange(judge)
            .measures([Measurement::clients(&MODEL), Measurement::each("judged")])
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        server.once("judgement", &mut (), |server, (), round| {
            server.collect(round, &JUDGE, |_| &Nothing)?;
            server.evaluate_clients(round, &MODEL)
        })
    }
}
plugin!(protocol "judges" => Judges);

/// A run in which each client holds back its last two rows.
fn judged(decl: &'static PartDecl, settings: &str, parts: Parts) -> Result<Outcome> {
    let (all, own) = everybody();
    let cut = |own: &Examples, from, to| own.pick(&(from..to).collect::<Vec<_>>());
    let tests = own.iter().map(|own| cut(own, 4, 6)).collect();
    let own = own.iter().map(|own| cut(own, 0, 4)).collect();
    let make = BuildContext {
        task: all.task(),
        stream: Stream::root(1),
    };
    let settings = decl.read(&serde_yaml::from_str(settings)?)?;
    let protocol = fl_core::protocol(decl, &settings, &make)?;
    run(Setup {
        client_tests: tests,
        own_tests: true,
        ..Setup::new(
            Arc::from(protocol),
            Arc::new(parts),
            RunOptions::new(1, all.task()),
            own,
            all,
        )
    })
}

fn model() -> Vec<fl_core::SlotAssignment> {
    vec![part("model", Role::Trainer, "linear", "{lr: 0.1}")]
}

#[test]
fn clients_measure_on_their_held_out_rows_linked_and_loaded() {
    let named = |all: Vec<&'static PartDecl>| all.into_iter().find(|p| p.name == "judges").unwrap();
    let linked = named(linked_parts());
    let mut seen = Vec::new();
    for decl in [linked, named(import_linked("there"))] {
        let outcome = judged(decl, "{}", Parts::new(model())).unwrap();
        // the run's own measure is of the same models and rows
        assert_eq!(
            outcome.metrics["judged"],
            outcome.metrics["clients.accuracy"]
        );
        let (score, n) = (outcome.metrics["judged"], 2 * CLIENTS);
        assert!((score * n as f64).fract() == 0.0 && score < 1.0, "{score}");
        seen.push((outcome.digest, outcome.metrics));
        let undeclared = judged(decl, "{says: false}", Parts::new(model())).unwrap_err();
        let text = format!("{undeclared:#}");
        assert!(
            text.contains("does not declare that it uses held-out rows"),
            "{text}"
        );
    }
    assert_eq!(seen[0], seen[1]);
}

#[test]
fn with_an_accountant_no_answer_follows_from_held_out_rows() {
    let linked = linked_parts()
        .into_iter()
        .find(|p| p.name == "judges")
        .unwrap();
    let mut parts = model();
    parts.push(part("accountant", Role::Accountant, "rdp", "{delta: 1e-5}"));
    let error = judged(linked, "{}", Parts::new(parts)).unwrap_err();
    assert!(
        format!("{error:#}").contains("no accountant prices"),
        "{error:#}"
    );
}
