//! Algorithm 1 of Selective-FD (Shao et al. 2024). Its relatives differ in the clients' labels
//! ([`crate::Labels`]), and in the parts that filter and combine them. They also differ in the
//! teacher ([`crate::Teacher`]) and in the order of a client's training ([`crate::Order`]).
use crate::exchanges::*;
use crate::label_metrics;
use crate::labels::{RoundLabels, one_hot, truth};
use crate::settings::{CoDistill, Labels, Order, Reply, Teacher};
use crate::slots::*;
use fl_core::message::{SoftLabels, Votes};
use fl_core::prelude::*;
use fl_core::{Problem, TaskKind};
use serde::{Deserialize, Serialize};

impl Protocol for CoDistill {
    fn declare(&self) -> Declaration<'_> {
        self.declared()
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        for who in server.who("attack") {
            server.warn(&format!("attackers: {who}"));
        }
        if self.judge_labels {
            label_metrics::truth(server)?;
        }
        let mut state = State::default();
        server.once("warm-up", &mut state, |server, state, round| {
            server.collect(round, &WARM_UP, |_| &Nothing)?;
            // every client fits its selector; the server drops proxy samples that no client selects
            state.pool = self.pool(server, round)?;
            self.note_few(server)
        })?;
        server.rounds(&mut state, |server, state, round| {
            // the server draws a batch of proxy samples
            let batch = self.draw_batch(&state.pool, round);
            // each client labels the samples that its selector accepts, and the server averages the
            // labels
            let mut taught = self.collect_labels(server, round, &batch)?;
            self.judge(server, round, "ensemble", &taught)?;
            // the server's selector drops the ambiguous ones
            if let Some(clear) = server.select(&SERVER_FILTER, round, &taught.soft())? {
                taught.retain_rows(&clear);
            }
            self.judge(server, round, "taught", &taught)?;
            state.count(server, round, &taught)?;
            // a student at the server learns too, and may teach in place of the ensemble (FedED,
            // DS-FL)
            let mut taught = self.teach_student(server, round, taught)?;
            if self.teacher == Teacher::Truth {
                taught = truth(server, taught.rows().to_vec())?;
            }
            // each client trains on its own examples and distils the labels
            self.teach_clients(server, round, taught)?;
            self.evaluate(server, round)
        })?;
        state.warn(server, self.rounds);
        if self.evaluate_clients {
            server.keep_clients(&MODEL)?;
        }
        if server.has(&STUDENT) {
            server.keep_model(&STUDENT)
        } else {
            Ok(())
        }
    }

    fn suits(&self, kind: TaskKind, has: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
        let several = matches!(kind, TaskKind::MultiLabel(_));
        if kind.scores_classes() && !several {
            return Ok(());
        }
        if !matches!(self.labels, Labels::Scores(_)) || self.reply == Reply::Hard {
            return Err("hard and soft labels need inputs with one class each; use `labels: scores` and `reply: ensemble` (FedMD), which compare score by score".into());
        }
        let whole: &[&str] = if several {
            &["server-filter"]
        } else {
            &["student", "server-filter", "client-filter"]
        };
        match whole.iter().find(|slot| has(slot)) {
            Some(slot) => Err(format!(
                "parts.{slot} judges class probabilities of whole inputs; leave it empty"
            )),
            None => Ok(()),
        }
    }

    fn conflicts(&self, has: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let loss_given = matches!(&self.labels, Labels::Scores(of) if of.loss.is_some());
        let unread = Conflict::at(
            "labels.scores.loss",
            "has no effect with `reply: hard`, since no model is taught scores: leave it out, or use `reply: ensemble`",
        );
        let unlabelled = Conflict::at(
            "pretrain",
            "learns from labelled public samples: set `data.public.labelled: true`, or `pretrain: null`",
        );
        let untrue = Conflict::at(
            "teacher",
            "of `truth` teaches the labels of the public samples: set `data.public.labelled: true`, or leave `teacher` out",
        );
        let idle = |given: bool, setting, slot: &str| {
            Conflict::idle(setting, slot).when(given && !has(slot))
        };
        [
            unlabelled.when(self.pretrain.is_some() && !has("data.public.labelled")),
            untrue.when(self.teacher == Teacher::Truth && !has("data.public.labelled")),
            idle(self.filter_on.is_some(), "filter-on", &CLIENT_FILTER),
            idle(self.student.is_some(), "student", &STUDENT),
            idle(self.resample, "resample", &SAMPLING),
            self.local.conflict("local.rate.by-round", self.rounds),
            self.distil.conflict("distil.rate.by-round", self.rounds),
            (self.student.as_ref())
                .and_then(|of| of.conflict("student.rate.by-round", self.rounds)),
            unread.when(loss_given && self.reply == Reply::Hard && !has(&STUDENT)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn data_conflicts(&self, facts: &DataFacts<'_>) -> Vec<Conflict> {
        let unknown = self.judge_labels && !facts.public_truth;
        let untold = Conflict::at("judge-labels", label_metrics::UNKNOWN).when(unknown);
        untold.into_iter().collect()
    }
}
plugin!(protocol "co-distill" => CoDistill,
    aliases: [
        "selective-fd": "{ warm-up: { steps: 200, batch: 64 } }"
            with "{ client-filter: { use: density-ratio }, ensemble: { use: mean-labels }, server-filter: { use: unambiguous } }",
        "fedmd": "{ rounds: 20, pretrain: { epochs: 20, batch: 128 }, warm-up: { epochs: 25, batch: 32 }, samples: 5000, labels: scores, order: public-first, distil: { epochs: 1, batch: 256 }, local: { epochs: 4, batch: 5 } }"
            with "{ ensemble: { use: mean-logits } }",
        "fedmd-nfdp": "{ rounds: 20, pretrain: { epochs: 20, batch: 128 }, warm-up: { epochs: 25, batch: 32 }, samples: 5000, labels: scores, order: public-first, distil: { epochs: 1, batch: 256 }, local: { epochs: 4, batch: 5 } }"
            with "{ ensemble: { use: mean-logits }, sampling: { use: sample-examples } }",
        "feded": "{ teacher: student }" with "{ ensemble: { use: mean-labels }, student: {} }",
        "ds-fl": "{ order: own-before-labels }" with "{ ensemble: { use: entropy-reduction }, student: {} }",
        "cronus": "{ order: turns }" with "{ ensemble: { use: robust-labels } }",
    ],
    papers: ["Shao et al. 2024", "Li and Wang 2019", "Sui et al. 2020", "Itahara et al. 2020", "Chang et al. 2019"]);

impl CoDistill {
    /// Collects the clients' labels of these samples, combined by `parts.ensemble`.
    fn collect_labels(
        &self,
        server: &mut Server<'_>,
        round: &Round,
        ids: &Ids,
    ) -> Result<RoundLabels> {
        let mut soft: SoftLabels = match self.labels {
            Labels::Scores(_) => {
                let scores = server.run(round, &SCORES, |_| ids)?;
                return Ok(RoundLabels::Scores(scores));
            }
            Labels::Soft => server.run(round, &SOFT, |_| ids)?,
            // the ensemble gets each vote as a one-hot row
            Labels::Hard => {
                let outputs = server.task().kind.outputs();
                let form = |votes: Votes| {
                    if votes.classes() == outputs {
                        Ok(one_hot(&votes))
                    } else {
                        Err(Problem::Shape(format!(
                            "votes for {} classes, and there are {outputs}",
                            votes.classes()
                        ))
                        .into())
                    }
                };
                server.run_with(
                    round,
                    &HARD,
                    |_| ids,
                    |mail: ClientMessage<Votes>| mail.try_map(form),
                )?
            }
        };
        if server.has("privacy") {
            soft.project(); // noise leaves the simplex
        }
        Ok(RoundLabels::Soft(soft))
    }
}

/// The server's state between two rounds.
#[derive(Default, Serialize, Deserialize)]
struct State {
    /// The public (proxy) samples that at least one client selects.
    pool: Vec<u32>,
    /// Rounds without any labels to learn.
    silent: usize,
}

impl State {
    fn count(
        &mut self,
        server: &mut Server<'_>,
        round: &Round,
        taught: &RoundLabels,
    ) -> Result<()> {
        let n = taught.rows().len();
        self.silent += usize::from(n == 0);
        server.record(round, "taught.samples", n as f64)
    }

    fn warn(&self, server: &mut Server<'_>, of: usize) {
        if self.silent > 0 {
            let silent = self.silent;
            server.warn(&format!("in {silent} of {of} rounds nothing was left to learn from the others: every label was filtered out"));
        }
    }
}

/// The server's side.
impl CoDistill {
    /// Returns the public samples that at least one client selects; all without a filter before
    /// round 1.
    fn pool(&self, server: &mut Server<'_>, round: &Round) -> Result<Vec<u32>> {
        let n = server.public()?.samples().len();
        if !server.has(&CLIENT_FILTER) || !self.client_filter().once() {
            return Ok((0..n as u32).collect());
        }
        let known = server.collect(round, &KNOWN, |_| &Nothing)?;
        if let Some(other) = known.iter().find(|m| m.body.len() != n) {
            let (from, length) = (other.from, other.body.len());
            bail!("client {from} answered about {length} public samples, and there are {n}");
        }
        let somebody = |at: &u32| known.iter().any(|m| m.body.has(*at as usize));
        let pool: Vec<u32> = (0..n as u32).filter(somebody).collect();
        if pool.len() < n {
            let lost = n - pool.len();
            server.warn(&format!(
                "{lost} of {n} public samples are known to no client and are left out"
            ));
        }
        Ok(pool)
    }

    /// Notes that a round has fewer public samples than the spec says.
    fn note_few(&self, server: &mut Server<'_>) -> Result<()> {
        let n = server.public()?.samples().len();
        if let Some(samples) = self.samples.filter(|samples| *samples > n) {
            server.warn(&format!(
                "protocol.samples is {samples}, and there are {n} public samples: every round has all of them"
            ));
        }
        Ok(())
    }

    fn draw_batch(&self, pool: &[u32], round: &Round) -> Ids {
        let mut draws = round.stream.child("public", 0).draws();
        let drawn = draws.choose(pool.len(), self.batch().min(pool.len()));
        Ids(drawn.into_iter().map(|at| pool[at]).collect())
    }

    /// Measures the harm of labels, if the spec asks for it.
    fn judge(
        &self,
        server: &mut Server<'_>,
        round: &Round,
        name: &str,
        labels: &RoundLabels,
    ) -> Result<()> {
        if self.judge_labels {
            label_metrics::judge(server, round, name, &labels.soft())
        } else {
            Ok(())
        }
    }

    fn teach_student(
        &self,
        server: &mut Server<'_>,
        round: &Round,
        taught: RoundLabels,
    ) -> Result<RoundLabels> {
        if !server.has(&STUDENT) || taught.rows().is_empty() {
            return Ok(taught);
        }
        let ids = Ids(taught.rows().to_vec());
        let x = server.public()?.pick(&ids)?;
        let training = self.student.as_ref().unwrap_or(&self.distil);
        let pass = training.pass(taught.loss(&self.labels), round.number);
        taught.teach(|target| server.fit(&STUDENT, &round.stream, &x, target, &pass))?;
        if self.teacher != Teacher::Student {
            return Ok(taught);
        }
        let scores = server.model(&STUDENT)?.predict(&x)?;
        Ok(RoundLabels::Soft(SoftLabels::of_scores(
            ids.0,
            scores.view(),
        )))
    }

    fn teach_clients(
        &self,
        server: &mut Server<'_>,
        round: &Round,
        taught: RoundLabels,
    ) -> Result<()> {
        let taught = match self.reply {
            Reply::Ensemble => taught,
            Reply::Hard => taught.hard(),
        };
        match &taught {
            RoundLabels::Soft(soft) => server.collect(round, &LEARN_SOFT, |_| soft)?,
            RoundLabels::Scores(scores) => server.collect(round, &LEARN_SCORES, |_| scores)?,
            RoundLabels::Hard(labels) => server.collect(round, &LEARN_HARD, |_| labels)?,
        };
        Ok(())
    }

    fn evaluate(&self, server: &mut Server<'_>, round: &Round) -> Result<()> {
        if server.has(&STUDENT) {
            server.evaluate(round, &STUDENT)?;
        }
        if self.evaluate_clients {
            server.evaluate_clients(round, &MODEL)?;
        }
        Ok(())
    }
}

/// A client's side.
impl CoDistill {
    pub(crate) fn warm_up(&self, client: &mut Client) -> Result<Nothing> {
        if let Some(pretrain) = &self.pretrain {
            let (public, pass) = (client.public()?, pretrain.pass(client.task().kind.loss()));
            client.fit_examples(&MODEL, public.examples()?, &pass)?;
        }
        if let Some(warm_up) = &self.warm_up {
            let (own, pass) = (
                client.private(&SAMPLING)?,
                warm_up.pass(client.task().kind.loss()),
            );
            client.fit_examples(&MODEL, &own, &pass)?;
        }
        Ok(Nothing)
    }

    /// Labels these samples at a client, as far as it selects them: converts its model's scores
    /// with `say`.
    pub(crate) fn label<M>(
        &self,
        client: &mut Client,
        ids: &Ids,
        say: fn(Logits) -> M,
    ) -> Result<M> {
        if self.order == Order::OwnBeforeLabels {
            self.learn_own(client)?;
        }
        let known = self.client_filter().known(client, ids)?;
        Ok(say(client.logits(&MODEL, &known)?))
    }
}
