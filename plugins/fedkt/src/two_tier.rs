//! FedKT, Algorithm 1.
use crate::teach::{
    self, PRIVACY, TEACHER, TOO_FEW, asked_about, ballots, check, classes, learn, no_public,
    teachers,
};
use fl_core::message::{Counts, Models, VoteSensitivity, Votes};
use fl_core::prelude::*;
use fl_core::{ClientId, Problem, TaskKind, metrics, named_clients};
use ndarray::Array2;
use serde::{Deserialize, Serialize};

choices! {
    /// The place where noise is added.
    pub enum NoiseAt {
        /// Nowhere (FedKT-L0).
        None = "none",
        /// On the server's counts (FedKT-L1): the server is trusted, the final model may be
        /// published.
        Server = "server",
        /// On each party's counts, before its students learn (FedKT-L2): a party trusts only
        /// itself. A budget pays for the first queries of every partition; the paper has one.
        Party = "party",
    }
}

choices! {
    /// The policy for a party with fewer examples than subsets.
    pub enum ShortParty {
        /// The run fails and names it (the paper's runs fail there).
        Fail = "fail",
        /// It takes no part.
        Skip = "skip",
    }
}

choices! {
    /// The content of a party's answer.
    pub enum Sent {
        /// Its students, which vote at the server (the paper).
        Models = "models",
        /// Its students' votes: `ceil(log2(classes))` bits for each public sample; the models stay.
        Votes = "votes",
    }
}

settings! {
    /// Teachers vote inside each party, the parties' students vote at the server, and the final
    /// model learns the winners: one round, with any models (FedKT; Li et al. 2021).
    pub struct TwoTierVote {
        /// Partitions of a party's data, and so students of each party (s).
        partitions: usize = 2, in 1..=1000;
        /// Disjoint subsets of each partition, and so teachers (t).
        subsets: usize = 5, in 1..=100_000;
        /// The place where noise is added.
        noise: NoiseAt = NoiseAt::None;
        /// Public samples that a party's teachers label and its students learn from, taken from the
        /// beginning; all if not given. With `noise: party` a budget pays for these; the server's
        /// samples are independent.
        party_queries: Option<usize> = None, in 1..;
        /// Public samples that the students label and the final model learns from, taken from the
        /// beginning; all if not given. With `noise: server` a budget pays for these.
        server_queries: Option<usize> = None, in 1..;
        /// The policy for a party with fewer examples than subsets. With an accountant it takes
        /// part, and its teachers without examples vote for the first class.
        short_party: ShortParty = ShortParty::Fail;
        /// The content of a party's answer.
        send: Sent = Sent::Models;
        /// Send the final model to every party.
        deliver: bool = true;
        /// A teacher's training. FedKT: 100 epochs, batch 32. Trees ignore it.
        teacher: Training = Training::epochs(100, 32);
        /// A student's training on the public samples.
        student: Training = Training::epochs(100, 32);
        /// The final model's training on the public samples.
        final_model: Training = Training::epochs(100, 32);
        /// Evaluate the first student of every party too.
        evaluate_clients: bool = true;
        /// Keep the first student of every party as a result of the run.
        keep_clients: bool = false;
    }
}

/// Gap of the teachers' counts up to which one example may change the winner (for the privacy of
/// one example with `noise: server`). Theorem 9 of Li et al. 2021 has 1; a gap of 2 can become a
/// tie, which changes it too.
const CLOSE_GAP: f64 = 2.0;

const STUDENT: TrainerSlot = TrainerSlot::new(
    "student",
    "A party's students; parties may have different ones.",
);
const FINAL: TrainerSlot = TrainerSlot::new("final", "The server's model.");
const TIER_1: AggregatorSlot<Votes, Counts> =
    AggregatorSlot::new("tier1", "Counts the votes of a party's teachers.");
const TIER_2: AggregatorSlot<Votes, Counts> =
    AggregatorSlot::new("tier2", "Counts the votes of the parties' students.");

const MODELS: Exchange<Nothing, Models> = Exchange::new("students");
/// Replaces [`MODELS`], with the same label: the content of the answer must not change the draws,
/// and so the training. A release of one is a release of the other.
const VOTES: Exchange<Nothing, Votes> = Exchange::new("students");
const CLOSE: Exchange<Nothing, Scalar> = Exchange::new("partitions with close votes");
const DELIVER: Exchange<Models, Nothing> = Exchange::new("final model");

/// The server's state between two steps.
#[derive(Default, Serialize, Deserialize)]
struct State {
    /// The parties that have trained students.
    trained: Vec<ClientId>,
    votes: Vec<(ClientId, Votes)>,
    /// The most partitions of one party that one example can change; `None` if not requested.
    close: Option<u32>,
    counts: Option<Counts>,
}

/// Releases the counts of all partitions at once, query by query: a budget pays for the first
/// queries of each partition.
fn release_together(client: &mut Client, all: &[Counts]) -> Result<Vec<Counts>> {
    let first = all.first().context("a party has a partition")?;
    let alike =
        |of: &Counts| of.values.ncols() == first.values.ncols() && of.block() == first.block();
    ensure!(
        all.iter().all(alike),
        "parts.tier1 counts the votes of one partition in another shape than those of the next"
    );
    let most = all.iter().map(|of| of.rows.len()).max().unwrap_or(0);
    let of: Vec<(usize, usize)> = (0..most)
        .flat_map(|row| (0..all.len()).map(move |partition| (partition, row)))
        .filter(|(partition, row)| *row < all[*partition].rows.len())
        .collect();
    let mut together = first.clone();
    together.rows = (0..of.len() as u32).collect();
    let shape = (of.len(), first.values.ncols());
    together.values = Array2::from_shape_fn(shape, |(at, class)| {
        let (partition, row) = of[at];
        all[partition].values[(row, class)]
    });
    client.release(&PRIVACY, &mut together)?;
    let answered = together.rows.iter().map(|at| of.get(*at as usize));
    let answered: Option<Vec<_>> = answered.collect();
    let answered = answered.context("parts.privacy released a query that it was not given")?;
    let apart = (0..all.len()).map(|partition| {
        let mut counts = together.clone();
        let own = answered.iter().enumerate();
        let own = own.filter(|(_, of)| of.0 == partition);
        let (positions, rows): (Vec<usize>, Vec<usize>) =
            own.map(|(position, of)| (position, of.1)).unzip();
        counts.retain_rows(&positions);
        counts.rows = rows.iter().map(|row| all[partition].rows[*row]).collect();
        counts
    });
    Ok(apart.collect())
}

impl TwoTierVote {
    /// Returns the clients with an example for each teacher; all with an accountant.
    fn parties(&self, server: &mut Server<'_>) -> Result<Cohort> {
        let parties = server.with_examples(self.subsets);
        let short = server.everyone().retain(|id| !parties.contains(&id)).ids;
        let what = format!(
            "too few examples for `subsets: {}` ({TOO_FEW}): {}",
            self.subsets,
            named_clients(&short)
        );
        match self.short_party {
            _ if short.is_empty() => {}
            ShortParty::Skip if !parties.is_empty() => {
                server.warn(&format!("{what}; they take no part"));
            }
            ShortParty::Skip => bail!("{what}; no party is left"),
            ShortParty::Fail => bail!("{what}; use fewer subsets, or `short-party: skip`"),
        }
        Ok(parties)
    }

    /// Trains a party's students: s times, t teachers vote on the public samples, and a student
    /// learns the winners.
    fn train_students(&self, client: &mut Client) -> Result<Vec<Box<dyn Trainer>>> {
        let (mut students, mut gaps, mut all) = (Vec::new(), Vec::new(), Vec::new());
        let (mut constants, mut without_step) = (0, 0);
        let queries = asked_about(client.public()?.samples(), self.party_queries);
        for partition in 0..self.partitions {
            let pass = self.teacher.pass(Loss::CrossEntropy);
            let taught = teachers(client, &queries, partition, self.subsets, &pass)?;
            taught
                .unfinished
                .into_iter()
                .for_each(|text| client.note(text));
            constants += taught.constant;
            without_step += taught.untrained;
            let classes = client.own().task().kind.outputs();
            let mail = taught
                .labels
                .into_iter()
                .enumerate()
                .map(|(i, one)| {
                    Ok(ClientMessage::new(
                        i as ClientId,
                        1.0,
                        ballots(&[one], classes)?,
                    ))
                })
                .collect::<Result<_>>()?;
            let mut counts = client.aggregate(&TIER_1, &Inbox::new(mail)?)?;
            gaps.push(counts.gaps());
            // an example is in one subset of each partition: it can change one teacher's vote
            let together = counts.block();
            counts.set_sensitivity(VoteSensitivity {
                example: Some(together as u32),
                party: Some(self.subsets.max(together) as u32),
                ..VoteSensitivity::default()
            });
            all.push(counts);
        }
        if self.noise == NoiseAt::Party {
            all = release_together(client, &all)?;
        }
        for (partition, counts) in all.iter().enumerate() {
            let mut student = client.new_model(&STUDENT, partition as u64)?;
            let stream = client.stream(&STUDENT).child("partition", partition as u64);
            let pass = self.student.pass(Loss::CrossEntropy);
            let note = learn(
                (&STUDENT, student.as_mut()),
                counts,
                &queries,
                &pass,
                &stream,
            )
            .with_context(|| format!("student of partition {partition}"))?;
            note.into_iter().for_each(|text| client.note(text));
            students.push(student);
        }
        let all = self.partitions * self.subsets;
        if constants > 0 {
            client.note(format!("{constants} of {all} teachers saw one class only"));
        }
        if without_step > 0 {
            client.note(format!(
                "{without_step} of {all} teachers had too few examples for a training step"
            ));
        }
        let close = teach::close_votes(&gaps, CLOSE_GAP);
        client.stash("close", &Scalar::new(close as f32));
        Ok(students)
    }

    /// Returns the students' votes, one sender for each party.
    fn students_vote(
        &self,
        server: &mut Server<'_>,
        round: &Round,
        parties: &[ClientId],
        classes: usize,
    ) -> Result<Inbox<Votes>> {
        if self.send == Sent::Votes {
            return server.collect_from(round, &VOTES, parties, |_| &Nothing);
        }
        let public = asked_about(server.public()?.samples(), self.server_queries);
        let read = server.reader(&STUDENT);
        server.collect_each(
            round,
            &MODELS,
            parties,
            |_| &Nothing,
            |party, models: Models| {
                Problem::shape_unless(models.0.len() == self.partitions, || {
                    format!(
                        "{} students where {} were due",
                        models.0.len(),
                        self.partitions
                    )
                })?;
                let vote = |model: &Vec<u8>| {
                    let scores = read(party, model)?.predict(&public)?;
                    Ok(metrics::classes(scores.view()))
                };
                let labels = models.0.iter().map(vote).collect::<Result<Vec<_>>>()?;
                ballots(&labels, classes)
            },
        )
    }

    /// Returns how many votes of the server's count one example and one party can change (theorems
    /// 3 and 9).
    fn sensitivity(&self, block: usize, close: Option<u32>) -> VoteSensitivity {
        // if votes count only together, one student changes the votes of the others too
        let together = block > 1;
        let students = Some(self.partitions.max(block) as u32);
        VoteSensitivity {
            // at least 1: even if no vote is close now, one may be close in a neighbouring data set
            example: if together {
                students
            } else {
                close.map(|close| close.max(1))
            },
            party: students,
            from_data: !together,
            also_removed: false,
        }
    }
}

impl Protocol for TwoTierVote {
    fn suits(&self, kind: TaskKind, _: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
        classes(kind).map(drop)
    }
    fn conflicts(&self, has: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        no_public(has).into_iter().collect()
    }

    fn data_conflicts(&self, facts: &DataFacts<'_>) -> Vec<Conflict> {
        let settings = [
            ("party-queries", self.party_queries),
            ("server-queries", self.server_queries),
        ];
        let above = |(name, queries): (_, Option<usize>)| {
            let (queries, public) = queries.zip(facts.public)?;
            let why = format!("is {queries}, and there are at most {public} public samples");
            Conflict::at(name, why).when(queries > public)
        };
        let split = self.subsets > 1;
        let sizes = split.then(|| (facts.examples)()).flatten();
        let short = sizes.iter().filter_map(|sizes| {
            let short = (0..).zip(sizes).filter(|(_, n)| **n < self.subsets);
            let short: Vec<ClientId> = short.map(|(id, _)| id).collect();
            let mut why = format!(
                "is {}, and there are too few examples ({TOO_FEW}): {}; use fewer subsets",
                self.subsets,
                named_clients(&short)
            );
            if short.len() < sizes.len() {
                why += ", or `short-party: skip`";
            }
            let fails = match self.short_party {
                ShortParty::Skip => short.len() == sizes.len(),
                ShortParty::Fail => !short.is_empty(),
            };
            Conflict::at("subsets", why).when(fails)
        });
        let all = settings.into_iter().filter_map(above);
        all.chain(short).collect()
    }

    fn declare(&self) -> Declaration<'_> {
        let shown = self.evaluate_clients || self.keep_clients;
        let student = STUDENT.spec().lasting_if(shown).published_if(shown);
        let student = self.student.needs(student.needs(Ability::TaskLoss));
        let last = FINAL.spec().lasting_if(self.deliver).at_server();
        let (student, noise) = match self.noise {
            NoiseAt::None => (student, PRIVACY.spec()),
            NoiseAt::Server => (student, PRIVACY.spec().required()),
            NoiseAt::Party => (student.through(&PRIVACY), PRIVACY.spec().required()),
        };
        let all = Declaration::new()
            .measures([Measurement::server(&FINAL)])
            .measures(
                self.evaluate_clients
                    .then(|| Measurement::clients(&STUDENT)),
            )
            .slot(self.teacher.needs(TEACHER.spec().needs(Ability::TaskLoss)))
            .slot(student)
            .slot(self.final_model.needs(last.needs(Ability::TaskLoss)))
            .slot(&TIER_1)
            .slot(&TIER_2)
            .slot(noise);
        let all = match self.send {
            Sent::Models => {
                let models = MODELS.answered_by(|client, _| self.send_models(client));
                all.exchange(self.hidden(models.model(&STUDENT)))
            }
            Sent::Votes => {
                let votes = VOTES.answered_by(|client, _| self.send_votes(client));
                let rows = self.server_queries.unwrap_or(usize::MAX);
                all.exchange(self.hidden(votes.rows(rows)))
            }
        };
        // it is a part of the price, which is declared data-dependent
        let close = || {
            let close = CLOSE.answered_by(|client, _| {
                let known = "close votes are known once the students are trained";
                client.unstash("close")?.context(known)
            });
            close.released_with(&MODELS, &PRIVACY)
        };
        let deliver = || {
            let deliver = DELIVER.answered_by(|client, models| {
                let model = models.0.first().context("there is no final model")?;
                client.model(&FINAL)?.load(model)?;
                Ok(Nothing)
            });
            deliver.model(&FINAL)
        };
        all.exchange_if(self.noise == NoiseAt::Server, close)
            .exchange_if(self.deliver, deliver)
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        let classes = check(server)?;
        let public = server.public()?.samples().len();
        for (name, queries) in [
            ("party-queries", self.party_queries),
            ("server-queries", self.server_queries),
        ] {
            let queries = queries.unwrap_or(0);
            ensure!(
                queries <= public,
                "protocol.{name}: {queries}, but there are only {public} public samples"
            );
        }
        let (parties, mut s) = (self.parties(server)?, State::default());
        server.once("students", &mut s, |server, s, round| {
            let votes = self.students_vote(server, round, &parties, classes)?;
            s.votes = votes.iter().map(|m| (m.from, m.body.clone())).collect();
            s.trained = votes.iter().map(|m| m.from).collect();
            if self.noise == NoiseAt::Server {
                let close = server.collect_from(round, &CLOSE, &s.trained, |_| &Nothing)?;
                // a party that does not say may have one of each partition
                let unsaid = close.len() < s.trained.len();
                let unsaid = unsaid.then_some(self.partitions as u32);
                let said = close.iter().map(|m| m.body.value() as u32);
                s.close = unsaid.into_iter().chain(said).max();
            }
            if self.evaluate_clients {
                server.evaluate_clients_of(round, &STUDENT, &s.trained)
            } else {
                Ok(())
            }
        })?;
        server.once("votes", &mut s, |server, s, round| {
            let mail = std::mem::take(&mut s.votes).into_iter();
            let mail = mail.map(|(party, votes)| ClientMessage::new(party, 1.0, votes));
            let mut counts = server.aggregate(&TIER_2, round, &Inbox::new(mail.collect())?)?;
            counts.set_sensitivity(self.sensitivity(counts.block(), s.close));
            if self.noise == NoiseAt::Server {
                server.release(&MODELS, round, &mut counts, &parties)?;
            }
            s.counts = Some(counts);
            Ok(())
        })?;
        server.once("final model", &mut s, |server, s, round| {
            let counts = s.counts.take().context("the votes have been counted")?;
            let (public, pass) = (server.public()?, self.final_model.pass(Loss::CrossEntropy));
            let stream = round.stream.child("final", 0);
            let model = (&FINAL, server.model(&FINAL)?);
            let note = learn(model, &counts, public.samples(), &pass, &stream)?;
            note.into_iter().for_each(|text| server.warn(&text));
            server.evaluate(round, &FINAL)?;
            if self.deliver {
                let model = Models(vec![server.model(&FINAL)?.save()?]);
                server.collect_from(round, &DELIVER, &parties, |_| &model)?;
            }
            Ok(())
        })?;
        if self.keep_clients {
            server.keep_clients_of(&STUDENT, &s.trained)?;
        }
        server.keep_model(&FINAL)
    }
}

impl TwoTierVote {
    /// Declares the release of a party's students.
    fn hidden<'p, U: Message>(
        &self,
        students: Declared<'p, Nothing, U>,
    ) -> Declared<'p, Nothing, U> {
        let students = students.voices(self.partitions);
        match self.noise {
            NoiseAt::None => students,
            NoiseAt::Server => students.releases_at_server(&PRIVACY),
            NoiseAt::Party => students.releases_within(&PRIVACY),
        }
    }

    fn send_models(&self, client: &mut Client) -> Result<Models> {
        let students = self.train_students(client)?;
        let models = students.iter().map(|s| s.save()).collect::<Result<_>>()?;
        self.keep(client, students);
        Ok(Models(models))
    }

    fn send_votes(&self, client: &mut Client) -> Result<Votes> {
        let mut students = self.train_students(client)?;
        let public = asked_about(client.public()?.samples(), self.server_queries);
        let classes = client.own().task().kind.outputs();
        let vote = |s: &mut Box<dyn Trainer>| Ok(metrics::classes(s.predict(&public)?.view()));
        let labels = students.iter_mut().map(vote).collect::<Result<Vec<_>>>()?;
        self.keep(client, students);
        ballots(&labels, classes)
    }

    /// Keeps the first student, if it is evaluated or a result; drops the others.
    fn keep(&self, client: &mut Client, students: Vec<Box<dyn Trainer>>) {
        let first = students.into_iter().next();
        if let Some(first) = first.filter(|_| self.evaluate_clients || self.keep_clients) {
            client.set_model(&STUDENT, first);
        }
    }
}
plugin!(protocol "two-tier-vote" => TwoTierVote,
    aliases: ["fedkt"],
    papers: ["Li et al. 2021"]);
