//! `fl attack membership`: who is among those that a run's models learnt from.

use super::{Common, attack};
use crate::{Done, print};
use clap::Args;
use fl_attack::{AttackResult, MembershipFound, MembershipOptions, attack_membership};
use fl_core::privacy::{Guarantee, Noise, UpperBound};
use fl_registry::Catalogue;
use fl_report::Run;
use std::path::PathBuf;

#[derive(Args)]
pub struct MembershipArgs {
    /// The folder of a run that is done.
    #[arg(value_name = "RUN")]
    dir: PathBuf,
    /// Run the spec N times more (an even number), each time without a half of all clients'
    /// examples, and compare with those models (LiRA).
    #[arg(long, value_name = "N", default_value_t = 0)]
    shadows: usize,
    /// Clients that a shadow run serves at the same time; every processor's worth if not given.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    common: Common,
}

pub fn membership(args: &MembershipArgs, catalogue: &Catalogue, line: &[String]) -> Done {
    Run::open(&args.dir).map_err(crate::report::unreadable)?;
    let options = MembershipOptions {
        dir: args.dir.clone(),
        shadows: args.shadows,
        threads: args.threads,
    };
    let MembershipFound { kept, attacks } = attack(&args.common, catalogue, line, |run| {
        attack_membership(&options, run)
    })?;
    let at_most = kept.as_ref().map(|(_, bound)| *bound);
    match args.common.json {
        true => print(serde_json::json!({
            "run": args.dir, "shadows": args.shadows, "seed": args.common.seed, "bound": at_most, "attacks": attacks,
        })),
        false => print(text(
            &attacks,
            kept.as_ref().map(|(kept, bound)| (kept, *bound)),
        )),
    }
}

fn text(found: &[AttackResult], kept: Option<(&Guarantee, f64)>) -> String {
    let width = found
        .iter()
        .map(|f| f.model.len())
        .max()
        .unwrap_or(0)
        .max(5);
    let rate = |rate: Option<f64>| rate.map_or("-".into(), |rate| format!("{rate:.4}"));
    let mut out = format!(
        "{:width$}  attack  members  others     AUC  advantage   at 1 %  at 0.1 %\n",
        "model"
    );
    for AttackResult {
        model,
        attack,
        strength: s,
    } in found
    {
        out += &format!(
            "{model:width$}  {attack:6}  {:7}  {:6}  {:.4}  {:9.4}  {:>7}  {:>8}\n",
            s.members,
            s.others,
            s.auc,
            s.advantage,
            rate(s.at_1_percent),
            rate(s.at_01_percent),
        );
    }
    let kept = kept.map(|(guarantee, bound)| (guarantee, UpperBound(bound)));
    out += &match kept {
        Some((Guarantee { noise: Noise::Seeded, .. }, bound)) => format!("the run's epsilon and delta against readers would limit the advantage to {bound} if its noise did not follow a seed that an attacker may know"),
        Some((_, bound)) => format!("the run's epsilon and delta against readers limit the advantage to {bound}"),
        None => "the run has no guarantee for one example against readers, so nothing limits the advantage".into(),
    };
    out
}
