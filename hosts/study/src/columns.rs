//! [`Column`]: the columns of a table.

use crate::costs::cost_of;
use crate::file::{Names, OwnColumn, RawColumn, RawTable};
use fl_report::NEGATIVE_TRANSFER;

/// The rounds that a number is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounds {
    /// The last with the measure, or the whole run.
    Last,
    /// One; of a cost, all up to it.
    One(u64),
    /// That with the best value.
    Best,
}

impl Rounds {
    /// Names measures of these rounds, of which a run has one, each in these quotes. What follows
    /// several of them is said once.
    pub(crate) fn of(self, names: &[String], quote: &str) -> String {
        let mut text = String::new();
        for (at, name) in names.iter().enumerate() {
            let (after, next) = (self.after(name), names.get(at + 1));
            let same = next.is_some_and(|next| self.after(next) == after);
            text += &format!("{quote}{name}{quote}{}", if same { "" } else { &after });
            text += next.map_or("", |_| " or ");
        }
        text
    }

    /// Returns what follows the name of a measure.
    fn after(self, name: &str) -> String {
        match self {
            Self::Last => String::new(),
            Self::One(round) if adds_up(name) => format!(" up to round {round}"),
            Self::One(round) => format!(" in round {round}"),
            Self::Best => " in the best round".into(),
        }
    }
}

/// Returns whether the number of this name in a round is the total up to it.
fn adds_up(name: &str) -> bool {
    cost_of(name, true).is_some()
}

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

/// A measurement that a column shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Its names; the first that a run has is used.
    pub names: Vec<String>,
    /// Its rounds.
    pub of: Rounds,
    /// How the seeds are combined in a cell.
    pub show: Show,
    /// Factor of the numbers.
    pub scale: f64,
    /// Digits after the point; `None` for those of the spread.
    pub digits: Option<usize>,
}

/// The content of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnKind {
    /// A measurement, over seeds.
    RunResult(Measured),
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

impl Column {
    /// Returns what it measures, if it does.
    pub fn measured(&self) -> Option<&Measured> {
        match &self.what {
            ColumnKind::RunResult(measured) => Some(measured),
            _ => None,
        }
    }
}

/// Returns the columns of `raw`, which has every default; an error says what is wrong with one.
pub(crate) fn columns(all: &[RawColumn], raw: &RawTable) -> Vec<Result<Column, String>> {
    all.iter().map(|column| one(column, raw)).collect()
}

fn one(column: &RawColumn, raw: &RawTable) -> Result<Column, String> {
    let own = match column {
        RawColumn::Own(own) => Some(&**own),
        RawColumn::Known(_) => None,
    };
    let title = own.and_then(|own| own.title.clone());
    let measured = own.is_some_and(|own| own.measure.is_some() || own.round.is_some() || own.best);
    let text = own.and_then(|own| own.text.clone());
    let of_text = |name: &str| {
        if measured {
            Err(format!("`{name}` is a text, and is not measured"))
        } else {
            Ok(())
        }
    };
    if let Some(name) = text {
        of_text(&name)?;
        if own.is_some_and(|own| own.show.is_some()) {
            return Err(format!("`{name}` is a text, and is not measured"));
        }
        return Ok(Column {
            title: title.unwrap_or(name.clone()),
            what: ColumnKind::Text(name),
        });
    }
    let known = match column {
        RawColumn::Known(name) => name.as_str(),
        RawColumn::Own(own) => own.show.as_deref().unwrap_or("mean"),
    };
    let minus = || match &raw.against {
        Some(row) => Ok(format!("minus `{row}`")),
        None => Err(format!(
            "`{known}`: `against` must name the row that others are compared with"
        )),
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
        of_text(known)?;
        let title = title.unwrap_or(usual);
        return Ok(Column { title, what });
    }
    let Some((_, show)) = Show::ALL.iter().find(|(name, _)| *name == known) else {
        let all: Vec<&str> = Show::ALL.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "no column is called `{known}`; known: {}, published, published-minus, or a mapping with `measure` or `text`",
            all.join(", ")
        ));
    };
    let measure = own.and_then(|own| own.measure.as_ref());
    let of = own.map_or(Ok(Rounds::Last), rounds)?;
    let names = measure.or(raw.measure.as_ref());
    let names = names.map_or(usual_names(), |Names(names)| names.clone());
    if let Some(name) = transfer_in(&names)
        && of != Rounds::Last
    {
        return Err(format!(
            "`{name}` compares the last scores of clients; leave `best` and `round` out"
        ));
    }
    let usual = match (of, *show) {
        (_, Show::Minus) => format!("{}, paired", minus()?),
        (Rounds::One(round), _) if names.iter().all(|name| adds_up(name)) => {
            format!("up to round {round}")
        }
        (Rounds::One(round), _) => format!("round {round}"),
        (Rounds::Best, _) => "best round".into(),
        (Rounds::Last, _) if measure.is_some() => names.join(" or "),
        (Rounds::Last, Show::Mean) => "mean +- std".into(),
        (Rounds::Last, _) => known.into(),
    };
    let scale = own.and_then(|own| own.scale).or(raw.scale);
    let digits = own.and_then(|own| own.digits).or(raw.digits);
    Ok(Column {
        title: title.unwrap_or(usual),
        what: ColumnKind::RunResult(Measured {
            names,
            of,
            show: *show,
            scale: scale.unwrap_or(1.0),
            digits,
        }),
    })
}

/// The rounds that a column shows.
fn rounds(own: &OwnColumn) -> Result<Rounds, String> {
    match (own.round, own.best) {
        (Some(_), true) => Err("`best` is of all rounds; leave `round` out".into()),
        (Some(round), false) => Ok(Rounds::One(round)),
        (None, true) => Ok(Rounds::Best),
        (None, false) => Ok(Rounds::Last),
    }
}

/// What is measured if nothing says it.
pub(crate) fn usual_names() -> Vec<String> {
    vec!["accuracy".into(), "clients.accuracy".into()]
}

/// Returns the one of these names that compares a whole run with a run of `solo`.
pub(crate) fn transfer_in(names: &[String]) -> Option<&String> {
    let mut names = names.iter();
    names.find(|name| NEGATIVE_TRANSFER.contains(&name.as_str()))
}
