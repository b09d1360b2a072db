//! `fl attack membership`: who is among those that a run's models learnt from.

use super::{AttackArgs, attack};
use crate::Done;
use fl_attack::{AttackResult, MembershipFound, MembershipOptions, attack_membership};
use fl_core::privacy::{Guarantee, Noise, UpperBound};
use fl_registry::Catalogue;
use fl_report::Run;

pub fn membership(
    args: &AttackArgs<MembershipOptions>,
    catalogue: &Catalogue,
    line: &[String],
) -> Done {
    let options = &args.options;
    Run::open(&options.dir).map_err(crate::report::unreadable)?;
    attack(&args.common, catalogue, line, |run| {
        let MembershipFound { kept, attacks } = attack_membership(options, run)?;
        let at_most = kept.as_ref().map(|(_, bound)| *bound);
        let json = serde_json::json!({
            "run": options.dir, "shadows": options.shadows, "seed": args.common.seed, "bound": at_most, "attacks": attacks,
        });
        let kept = kept.as_ref().map(|(kept, bound)| (kept, *bound));
        Ok((json, text(&attacks, kept)))
    })
}

fn text(found: &[AttackResult], kept: Option<(&Guarantee, f64)>) -> String {
    let width = found.iter().map(|f| f.model.len()).fold(5, usize::max);
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
