//! [`Column`]: the columns of a table.

use crate::file::{OneOrMany, RawColumn, RawTable};
use anyhow::{bail, ensure};
use fl_core::Result;

/// How the seeds of a row are combined in one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// `81.5 +- 1.5`: mean and deviation over seeds.
    Mean,
    /// The median.
    Median,
    /// The deviation over seeds.
    Std,
    /// `78.1 to 83.2`
    Range,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The number of seeds.
    Seeds,
    /// The mean of the paired differences to another row, with its 95 % t-interval.
    Minus,
}

impl Show {
    const ALL: [(&str, Self); 8] = [
        ("mean", Self::Mean),
        ("median", Self::Median),
        ("std", Self::Std),
        ("range", Self::Range),
        ("min", Self::Min),
        ("max", Self::Max),
        ("seeds", Self::Seeds),
        ("minus", Self::Minus),
    ];
}

/// The content of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnKind {
    /// A measurement, over seeds.
    RunResult {
        /// Its names; the first that a run has is used.
        names: Vec<String>,
        /// The round; `None` for the last.
        round: Option<u64>,
        /// How the seeds are combined in a cell.
        show: Show,
        /// Factor of the numbers.
        scale: f64,
        /// Digits after the point.
        digits: usize,
    },
    /// The published number.
    Published,
    /// The published number minus that of the row of comparison.
    PublishedMinus,
    /// A text of the row.
    Text(String),
}

/// A column.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its head.
    pub title: String,
    /// Its content.
    pub what: ColumnKind,
}

/// Returns the columns of `raw`, which has every default.
pub(crate) fn columns(all: &[RawColumn], raw: &RawTable) -> Result<Vec<Column>> {
    all.iter().map(|column| one(column, raw)).collect()
}

fn one(column: &RawColumn, raw: &RawTable) -> Result<Column> {
    let known = match column {
        RawColumn::Known(name) => name.as_str(),
        RawColumn::Own(own) if own.text.is_some() => {
            let name = own.text.clone().unwrap_or_default();
            ensure!(
                own.measure.is_none() && own.round.is_none() && own.show.is_none(),
                "column `{name}`: it is a text, and is not measured"
            );
            return Ok(Column {
                title: own.title.clone().unwrap_or(name.clone()),
                what: ColumnKind::Text(name),
            });
        }
        RawColumn::Own(own) => own.show.as_deref().unwrap_or("mean"),
    };
    let minus = || match &raw.against {
        Some(row) => Ok(format!("minus `{row}`")),
        None => {
            bail!("column `{known}`: `against` must name the row that others are compared with")
        }
    };
    let what = match known {
        "published" => Some((known.into(), ColumnKind::Published)),
        "published-minus" => Some((
            format!("published, {}", minus()?),
            ColumnKind::PublishedMinus,
        )),
        _ => None,
    };
    if let Some((usual, what)) = what {
        let own = match column {
            RawColumn::Own(own) => {
                ensure!(
                    own.measure.is_none() && own.round.is_none(),
                    "column `{known}`: it is a text, and is not measured"
                );
                own.title.clone()
            }
            RawColumn::Known(_) => None,
        };
        let title = own.unwrap_or(usual);
        return Ok(Column { title, what });
    }
    let Some((_, show)) = Show::ALL.iter().find(|(name, _)| *name == known) else {
        let all: Vec<&str> = Show::ALL.iter().map(|(name, _)| *name).collect();
        bail!(
            "no column is called `{known}`; known: {}, published, published-minus, or a mapping with `measure` or `text`",
            all.join(", ")
        );
    };
    let own = match column {
        RawColumn::Own(own) => (**own).clone(),
        RawColumn::Known(_) => Default::default(),
    };
    let names = own
        .measure
        .as_ref()
        .or(raw.measure.as_ref())
        .map(OneOrMany::all);
    let names = names.unwrap_or(vec!["accuracy".into(), "clients.accuracy".into()]);
    let usual = match (own.round, *show) {
        (_, Show::Minus) => format!("{}, paired", minus()?),
        (Some(round), _) => format!("round {round}"),
        (None, _) if own.measure.is_some() => names.join(" or "),
        (None, Show::Mean) => "mean +- std".into(),
        (None, _) => known.into(),
    };
    let (scale, digits) = (own.scale.or(raw.scale), own.digits.or(raw.digits));
    let (scale, digits) = (scale.unwrap_or(1.0), digits.unwrap_or(4));
    ensure!(
        scale.is_finite() && digits <= 12,
        "column `{usual}`: `scale` must be finite, and `digits` 0 to 12"
    );
    Ok(Column {
        title: own.title.unwrap_or(usual),
        what: ColumnKind::RunResult {
            names,
            round: own.round,
            show: *show,
            scale,
            digits,
        },
    })
}
