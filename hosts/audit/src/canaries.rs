//! One run with canaries (Steinke, Nasr and Jagielski 2023, "Privacy auditing with one (1) training
//! run"): each is in the data by the toss of a coin, and an observer guesses which.

use crate::bounds::of_canaries;
use crate::finding::{Audit, Finding, Game, OBSERVERS, Verdict, claim_of};
use crate::judge::LowerBound;
use crate::neighbours::{add_mislabelled, owners};
use crate::runner::{Runner, key};
use crate::told::files;
use crate::views;
use anyhow::{Context, Result, ensure};
use fl_core::loss::softmax;
use fl_core::message::{Params, decode, read_any};
use fl_core::privacy::{Neighbours, Observer, Protections, Unit};
use fl_core::{ClientId, Examples, ExchangeSpec, Role, Stream, TaskKind, Trainer};
use fl_data::Assembled;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Shares of the canaries that are guessed; each guess of another share is a test of its own.
const SHARES: [usize; 4] = [8, 4, 2, 1];

/// A canary: the client that has it, its rows when the coin shows heads, and when it shows tails.
struct Canary {
    client: usize,
    heads: Examples,
    tails: Option<Examples>,
}

/// Data with canaries.
struct DataWithCanaries {
    data: Assembled,
    canaries: Vec<Canary>,
    coins: Vec<bool>,
}

/// Audits with one run with canaries, and one run with other coins, whose models show how hard each
/// canary is to learn. Gives `false` when the audit was stopped.
pub(crate) fn one_run(
    audit: &mut Audit,
    game: Game,
    runner: &Runner<'_>,
    data: &Assembled,
    canaries: usize,
    claims: &Protections,
    stream: &Stream,
) -> Result<bool> {
    ensure_usage!(
        matches!(data.task.kind, TaskKind::Classes(_)),
        "canaries need one class for each row; audit with --runs instead"
    );
    let place = (game.unit, game.change);
    let planted = plant(data, place, canaries, stream)?;
    let reference = plant(data, place, canaries, &stream.child("reference", 0))?;
    audit.method = format!("one run with {canaries} canaries");
    let what = match place {
        (Unit::Example, Neighbours::Removed) => {
            format!("each of {canaries} rows with wrong labels is there or not")
        }
        (Unit::Example, Neighbours::Replaced) => {
            format!("each of {canaries} rows has its own label or a wrong one")
        }
        (Unit::Party, Neighbours::Removed) => {
            format!("each of {canaries} clients has its rows or none")
        }
        (Unit::Party, Neighbours::Replaced) => {
            format!("each of {canaries} clients has its labels or wrong ones")
        }
    };
    audit.compared.push(format!("{game}: {what}"));
    let Some(measured) = losses(
        runner,
        &planted,
        &planted.canaries,
        &key(stream, "canaries", 0),
    )?
    else {
        return Ok(false);
    };
    let other = key(stream, "canaries", 1);
    let Some(expected) = losses(runner, &reference, &planted.canaries, &other)? else {
        return Ok(false);
    };
    let error_rate = (1.0 - audit.confidence) / OBSERVERS;
    for observer in Observer::ALL {
        let (claim, no_claim) = claim_of(claims, observer, game);
        let delta = claim.as_ref().map_or(1e-5, |claim| claim.delta);
        let scores = measured.get(&observer).zip(expected.get(&observer));
        let scores = scores.map(|(a, b)| a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>());
        let judged = scores.map(|scores| guess(&scores, &planted.coins, delta, error_rate));
        let verdict = match (&judged, &claim) {
            (None, Some(_)) => Verdict::NotJudged,
            (shown, claim) => Verdict::of(
                shown.as_ref().unwrap_or(&LowerBound::default()),
                claim.as_ref().map(|claim| claim.epsilon),
            ),
        };
        if judged.is_none() {
            audit.notes.push(format!(
                "against {observer}: it sees no model, so canaries show nothing; audit with --runs"
            ));
        }
        audit.findings.push(Finding {
            observer,
            game,
            claim,
            no_claim,
            delta,
            shown: judged.unwrap_or_else(|| LowerBound {
                by: "nothing".into(),
                ..LowerBound::default()
            }),
            verdict,
        });
    }
    let all = json!([what, planted.coins, measured, expected]);
    audit.digest = fl_core::hex(&Sha256::digest(serde_json::to_vec(&all)?));
    Ok(true)
}

/// Puts canaries into the data.
fn plant(
    data: &Assembled,
    (unit, change): (Unit, Neighbours),
    canaries: usize,
    stream: &Stream,
) -> Result<DataWithCanaries> {
    // the same canaries for any coins
    let mut coins = stream.child("coins", 0).draws();
    let coins: Vec<bool> = (0..canaries).map(|_| coins.below(2) == 1).collect();
    let owners = owners(data)?;
    let mut places: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    match unit {
        Unit::Party => {
            ensure_usage!(
                canaries <= owners.len(),
                "--canaries: {} clients have examples, got {canaries}; each canary is a client",
                owners.len()
            );
            for owner in &owners[..canaries] {
                places.insert(*owner, (0..data.clients[*owner].len()).collect());
            }
        }
        Unit::Example => {
            let rows: usize = owners.iter().map(|k| data.clients[*k].len()).sum();
            ensure_usage!(
                canaries <= rows,
                "--canaries: the clients have {rows} rows, got {canaries}; each canary is a row"
            );
            // evenly over the clients, and the first rows of each
            let all = (0..).flat_map(|at| {
                let owners = owners.iter().filter(move |k| data.clients[**k].len() > at);
                owners.map(move |owner| (*owner, at))
            });
            for (owner, at) in all.take(canaries) {
                places.entry(owner).or_default().push(at);
            }
        }
    }
    let mut data = data.clone();
    let mut copies = BTreeMap::new();
    for (owner, rows) in places {
        let n = add_mislabelled(&mut data, owner, &rows)?.len();
        copies.insert(owner, (rows, n));
    }
    // the copies are the last rows of the storage, in this order
    let storage = data.clients[owners[0]].clone();
    let of_all = storage.samples.inputs().len();
    let all = Examples::all(storage.samples.inputs().clone(), storage.labels().clone())?;
    let mut from = of_all - copies.values().map(|(_, n)| n).sum::<usize>();
    let mut planted = Vec::new();
    let mut next = coins.iter();
    for (owner, (rows, n)) in copies {
        let own = data.clients[owner].clone();
        let wrong = all.pick(&(from..from + n).collect::<Vec<_>>());
        from += n;
        ensure!(
            Arc::ptr_eq(own.samples.inputs(), wrong.samples.inputs()),
            "the clients of this spec have rows of several sets; audit with --runs instead"
        );
        let mut has: Vec<Examples> = Vec::new();
        match unit {
            Unit::Party => {
                let tails = (change == Neighbours::Replaced).then(|| wrong.clone());
                let heads = *next.next().context("a coin for each canary")?;
                let with = if heads {
                    own.clone()
                } else {
                    tails.clone().unwrap_or_else(|| own.pick(&[]))
                };
                has.push(with);
                planted.push(Canary {
                    client: owner,
                    heads: own.clone(),
                    tails,
                });
            }
            Unit::Example => {
                let mut kept: Vec<Examples> = (0..own.len()).map(|at| own.pick(&[at])).collect();
                for (i, at) in rows.iter().enumerate() {
                    let heads = *next.next().context("a coin for each canary")?;
                    let copy = wrong.pick(&[i]);
                    let original = own.pick(&[*at]);
                    match (change, heads) {
                        (Neighbours::Removed, true) => kept.push(copy.clone()),
                        (Neighbours::Replaced, true) => kept[*at] = copy.clone(),
                        _ => {}
                    }
                    planted.push(Canary {
                        client: owner,
                        heads: copy,
                        tails: (change == Neighbours::Replaced).then_some(original),
                    });
                }
                has = kept;
            }
        }
        let mut has = has.into_iter();
        let first = has.next().context("a client with rows")?;
        data.clients[owner] = has.try_fold(first, |sum, more| sum.join(&more))?;
    }
    Ok(DataWithCanaries {
        data,
        canaries: planted,
        coins,
    })
}

/// By observer, for each canary the loss of what the observer's models say of it, over all models;
/// for one that takes the place of another, minus the loss of that one.
fn losses(
    runner: &Runner<'_>,
    planted: &DataWithCanaries,
    canaries: &[Canary],
    key: &Stream,
) -> Result<Option<BTreeMap<Observer, Vec<f64>>>> {
    let (spec, task) = (runner.spec, &planted.data.task);
    let make = spec.part_context(task);
    let protocol = spec.make_protocol(&make)?;
    let seen = Arc::new(Mutex::new(ModelWatcher {
        exchanges: protocol.exchanges(),
        ..ModelWatcher::default()
    }));
    let watching = seen.clone();
    let watch = move |observer: Observer, what: &str, bytes: &[u8]| {
        let mut seen = watching.lock().unwrap_or_else(PoisonError::into_inner);
        seen.see(observer, what, bytes);
    };
    let Some((folder, outcome)) = runner.execute(&planted.data, key, watch)? else {
        return Ok(None);
    };
    outcome.context("the run with canaries failed; audit with --runs")?;
    let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    let mut sums: BTreeMap<Observer, Vec<f64>> = BTreeMap::new();
    let mut add = |observer, model: &mut dyn Trainer, client: Option<ClientId>| -> Result<()> {
        let sums = sums
            .entry(observer)
            .or_insert_with(|| vec![0.0; canaries.len()]);
        for (sum, canary) in sums.iter_mut().zip(canaries) {
            if client.is_none_or(|client| client as usize == canary.client) {
                *sum += loss(model, &canary.heads)?;
                if let Some(tails) = &canary.tails {
                    *sum -= loss(model, tails)?;
                }
            }
        }
        Ok(())
    };
    let slots: Vec<&str> = spec
        .parts
        .iter()
        .filter(|part| part.decl.role == Role::Trainer)
        .map(|part| &part.slot[..])
        .collect();
    for (observer, client, label, params) in &seen.params {
        // two slots may take the same parameters: that of the exchange first
        let sent = seen.exchanges.iter().find(|one| one.label == label);
        let mut slots = slots.clone();
        slots.sort_by_key(|slot| sent.is_none_or(|one| one.model != *slot));
        for slot in &slots {
            let model = spec.parts.build(Role::Trainer, slot, *client, &make);
            let Ok(mut model): Result<Box<dyn Trainer>> = model else {
                continue;
            };
            let set = model.parametric().map(|model| model.set_params(params));
            if let Some(Ok(())) = set {
                add(*observer, model.as_mut(), *client)?;
                break;
            }
        }
    }
    for (name, bytes) in files(&folder.path().join("run/models"))? {
        let model = spec.kept_model(&make, &name, &bytes);
        let model = model.with_context(|| format!("the kept model `{name}`"))?;
        if let Some(mut model) = model {
            let client = spec.kept_slot(&name).and_then(|(_, client)| client);
            add(Observer::Readers, model.as_mut(), client)?;
        }
    }
    Ok(Some(sums))
}

/// Parameters that observers see in messages.
#[derive(Default)]
struct ModelWatcher {
    /// Each with the label of its exchange.
    params: Vec<(Observer, Option<ClientId>, String, Params)>,
    exchanges: Vec<ExchangeSpec>,
    /// The last requests, and their label.
    label: String,
    requests: Vec<Params>,
    answers: usize,
    numbers: usize,
}

impl ModelWatcher {
    fn see(&mut self, observer: Observer, what: &str, bytes: &[u8]) {
        match observer {
            Observer::Clients => {
                if self.answers > 0 || what != self.label {
                    self.requests.clear();
                    (self.answers, self.label) = (0, what.into());
                }
                if let Ok(params) = decode::<Params>(bytes) {
                    if self.requests.last() != Some(&params) {
                        self.keep(observer, None, params.clone());
                    }
                    self.requests.push(params);
                }
            }
            Observer::Server => {
                let before = self.requests.get(self.answers).cloned();
                self.answers += 1;
                let client = what.strip_prefix("answer of client ");
                let message =
                    read_any(bytes).map(|(_, _, rest)| &bytes[..bytes.len() - rest.len()]);
                let (Some(client), Ok(message)) = (client.and_then(|id| id.parse().ok()), message)
                else {
                    return;
                };
                let Ok(params) = decode::<Params>(message) else {
                    return;
                };
                let mut known = self.exchanges.iter();
                let sent = known.find(|one| one.label == self.label);
                let whole = match (sent.is_some_and(|one| one.change), before) {
                    (true, Some(before)) => before.zip(&params, |before, change| before + change),
                    _ => Ok(params),
                };
                if let Ok(whole) = whole {
                    self.keep(observer, Some(client), whole);
                }
            }
            Observer::Readers => {}
        }
    }

    fn keep(&mut self, observer: Observer, client: Option<ClientId>, params: Params) {
        self.numbers += params.count();
        if self.numbers <= views::MOST_NUMBERS {
            let label = self.label.clone();
            self.params.push((observer, client, label, params));
        }
    }
}

/// The mean loss of a model's predictions of these rows.
fn loss(model: &mut dyn Trainer, rows: &Examples) -> Result<f64> {
    let classes = rows.classes().context("one class for each row")?;
    let scores = model.predict(&rows.samples)?;
    let mut sum = 0.0;
    for (row, class) in scores.rows().into_iter().zip(&classes) {
        let mut shares: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
        softmax(&mut shares, 1.0);
        let share = shares.get(*class as usize).copied().unwrap_or(0.0);
        let loss = -libm::log(share.max(1e-30));
        sum += if loss.is_finite() { loss } else { 0.0 };
    }
    Ok(sum / classes.len().max(1) as f64)
}

/// Guesses heads for the smallest losses, and tails for the largest, equally many.
fn guess(scores: &[f64], coins: &[bool], delta: f64, error_rate: f64) -> LowerBound {
    let m = scores.len();
    let mut order: Vec<usize> = (0..m).collect();
    order.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]));
    let mut best = (0.0, 0, 0);
    let each = error_rate / SHARES.len() as f64;
    for share in SHARES {
        let side = m / (2 * share);
        if side == 0 {
            continue;
        }
        let heads = order[..side].iter().filter(|at| coins[**at]).count();
        let tails = order[m - side..].iter().filter(|at| !coins[**at]).count();
        let right = heads + tails;
        let bound = of_canaries(m, 2 * side, right, delta, each);
        // of equal bounds the one of more guesses
        if bound >= best.0 {
            best = (bound, 2 * side, right);
        }
    }
    let (epsilon, guesses, right) = best;
    LowerBound {
        epsilon,
        most: of_canaries(m, m, m, delta, each),
        by: "the loss of canaries".into(),
        counted: [right, guesses],
        of: guesses,
        ..LowerBound::default()
    }
}
