//! Everything of one run.

use crate::curves::{Curve, curves};
use crate::page::{figure, some, table};
use crate::read::{Entry, Metric, Run};
use crate::svg::{self, Dot, Heat, Line};
use crate::text::{count, measured, number, with_std};
use fl_core::privacy::Observer;
use maud::{Markup, html};

/// So many clients are drawn.
const CLIENTS: usize = 200;
/// So many rows a table has.
const ROWS: usize = 500;

pub(crate) fn page(run: &Run) -> Markup {
    html! {
        h1 { (run.name()) }
        (sections(run))
    }
}

/// All but the title.
pub(crate) fn sections(run: &Run) -> Markup {
    let curves = curves(run);
    html! {
        (head(run))
        (results(run))
        (rounds(&curves))
        (clients(run))
        (confusion(run))
        (held(run))
        (communication(run))
        (privacy(run))
        (dropped(run))
        (origin(run))
    }
}

fn head(run: &Run) -> Markup {
    let steps = run.summary.as_ref().map(|s| &s.outcome);
    html! {
        p.dim {
            "Protocol " code { (run.protocol()) } ", seed " (run.seed())
            @if let Some(o) = steps { ", " (o.rounds) " steps, " (format!("{:.1}", o.seconds)) " s" }
            "; " code { (run.path.display()) }
        }
        @if let Some(o) = steps { p { "Digest " span.digest { (o.digest) } } }
        @for notice in &run.notices { p.notice { (notice) } }
        @for note in run.summary.iter().flat_map(|s| &s.notes) { p.notice { (note) } }
    }
}

fn results(run: &Run) -> Markup {
    let (down, up) = run.bytes();
    let mut rows: Vec<Vec<String>> = run
        .last()
        .iter()
        .map(|m| vec![m.name.clone(), with_std(m.value, m.std), m.step.clone()])
        .collect();
    rows.push(vec!["bytes up".into(), count(up), String::new()]);
    rows.push(vec!["bytes down".into(), count(down), String::new()]);
    html! {
        h2 { "Results" }
        (table(&["measured last", "#value (± deviation over clients)", "in"], &rows))
    }
}

fn dots(curve: &Curve<'_>) -> Vec<Dot> {
    let at = curve.at().into_iter().zip(&curve.points);
    at.map(|(x, point)| Dot {
        x,
        y: point.metric.value.unwrap_or(f64::NAN),
        spread: point.metric.std.unwrap_or(0.0),
        title: format!(
            "{}: {}",
            point.metric.step,
            with_std(point.metric.value, point.metric.std)
        ),
    })
    .collect()
}

/// A line of a curve.
pub(crate) fn line(curve: &Curve<'_>, label: &str, style: usize) -> Line {
    Line {
        label: label.into(),
        style,
        dots: dots(curve),
    }
}

fn rounds(curves: &[Curve<'_>]) -> Markup {
    let several: Vec<_> = curves.iter().filter(|c| c.points.len() > 1).collect();
    html! {
        @if !several.is_empty() {
            h2 { "Round by round" }
            div.charts {
                @for curve in several {
                    @let spread = curve.points.iter().any(|p| p.metric.std.is_some());
                    @let about = if spread { "The band is one standard deviation over clients to either side." } else { "" };
                    (figure(curve.name, about, &svg::lines(&[line(curve, curve.name, 0)], curve.axis(), curve.name, false), &[], &numbers(curve)))
                }
            }
        }
    }
}

fn numbers(curve: &Curve<'_>) -> Markup {
    let rows = curve.points.iter().map(|p| {
        let bytes = p.bytes.map_or("not told".into(), count);
        vec![
            p.metric.step.clone(),
            measured(p.metric.value),
            p.metric.std.map_or(String::new(), number),
            bytes,
        ]
    });
    let (rows, said) = some(rows.collect(), ROWS);
    html! { (table(&["step", "#value", "#deviation", "#bytes by then"], &rows)) @if !said.is_empty() { p.dim { (said) } } }
}

/// The clients in the order of `each`, if the folder tells.
fn names(run: &Run, each: usize) -> Vec<String> {
    let ids: Vec<String> = run
        .summary
        .iter()
        .flat_map(|s| s.held.keys())
        .map(u32::to_string)
        .collect();
    if ids.len() == each {
        return ids;
    }
    let answered = run.journal.iter().find(|e| e.answers.len() == each);
    match answered {
        Some(entry) => entry.answers.iter().map(|(id, _)| id.to_string()).collect(),
        None => (1..=each).map(|n| format!("{n}.")).collect(),
    }
}

fn clients(run: &Run) -> Markup {
    let all: Vec<&Metric> = run
        .last()
        .into_iter()
        .filter(|m| !m.each.is_empty())
        .collect();
    html! {
        @if !all.is_empty() {
            h2 { "Client by client" }
            div.charts {
                @for metric in all { (bars(run, metric)) }
            }
        }
    }
}

fn bars(run: &Run, metric: &Metric) -> Markup {
    let all = names(run, metric.each.len()).into_iter().zip(&metric.each);
    let all = all.map(|(name, value)| {
        let title = format!("client {name}: {}", measured(*value));
        (name, *value, title)
    });
    let all: Vec<_> = all.take(CLIENTS).collect();
    let of = metric.each.len();
    let shown = if of > CLIENTS {
        format!(" The first {CLIENTS} of {of} clients are shown.")
    } else {
        String::new()
    };
    let about = format!(
        "{}; the line is the mean over clients, {}.{shown}",
        metric.step,
        with_std(metric.value, metric.std)
    );
    let rows: Vec<_> = all
        .iter()
        .map(|(name, value, _)| vec![name.clone(), measured(*value)])
        .collect();
    figure(
        &metric.name,
        &about,
        &svg::bars(&all, metric.value, "client", &metric.name),
        &[],
        &table(&["client", "#value"], &rows),
    )
}

fn confusion(run: &Run) -> Markup {
    let all: Vec<&Metric> = run
        .last()
        .into_iter()
        .filter(|m| !m.confusion.is_empty())
        .collect();
    html! {
        h2 { "What is taken for what" }
        @if all.is_empty() {
            p.dim { "No confusion matrix: " code { "metrics.jsonl" } " has none. It is counted where classes are told, of models that are evaluated on test examples, for up to 32 classes." }
        }
        @for metric in all {
            @let classes: Vec<String> = (0..metric.confusion.len()).map(|c| c.to_string()).collect();
            @let cell = |r: usize, c: usize| metric.confusion.get(r).and_then(|row| row.get(c)).copied().unwrap_or(0);
            figure {
                h3 { (metric.name) ", " (metric.step) }
                div.wide { (Heat { rows: &classes, columns: &classes, counts: &cell, down: "true class", across: "taken for", by_row: true }.draw()) }
                figcaption {
                    "Test examples by true class and by what they are taken for"
                    @if !metric.each.is_empty() { ", all clients' models together" }
                    ". The darkest of a row is its largest."
                }
            }
        }
    }
}

fn held(run: &Run) -> Markup {
    let Some(summary) = &run.summary else {
        return html! {};
    };
    let ids: Vec<String> = summary
        .held
        .keys()
        .take(CLIENTS)
        .map(u32::to_string)
        .collect();
    let counts: Vec<&Vec<u64>> = summary.held.values().collect();
    let width = counts
        .iter()
        .map(|c| c.len())
        .max()
        .unwrap_or(0)
        .min(CLIENTS);
    let classes: Vec<String> = (0..width).map(|c| c.to_string()).collect();
    let cell = |class: usize, client: usize| {
        counts
            .get(client)
            .and_then(|c| c.get(class))
            .copied()
            .unwrap_or(0)
    };
    html! {
        h2 { "What each client holds" }
        @if ids.is_empty() {
            p.dim { "What each client holds is not told where somebody accounts for privacy." }
        } @else {
            figure {
                div.wide { (Heat { rows: &classes, columns: &ids, counts: &cell, down: "class", across: "client", by_row: false }.draw()) }
                figcaption {
                    "Examples of each class at each client."
                    @if counts.len() > CLIENTS { " The first " (CLIENTS) " of " (counts.len()) " clients are shown." }
                }
            }
        }
    }
}

/// What one question came to.
struct Asked<'r> {
    question: &'r str,
    kinds: (&'r str, &'r str),
    times: u64,
    answers: u64,
    down: u64,
    up: u64,
    /// Down and up by the number of the step.
    steps: Vec<(usize, u64, u64)>,
}

fn asked(journal: &[Entry]) -> Vec<Asked<'_>> {
    let mut all: Vec<Asked<'_>> = Vec::new();
    let (mut number, mut last) = (0, None);
    for entry in journal {
        if last != Some(&entry.step) {
            (number, last) = (number + 1, Some(&entry.step));
        }
        let at = all
            .iter()
            .position(|q| q.question == entry.question)
            .unwrap_or_else(|| {
                all.push(Asked {
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
        q.answers += entry.clients.saturating_sub(entry.dropped.len() as u64);
        q.down = q.down.saturating_add(entry.sent());
        q.up = q.up.saturating_add(entry.received());
        match q.steps.last_mut().filter(|s| s.0 == number) {
            Some(step) => (step.1, step.2) = (step.1 + entry.sent(), step.2 + entry.received()),
            None => q.steps.push((number, entry.sent(), entry.received())),
        }
    }
    all
}

fn communication(run: &Run) -> Markup {
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
    let several: Vec<&Asked<'_>> = all.iter().filter(|q| q.steps.len() > 1).collect();
    let legend: Vec<(usize, &str)> = several
        .iter()
        .enumerate()
        .map(|(at, q)| (at, q.question))
        .collect();
    let picture = |up: bool| {
        let value = |s: &(usize, u64, u64)| if up { s.2 } else { s.1 };
        let dots = |q: &Asked<'_>| {
            q.steps
                .iter()
                .map(|s| Dot {
                    x: s.0 as f64,
                    y: value(s) as f64,
                    spread: 0.0,
                    title: format!("{}, step {}: {} bytes", q.question, s.0, count(value(s))),
                })
                .collect()
        };
        let lines: Vec<Line> = several
            .iter()
            .enumerate()
            .map(|(at, q)| Line {
                label: q.question.into(),
                style: at,
                dots: dots(q),
            })
            .collect();
        let (title, y) = if up {
            ("Bytes from clients", "bytes up")
        } else {
            ("Bytes to clients", "bytes down")
        };
        let numbers = several.iter().flat_map(|q| {
            q.steps
                .iter()
                .map(|s| vec![q.question.to_string(), s.0.to_string(), count(value(s))])
        });
        let (rows, said) = some(numbers.collect(), ROWS);
        let numbers = html! { (table(&["question", "#step", "#bytes"], &rows)) @if !said.is_empty() { p.dim { (said) } } };
        figure(
            title,
            "Of each question, in each step that asks it; all clients together, envelopes included.",
            &svg::lines(&lines, "step", y, false),
            &legend,
            &numbers,
        )
    };
    html! {
        h2 { "Communication" }
        @if all.is_empty() { p.dim { "Nobody was asked anything." } }
        @else {
            (table(&["question", "#asked", "#answers", "#bytes down", "as", "#bytes up", "as"], &rows))
            @if !several.is_empty() { div.charts { (picture(true)) (picture(false)) } }
        }
    }
}

/// Epsilon against one observer after each step, as far as there is a guarantee.
pub(crate) fn epsilons(run: &Run, observer: Observer) -> Vec<(usize, &str, Option<f64>)> {
    let mut all: Vec<(usize, &str, Option<f64>)> = Vec::new();
    for entry in &run.journal {
        let Some(known) = entry.privacy.as_ref().and_then(|p| p.get(&observer)) else {
            continue;
        };
        let number = all
            .last()
            .map_or(1, |l| if l.1 == entry.step { l.0 } else { l.0 + 1 });
        match all.last_mut().filter(|l| l.0 == number) {
            Some(last) => last.2 = *known,
            None => all.push((number, &entry.step, *known)),
        }
    }
    all
}

fn privacy(run: &Run) -> Markup {
    let outcome = run.summary.as_ref().map(|s| &s.outcome);
    let of = Observer::ALL.map(|o| (o, epsilons(run, o)));
    let told = of
        .iter()
        .any(|(_, all)| all.iter().any(|(_, _, e)| e.is_some()));
    let lines: Vec<Line> = of
        .iter()
        .enumerate()
        .map(|(at, (observer, all))| Line {
            label: format!("against {observer}"),
            style: at * 9,
            dots: all
                .iter()
                .map(|(n, step, e)| Dot {
                    x: *n as f64,
                    y: e.unwrap_or(f64::NAN),
                    spread: 0.0,
                    title: format!("{step}, against {observer}: epsilon {}", measured(*e)),
                })
                .collect(),
        })
        .collect();
    let legend: Vec<(usize, &str)> = lines.iter().map(|l| (l.style, &l.label[..])).collect();
    let rows = of.iter().flat_map(|(o, all)| {
        all.iter().map(move |(_, step, e)| {
            vec![
                step.to_string(),
                o.to_string(),
                e.map_or("nothing is guaranteed".into(), number),
            ]
        })
    });
    let (rows, said) = some(rows.collect(), ROWS);
    let unaccounted = run.summary.as_ref().and_then(|s| s.unaccounted.as_deref());
    html! {
        h2 { "Privacy" }
        @if let Some(all) = outcome.and_then(|o| o.guarantees()) {
            ul { @for (observer, words) in all { li { "against " (observer) ": " (words) } } }
        } @else if let Some(open) = unaccounted {
            p { (open) "." }
        } @else if outcome.is_some() {
            p { "Nothing was released through a privacy mechanism, and nothing is guaranteed." }
        }
        @if told {
            div.charts {
                (figure("Epsilon by step", "What has been spent by then. Where there is no line, nothing is guaranteed.",
                    &svg::lines(&lines, "step", "epsilon", false), &legend,
                    &html! { (table(&["after", "against", "#epsilon"], &rows)) @if !said.is_empty() { p.dim { (said) } } }))
            }
        } @else if !rows.is_empty() {
            p.dim { "After no step is anything guaranteed against anybody." }
        }
    }
}

fn dropped(run: &Run) -> Markup {
    let all = run.journal.iter().flat_map(|e| {
        e.dropped.iter().map(move |(id, why)| {
            vec![
                e.step.clone(),
                e.question.clone(),
                id.to_string(),
                why.clone(),
            ]
        })
    });
    let all: Vec<_> = all.collect();
    let of = all.len();
    html! {
        h2 { "Answers left out" }
        @if of == 0 { p.dim { "None." } }
        @else {
            (table(&["step", "question", "client", "why"], &all[..of.min(ROWS)]))
            @if of > ROWS { p.dim { "The first " (ROWS) " of " (of) " are shown; all are in " code { "journal.jsonl" } "." } }
        }
    }
}

fn origin(run: &Run) -> Markup {
    let o = &run.origin;
    let files = o
        .libraries
        .iter()
        .map(|f| ("library", f))
        .chain(o.data.iter().map(|f| ("data", f)));
    let files: Vec<_> = files
        .map(|(what, f)| vec![what.into(), f.path.clone(), f.sha256.clone()])
        .collect();
    html! {
        h2 { "Where it comes from" }
        @if !o.version.is_empty() {
            p { "fl " (o.version) ", begun " (o.started)
                @if !o.resumed.is_empty() { ", gone on with " (o.resumed.len()) " times" }
                ": " code { (o.command.join(" ")) } }
        }
        @if !files.is_empty() { (table(&["", "file", "SHA-256"], &files)) }
        details open { summary { "the spec, every default filled in" } pre { (run.spec_text) } }
    }
}
