//! `fl verify`.

use crate::run::number_of_threads;
use crate::sanitize::line;
use crate::{Done, Failure, either, print, width};
use anyhow::Context;
use clap::Args;
use fl_engine::NotRun;
use fl_receipts::{Difference, Verified};
use fl_registry::{Catalogue, Refusal, fill};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The clients whose nodes' keys the user knows, and these keys.
type ClientKeys = BTreeMap<u32, String>;

#[derive(Args)]
pub struct VerifyArgs {
    /// The run folder.
    #[arg(required_unless_present = "new_key")]
    run: Option<PathBuf>,
    /// The public key that must have signed the run: as `fl verify --new-key` prints it, or a file
    /// with it. Without it, any key counts, and whoever wrote the folder could have made it.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// A client, and the public key of its node as the client gave it to you: this key must have
    /// countersigned for it. For several clients give it several times.
    #[arg(long, value_name = "ID=KEY")]
    client_key: Vec<String>,
    /// Make a key for `fl run --sign`: the secret key in this file, the public key in FILE.pub.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["run", "key", "client_key"])]
    new_key: Option<PathBuf>,
    /// Threads for aggregations; at most, and by default, one per processor. Results do not depend
    /// on it.
    #[arg(long, value_name = "N", value_parser = number_of_threads)]
    threads: Option<usize>,
    /// One JSON object on stdout.
    #[arg(long)]
    json: bool,
}

/// Reads a client and the public key of its node.
fn client_key(given: &str) -> anyhow::Result<(u32, String)> {
    let parts = given.split_once('=');
    let parts = parts.and_then(|(id, key)| Some((id.parse().ok()?, key)));
    // the text may be a secret key, so the error does not quote it
    let (id, key) = parts.context("--client-key: give a client and its key, as in 0=RW..")?;
    Ok((id, fl_receipts::public_key(key)?))
}

pub fn verify(args: &VerifyArgs, catalogue: &Catalogue) -> Done {
    if let Some(path) = &args.new_key {
        let key = fl_receipts::SigningKey::make(path)?.public();
        return print(format_args!(
            "{}: a secret key; others verify with --key {key}",
            path.display()
        ));
    }
    let run = args.run.as_deref().unwrap_or(Path::new(""));
    let key = args.key.as_deref().map(fl_receipts::public_key);
    let key = key.transpose();
    let key = key.map_err(|error| Failure::usage(format!("{error:#}")))?;
    let exec = fl_sim::executor(fl_engine::threads(args.threads))?;
    let clients = args.client_key.iter().map(|given| client_key(given));
    let clients: anyhow::Result<ClientKeys> = clients.collect();
    let clients = clients.map_err(|error| Failure::usage(format!("{error:#}")))?;
    let keys = (key.as_deref(), &clients);
    let found = fl_receipts::verify(run, keys, catalogue, exec).map_err(|error| {
        match error.downcast::<Refusal>() {
            Ok(refusal) => Failure::NotRun(NotRun::Refused(refusal)),
            // names are of who made the folder
            Err(error) if error.is::<Difference>() => {
                anyhow::anyhow!(line(&format!("{error:#}"))).into()
            }
            Err(error) => error.into(),
        }
    })?;
    let json = serde_json::to_string(&found)?;
    either(args.json, json, text(run, &found, key.is_some(), &clients))
}

fn text(run: &Path, found: &Verified, pinned: bool, client_keys: &ClientKeys) -> String {
    let signed = match (&found.keys[..], pinned) {
        ([], _) => "not signed: whoever can write the folder could have made the chain".into(),
        (keys, true) => format!("signed by {}", keys.join(", ")),
        (keys, false) => format!("signed by {}; give --key to require it", keys.join(", ")),
    };
    let by: Vec<String> = found
        .countersigned
        .iter()
        .map(|(client, key)| format!("client {client} ({key})"))
        .collect();
    let countersigned = if by.is_empty() {
        "by no client".into()
    } else {
        let who = by.join(", ");
        let all = by.len() == client_keys.len();
        let compare = "; compare these keys with those that the clients publish (--client-key)";
        format!("by {who}{}", if all { "" } else { compare })
    };
    let aggregations = match (found.repeated, found.not_repeated) {
        (0, 0) if found.collections > 0 => "none: the protocol itself combines the answers".into(),
        (0, 0) if found.done => "none".into(),
        (0, 0) => "none yet".into(),
        (0, not) => format!("{not} not repeated: their messages were not kept (`keep: messages`)"),
        (repeated, 0) => format!("{repeated} repeated, all with the same result"),
        (repeated, not) => format!("{repeated} repeated with the same result, {not} not kept"),
    };
    let not_covered = if found.not_covered.is_empty() {
        "no file".into()
    } else {
        found.not_covered.join(", ")
    };
    let why = if found.secret_noise {
        "their noise is the system's, which nobody can draw again"
    } else {
        "their numbers before the noise were not kept (`keep: messages`)"
    };
    let open = found.releases - found.releases_repeated;
    let releases = match (found.releases_repeated, open) {
        (0, 0) => "none at the server".into(),
        (0, open) => format!("{open} not repeated: {why}"),
        (repeated, 0) => format!("{repeated} repeated, all with the same result"),
        (repeated, open) => format!("{repeated} repeated with the same result, {open} not: {why}"),
    };
    let mut rows = vec![
        (
            "receipts",
            format!("{}, each follows the one before", found.receipts),
        ),
        ("signatures", signed),
        ("countersigned", countersigned),
        ("aggregations", aggregations),
        ("releases", releases),
        ("covered", found.covered.join(", ")),
        ("not covered", not_covered),
    ];
    if let Some(digest) = &found.digest {
        rows.insert(0, ("digest", digest.clone()));
    }
    let mut all = format!("{}: nothing differs from the receipts", run.display());
    let room = width().saturating_sub(23).max(40);
    for (name, what) in rows {
        for (at, part) in fill(&line(&what), room).lines().enumerate() {
            let name = if at == 0 { name } else { "" };
            all += &format!("\n  {name:<20} {part}");
        }
    }
    for note in &found.notes {
        all += &format!("\n  note: {}", line(note));
    }
    all
}
