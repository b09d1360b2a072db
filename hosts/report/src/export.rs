//! Export of measurements to the formats of other tools.

use crate::curves::{curves, positions};
use crate::read::{Metric, Run, observer_of};
use crate::text::is_bound;
use crc::Crc;
use fl_core::Result;
use std::borrow::Cow;
use std::io::Write;

/// Returns a cell of a CSV. A text that a spreadsheet would read as a formula, and that is no
/// number, gets a `'` in front.
pub fn cell(text: &str) -> Cow<'_, str> {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if formula && text.parse::<f64>().is_err() {
        format!("'{text}").into()
    } else {
        text.into()
    }
}

/// The first line of each file that [`csv()`] writes.
pub const CSV_HEAD: &str = "run,step,round,measure,client,value,std,guarantee";

/// Writes every measurement of these runs, and their costs after each step (`bytes.up`,
/// `bytes.down`, `epsilon.readers` and the like). One line per number; `client` is empty for the
/// mean over clients. With an epsilon stands the guarantee of the whole run. Measurements are read
/// again from the folders, so that memory does not grow with their number.
///
/// # Errors
/// If it cannot be written.
pub fn csv(runs: &[Run], out: &mut dyn Write) -> Result<()> {
    let mut out = csv::Writer::from_writer(out);
    out.write_record(CSV_HEAD.split(','))?;
    let number = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
    for run in runs {
        let label = cell(&run.label);
        let mut write = |m: &Metric| -> Result<()> {
            let (step, name) = (cell(&m.step), cell(&m.name));
            let round = m.round.to_string();
            let mut line = |client: &str, value: Option<f64>, std: Option<f64>| {
                let (value, std) = (number(value), number(std));
                out.write_record([&label[..], &step, &round, &name, client, &value, &std, ""])
            };
            line("", m.value, m.std)?;
            let mut each = m.by_client();
            Ok(each.try_for_each(|(client, value)| line(&client.to_string(), value, None))?)
        };
        let mut written = Ok(());
        run.each_metric(&mut |metric| {
            if written.is_ok() {
                written = write(&metric);
            }
        });
        written?;
        for cost in run.costs.iter().flatten() {
            let (step, round) = (cell(&cost.step), cost.round.to_string());
            for (name, value) in cost.numbers() {
                let value = value.to_string();
                let whole = run.guarantee_of(&name).unwrap_or_default();
                out.write_record([&label[..], &step, &round, &name, "", &value, "", &whole])?;
            }
        }
    }
    Ok(out.flush()?)
}

/// Writes an event file of TensorBoard: every measurement as a scalar over its rounds, deviations
/// over clients as `NAME.std`, and the costs after each step. What a reader must know of an epsilon
/// is the description of its tag; of an observer without a guarantee there is none. `began` is the
/// start of the run in seconds since 1970.
///
/// # Errors
/// If it cannot be written.
pub fn tensorboard(run: &Run, began: f64, out: &mut dyn Write) -> Result<()> {
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
    // in single precision, as TensorBoard has them
    let single = |name: &str, value: f64| {
        let single = value as f32;
        if is_bound(name) && f64::from(single) < value {
            single.next_up()
        } else {
            single
        }
    };
    let scalar = |at: f64, tag: &str, value: f64, about: &str| {
        // Summary { repeated Value value = 1 }, Value { string tag = 1; float simple_value = 2;
        // SummaryMetadata metadata = 9 }, SummaryMetadata { string summary_description = 3 }
        let (mut one, mut summary) = (Vec::new(), Vec::new());
        bytes(0x0a, tag.as_bytes(), &mut one);
        one.push(0x15);
        one.extend(single(tag, value).to_le_bytes());
        if !about.is_empty() {
            let mut metadata = Vec::new();
            bytes(0x1a, about.as_bytes(), &mut metadata);
            bytes(0x4a, &metadata, &mut one);
        }
        bytes(0x0a, &one, &mut summary);
        event(at as u64, 0x2a, &summary)
    };
    record(&event(0, 0x1a, b"brain.Event:2"), out)?;
    for curve in curves(run) {
        for (at, point) in curve.at().into_iter().zip(&curve.points) {
            let std = format!("{}.std", curve.name);
            for (tag, value) in [(curve.name, point.metric.value), (&std, point.metric.std)] {
                let Some(value) = value else { continue };
                record(&scalar(at, tag, value, ""), out)?;
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
            record(&scalar(at, &name, value, &about), out)?;
        }
    }
    Ok(())
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

/// Writes a TFRecord: length and content, each with its masked CRC-32C.
fn record(content: &[u8], out: &mut dyn Write) -> Result<()> {
    static CRC_32C: Crc<u32> = Crc::<u32>::new(&crc::CRC_32_ISCSI);
    let masked = |bytes: &[u8]| {
        let sum = CRC_32C.checksum(bytes);
        sum.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
    };
    let length = (content.len() as u64).to_le_bytes();
    out.write_all(&length)?;
    out.write_all(&masked(&length))?;
    out.write_all(content)?;
    Ok(out.write_all(&masked(content))?)
}
