//! Evaluation of models, and the measurements and results that a run records.

use crate::exchange::OWN_STATISTICS;
use crate::host::{Host, Metric};
use crate::message::Params;
use crate::privacy::Noise;
use crate::server::RunState;
use crate::server::calls::{Results, ServerCalls};
use crate::server::collector::reason;
use crate::server::steps::PendingEvaluation;
use crate::slot_calls::SlotCalls;
use crate::{
    ClientId, Evaluation, Examples, Fault, Measurement, MeasurementOf, Problem, Result, Round,
    RunEvent, Samples, Stages, metrics, parametric,
};
use anyhow::{Context, bail, ensure};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Why a model has no score.
const NO_SCORE: &str = "no label has both positive and negative examples";

/// Called with each client's score.
type EachScore<'a> = &'a mut dyn FnMut(ClientId, Result<Evaluation>) -> Result<()>;

/// Asks clients for scores.
type AskForScores<'a> = dyn FnMut(&mut dyn Host, EachScore<'_>) -> Result<()> + 'a;

impl RunState<'_> {
    /// Returns those of the clients that are in `of`, ascending; all if it is `None`.
    fn all_or(&self, of: Option<&[ClientId]>) -> Vec<ClientId> {
        let of = of.map(|of| of.iter().collect::<BTreeSet<_>>());
        let is_meant = |id: &ClientId| of.as_ref().is_none_or(|of| of.contains(id));
        self.everyone().iter().copied().filter(is_meant).collect()
    }

    fn due(&self, round: &Round) -> bool {
        round.last || round.number.is_multiple_of(self.every)
    }

    /// Records a measurement under its round in the whole run.
    fn measured(&mut self, mut metric: Metric) -> Result<()> {
        if metric.round > 0 {
            metric.round += self.stage.rounds_before;
        }
        self.host.emit(RunEvent::Measured(&metric)).map(drop)
    }

    /// Warns once for each slot that a model's scores are NaN and count as no answer.
    fn unanswered<'s>(
        &mut self,
        round: &Round,
        slot: &str,
        all: impl IntoIterator<Item = &'s Evaluation>,
    ) {
        let answers = |scored: &Evaluation| scored.confusion.iter().flatten().sum::<u32>() as usize;
        let mut wrong = all
            .into_iter()
            .filter(|scored| !scored.confusion.is_empty() && answers(scored) < scored.rows);
        let Some(scored) = wrong.next() else {
            return;
        };
        let rows = scored.rows;
        let none = rows - answers(scored);
        let text = format!(
            "{}: parts.{slot}: scores hold NaN for {none} of {rows} test rows, which count as wrong: the model has diverged",
            round.name
        );
        self.warn_first(format!("{slot}: scores that are no numbers"), &text);
    }

    /// Records the plugins' measures of each client's model. The mean leaves out clients without a
    /// number.
    fn further(&mut self, round: &Round, scored: &[(ClientId, &Evaluation)]) -> Result<()> {
        let names = scored.iter().flat_map(|(_, s)| &s.further);
        for name in names.map(|(name, _)| name).collect::<BTreeSet<_>>() {
            let of = |(id, s): &(ClientId, &Evaluation)| {
                let found = s.further.iter().find(|f| f.0 == *name)?;
                Some((*id, found.1))
            };
            let known: Vec<_> = scored.iter().filter_map(of).collect();
            let name = format!("clients.{name}");
            self.warn_of_partial(round, &name, known.len(), scored.len());
            let mean = Metric::of_each(round, &name, known);
            self.warn_of_share(round, &name, mean.value);
            self.measured(mean)?;
        }
        Ok(())
    }

    /// Warns once for each measurement whose mean leaves out clients. With an accountant the number
    /// of such clients is not for all to see.
    fn warn_of_partial(&mut self, round: &Round, name: &str, known: usize, all: usize) {
        if known == all || self.ledger.accounts() {
            return;
        }
        let text = format!(
            "{}: `{name}` is of {known} of {all} clients: it is not defined on the test rows of the others, such as rows of one class",
            round.name
        );
        self.warn_first(format!("{name}: of some clients"), &text);
    }

    /// Warns once for each measure that is defined in some cases only; `name` is the share of these
    /// cases.
    fn warn_of_share(&mut self, round: &Round, name: &str, share: f64) {
        let measures = metrics::names(Some(self.store.task().kind));
        let known = |of: &str| measures.contains(of.rsplit('.').next().unwrap_or(of));
        let measure = name.strip_suffix(metrics::SHARE).filter(|of| known(of));
        let Some(measure) = measure.filter(|_| known(name)) else {
            return;
        };
        if !share.is_finite() || share >= 1.0 || self.ledger.accounts() {
            return;
        }
        // rounded down, so that it is never 100 %
        let percent = (1000.0 * share).floor() / 10.0;
        let text = format!(
            "{}: `{measure}` is of {percent:.1} % of the cases only: it is not defined for the \
             others, such as masks that are predicted empty; `{name}` is this share",
            round.name
        );
        self.warn_first(format!("{name}: of some cases"), &text);
    }

    /// Records the scores of models on the test rows of each client. If these rows are the clients'
    /// own, scores that are undefined are left out; otherwise such a score is an error. The mean
    /// over rows, the mean of the worst tenth of the clients ("worst 10 %" of Li et al. 2020,
    /// q-FedAvg) and the best score are recorded too.
    fn measured_each(
        &mut self,
        round: &Round,
        of: &str,
        scored: &[(ClientId, &Evaluation)],
    ) -> Result<()> {
        let score = metrics::score_name(self.store.task().kind);
        let confusion = scored
            .iter()
            .fold(Vec::new(), |sum, (_, one)| plus(sum, one));
        let own = self.host.own_tests();
        let mut known = Vec::new();
        for (id, one) in scored {
            match one.score {
                Some(score) => known.push((*id, one.rows, score)),
                None => ensure!(own, NO_SCORE),
            }
        }
        if own {
            self.warn_of_partial(round, &format!("{of}.{score}"), known.len(), scored.len());
        }
        if known.is_empty() && !scored.is_empty() {
            return Ok(());
        }
        let weighed = known.iter().map(|(_, rows, score)| (*rows as f64, *score));
        let weighed: Vec<(f64, f64)> = weighed.collect();
        let each = known.iter().map(|(id, _, score)| (*id, *score)).collect();
        let metric = Metric {
            confusion,
            ..Metric::of_each(round, &format!("{of}.{score}"), each)
        };
        self.measured(metric)?;
        if own && !weighed.is_empty() {
            let of_clients = statistics(weighed, metrics::lower_is_better(score));
            for (name, value) in OWN_STATISTICS.iter().zip(of_clients) {
                self.measured(Metric::of(round, &format!("{of}.{name}.{score}"), value))?;
            }
        }
        Ok(())
    }

    /// Records the scores of the server's model on each client's own test rows, if it has some.
    fn measured_on_own_rows(&mut self, round: &Round, slot: &str) -> Result<()> {
        if !self.host.own_tests() {
            return Ok(());
        }
        let mut all = Vec::new();
        if self.host.tests_at_clients() {
            let model = self.model(slot)?.parametric().map(|model| model.params());
            let Some(params) = model else {
                let text = format!(
                    "{}: parts.{slot}: the model has no parameters that the server could send, so clients do not measure it on test rows of their own",
                    round.name
                );
                self.warn_first(format!("{slot}: no parameters"), &text);
                return Ok(());
            };
            let params = Arc::new(params);
            all = self.scored_at_clients(round, slot, &|_| params.clone())?;
        } else {
            for id in self.everyone().iter().copied() {
                let test = self.host.test_of(id).clone();
                all.push((id, Evaluation::of(self.model(slot)?, &test)?));
            }
        }
        for (_, one) in &all {
            self.extend_digest("own", &one.digest);
        }
        let all: Vec<_> = all.iter().map(|(id, one)| (*id, one)).collect();
        self.measured_each(round, "own", &all)
    }

    /// Records the scores of the clients' models, which the clients sent.
    fn measured_at_clients(
        &mut self,
        round: &Round,
        slot: &str,
        scored: &[(ClientId, Evaluation)],
    ) -> Result<()> {
        let name = format!("clients.{}", metrics::score_name(self.store.task().kind));
        for (_, one) in scored {
            self.extend_digest(&name, &one.digest);
        }
        self.unanswered(round, slot, scored.iter().map(|(_, one)| one));
        let scored: Vec<_> = scored.iter().map(|(id, one)| (*id, one)).collect();
        self.measured_each(round, "clients", &scored)?;
        self.further(round, &scored)
    }

    /// Returns the scores of the server's models on the own test rows of each client, from the
    /// clients: for each client, the model with the parameters that `params` returns.
    fn scored_at_clients(
        &mut self,
        round: &Round,
        slot: &str,
        params: &dyn Fn(ClientId) -> Arc<Params>,
    ) -> Result<Vec<(ClientId, Evaluation)>> {
        let slot = self.store.slot(slot).into_owned();
        self.scores(round, &mut |host, each| {
            host.score_at_clients(&slot, params, each)
        })
    }

    /// Collects the scores that clients report, without those of clients that fail and that the
    /// policy leaves out.
    fn scores(
        &mut self,
        round: &Round,
        ask: &mut AskForScores<'_>,
    ) -> Result<Vec<(ClientId, Evaluation)>> {
        let (faults, mut scored, mut lost) = (self.faults.clone(), Vec::new(), Vec::new());
        let withholds = self.ledger.accounts();
        ask(self.host, &mut |id, score| {
            match score.and_then(|score| score.check().map(|()| score)) {
                Ok(score) => scored.push((id, score)),
                Err(error) if *faults.policy(&error, false) != Fault::Fail => {
                    lost.push((id, reason(&error, withholds)));
                }
                Err(error) => return Err(error.context(format!("evaluating client {id}"))),
            }
            Ok(())
        })?;
        self.left_out(round, "evaluation", &lost)?;
        if let ([], [(id, why), ..]) = (&scored[..], &lost[..]) {
            bail!(Problem::NoAnswer(format!(
                ": no client can evaluate a model; client {id}: {why}"
            )));
        }
        Ok(scored)
    }

    /// Checks that the protocol has declared a measurement, if it declares any: checks rely on it.
    fn ensure_declared(&self, of: MeasurementOf, name: &str) -> Result<()> {
        let known = |all: &Vec<Measurement>| all.iter().any(|m| m.of == of && m.name == name);
        ensure!(
            self.declared.as_ref().is_none_or(known),
            "the protocol measures `{name}` ({of:?}) and does not declare it: add it to `Declaration::measures`"
        );
        Ok(())
    }

    /// Records a number of a part or of the protocol.
    pub(crate) fn record_number(&mut self, round: &Round, name: &str, value: f64) -> Result<()> {
        if !self.due(round) {
            let number = PendingEvaluation::Number(name.into(), value);
            self.step
                .unevaluated
                .extend(self.may_end().then_some(number));
            return Ok(());
        }
        self.measured(Metric::of(round, name, value))
    }

    /// As [`Results::record_each`], for these clients.
    pub(crate) fn record_of(
        &mut self,
        round: &Round,
        name: &str,
        each: Vec<(ClientId, f64)>,
    ) -> Result<()> {
        if !self.due(round) {
            let each = PendingEvaluation::Each(name.into(), each);
            self.step.unevaluated.extend(self.may_end().then_some(each));
            return Ok(());
        }
        self.measured(Metric::of_each(round, name, each))
    }

    /// Returns whether the digest must leave out the content of messages. System noise cannot be
    /// drawn again, so the digest would differ in every run. With an accountant, a digest of
    /// answers before the noise would let a reader of the journal check a guess.
    pub(crate) fn unrepeatable(&self) -> bool {
        self.noise.kind() == Noise::System && (self.ledger.has_releases() || self.ledger.accounts())
    }

    /// Extends the digest by `what` and `bytes`. After unrepeatable noise only the name goes in.
    pub(crate) fn extend_digest(&mut self, what: &str, bytes: &[u8]) {
        let bytes = if self.unrepeatable() { &[] } else { bytes };
        let mut hash = Sha256::new();
        hash.update(self.chain);
        hash.update((what.len() as u64).to_le_bytes());
        hash.update(what.as_bytes());
        hash.update(bytes);
        self.chain = hash.finalize().into();
    }

    /// Keeps a model or generator of `slot`. The name of one that belongs to a stage alone ends
    /// with the stage, as its slot does.
    fn keep(&mut self, slot: &str, name: &str, bytes: &[u8]) -> Result<()> {
        let slot = self.store.slot(slot);
        let of_its_own = Stages::owner(&slot).map(|(stage, _)| Stages::slot(name, stage));
        let name = of_its_own.as_deref().unwrap_or(name);
        self.extend_digest(name, bytes);
        self.host.emit(RunEvent::Model { name, bytes }).map(drop)
    }
}

impl Results for RunState<'_> {
    fn evaluate(&mut self, round: &Round, slot: &str) -> Result<()> {
        self.ensure_declared(MeasurementOf::Server, slot)?;
        if !self.due(round) {
            let model = PendingEvaluation::Server(slot.into());
            self.step.unevaluated.push(model);
            return Ok(());
        }
        let test = self.host.test().clone();
        let scored = Evaluation::of(self.model(slot)?, &test)?;
        let name = metrics::score_name(self.store.task().kind);
        self.unanswered(round, slot, [&scored]);
        self.extend_digest(name, &scored.digest);
        let metric = Metric {
            confusion: scored.confusion,
            ..Metric::of(round, name, scored.score.context(NO_SCORE)?)
        };
        self.measured(metric)?;
        for (name, value) in &scored.further {
            self.warn_of_share(round, name, *value);
            self.measured(Metric::of(round, name, *value))?;
        }
        self.measured_on_own_rows(round, slot)
    }

    fn evaluate_clients(
        &mut self,
        round: &Round,
        slot: &str,
        shared: Option<&Params>,
        of: Option<&[ClientId]>,
    ) -> Result<()> {
        self.ensure_declared(MeasurementOf::Clients, slot)?;
        if !self.due(round) {
            let of = of.map(<[ClientId]>::to_vec);
            let models = PendingEvaluation::Clients(slot.into(), shared.cloned(), of);
            self.step.unevaluated.push(models);
            return Ok(());
        }
        self.expose_models(slot)?;
        let (to, slot) = (self.all_or(of), &*self.store.slot(slot).into_owned());
        let scored = self.scores(round, &mut |host, each| {
            host.score_clients(&to, slot, shared, each)
        })?;
        self.measured_at_clients(round, slot, &scored)
    }

    fn evaluate_for_clients(
        &mut self,
        round: &Round,
        slot: &str,
        models: &[Params],
        whose: &[usize],
    ) -> Result<Vec<f64>> {
        self.ensure_declared(MeasurementOf::Clients, slot)?;
        let clients = self.everyone();
        ensure!(
            whose.len() == clients.len(),
            "the protocol gave models for {} of {} clients; give each client one",
            whose.len(),
            clients.len()
        );
        if !self.due(round) {
            if self.may_end() {
                let whose = whose.to_vec();
                let models = PendingEvaluation::ForClients(slot.into(), models.to_vec(), whose);
                self.step.unevaluated.push(models);
            }
            return Ok(Vec::new());
        }
        if self.host.tests_at_clients() {
            let models: Vec<Arc<Params>> = models.iter().cloned().map(Arc::new).collect();
            let of = clients.iter().zip(whose);
            let of = of.map(|(id, of)| Some((*id, models.get(*of)?.clone())));
            let of: Option<BTreeMap<ClientId, Arc<Params>>> = of.collect();
            let of = of.context("a client's model is none of those that the protocol gave")?;
            let mut scored = self.scored_at_clients(round, slot, &|id| of[&id].clone())?;
            scored.sort_by_key(|(id, _)| *id);
            self.measured_at_clients(round, slot, &scored)?;
            let known: BTreeMap<_, _> = scored.iter().map(|(id, one)| (id, one.score)).collect();
            let score = |id| known.get(id).copied().flatten().unwrap_or(f64::NAN);
            return Ok(clients.iter().map(score).collect());
        }
        let name = format!("clients.{}", metrics::score_name(self.store.task().kind));
        // clients with one model and one test set have one score
        let mut groups: Vec<(usize, Examples, Vec<usize>)> = Vec::new();
        for (at, id) in clients.iter().enumerate() {
            let (model, test) = (whose[at], self.host.test_of(*id));
            let same = |g: &&mut (usize, Examples, Vec<usize>)| {
                g.0 == model
                    && Arc::ptr_eq(g.1.samples.inputs(), test.samples.inputs())
                    && g.1.samples.ids() == test.samples.ids()
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.2.push(at),
                None => groups.push((model, test.clone(), vec![at])),
            }
        }
        let mut all = Vec::new();
        let mut whose = vec![0; clients.len()];
        for (model, test, members) in groups {
            let model = models
                .get(model)
                .with_context(|| format!("there is no model {model} of {}", models.len()))?;
            parametric(self.model(slot)?, slot)?.set_params(model)?;
            let scored = Evaluation::of(self.model(slot)?, &test)?;
            self.unanswered(round, slot, [&scored]);
            self.extend_digest(&name, &scored.digest);
            for at in members {
                whose[at] = all.len();
            }
            all.push(scored);
        }
        let all = clients.iter().zip(whose).map(|(id, at)| (*id, &all[at]));
        let all: Vec<_> = all.collect();
        self.measured_each(round, "clients", &all)?;
        self.further(round, &all)?;
        let score = |(_, one): &(ClientId, &Evaluation)| one.score.unwrap_or(f64::NAN);
        Ok(all.iter().map(score).collect())
    }

    fn record_each(&mut self, round: &Round, name: &str, each: Vec<f64>) -> Result<()> {
        metrics::ensure_free(name)?;
        self.ensure_declared(MeasurementOf::Each, name)?;
        let clients = self.everyone();
        ensure!(
            each.len() == clients.len(),
            "recording `{name}`: the protocol gave {} numbers for {} clients; give each client one",
            each.len(),
            clients.len()
        );
        let each = clients.iter().copied().zip(each);
        self.record_of(round, name, each.collect())
    }

    fn record(&mut self, round: &Round, name: &str, value: f64) -> Result<()> {
        metrics::ensure_free(name)?;
        self.ensure_declared(MeasurementOf::Number, name)?;
        self.record_number(round, name, value)
    }

    fn keep_model(&mut self, slot: &str, name: &str) -> Result<()> {
        let bytes = self.model(slot)?.save()?;
        self.keep(slot, name, &bytes)
    }

    fn keep_generator(&mut self, slot: &str) -> Result<()> {
        let bytes = self.generator(slot)?.save()?;
        self.keep(slot, slot, &bytes)
    }

    fn keep_images(&mut self, name: &str, images: &Samples) -> Result<()> {
        match images.shape()[..] {
            [1 | 3, _, _] => self.host.emit(RunEvent::Images { name, images }).map(drop),
            _ => Ok(()),
        }
    }

    fn keep_clients(&mut self, slot: &str, of: Option<&[ClientId]>) -> Result<()> {
        self.expose_models(slot)?;
        let to = self.all_or(of);
        let (faults, mut lost) = (self.faults.clone(), Vec::new());
        let withholds = self.ledger.accounts();
        let slot = &*self.store.slot(slot);
        self.host.keep_clients(&to, slot, &mut |id, error| {
            if *faults.policy(&error, false) == Fault::Fail {
                return Err(error.context(format!("keeping the model of client {id}")));
            }
            lost.push((id, reason(&error, withholds)));
            Ok(())
        })?;
        for (id, why) in lost {
            self.warn(&format!("the model of client {id} is not kept: {why}"));
        }
        Ok(())
    }

    fn warn(&mut self, text: &str) {
        // no listener refuses a note
        let _ = self.host.emit(RunEvent::Note(text));
    }
}

/// Returns the [`OWN_STATISTICS`] of (rows, score) of some clients. `errors` tells whether the
/// scores are roots of mean squared errors: then the mean over rows is the root of the mean of
/// their squares, and a lower one is better. NaN is the worst.
fn statistics(mut of: Vec<(f64, f64)>, errors: bool) -> [f64; 3] {
    let power = |score: f64| if errors { score * score } else { score };
    let (rows, sum) = of.iter().fold((0.0, 0.0), |(rows, sum), (n, score)| {
        (rows + n, sum + n * power(*score))
    });
    let mean = sum / rows;
    let over_rows = if errors { mean.sqrt() } else { mean };
    let sign = if errors { -1.0 } else { 1.0 };
    let good = |score: f64| {
        if score.is_nan() {
            f64::NEG_INFINITY
        } else {
            sign * score
        }
    };
    of.sort_by(|a, b| good(a.1).total_cmp(&good(b.1)));
    let worst = &of[..of.len().div_ceil(10)];
    let worst = worst.iter().map(|(_, score)| score).sum::<f64>() / worst.len() as f64;
    [over_rows, worst, of[of.len() - 1].1]
}

/// Adds the confusion matrix of an evaluation to `sum`.
fn plus(mut sum: Vec<Vec<u32>>, scored: &Evaluation) -> Vec<Vec<u32>> {
    sum.resize(scored.confusion.len(), vec![0; scored.confusion.len()]);
    for (sum, row) in sum.iter_mut().zip(&scored.confusion) {
        for (sum, count) in sum.iter_mut().zip(row) {
            *sum = sum.saturating_add(*count);
        }
    }
    sum
}
