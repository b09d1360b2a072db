//! The page of one run.

use crate::costs;
use crate::curves::{Curve, curves};
use crate::read::{Metric, Run};
use crate::svg::{self, Dot, Heat, Line};
use crate::text::{count, measured, number, with_std};
use crate::widgets::{ROWS, figure, some, table};
use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;
use maud::{Markup, html};

/// The most clients to draw.
const CLIENTS: usize = 200;
/// The most classes to draw.
const CLASSES: usize = 64;

pub(crate) fn page(run: &Run) -> Markup {
    html! {
        h1 { (run.name()) }
        (sections(run))
    }
}

/// Returns the whole page except the title.
pub(crate) fn sections(run: &Run) -> Markup {
    let curves = curves(run);
    html! {
        (head(run))
        (results(run))
        (rounds(&curves))
        (pictures(run))
        (clients(run))
        (confusion(run))
        (held(run))
        (costs::communication(run))
        (costs::privacy(run))
        (costs::dropped(run))
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
    let bytes = run.bytes();
    let last = run.last();
    let (shown, said) = some(last.iter(), last.len(), ROWS);
    let mut rows: Vec<Vec<String>> = shown
        .into_iter()
        .map(|m| vec![m.name.clone(), with_std(m.value, m.std), m.step.clone()])
        .collect();
    rows.push(vec!["bytes up".into(), count(bytes.up), String::new()]);
    rows.push(vec!["bytes down".into(), count(bytes.down), String::new()]);
    html! {
        h2 { "Results" }
        (table(&["measured last", "#value (± deviation over clients)", "in"], &rows))
        @if !said.is_empty() { p.dim { (said) } }
    }
}

fn dots(curve: &Curve<'_>) -> Vec<Dot> {
    let at = curve.at().into_iter().zip(&curve.points);
    at.map(|(x, point)| Dot {
        x,
        y: point.metric.value.unwrap_or(f64::NAN),
        spread: point.metric.std.unwrap_or(0.0),
        title: svg::title(curve.points.len(), || {
            format!(
                "{}: {}",
                point.metric.step,
                with_std(point.metric.value, point.metric.std)
            )
        }),
    })
    .collect()
}

/// Returns the line of a curve.
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
    let (rows, said) = some(curve.points.iter(), curve.points.len(), ROWS);
    let rows = rows.into_iter().map(|p| {
        let bytes = p.bytes.map_or("not told".into(), count);
        vec![
            p.metric.step.clone(),
            measured(p.metric.value),
            p.metric.std.map_or(String::new(), number),
            bytes,
        ]
    });
    let rows: Vec<_> = rows.collect();
    html! { (table(&["step", "#value", "#deviation", "#bytes by then"], &rows)) @if !said.is_empty() { p.dim { (said) } } }
}

fn pictures(run: &Run) -> Markup {
    html! {
        @if !run.pictures.is_empty() {
            h2 { "Images that were made" }
            @for (name, png) in &run.pictures {
                @let name = name.trim_end_matches(".png");
                figure {
                    h3 { (name) }
                    img.made alt=(name) src=(format!("data:image/png;base64,{}", STANDARD.encode(png)));
                    figcaption { "The least number of all is black, the largest white." }
                }
            }
        }
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
    let all = run.clients_of(metric).into_iter().zip(&metric.each);
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
            @let classes: Vec<String> = (0..metric.confusion.len().min(CLASSES)).map(|c| c.to_string()).collect();
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
