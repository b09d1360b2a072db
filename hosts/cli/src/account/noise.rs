//! `fl account laplace | gaussian | randomised-response | nfdp`: releases that are described by a
//! few numbers.

use super::price::{MOST, ask, number};
use crate::{Done, Failure, print, word};
use clap::Args;
use fl_core::privacy::{Guarantee, LowerBound, Neighbours, Unit, UpperBound, draws_for, short};
use fl_core::{PrivacyEvent, Problem, Role};
use fl_registry::Catalogue;
use serde_json::json;

#[derive(Args)]
struct Common {
    /// How many such releases of the same data there are.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=MOST))]
    times: u64,
    /// Delta of the guarantee, where the accountant does not find it itself.
    #[arg(long, default_value_t = 1e-5, allow_negative_numbers = true)]
    delta: f64,
    /// Whose presence is to be hidden; default: `example`.
    #[arg(long, value_parser = word::<Unit>())]
    level: Option<Unit>,
    /// The epsilon of all releases together; fl finds the least noise that
    /// keeps it.
    #[arg(long, allow_negative_numbers = true)]
    target: Option<f64>,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

impl Common {
    fn unit(&self) -> Unit {
        self.level.unwrap_or(Unit::Example)
    }

    fn query<'a>(&'a self, unit: Unit, catalogue: &'a Catalogue) -> Query<'a> {
        Query {
            common: self,
            unit,
            catalogue,
        }
    }
}

#[derive(Args)]
pub struct LaplaceArgs {
    /// How far one unit moves the numbers in all (L1 norm).
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    sensitivity: f64,
    /// Scale of the noise.
    #[arg(
        long,
        allow_negative_numbers = true,
        required_unless_present = "target",
        conflicts_with = "target"
    )]
    scale: Option<f64>,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub struct GaussianArgs {
    /// How far one unit moves the numbers (L2 norm).
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    sensitivity: f64,
    /// Standard deviation of the noise.
    #[arg(
        long,
        allow_negative_numbers = true,
        required_unless_present = "target",
        conflicts_with = "target"
    )]
    sigma: Option<f64>,
    /// Every unit takes part with this probability, by itself (Poisson sampling). With `--of`
    /// their number is public, as in a round of clients; without it their number is secret.
    #[arg(long, allow_negative_numbers = true, conflicts_with = "draw")]
    rate: Option<f64>,
    /// Number of units that take part, drawn without replacement from `--of`.
    #[arg(long, requires = "of")]
    draw: Option<usize>,
    /// How many units there are, for `--rate` or `--draw`.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    of: Option<u64>,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub struct RandomisedResponseArgs {
    /// Epsilon of each answer.
    #[arg(
        long,
        allow_negative_numbers = true,
        required_unless_present = "target",
        conflicts_with = "target"
    )]
    epsilon: Option<f64>,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub struct NfdpArgs {
    /// How many examples are drawn.
    #[arg(long, required_unless_present = "target", conflicts_with = "target")]
    draws: Option<usize>,
    /// The least number of examples that a client has, which is public.
    #[arg(long)]
    of: usize,
    /// Can an example be drawn more than once?
    #[arg(long)]
    replacement: bool,
    #[command(flatten)]
    common: Common,
}

/// The significant digits of a number that was looked for.
const FOUND: usize = 5;

/// What every accountant that has a price says of a release, the least epsilon first.
type Prices = Vec<(&'static str, Guarantee)>;

/// What a user asks the accountants.
struct Query<'a> {
    common: &'a Common,
    /// Whose presence is to be hidden.
    unit: Unit,
    catalogue: &'a Catalogue,
}

impl Query<'_> {
    fn prices(&self, event: &PrivacyEvent) -> Result<Prices, Failure> {
        let (catalogue, common) = (self.catalogue, self.common);
        number("delta", common.delta, 1.0)?;
        let (mut all, mut refused) = (Prices::new(), None);
        for part in catalogue.of_role(Role::Accountant) {
            match ask(
                catalogue,
                part.name,
                common.delta,
                self.unit,
                &[],
                event,
                common.times,
            ) {
                Ok(guarantee) => all.push((part.name, guarantee)),
                Err(Failure::Failed(error)) if error.downcast_ref::<Problem>().is_some() => {
                    refused = Some(error);
                }
                Err(other) => return Err(other),
            }
        }
        all.sort_by(|a, b| a.1.epsilon.total_cmp(&b.1.epsilon));
        match (all.is_empty(), refused) {
            (true, Some(error)) => Err(error.into()),
            _ => Ok(all),
        }
    }

    /// The least noise that keeps the epsilon, to four digits; `event` makes less epsilon of
    /// more noise.
    fn search(&self, target: f64, event: &dyn Fn(f64) -> PrivacyEvent) -> Result<f64, Failure> {
        number("target", target, f64::INFINITY)?;
        let keeps = |noise: f64| {
            let all = self.prices(&event(noise))?;
            Ok::<_, Failure>(all[0].1.epsilon <= target)
        };
        let (mut least, mut most) = (1.0, 1.0);
        while !keeps(most)? {
            least = most;
            most *= 2.0;
            if most > 1e12 {
                return Err(Failure::usage(format!(
                    "--target: no noise below 1e12 keeps an epsilon of {target}"
                )));
            }
        }
        while least == most || keeps(least)? {
            most = least;
            least /= 2.0;
            if least < 1e-12 {
                return Err(Failure::usage(format!(
                    "--target: any noise keeps an epsilon of {target}"
                )));
            }
        }
        while most / least > 1.0001 {
            let middle = (least * most).sqrt();
            if keeps(middle)? {
                most = middle
            } else {
                least = middle
            }
        }
        Ok(most)
    }

    /// Prints the prices of an event. `found`: the number that was looked for, and what it is.
    fn show(&self, event: &PrivacyEvent, found: Option<(&str, f64)>) -> Done {
        let (common, all) = (self.common, self.prices(event)?);
        let unit = self.unit;
        if common.json {
            let one = |(name, g): &(&str, Guarantee)| json!({"accountant": name, "epsilon": g.epsilon, "delta": g.delta, "neighbours": g.neighbours});
            let (name, best) = &all[0];
            let mut answer = json!({
                "release": event.to_string(), "times": common.times, "unit": unit, "epsilon": best.epsilon, "delta": best.delta,
                "accountant": name, "all": all.iter().map(one).collect::<Vec<_>>(),
            });
            if let Some((what, value)) = found {
                answer[what] = value.into();
            }
            return print(answer);
        }
        let times = match common.times {
            1 => String::new(),
            n => format!("{n} times "),
        };
        let mut out = format!("{times}{event}; for one {unit}\n");
        if let Some((what, value)) = found {
            out += &format!(
                "  {what} {value} keeps epsilon {}\n",
                common.target.unwrap_or_default()
            );
        }
        for (name, guarantee) in all {
            let about = match (guarantee.neighbours, guarantee.unit) {
                (Neighbours::Replaced, _) => "replaced by another",
                (Neighbours::Removed, Unit::Example) => "added or removed",
                (Neighbours::Removed, Unit::Party) => "with its data or with none",
            };
            let Guarantee { epsilon, delta, .. } = guarantee;
            let (epsilon, delta) = (UpperBound(epsilon), short(delta));
            out += &format!("  {name:<24} epsilon {epsilon:>10} at delta {delta:<9} {about}\n");
        }
        print(out.trim_end())
    }

    /// Shows what noise of this amount costs, or of the amount that is looked for.
    fn noise(
        &self,
        (what, given): (&str, Option<f64>),
        event: &dyn Fn(f64) -> PrivacyEvent,
    ) -> Done {
        match (given, self.common.target) {
            (Some(given), _) => {
                number(what, given, f64::INFINITY)?;
                self.show(&event(given), None)
            }
            (None, target) => {
                let least = self.search(target.unwrap_or_default(), event)?;
                let found = UpperBound(least).significant(FOUND);
                self.show(&event(found), Some((what, found)))
            }
        }
    }
}

pub fn laplace(args: &LaplaceArgs, catalogue: &Catalogue) -> Done {
    let (sensitivity, unit) = (args.sensitivity, args.common.unit());
    number("sensitivity", sensitivity, f64::INFINITY)?;
    let query = args.common.query(unit, catalogue);
    query.noise(("scale", args.scale), &|scale| PrivacyEvent::Laplace {
        sensitivity,
        scale,
        unit,
    })
}

pub fn gaussian(args: &GaussianArgs, catalogue: &Catalogue) -> Done {
    let (sensitivity, mut unit) = (args.sensitivity, args.common.unit());
    number("sensitivity", sensitivity, f64::INFINITY)?;
    if args.rate.is_some() && args.of.is_some() {
        if matches!(args.common.level, Some(Unit::Example)) {
            let text = "--level: with --rate and --of the number of units is public, and an \
                        example added or removed changes it; that has a price for a client with \
                        its data or with none: give `--level party`, or leave out --of";
            return Err(Failure::usage(text));
        }
        unit = Unit::Party;
    }
    if let Some(rate) = args.rate.filter(|rate| !(*rate > 0.0 && *rate <= 1.0)) {
        let text = format!("--rate: must be above 0 and at most 1, got {rate}");
        return Err(Failure::usage(text));
    }
    let of = args.of.map(|of| of as usize);
    if of.is_some() && args.rate.is_none() && args.draw.is_none() {
        return Err(Failure::usage("--of: give `--rate` or `--draw` too"));
    }
    if let (Some(draw), Some(of)) = (args.draw, of)
        && (draw == 0 || draw > of)
    {
        let text = format!("--draw: must be 1 to {of} (--of), got {draw}");
        return Err(Failure::usage(text));
    }
    let query = args.common.query(unit, catalogue);
    if args.rate.is_some() && of.is_none() && !args.common.json {
        crate::say(
            "note: this is for a secret number of units in each draw, as in DP-SGD; the number of \
             clients of a round is public and costs more: add --of and the number of all clients",
        );
    }
    query.noise(
        ("sigma", args.sigma),
        &|sigma| match (args.rate, args.draw, of) {
            (Some(rate), _, Some(of)) => PrivacyEvent::PublicSizeGaussian {
                rate,
                of,
                sensitivity,
                sigma,
                unit,
            },
            (Some(rate), _, None) => PrivacyEvent::SubsampledGaussian {
                rate,
                sensitivity,
                sigma,
                unit,
            },
            (_, Some(k), Some(of)) => PrivacyEvent::FixedSizeGaussian {
                k,
                of,
                sensitivity,
                sigma,
                unit,
            },
            _ => PrivacyEvent::Gaussian {
                sensitivity,
                sigma,
                unit,
            },
        },
    )
}

pub fn randomised_response(args: &RandomisedResponseArgs, catalogue: &Catalogue) -> Done {
    let unit = args.common.unit();
    let event = |epsilon: f64| PrivacyEvent::Pure {
        epsilon,
        times: 1,
        unit,
    };
    let query = args.common.query(unit, catalogue);
    let Some(target) = args.common.target else {
        return query.noise(("epsilon", args.epsilon), &event);
    };
    // the noise of an answer is the less, the larger its epsilon
    let least = query.search(target, &|noise| event(1.0 / noise))?;
    // more noise than that is a smaller epsilon
    let each = LowerBound(1.0 / least).significant(FOUND);
    query.show(&event(each), Some(("epsilon-of-each", each)))
}

pub fn nfdp(args: &NfdpArgs, catalogue: &Catalogue) -> Done {
    let event = |k| PrivacyEvent::Sampled {
        k,
        n: args.of,
        public: true,
        replacement: args.replacement,
    };
    if matches!(args.common.level, Some(Unit::Party)) {
        let text = "--level: a sample of examples protects an example, and no whole client";
        return Err(Failure::usage(text));
    }
    if args.of == 0 {
        return Err(Failure::usage("--of: must be at least 1, got 0"));
    }
    if let Some(k) = args.draws.filter(|k| !args.replacement && *k > args.of) {
        let text = format!(
            "--draws: at most {} (--of) without replacement, got {k}",
            args.of
        );
        return Err(Failure::usage(text));
    }
    let query = args.common.query(Unit::Example, catalogue);
    let Some(target) = args.common.target else {
        return query.show(&event(args.draws.unwrap_or_default()), None);
    };
    number("target", target, f64::INFINITY)?;
    let mut k = draws_for(target / args.common.times as f64, args.of, args.replacement);
    // a draw more than the target allows may come from rounding
    while k > 1 && query.prices(&event(k))?[0].1.epsilon > target {
        k -= 1;
    }
    query.show(&event(k), Some(("draws", k as f64)))
}
