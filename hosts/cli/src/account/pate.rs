//! `fl account pate`: the winners of votes in a file.

use super::price::{ask, number};
use crate::{Done, Failure, print, word};
use anyhow::{Context, bail, ensure};
use clap::Args;
use fl_core::message::VoteSensitivity;
use fl_core::privacy::{Unit, UpperBound, VoteNoise, VoteRelease};
use fl_core::{PrivacyEvent, Result};
use fl_registry::Catalogue;
use serde_json::json;
use std::path::PathBuf;

#[derive(Args)]
pub struct PateArgs {
    /// Votes for each class, one query a line (`47,3`), or JSON: `[[47, 3], [50, 0]]`. Counts
    /// without noise.
    #[arg(long)]
    votes: PathBuf,
    /// Inverse scale of the noise on every count.
    #[arg(long, allow_negative_numbers = true, required_unless_present = "sigma")]
    gamma: Option<f64>,
    /// Standard deviation of Gaussian noise in place of `--gamma` (GNMax).
    #[arg(long, allow_negative_numbers = true, conflicts_with = "gamma")]
    sigma: Option<f64>,
    /// A query is answered only if its highest count, with Gaussian noise of `--check`, reaches
    /// this (Confident-GNMax); every query is reckoned as answered.
    #[arg(long, allow_negative_numbers = true, requires_all = ["sigma", "check"], conflicts_with = "gamma")]
    threshold: Option<f64>,
    /// Standard deviation of the noise on the highest count.
    #[arg(long, allow_negative_numbers = true, requires = "threshold")]
    check: Option<f64>,
    /// Delta of the guarantee.
    #[arg(long, default_value_t = 1e-5, allow_negative_numbers = true)]
    delta: f64,
    /// How many votes of a query one unit can change: the students of a party in FedKT-L1; 1 in
    /// PATE and for one example in FedKT-L2; the teachers of a partition for a whole party there.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    s: u32,
    /// Whose presence is to be hidden.
    #[arg(long, value_parser = word::<Unit>(), default_value = "party")]
    level: Unit,
    /// Moments 1 to 8 (the published code) or 1 to 32, for Laplace noise.
    #[arg(long, default_value_t = 32, value_parser = orders)]
    orders: u32,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

impl PateArgs {
    fn noise(&self) -> Result<VoteNoise, Failure> {
        let finite = f64::INFINITY;
        if let Some(gamma) = self.gamma {
            number("gamma", gamma, finite)?;
            return Ok(VoteNoise::Laplace { gamma });
        }
        let sigma = self.sigma.context("--gamma or --sigma")?;
        number("sigma", sigma, finite)?;
        let (Some(threshold), Some(check)) = (self.threshold, self.check) else {
            return Ok(VoteNoise::Gaussian { sigma });
        };
        number("threshold", threshold, finite)?;
        number("check", check, finite)?;
        Ok(VoteNoise::Confident {
            threshold,
            check,
            sigma,
        })
    }

    fn orders(&self) -> &'static str {
        match self.orders {
            8 => "official",
            _ => "standard",
        }
    }
}

fn orders(text: &str) -> Result<u32, String> {
    match text {
        "8" => Ok(8),
        "32" => Ok(32),
        other => Err(format!("must be 8 or 32, got {other}")),
    }
}

/// A whole number of votes.
fn count(n: f64, place: &str) -> Result<u32> {
    ensure!(n >= 0.0, "{place}: {n} votes; a count is at least 0");
    ensure!(
        n.fract() == 0.0 && n <= f64::from(u32::MAX),
        "{place}: {n} votes; a count is a whole number"
    );
    Ok(n as u32)
}

/// Counts from JSON or lines of numbers.
fn read(text: &str) -> Result<Vec<Vec<u32>>> {
    let mut all = Vec::new();
    if text.trim_start().starts_with('[') {
        let lists: Vec<Vec<f64>> =
            serde_json::from_str(text).context("JSON must be a list of lists of counts")?;
        for (i, list) in lists.into_iter().enumerate() {
            let place = format!("query {i}");
            let counts = list.into_iter().map(|n| count(n, &place));
            all.push((place.clone(), counts.collect::<Result<Vec<_>>>()?));
        }
    } else {
        for (i, line) in text.lines().enumerate() {
            let (line, place) = (line.trim(), format!("line {}", i + 1));
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let number = |word: &str| match word.parse::<f64>() {
                Ok(n) => count(n, &place),
                Err(_) => bail!("{place}: `{word}` is no number of votes"),
            };
            let words = line.split([',', ';', ' ', '\t']).filter(|w| !w.is_empty());
            let counts = words.map(number).collect::<Result<Vec<_>>>()?;
            all.push((place.clone(), counts));
        }
    }
    let (first, classes) = match all.first() {
        Some((place, counts)) => (place.clone(), counts.len()),
        None => bail!("there are no votes in it"),
    };
    ensure!(classes > 0, "{first}: there are no classes");
    for (place, counts) in &all {
        ensure!(
            counts.len() == classes,
            "{place}: votes for {} classes, but {first} has {classes}: a class out of range",
            counts.len()
        );
    }
    Ok(all.into_iter().map(|(_, counts)| counts).collect())
}

pub fn pate(args: &PateArgs, catalogue: &Catalogue) -> Done {
    let noise = args.noise()?;
    number("delta", args.delta, 1.0)?;
    let file = args.votes.display();
    let text = fl_engine::open(&args.votes)
        .and_then(std::io::read_to_string)
        .map_err(|error| Failure::usage(format!("{file}: {error}")))?;
    let counts = read(&text).map_err(|error| Failure::usage(format!("{file}: {error:#}")))?;
    let (queries, classes) = (counts.len(), counts[0].len());
    let event = |counts| {
        PrivacyEvent::Votes(VoteRelease {
            noise,
            queries,
            classes,
            counts,
            answered: None,
            sensitivity: VoteSensitivity {
                example: Some(args.s),
                party: Some(args.s),
                ..VoteSensitivity::default()
            },
        })
    };
    let unit = args.level;
    let price = |accountant: &str, event: &PrivacyEvent| {
        let settings = [("orders", args.orders())];
        ask(catalogue, accountant, args.delta, unit, &settings, event, 1)
    };
    let (from_votes, fixed) = (event(Some(counts)), event(None));
    let accountant = match noise {
        VoteNoise::Laplace { .. } => "pate-moments",
        VoteNoise::Gaussian { .. } | VoteNoise::Confident { .. } => "pate-gnmax",
    };
    let (dependent, independent) = (price(accountant, &from_votes)?, price(accountant, &fixed)?);
    let mut answer = json!({
        "queries": queries, "classes": classes, "noise": noise, "s": args.s, "unit": unit, "delta": args.delta,
        "orders": args.orders, "epsilon": dependent.epsilon, "data_dependent": dependent.data_dependent,
        "epsilon_data_independent": independent.epsilon,
    });
    let mut rows = vec![
        (
            "these votes",
            dependent.epsilon,
            "depends on the votes: do not publish it",
        ),
        ("any votes", independent.epsilon, ""),
    ];
    if let VoteNoise::Laplace { gamma } = noise {
        let advanced = price("advanced-composition", &fixed)?.epsilon;
        let each = 2.0 * f64::from(args.s) * gamma;
        let basic = queries as f64 * each;
        answer["gamma"] = gamma.into();
        answer["epsilon_per_query"] = each.into();
        answer["epsilon_advanced_composition"] = advanced.into();
        answer["epsilon_basic_composition"] = basic.into();
        rows.push((
            "advanced composition",
            advanced,
            "or basic, where that is less",
        ));
        rows.push(("basic composition", basic, "with delta 0"));
    }
    if args.json {
        return print(answer);
    }
    let by = match noise {
        VoteNoise::Laplace { .. } => format!("moments 1 to {}", args.orders),
        _ => "Renyi accounting".into(),
    };
    let mut out = format!(
        "{queries} queries, {classes} classes, {noise}; epsilon for one {unit} at delta {:e}, {by}\n",
        args.delta
    );
    for (what, epsilon, note) in rows {
        let epsilon = UpperBound(epsilon);
        out += format!("  {what:<24} {epsilon:>10}  {note}").trim_end();
        out += "\n";
    }
    print(out.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_are_read_from_lines_and_from_json() {
        let expected = vec![vec![47, 3], vec![50, 0]];
        assert_eq!(read("# a comment\n47,3\n\n50 ; 0\n").unwrap(), expected);
        assert_eq!(read(" [[47, 3], [50, 0]]").unwrap(), expected);
    }

    #[test]
    fn wrong_votes_are_refused_by_their_place() {
        let text = |votes: &str| format!("{:#}", read(votes).unwrap_err());
        insta::assert_snapshot!(text("47,3\n50,-1"), @"line 2: -1 votes; a count is at least 0");
        insta::assert_snapshot!(text("47,3.5"), @"line 1: 3.5 votes; a count is a whole number");
        insta::assert_snapshot!(text("47,3\n1,2,3"), @"line 2: votes for 3 classes, but line 1 has 2: a class out of range");
        insta::assert_snapshot!(text("[[47, 3], [1]]"), @"query 1: votes for 1 classes, but query 0 has 2: a class out of range");
        insta::assert_snapshot!(text("no,yes"), @"line 1: `no` is no number of votes");
        insta::assert_snapshot!(text("\n# nothing\n"), @"there are no votes in it");
        insta::assert_snapshot!(text("[]"), @"there are no votes in it");
        assert!(read("nan,1").is_err() && read("[[]]").is_err() && read("[3]").is_err());
    }
}
