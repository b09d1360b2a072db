//! The page that compares several runs.

use crate::alone::{is_alone, worse_than_alone};
use crate::curves::{Curve, curves};
use crate::read::{Metric, Outcome, Run};
use crate::run_page;
use crate::specs::differences;
use crate::study_page;
use crate::svg::{self, Dot, Line};
use crate::text::{count, measured, number, of_measure, with_std};
use crate::widgets::{ROWS, Section, coded, figure, flow, some, some_table, table};
use fl_core::privacy::Observer;
use maud::{Markup, html};
use std::collections::{BTreeMap, BTreeSet};

/// The curves of a run by their names.
type NamedCurves<'c, 'r> = BTreeMap<&'r str, &'c Curve<'r>>;

pub(crate) fn page(runs: &[Run], joint: Option<&study_page::Section>) -> Markup {
    let curves: Vec<Vec<Curve<'_>>> = runs.iter().map(curves).collect();
    let names = names(&curves);
    let curves: Vec<NamedCurves<'_, '_>> = curves
        .iter()
        .map(|of| of.iter().map(|c| (c.name, c)).collect())
        .collect();
    let each = html! {
        @for run in runs {
            details { summary { strong { (run.label) } " (" (run.name()) ")" } (run_page::sections(run, false)) }
        }
    };
    // many runs and several charts need the whole width
    let section = |id, title, body: Markup| Section {
        id,
        title,
        full: runs.len() > 4 || body.0.matches("<figure").count() > 1,
        body,
    };
    let mut all = vec![
        section("results", "Results", results(runs, &names)),
        section(
            "privacy",
            "Privacy of all runs on the same rows",
            html! {
                @if let Some(joint) = joint {
                    (study_page::rows(joint))
                    @for note in &joint.notes { p.dim { (coded(note)) } }
                }
            },
        ),
        section("specs", "Differences of the specs", differ(runs)),
        section(
            "metrics",
            "Metrics by round",
            overlaid(runs, &curves, &names),
        ),
        section(
            "cost",
            "Quality against cost",
            against(runs, &curves, &names),
        ),
        section("runs", "Run by run", each),
    ];
    all.retain(|section| !section.body.0.is_empty());
    html! {
        h1 { (runs.len()) " runs" }
        @for run in runs { @for notice in &run.notices { p.notice { strong { (run.label) } ": " (coded(notice)) } } }
        (flow(&all, true))
    }
}

/// The names of all curves, in the order of their first.
fn names<'r>(curves: &[Vec<Curve<'r>>]) -> Vec<&'r str> {
    let mut seen = BTreeSet::new();
    let names = curves.iter().flatten().map(|curve| curve.name);
    names.filter(|name| seen.insert(*name)).collect()
}

/// Returns the results of runs as a table: a row for each measure, a column for each run.
pub fn results_table(runs: &[Run]) -> study_page::Section {
    let names = names(&runs.iter().map(curves).collect::<Vec<_>>());
    let (rows, said) = result_rows(runs, &names);
    let labels = runs.iter().map(|run| run.label.clone());
    study_page::Section {
        title: "Results".into(),
        head: [String::new()].into_iter().chain(labels).collect(),
        rows,
        notes: Some(said)
            .into_iter()
            .filter(|said| !said.is_empty())
            .chain(caveats(runs))
            .collect(),
        pictures: Vec::new(),
    }
}

/// A row for each measure and each cost, and a remark if some are left out.
fn result_rows(runs: &[Run], names: &[&str]) -> (Vec<Vec<String>>, String) {
    let row = |name: &str, cell: &dyn Fn(&Run) -> String| {
        [name.to_string()]
            .into_iter()
            .chain(runs.iter().map(cell))
            .collect::<Vec<_>>()
    };
    let last: Vec<BTreeMap<&str, &Metric>> = runs
        .iter()
        .map(|run| run.last().into_iter().map(|m| (&m.name[..], m)).collect())
        .collect();
    let (shown, said) = some(names.iter(), names.len());
    let measured = |name: &str| {
        let of = |last: &BTreeMap<&str, &Metric>| {
            let found = last.get(name);
            found.map_or(String::new(), |m| with_std(m.value, m.std))
        };
        let cells = last.iter().map(of);
        [name.to_string()].into_iter().chain(cells).collect()
    };
    let mut rows: Vec<Vec<String>> = shown.into_iter().map(|name| measured(name)).collect();
    for name in names.iter().take(ROWS) {
        let best = |run: &Run| run_page::best(run, name).unwrap_or_default();
        if runs.iter().any(|run| !best(run).is_empty()) {
            rows.push(row(&format!("best {name}"), &best));
        }
    }
    rows.extend(alone(runs));
    rows.push(row("bytes up", &|run| count(run.bytes().up)));
    rows.push(row("bytes down", &|run| count(run.bytes().down)));
    for o in Observer::ALL {
        let spent = |run: &Run| match &run.summary {
            None if run.accounts() => "not done".into(),
            None => String::new(),
            Some(summary) => match summary.outcome.epsilon(o) {
                Some(Some(epsilon)) => of_measure("epsilon", 1.0, epsilon),
                Some(None) => "no guarantee".into(),
                None => String::new(),
            },
        };
        if runs.iter().any(|run| !spent(run).is_empty()) {
            rows.push(row(&format!("epsilon, against {o}"), &spent));
        }
    }
    let outcome = |run: &Run, of: fn(&Outcome) -> String| {
        run.summary
            .as_ref()
            .map_or("not done".into(), |s| of(&s.outcome))
    };
    rows.push(row("seed", &Run::seed));
    let seconds = |run: &Run| {
        outcome(run, |o| {
            o.seconds
                .map_or(String::new(), |seconds| format!("{seconds:.1}"))
        })
    };
    if runs.iter().any(|run| !seconds(run).is_empty()) {
        rows.push(row("seconds", &seconds));
    }
    rows.push(row("digest", &|run| {
        outcome(run, |o| o.digest.chars().take(12).collect())
    }));
    (rows, said)
}

fn results(runs: &[Run], names: &[&str]) -> Markup {
    let mut head = vec!["".to_string()];
    head.extend(runs.iter().map(|run| format!("#{}", run.label)));
    let (rows, said) = result_rows(runs, names);
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    html! {
        (table(&head, &rows))
        @if !said.is_empty() { p.dim { (said) } }
        @for caveat in caveats(runs) { p.dim { (coded(&caveat)) } }
    }
}

/// Returns a row for each score by which the runs are compared with the one run of `solo` among
/// them, and one for those that cannot be.
fn alone(runs: &[Run]) -> Vec<Vec<String>> {
    let mut of_solo = runs.iter().filter(|run| is_alone(run));
    let (Some(solo), None) = (of_solo.next(), of_solo.next()) else {
        return Vec::new();
    };
    let mut rows = BTreeMap::<String, Vec<String>>::new();
    for (at, run) in runs.iter().enumerate().filter(|(_, run)| !is_alone(run)) {
        let said = match worse_than_alone(solo, run) {
            Err(why) => vec![("worse than alone".into(), format!("unknown: {why}"))],
            Ok(all) => {
                let said = all.iter();
                said.map(|of| (format!("worse than alone, {}", of.name), of.to_string()))
                    .collect()
            }
        };
        for (name, cell) in said {
            let row = || vec![String::new(); runs.len()];
            rows.entry(name).or_insert_with(row)[at] = cell;
        }
    }
    let row = |(name, cells): (String, Vec<String>)| [vec![name], cells].concat();
    rows.into_iter().map(row).collect()
}

/// Returns what readers must know of the epsilons in tables and charts.
fn caveats(runs: &[Run]) -> Vec<String> {
    let of = |(run, observer): (&Run, Observer)| {
        let said = run.caveats(observer).into_iter();
        let label = run.label.clone();
        said.map(move |caveat| format!("Epsilon of {label} against {observer} is {caveat}."))
    };
    let all = runs.iter();
    let all = all.flat_map(|run| Observer::ALL.map(|observer| (run, observer)));
    all.flat_map(of).collect()
}

fn differ(runs: &[Run]) -> Markup {
    let all = differences(&runs.iter().map(|r| &r.spec).collect::<Vec<_>>());
    let mut head = vec!["value"];
    head.extend(runs.iter().map(|r| r.label.as_str()));
    let rows: Vec<_> = all
        .into_iter()
        .map(|d| {
            let values = d.values.into_iter().map(|v| v.unwrap_or("–".into()));
            [d.path].into_iter().chain(values).collect()
        })
        .collect();
    html! {
        @if rows.is_empty() {
            p {
                "None: the runs have the same spec."
                // beside an accountant no hashes are listed
                @if !runs.iter().any(Run::accounts) {
                    " Their data files may differ; " code { "Run by run" } " lists the hashes."
                }
            }
        }
        @else { (table(&head, &rows)) p.dim { "Specs with every default; – marks a value that a spec does not have." } }
    }
}

fn overlaid(runs: &[Run], curves: &[NamedCurves<'_, '_>], names: &[&str]) -> Markup {
    let charts: Vec<Markup> = names
        .iter()
        .filter_map(|name| {
            let of: Vec<(usize, &Curve<'_>)> = curves
                .iter()
                .enumerate()
                .filter_map(|(at, all)| Some((at, *all.get(name)?)))
                .collect();
            if of.iter().all(|(_, c)| c.points.len() < 2) {
                return None;
            }
            let lines: Vec<Line> = of
                .iter()
                .map(|(at, c)| run_page::line(c, &runs[*at].label, *at))
                .collect();
            let points = of
                .iter()
                .flat_map(|(at, c)| c.points.iter().map(|p| (*at, p)));
            let numbers = some_table(&["run", "step", "#value", "#std"], points, |(at, p)| {
                vec![
                    runs[at].label.clone(),
                    p.metric.step.to_string(),
                    measured(p.metric.value),
                    p.metric.std.map_or(String::new(), number),
                ]
            });
            let axis = of.first().map_or("round", |(_, c)| c.axis());
            let mut about = svg::bands(&lines, "clients");
            let outside = |c: &Curve<'_>| c.points.iter().any(|p| p.metric.round == 0);
            if of.iter().any(|(_, c)| outside(c) && c.axis() == "round") {
                about += " A measurement outside of rounds is drawn at 0.";
            }
            if svg::are_flat(&lines) {
                about += " Every run has one value at every measurement.";
                return Some(figure(name, about.trim(), &html! {}, &[], &numbers));
            }
            Some(figure(
                name,
                about.trim(),
                &svg::lines(&lines, axis, name, false, svg::range(name, 1.0)),
                &svg::legend(&lines),
                &numbers,
            ))
        })
        .collect();
    html! { @if !charts.is_empty() { div.charts { @for chart in charts { (chart) } } } }
}

fn against(runs: &[Run], curves: &[NamedCurves<'_, '_>], names: &[&str]) -> Markup {
    let chart = |name: &str,
                 what: &str,
                 axis: &str,
                 log: bool,
                 cost: &dyn Fn(&crate::curves::Point<'_>) -> Option<f64>| {
        // of each run the points that have a cost
        let points = curves.iter().enumerate().filter_map(|(at, all)| {
            let points = all.get(name)?.points.iter();
            let points: Vec<_> = points.filter_map(|p| Some((cost(p)?, p.metric))).collect();
            (!points.is_empty()).then_some((at, points))
        });
        let points: Vec<(usize, Vec<(f64, &Metric)>)> = points.collect();
        if points.is_empty() {
            return None;
        }
        let line = |(at, points): &(usize, Vec<(f64, &Metric)>)| {
            let label = &runs[*at].label;
            Line::of(label, *at, points, |(x, metric)| Dot {
                x: *x,
                y: metric.value.unwrap_or(f64::NAN),
                spread: 0.0,
                title: format!(
                    "{label}, {}: {} at {} {what}",
                    metric.step,
                    measured(metric.value),
                    of_measure(axis, 1.0, *x)
                ),
            })
        };
        let lines: Vec<Line> = points.iter().map(line).collect();
        let all = points
            .iter()
            .flat_map(|(at, points)| points.iter().map(move |point| (at, point)));
        let head = ["run", &format!("#{axis}"), &format!("#{name}")];
        let numbers = some_table(&head, all, |(at, (x, metric))| {
            vec![
                runs[*at].label.clone(),
                of_measure(axis, 1.0, *x),
                measured(Some(metric.value.unwrap_or(f64::NAN))),
            ]
        });
        Some(figure(
            &format!("{name} against {what}"),
            "",
            &svg::lines(&lines, axis, name, log, svg::range(name, 1.0)),
            &svg::legend(&lines),
            &numbers,
        ))
    };
    let of: Vec<&str> = names
        .iter()
        .copied()
        .filter(|n| fl_core::metrics::is_score(n))
        .collect();
    let bytes = of.iter().filter_map(|n| {
        chart(n, "bytes", "cumulative bytes", true, &|p| {
            p.bytes().map(|b| b as f64)
        })
    });
    let bytes: Vec<Markup> = bytes.collect();
    let epsilon = of.iter().flat_map(|n| {
        Observer::ALL.map(|o| {
            chart(
                n,
                &format!("epsilon, against {o}"),
                "epsilon",
                false,
                &move |p| p.epsilon(o),
            )
        })
    });
    let epsilon: Vec<Markup> = epsilon.flatten().collect();
    html! {
        @if !bytes.is_empty() { div.charts { @for c in bytes.iter().chain(&epsilon) { (c) } } }
        @if epsilon.is_empty() { p.dim { "No run has a guarantee, so there is no chart against epsilon." } }
    }
}
