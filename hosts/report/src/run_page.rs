//! The page of one run.

use crate::costs;
use crate::curves::{Curve, curves};
use crate::read::{Metric, Run};
use crate::svg::{self, Dot, Heat, Line};
use crate::text::{bytes, count, measured, number, with_std, without_folders};
use crate::widgets::{Section, coded, figure, flow, some, some_table, table};
use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;
use fl_core::ClientId;
use maud::{Markup, html};
use std::collections::BTreeMap;

/// The most clients to draw.
const CLIENTS: usize = 200;
/// The most classes to draw.
const CLASSES: usize = 64;

pub(crate) fn page(run: &Run) -> Markup {
    html! {
        h1 { (run.name()) }
        (sections(run, true))
    }
}

/// Returns the whole page except the title; with `links`, after links to the sections.
pub(crate) fn sections(run: &Run, links: bool) -> Markup {
    let curves = curves(run);
    let section = |id, title, full, body: Markup| Section {
        id,
        title,
        full,
        body,
    };
    let several = curves.iter().filter(|c| c.points.len() > 1).count();
    let last = run.last();
    let by_client = last.iter().filter(|m| !m.each().is_empty()).count();
    // a matrix with more columns takes the whole width
    const HALF: usize = 12;
    let many_classes = last.iter().any(|m| m.confusion().len() > HALF);
    let held_by = run.summary.as_ref().map_or(0, |s| s.held.len());
    let mut all = vec![
        section("results", "Results", true, results(run)),
        section("rounds", "Metrics by round", several > 1, rounds(&curves)),
        section("images", "Generated images", false, pictures(run)),
        section("clients", "Metrics by client", by_client > 1, clients(run)),
        section(
            "confusion",
            "Confusion matrix",
            many_classes,
            confusion(run),
        ),
        section(
            "classes",
            "Classes of each client",
            held_by > HALF,
            held(run),
        ),
        section(
            "communication",
            "Communication",
            true,
            costs::communication(run),
        ),
        section("privacy", "Privacy", true, costs::privacy(run)),
        section("dropped", "Answers left out", true, costs::dropped(run)),
        section("origin", "Provenance", true, origin(run)),
    ];
    all.retain(|section| !section.body.0.is_empty());
    html! {
        (head(run))
        (flow(&all, links))
    }
}

/// The most metrics in the summary.
const HEADLINES: usize = 4;

fn head(run: &Run) -> Markup {
    let outcome = run.summary.as_ref().map(|s| &s.outcome);
    let crossed = run.bytes();
    let last = run.last();
    let guarantees = outcome.and_then(|o| o.guarantees()).unwrap_or_default();
    // observers with one guarantee share a headline
    let mut headlines: Vec<(String, String)> = Vec::new();
    for (observer, words) in guarantees {
        match headlines.iter_mut().find(|(_, of)| *of == words) {
            Some((observers, _)) => *observers += &format!(", {observer}"),
            None => headlines.push((observer.to_string(), words)),
        }
    }
    html! {
        p.dim {
            @match &run.origin.method {
                Some(method) => { "Method " code { (method) } ", protocol " code { (run.protocol()) } }
                None => { "Protocol " code { (run.protocol()) } }
            }
            ", seed " (run.seed())
            @if let Some(o) = outcome { ", " (o.rounds) " steps"
                @if let Some(seconds) = o.seconds {
                    ", " (format!("{seconds:.1}")) " s (" (format!("{:.2}", seconds / o.rounds.max(1) as f64)) " s a step)"
                }
            }
            "; " code { (without_folders(&run.path.display().to_string())) }
        }
        dl.summary {
            @for metric in last.iter().take(HEADLINES) {
                div { dt { (metric.name) } dd { (with_std(metric.value, metric.std)) } }
            }
            div { dt { "bytes from clients" } dd { (bytes(crossed.up)) } }
            div { dt { "bytes to clients" } dd { (bytes(crossed.down)) } }
            @if headlines.is_empty() && outcome.is_some() {
                div { dt { "privacy" } dd { "no guarantee" } }
            }
            @for (observers, words) in &headlines {
                div { dt { "privacy against " (observers) } dd.words { (words) } }
            }
        }
        @if let Some(o) = outcome { p { "Digest " span.digest { (o.digest) } } }
        @for notice in &run.notices { p.notice { (coded(notice)) } }
        @for note in run.summary.iter().flat_map(|s| s.data_notes.iter().chain(&s.notes)) { p.notice { (coded(note)) } }
    }
}

fn results(run: &Run) -> Markup {
    let bytes = run.bytes();
    let last = run.last();
    let (shown, said) = some(last.iter(), last.len());
    let mut rows: Vec<Vec<String>> = shown
        .into_iter()
        .map(|m| {
            vec![
                m.name.to_string(),
                with_std(m.value, m.std),
                m.step.to_string(),
                best(run, &m.name).unwrap_or_default(),
            ]
        })
        .collect();
    for (name, n) in [("bytes up", bytes.up), ("bytes down", bytes.down)] {
        rows.push(vec![name.into(), count(n), String::new(), String::new()]);
    }
    let value = if last.iter().any(|m| m.std.is_some()) {
        "#last value (± std over clients)"
    } else {
        "#last value"
    };
    html! {
        (table(&["metric", value, "step", "best value"], &rows))
        @if !said.is_empty() { p.dim { (said) } }
    }
}

/// Returns the best value of a score or an error with its step, if it was measured more than once.
pub(crate) fn best(run: &Run, name: &str) -> Option<String> {
    let lower = fl_core::metrics::lower_is_better(name);
    if !lower && !fl_core::metrics::is_score(name) {
        return None;
    }
    let all = run.metrics.iter().filter(|m| *m.name == *name);
    let values = all.filter_map(|m| Some((m.value.filter(|v| v.is_finite())?, &m.step)));
    let values: Vec<_> = values.collect();
    let better = |a: f64, b: f64| if lower { a < b } else { a > b };
    // the first of equals
    let (value, step) = values
        .iter()
        .copied()
        .reduce(|best, next| if better(next.0, best.0) { next } else { best })?;
    (values.len() > 1).then(|| format!("{} ({step})", number(value)))
}

/// Returns the line of a curve.
pub(crate) fn line(curve: &Curve<'_>, label: &str, style: usize) -> Line {
    let points = curve.at().into_iter().zip(&curve.points);
    Line::of(label, style, &points.collect::<Vec<_>>(), |(x, point)| {
        let Metric {
            step, value, std, ..
        } = point.metric;
        Dot {
            x: *x,
            y: value.unwrap_or(f64::NAN),
            spread: std.unwrap_or(0.0),
            title: format!("{step}: {}", with_std(*value, *std)),
        }
    })
}

fn rounds(curves: &[Curve<'_>]) -> Markup {
    let several = curves.iter().filter(|c| c.points.len() > 1);
    let several = several.map(|curve| (curve, [line(curve, curve.name, 0)]));
    let (flat, drawn): (Vec<_>, Vec<_>) = several.partition(|(_, lines)| svg::are_flat(lines));
    html! {
        @if !drawn.is_empty() || !flat.is_empty() {
            div.charts {
                @for (curve, lines) in drawn {
                    (figure(curve.name, &svg::bands(&lines, "clients"), &svg::lines(&lines, curve.axis(), curve.name, false, svg::range(curve.name, 1.0)), &[], &numbers(curve)))
                }
                @for (curve, _) in flat {
                    @let first = curve.points.first().map(|p| p.metric);
                    @let value = first.map_or(String::new(), |m| with_std(m.value, m.std));
                    (figure(curve.name, &format!("{value} at every measurement."), &html! {}, &[], &numbers(curve)))
                }
            }
        }
    }
}

fn numbers(curve: &Curve<'_>) -> Markup {
    let head = ["step", "#value", "#std", "#cumulative bytes"];
    some_table(&head, curve.points.iter(), |p| {
        vec![
            p.metric.step.to_string(),
            measured(p.metric.value),
            p.metric.std.map_or(String::new(), number),
            p.bytes().map_or("unknown".into(), count),
        ]
    })
}

fn pictures(run: &Run) -> Markup {
    html! {
        @if !run.pictures.is_empty() {
            @for (name, png) in &run.pictures {
                @let name = name.trim_end_matches(".png");
                figure {
                    h3 { (name) }
                    img.made alt=(name) src=(format!("data:image/png;base64,{}", STANDARD.encode(png)));
                    figcaption { "The smallest value of all images is black, the largest white." }
                }
            }
        }
    }
}

fn clients(run: &Run) -> Markup {
    let all = run.last().into_iter();
    let mut all: Vec<&Metric> = all.filter(|m| !m.each().is_empty()).collect();
    let mut pictures = Vec::new();
    while !all.is_empty() {
        let first = all.remove(0);
        // the client's own model, and the common one on the same rows
        let other = match first.name.split_once('.') {
            Some(("clients", score)) => format!("own.{score}"),
            Some(("own", score)) => format!("clients.{score}"),
            _ => String::new(),
        };
        let other = all.iter().position(|m| *m.name == *other);
        let mut both: Vec<&Metric> = [Some(first), other.map(|at| all.remove(at))]
            .into_iter()
            .flatten()
            .collect();
        both.sort_by(|a, b| a.name.cmp(&b.name));
        pictures.push(bars(&both));
    }
    html! {
        @if !pictures.is_empty() {
            div.charts { @for picture in pictures { (picture) } }
        }
    }
}

/// Draws a measure of each client, or that of its own model and that of the common one side by side.
/// The clients are sorted by the first.
fn bars(all: &[&Metric]) -> Markup {
    let mut each = BTreeMap::<ClientId, Vec<Option<f64>>>::new();
    for (at, metric) in all.iter().enumerate() {
        for (id, value) in metric.by_client() {
            each.entry(id).or_insert_with(|| vec![None; all.len()])[at] = value;
        }
    }
    let named = |(id, values): (ClientId, _)| (id.to_string(), values);
    let mut each: Vec<(String, Vec<Option<f64>>)> = each.into_iter().map(named).collect();
    let first = |values: &[Option<f64>]| values[0].unwrap_or(f64::INFINITY);
    each.sort_by(|(_, a), (_, b)| first(a).total_cmp(&first(b)));
    // of many clients the lowest, the highest, and those evenly between them
    let (of, every) = (each.len(), each.len().div_ceil(CLIENTS));
    let mut at = 0..of;
    each.retain(|_| at.next().is_some_and(|at| at % every == 0 || at + 1 == of));
    let shown = if each.len() < of {
        format!(" {} of {of} clients are shown.", each.len())
    } else {
        String::new()
    };
    let label = |metric: &Metric| match (all.len(), metric.name.starts_with("clients.")) {
        (1, _) => "",
        (_, true) => "own model",
        (_, false) => "common model",
    };
    let series = all.iter().enumerate().map(|(at, metric)| svg::Bars {
        label: label(metric),
        values: each.iter().map(|(_, values)| values[at]).collect(),
        mean: metric.value,
    });
    let series: Vec<_> = series.collect();
    let means = all.iter().map(|m| with_std(m.value, m.std));
    let means = means.collect::<Vec<_>>().join(" and ");
    let about = format!(
        "{}, sorted; a line is the mean over clients, {means}.{shown}",
        all[0].step
    );
    let rows = each.iter().map(|(name, values)| {
        let cells = values.iter().map(|value| measured(*value));
        [name.clone()].into_iter().chain(cells).collect()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let head: &[&str] = match all.len() {
        1 => &["client", "#value"],
        _ => &["client", "#own model", "#common model"],
    };
    let legend = series.iter().map(|bars| bars.label).enumerate();
    let legend: Vec<_> = legend.filter(|(_, label)| !label.is_empty()).collect();
    let title: Vec<&str> = all.iter().map(|m| &*m.name).collect();
    let title = title.join(" and ");
    let names: Vec<&str> = each.iter().map(|(name, _)| &**name).collect();
    let picture = svg::bars(&names, &series, "client", &title);
    figure(&title, &about, &picture, &legend, &table(head, &rows))
}

fn confusion(run: &Run) -> Markup {
    let all: Vec<&Metric> = run
        .last()
        .into_iter()
        .filter(|m| !m.confusion().is_empty())
        .collect();
    html! {
        @if all.is_empty() {
            p.dim { "No confusion matrix: " code { "metrics.jsonl" } " has none. fl counts it for models that are evaluated on test examples of up to 32 classes." }
        }
        @for metric in all {
            @let classes: Vec<String> = (0..metric.confusion().len().min(CLASSES)).map(|c| c.to_string()).collect();
            @let cell = |r: usize, c: usize| metric.confusion().get(r).and_then(|row| row.get(c)).copied().unwrap_or(0);
            figure {
                h3 { (metric.name) ", " (metric.step) }
                div.wide { (Heat { rows: &classes, columns: &classes, counts: &cell, down: "true class", across: "predicted class", by_row: true }.draw()) }
                figcaption {
                    "Test examples by true class and predicted class"
                    @if metric.name.starts_with("own.") {
                        ", all clients' own test rows together"
                    } @else if !metric.each().is_empty() {
                        ", all clients' models together"
                    }
                    ". The strongest shade of a row is its largest count."
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
    let classes = counts.iter().map(|c| c.len()).fold(0, usize::max);
    let width = classes.min(CLIENTS);
    let classes: Vec<String> = (0..width).map(|c| c.to_string()).collect();
    let cell = |class: usize, client: usize| {
        counts
            .get(client)
            .and_then(|c| c.get(class))
            .copied()
            .unwrap_or(0)
    };
    html! {
        @if ids.is_empty() {
            p.dim { "Not shown: the run has an accountant, and class counts of clients have no price." }
        } @else {
            figure {
                div.wide { (Heat { rows: &classes, columns: &ids, counts: &cell, down: "class", across: "client", by_row: false }.draw()) }
                figcaption {
                    @if width == 1 { "Examples at each client: their labels are no classes." }
                    @else { "Examples of each class at each client." }
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
        .map(|(what, f)| vec![what.into(), without_folders(&f.path), f.sha256.clone()])
        .collect();
    html! {
        @if !o.version.is_empty() {
            p { "fl " (o.version) ", begun " (o.started)
                @if !o.resumed.is_empty() { ", resumed " (o.resumed.len()) " times" }
                @if !o.processor.is_empty() { ", on " (o.fact("processor")) }
                ": " code { (without_folders(&o.command.join(" "))) } }
        }
        @if !files.is_empty() { (table(&["", "file", "SHA-256"], &files)) }
        details open { summary { "the spec with every default" } pre { (without_folders(&run.spec_text)) } }
    }
}
