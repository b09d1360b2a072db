//! Export of measurements to the formats of other tools.

use crate::curves::{curves, positions};
use crate::read::{Run, observer_of};
use fl_core::Result;
use std::borrow::Cow;

/// Returns a cell of a CSV. A text that a spreadsheet would read as a formula, and that is no
/// number, gets a `'` in front.
pub fn cell(text: &str) -> Cow<'_, str> {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    match formula && text.parse::<f64>().is_err() {
        true => format!("'{text}").into(),
        false => text.into(),
    }
}

/// Returns every measurement of these runs, and their costs after each step (`bytes.up`,
/// `bytes.down`, `epsilon.readers` and the like). One line per number; `client` is empty for the
/// mean over clients. With an epsilon stands the guarantee of the whole run.
///
/// # Errors
/// If it cannot be written.
pub fn csv(runs: &[Run]) -> Result<Vec<u8>> {
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record([
        "run",
        "step",
        "round",
        "measure",
        "client",
        "value",
        "std",
        "guarantee",
    ])?;
    let number = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
    for run in runs {
        let label = cell(&run.label);
        for m in &run.metrics {
            let (step, name) = (cell(&m.step), cell(&m.name));
            let (round, of) = (m.round.to_string(), run.clients_of(m));
            out.write_record([
                &label[..],
                &step,
                &round,
                &name,
                "",
                &number(m.value),
                &number(m.std),
                "",
            ])?;
            for (client, value) in of.iter().zip(&m.each) {
                out.write_record([
                    &label[..],
                    &step,
                    &round,
                    &name,
                    client,
                    &number(*value),
                    "",
                    "",
                ])?;
            }
        }
        for cost in run.costs.iter().flatten() {
            let (step, round) = (cell(&cost.step), cost.round.to_string());
            for (name, value) in cost.numbers() {
                let value = value.to_string();
                let whole = run.guarantee_of(&name).unwrap_or_default();
                out.write_record([&label[..], &step, &round, &name, "", &value, "", &whole])?;
            }
        }
    }
    Ok(out.into_inner()?)
}

/// Returns an event file of TensorBoard: every measurement as a scalar over its rounds, deviations
/// over clients as `NAME.std`, and the costs after each step. What a reader must know of an epsilon
/// is the description of its tag; of an observer without a guarantee there is none. `began` is the
/// start of the run in seconds since 1970.
pub fn tensorboard(run: &Run, began: f64) -> Vec<u8> {
    let mut out = Vec::new();
    // Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5 }
    let event = |step: u64, field: u8, content: &[u8]| {
        let mut event = vec![0x09];
        event.extend(began.to_le_bytes());
        // 0 is the default and left out
        if step > 0 {
            event.push(0x10);
            varint(step, &mut event);
        }
        bytes(field, content, &mut event);
        event
    };
    let scalar = |at: f64, tag: &str, value: f64, about: &str| {
        // Summary { repeated Value value = 1 }, Value { string tag = 1; float simple_value = 2;
        // SummaryMetadata metadata = 9 }, SummaryMetadata { string summary_description = 3 }
        let (mut one, mut summary, mut out) = (Vec::new(), Vec::new(), Vec::new());
        bytes(0x0a, tag.as_bytes(), &mut one);
        one.push(0x15);
        one.extend((value as f32).to_le_bytes());
        if !about.is_empty() {
            let mut metadata = Vec::new();
            bytes(0x1a, about.as_bytes(), &mut metadata);
            bytes(0x4a, &metadata, &mut one);
        }
        bytes(0x0a, &one, &mut summary);
        record(&event(at as u64, 0x2a, &summary), &mut out);
        out
    };
    record(&event(0, 0x1a, b"brain.Event:2"), &mut out);
    for curve in curves(run) {
        for (at, point) in curve.at().into_iter().zip(&curve.points) {
            let std = format!("{}.std", curve.name);
            for (tag, value) in [(curve.name, point.metric.value), (&std, point.metric.std)] {
                let Some(value) = value else { continue };
                out.extend(scalar(at, tag, value, ""));
            }
        }
    }
    let holds = |observer| {
        let outcome = run.summary.as_ref().map(|summary| &summary.outcome);
        outcome.is_some_and(|outcome| outcome.epsilon(observer).flatten().is_some())
    };
    let costs = run.costs.as_deref().unwrap_or_default();
    let rounds: Vec<u64> = costs.iter().map(|cost| cost.round).collect();
    for (at, cost) in positions(&rounds).into_iter().zip(costs) {
        for (name, value) in cost.numbers() {
            let about = match observer_of(&name) {
                None => String::new(),
                Some(observer) if holds(observer) => run.caveats(observer).join("; "),
                Some(_) => continue,
            };
            out.extend(scalar(at, &name, value, &about));
        }
    }
    out
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn bytes(field: u8, content: &[u8], out: &mut Vec<u8>) {
    out.push(field);
    varint(content.len() as u64, out);
    out.extend(content);
}

/// Appends a TFRecord: length and content, each with its masked CRC-32C.
fn record(content: &[u8], out: &mut Vec<u8>) {
    let masked = |bytes: &[u8]| {
        let sum = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI).checksum(bytes);
        sum.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
    };
    let length = (content.len() as u64).to_le_bytes();
    out.extend(length);
    out.extend(masked(&length));
    out.extend(content);
    out.extend(masked(content));
}
