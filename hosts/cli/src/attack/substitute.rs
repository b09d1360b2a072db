//! `fl attack substitute`: what a client's answers about public samples give away of its examples.

use super::attack;
use super::inversion::{InversionArguments, text};
use crate::{Done, Overrides, print};
use clap::Args;
use fl_attack::{InversionResult, ModelResult, SubstituteFound, SubstituteOptions, attack_answers};
use fl_core::ClientId;
use fl_registry::Catalogue;
use std::path::PathBuf;

#[derive(Args)]
pub struct SubstituteArgs {
    /// The spec of a distillation, or the folder of a run of one. It is run to its end.
    #[arg(value_name = "SPEC")]
    spec: PathBuf,
    #[command(flatten)]
    set: Overrides,
    /// Whose answers are learnt.
    #[arg(long, value_name = "ID", default_value_t = 0)]
    client: ClientId,
    /// The part whose kind of network the substitute is, such as `student`; otherwise the client's
    /// own.
    #[arg(long, value_name = "SLOT")]
    network: Option<String>,
    /// How often the substitute sees each answer.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    epochs: u32,
    /// Make another substitute from answers about N inputs of the attacker's own, without any
    /// data (IDEAL).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=250_000))]
    ask: Option<u32>,
    #[command(flatten)]
    how: InversionArguments,
}

pub fn substitute(args: &SubstituteArgs, catalogue: &Catalogue, line: &[String]) -> Done {
    let options = SubstituteOptions {
        spec: args.spec.clone(),
        set: args.set.set.clone(),
        client: args.client,
        network: args.network.clone(),
        epochs: args.epochs,
        ask: args.ask,
        how: args.how.options(),
    };
    let common = &args.how.common;
    let SubstituteFound { observed, models } =
        attack(common, catalogue, line, |run| attack_answers(&options, run))?;
    match common.json {
        true => print(serde_json::json!({
            "spec": args.spec, "client": args.client, "seed": common.seed, "observed": observed, "attacks": models,
        })),
        false => print(table(args, observed, models)),
    }
}

fn table(args: &SubstituteArgs, kind: &str, found: Vec<ModelResult>) -> String {
    let mut out = format!(
        "client {} answered about public samples with {kind}; its last answer about each counts\n\nmodel       answers  accuracy  agreement\n",
        args.client
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
