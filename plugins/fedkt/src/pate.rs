//! PATE: one tier, on all data in one place.
use crate::teach::{PRIVACY, TEACHER, TOO_FEW, ballots, check, classes, learn, teachers};
use fl_core::TaskKind;
use fl_core::message::{Counts, VoteSensitivity, Votes};
use fl_core::prelude::*;
use serde::{Deserialize, Serialize};

settings! {
    /// Teachers on disjoint parts of all clients' pooled data vote, and a student learns the
    /// winners (PATE; Papernot et al. 2017). With as many teachers as parties and without noise it
    /// is FedKT's baseline.
    pub struct Pate {
        /// Number of teachers.
        teachers: usize, in 1..=100_000;
        /// A teacher's training. FedKT's comparison: 100 epochs, batch 32. Trees ignore it.
        teacher: Training = Training::epochs(100, 32);
        /// The student's training on the public samples.
        student: Training = Training::epochs(100, 32);
    }
}

const STUDENT: TrainerSlot = TrainerSlot::new("student", "The model that learns from their votes.");
const VOTE: AggregatorSlot<Votes, Counts> = AggregatorSlot::new("vote", "Counts the teachers.");

const VOTES: Exchange<Nothing, Votes> = Exchange::new("teachers' votes");

/// Returns the sensitivity: one example is in one teacher's data, so it can change that vote, and
/// those that count `together` with it. The data of all parties are pooled, so the effect of a
/// whole party is unknown.
fn sensitivity(together: u32) -> VoteSensitivity {
    VoteSensitivity {
        example: Some(together),
        party: None,
        ..VoteSensitivity::default()
    }
}

#[derive(Default, Serialize, Deserialize)]
struct State {
    counts: Option<Counts>,
}

impl Protocol for Pate {
    fn suits(&self, kind: TaskKind, _: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
        classes(kind).map(drop)
    }
    fn declare(&self) -> Declaration<'_> {
        let votes = VOTES.answered_by(|client, _| {
            let (public, pass) = (client.public()?, self.teacher.pass(Loss::CrossEntropy));
            let (n, t) = (client.own().len(), self.teachers);
            ensure!(
                n >= t,
                "{n} examples are too few for {t} teachers: {TOO_FEW}"
            );
            let taught = teachers(client, public.samples(), 0, self.teachers, &pass)?;
            taught
                .unfinished
                .into_iter()
                .for_each(|text| client.note(text));
            ballots(&taught.labels, client.own().task().kind.outputs())
        });
        let student = STUDENT.spec().at_server();
        Declaration::new()
            .measures([Measurement::server(&STUDENT)])
            .pools_data()
            .slot(self.teacher.needs(TEACHER.spec().needs(Ability::TaskLoss)))
            .slot(self.student.needs(student.needs(Ability::TaskLoss)))
            .exchange(
                votes
                    .all_public()
                    .voices(self.teachers)
                    .into(&VOTE)
                    .releases_at_server(&PRIVACY)
                    .changes_votes(sensitivity(1)),
            )
    }

    fn data_conflicts(&self, facts: &DataFacts<'_>) -> Vec<Conflict> {
        let teachers = self.teachers;
        let sizes = (teachers > 1).then(|| (facts.examples)()).flatten();
        let few = sizes.and_then(|sizes| {
            let n: usize = sizes.iter().sum();
            let why = format!("is {teachers}, and there are {n} examples: {TOO_FEW}");
            Conflict::at("teachers", why).when(n < teachers)
        });
        few.into_iter().collect()
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        check(server)?;
        let (all, mut s) = (server.everyone(), State::default());
        server.once("teachers", &mut s, |server, s, round| {
            let votes = server.collect(round, &VOTES, |_| &Nothing)?;
            let mut counts: Counts = server.aggregate(&VOTES, round, &votes)?;
            // an example is in one part: it can change one teacher's vote, and those that count
            // together with it
            counts.set_sensitivity(sensitivity(counts.block() as u32));
            server.release(&VOTES, round, &mut counts, &all)?;
            s.counts = Some(counts);
            Ok(())
        })?;
        server.once("student", &mut s, |server, s, round| {
            let counts = s.counts.take().context("the votes have been counted")?;
            let (public, pass) = (server.public()?, self.student.pass(Loss::CrossEntropy));
            let stream = round.stream.child("student", 0);
            let student = (&STUDENT, server.model(&STUDENT)?);
            let note = learn(student, &counts, public.samples(), &pass, &stream)?;
            note.into_iter().for_each(|text| server.warn(&text));
            server.evaluate(round, &STUDENT)
        })?;
        server.keep_model(&STUDENT)
    }
}
plugin!(protocol "pate" => Pate,
    papers: ["Papernot et al. 2017"]);
