//! `fl attack substitute`: what a client's answers about public samples give away of its examples.

use super::inversion::text;
use super::{AttackArgs, attack};
use crate::Done;
use fl_attack::{InversionResult, ModelResult, SubstituteFound, SubstituteOptions, attack_answers};
use fl_registry::Catalogue;

pub fn substitute(
    args: &AttackArgs<SubstituteOptions>,
    catalogue: &Catalogue,
    line: &[String],
) -> Done {
    let options = &args.options;
    attack(&args.common, catalogue, line, |run| {
        let SubstituteFound { observed, models } = attack_answers(options, run)?;
        let json = serde_json::json!({
            "spec": options.spec, "client": options.client, "seed": args.common.seed, "observed": observed, "attacks": models,
        });
        Ok((json, table(options, observed, models)))
    })
}

fn table(options: &SubstituteOptions, kind: &str, found: Vec<ModelResult>) -> String {
    let mut out = format!(
        "client {} answered about public samples with {kind}; its last answer about each counts\n\nmodel       answers  accuracy  agreement\n",
        options.client
    );
    for one in &found {
        let answers = one.answers.map_or("-".into(), |n| n.to_string());
        out += &format!(
            "{:10}  {answers:>7}  {:8.4}  {:9.4}\n",
            one.model, one.accuracy, one.agreement
        );
    }
    let inverted: Vec<InversionResult> =
        found.into_iter().filter_map(|one| one.inversion).collect();
    out + "both on test examples; agreement: the share of examples that it labels as the client's model does\n\n"
        + &text(&inverted)
}
