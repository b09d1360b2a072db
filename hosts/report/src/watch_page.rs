//! The page of a run that goes on: it renews itself, and its reader chooses lines and axes.

use crate::curves::curves;
use crate::read::Run;
use crate::run_page;
use crate::svg;
use crate::widgets::{Script, whole_with};
use fl_core::metrics::{is_score, lower_is_better};
use fl_core::privacy::Observer;
use maud::html;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// How often the page loads again, in seconds.
const RENEW: u32 = 3;

/// Returns the page of a run as far as it is. `clock` has the seconds of the run at the end of each
/// step, by its name; while `going`, the page loads again every 3 seconds.
pub fn watch_page(run: &Run, clock: &BTreeMap<String, f64>, going: bool) -> String {
    let mut axes = vec!["round".to_string()];
    if !clock.is_empty() {
        axes.push("seconds".into());
    }
    axes.push("bytes".into());
    let observers = Observer::ALL.into_iter().filter(|observer| {
        let mut costs = run.costs.iter().flatten();
        costs.any(|cost| cost.epsilon(*observer).is_some())
    });
    let observers: Vec<Observer> = observers.collect();
    axes.extend(observers.iter().map(|of| format!("epsilon against {of}")));
    let lines = curves(run).into_iter().map(|curve| {
        let at = curve.at();
        let points = svg::shown(at.len()).map(|n| {
            let point = &curve.points[n];
            let mut row: Vec<Value> = vec![json!(at[n])];
            if !clock.is_empty() {
                row.push(json!(clock.get(&*point.metric.step)));
            }
            row.push(json!(point.bytes()));
            row.extend(observers.iter().map(|of| json!(point.epsilon(*of))));
            row.push(json!(point.metric.value));
            Value::Array(row)
        });
        let points: Vec<Value> = points.collect();
        let score = is_score(curve.name) || lower_is_better(curve.name);
        json!({ "name": curve.name, "score": score, "points": points })
    });
    let lines: Vec<Value> = lines.collect();
    let renew = if going { RENEW } else { 0 };
    let data = json!({ "axes": axes, "lines": lines, "renew": renew });
    let body = html! {
        h1 { (run.name()) }
        @if going {
            p.notice { "The run goes on; this page loads again every " (RENEW) " seconds." }
        }
        figure.watch {
            h3 { "Measurements" }
            div #watch { "A browser without scripts shows the pictures below; load the page again by hand." }
        }
        (run_page::sections(run, true))
    };
    let script = Script {
        code: include_str!("watch.js"),
        data: ("measured", data.to_string()),
    };
    whole_with(run.name(), &body, Some(&script))
}
