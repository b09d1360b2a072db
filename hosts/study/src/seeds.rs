//! The seeds of a row.

use crate::MAX_RUNS;
use fl_report::inline;
use serde_yaml::Value;
use std::collections::BTreeSet;

/// Parses `3`, `1-10`, `[1, 5, 7]`; an error says what would be right.
pub(crate) fn seeds_of(value: &Value) -> Result<Vec<u64>, String> {
    let wrong = || {
        format!(
            "must be a number, a range such as 1-10, or a list of numbers, got {}",
            inline(value)
        )
    };
    let seeds: Vec<u64> = match value {
        Value::Number(n) => vec![n.as_u64().ok_or_else(wrong)?],
        Value::String(range) => {
            let (first, last) = range.split_once('-').ok_or_else(wrong)?;
            let number = |text: &str| text.trim().parse::<u64>().ok();
            let (first, last) = number(first).zip(number(last)).ok_or_else(wrong)?;
            if first > last || last - first >= MAX_RUNS as u64 {
                return Err(wrong());
            }
            (first..=last).collect()
        }
        Value::Sequence(all) => {
            let seeds = all.iter().map(Value::as_u64);
            seeds.collect::<Option<_>>().ok_or_else(wrong)?
        }
        _ => return Err(wrong()),
    };
    let different: BTreeSet<&u64> = seeds.iter().collect();
    if !seeds.is_empty() && different.len() == seeds.len() {
        Ok(seeds)
    } else {
        Err(format!(
            "must be at least one seed, and none twice, got {}",
            inline(value)
        ))
    }
}
