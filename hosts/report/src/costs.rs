//! Costs of a run: bytes, privacy, and dropped answers.

use crate::read::{Entry, Run, UNFINISHED};
use crate::specs::shown_models;
use crate::svg::{self, Dot, Line};
use crate::text::{count, of_measure};
use crate::widgets::{ROWS, coded, figure, some_table, table};
use fl_core::privacy::Observer;
use maud::{Markup, html};
use std::collections::BTreeMap;

/// The bytes of one exchange.
struct ExchangeCost<'r> {
    question: &'r str,
    kinds: (&'r str, &'r str),
    times: u64,
    answers: u64,
    down: u64,
    up: u64,
    /// Bytes down and up, by the number of the step.
    steps: Vec<(usize, u64, u64)>,
}

fn asked(journal: &[Entry]) -> Vec<ExchangeCost<'_>> {
    let mut all: Vec<ExchangeCost<'_>> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut number, mut last) = (0, None);
    for entry in journal {
        if last != Some(&entry.step) {
            (number, last) = (number + 1, Some(&entry.step));
        }
        let at = *places.entry(&entry.question).or_insert_with(|| {
            all.push(ExchangeCost {
                question: &entry.question,
                kinds: (&entry.down, &entry.up),
                times: 0,
                answers: 0,
                down: 0,
                up: 0,
                steps: Vec::new(),
            });
            all.len() - 1
        });
        let q = &mut all[at];
        q.times += 1;
        let answers = entry.clients.saturating_sub(entry.dropped.len() as u64);
        q.answers = q.answers.saturating_add(answers);
        q.down = q.down.saturating_add(entry.sent());
        q.up = q.up.saturating_add(entry.received());
        match q.steps.last_mut().filter(|s| s.0 == number) {
            Some((_, down, up)) => {
                *down = down.saturating_add(entry.sent());
                *up = up.saturating_add(entry.received());
            }
            None => q.steps.push((number, entry.sent(), entry.received())),
        }
    }
    all
}

/// Shows the bytes by exchange and step.
pub(crate) fn communication(run: &Run) -> Markup {
    let all = asked(&run.journal);
    let rows: Vec<_> = all
        .iter()
        .map(|q| {
            vec![
                q.question.into(),
                count(q.times),
                count(q.answers),
                count(q.down),
                q.kinds.0.into(),
                count(q.up),
                q.kinds.1.into(),
            ]
        })
        .collect();
    let several: Vec<&ExchangeCost<'_>> = all.iter().filter(|q| q.steps.len() > 1).collect();
    let picture = |up: bool| {
        let value = |s: &(usize, u64, u64)| if up { s.2 } else { s.1 };
        let line = |(at, q): (usize, &&ExchangeCost<'_>)| {
            Line::of(q.question, at, &q.steps, |s| Dot {
                x: s.0 as f64,
                y: value(s) as f64,
                spread: 0.0,
                title: format!("{}, step {}: {} bytes", q.question, s.0, count(value(s))),
            })
        };
        let lines: Vec<Line> = several.iter().enumerate().map(line).collect();
        let (title, y) = if up {
            ("Bytes from clients", "bytes up")
        } else {
            ("Bytes to clients", "bytes down")
        };
        let steps = several
            .iter()
            .flat_map(|q| q.steps.iter().map(move |s| (q, s)));
        let numbers = some_table(&["exchange", "#step", "#bytes"], steps, |(q, s)| {
            vec![q.question.into(), s.0.to_string(), count(value(s))]
        });
        let about = "Bytes of each exchange in each step, over all clients, envelopes included.";
        if svg::are_flat(&lines) {
            let about = format!("{about} They are the same in every step.");
            figure(title, &about, &html! {}, &[], &numbers)
        } else {
            let drawn = svg::lines(&lines, "step", y, false, svg::range(y, 1.0));
            figure(title, about, &drawn, &svg::legend(&lines), &numbers)
        }
    };
    html! {
        @if all.is_empty() { p.dim { "No exchange took place." } }
        @else {
            (table(&["exchange", "#times", "#answers", "#bytes down", "request", "#bytes up", "answer"], &rows))
            @if !several.is_empty() { div.charts { (picture(true)) (picture(false)) } }
        }
    }
}

/// Returns number and name of each complete step, with epsilon against one observer after it if
/// there is a guarantee.
fn epsilons(run: &Run, observer: Observer) -> Vec<(usize, &str, Option<f64>)> {
    let costs = run.costs.iter().flatten();
    let costs = costs.filter(|cost| cost.privacy.is_some()).enumerate();
    costs
        .map(|(at, cost)| (at + 1, &cost.step[..], cost.epsilon(observer)))
        .collect()
}

/// Formats an epsilon.
fn epsilon(of: Option<f64>) -> String {
    of.map_or("no guarantee".into(), |e| of_measure("epsilon", 1.0, e))
}

const EPSILONS: &str = "The epsilon of all releases so far, after each step, under the conditions \
    above. The guarantee is that of the whole run.";

/// Shows the guarantees, and epsilon by step.
pub(crate) fn privacy(run: &Run) -> Markup {
    let outcome = run.summary.as_ref().map(|s| &s.outcome);
    let of = Observer::ALL.map(|o| (o, epsilons(run, o)));
    let told = of
        .iter()
        .any(|(_, all)| all.iter().any(|(_, _, e)| e.is_some()));
    let lines = of.iter().enumerate().map(|(at, (observer, all))| {
        let label = format!("against {observer}");
        Line::of(&label, at * 9, all, |(n, step, e)| Dot {
            x: *n as f64,
            y: e.unwrap_or(f64::NAN),
            spread: 0.0,
            title: format!("{step}, {label}: epsilon {}", epsilon(*e)),
        })
    });
    // an observer without a guarantee has no line
    let (lines, none): (Vec<Line>, Vec<Line>) =
        lines.partition(|line| line.dots.iter().any(|dot| dot.y.is_finite()));
    let none = none
        .iter()
        .map(|line| format!(" No guarantee {}.", line.label));
    let about = format!("{EPSILONS}{}", none.collect::<String>());
    let steps = of
        .iter()
        .flat_map(|(o, all)| all.iter().map(move |s| (o, s)));
    let cells = |(o, (_, step, e)): (&Observer, &(usize, &str, Option<f64>))| {
        vec![step.to_string(), o.to_string(), epsilon(*e)]
    };
    let unaccounted = run.summary.as_ref().and_then(|s| s.unaccounted.as_deref());
    html! {
        @if let Some(all) = outcome.and_then(|o| o.guarantees()) {
            ul { @for (observer, words) in all { li { "against " (observer) ": " (words) } } }
        } @else if let Some(open) = unaccounted {
            p { (open) "." }
        } @else if outcome.is_some() {
            p { "Nothing was released through a privacy mechanism, and nothing is guaranteed." }
        } @else if run.accounts() {
            p { "Against every observer: " (UNFINISHED) "." }
        }
        @if let Some(hint) = outcome.and_then(|o| shown_models(&run.spec, o.nothing())) { p.dim { (coded(&hint)) "." } }
        @if told {
            div.charts {
                (figure("Epsilon by step", &about,
                    &svg::lines(&lines, "step", "epsilon", false, svg::range("epsilon", 1.0)), &svg::legend(&lines),
                    &some_table(&["after", "against", "#epsilon"], steps, cells)))
            }
        } @else if run.costs.is_none() && run.accounts() {
            p.dim { "Epsilon after each step is unknown: there is no costs.jsonl, and the journal lacks the releases of the server at the end of a step." }
        } @else if steps.count() > 0 {
            p.dim { "No step has a guarantee against any observer." }
        }
    }
}

/// Lists the clients whose answers were dropped, and why.
pub(crate) fn dropped(run: &Run) -> Markup {
    let dropped = run.journal.iter();
    let dropped = dropped.flat_map(|e| e.dropped.iter().map(move |(id, why)| (e, id, why)));
    let of: usize = run.journal.iter().map(|e| e.dropped.len()).sum();
    let all = dropped.take(ROWS).map(|(e, id, why)| {
        vec![
            e.step.to_string(),
            e.question.to_string(),
            id.to_string(),
            why.clone(),
        ]
    });
    let all: Vec<_> = all.collect();
    html! {
        @if of == 0 { p.dim { "None." } }
        @else {
            (table(&["step", "exchange", "client", "reason"], &all))
            @if of > ROWS { p.dim { "The first " (ROWS) " of " (of) " are shown; all are in " code { "journal.jsonl" } "." } }
        }
    }
}
