//! Federated distillation by class means: the server's side in `lead`, a client's in `means` and
//! `learn`.
use crate::prototypes::{classes, one_class_each};
use fl_core::TaskKind;
use fl_core::message::{ClassMeans, softmax};
use fl_core::prelude::*;
use ndarray::Array2;
use std::collections::{BTreeMap, BTreeSet};

settings! {
    /// Clients exchange the mean output of their models over their examples of each class, and
    /// train every model towards the others' means (FKD, Jeong et al. 2018; PLS). It needs no
    /// public data, and clients may have different networks.
    pub struct ClassDistill {
        /// Rounds. Selective-FD's published code: 20,000.
        rounds: usize = 200, in 1..=1_000_000;
        /// A client's training on its own examples before round 1. Selective-FD: 200 steps.
        /// Default: none.
        warm_up: Option<Training> = None;
        /// A client's training in one round, on its own examples, towards their labels and the
        /// means of their classes. Selective-FD: 11 steps of 64.
        local: RoundTraining = Training::steps(11, 64).into();
        /// Weight of the term that moves an output to the mean of its class; the label's term has
        /// weight 1. Our sources do not give it.
        weight: f64 = 1.0, in 0.0..=1e6;
        /// Send each client the mean of the others, without its own share.
        leave_one_out: bool = false;
        /// Draw a new private sample in every round; the costs add up. Only if `parts.sampling`
        /// is filled.
        resample: bool = false;
        /// Evaluate the clients' own models in every round, and keep them at the end. Without it
        /// they are neither measured nor kept: only class means leave the clients.
        evaluate_clients: bool = true;
    }
}

const MODEL: TrainerSlot =
    TrainerSlot::new("model", "A client's model; each client may have another.");
const ENSEMBLE: AggregatorSlot<ClassMeans, ClassMeans> =
    AggregatorSlot::new("ensemble", "Combines the clients' class means.");
const PRIVACY: MechanismSlot<ClassMeans> =
    MechanismSlot::new("privacy", "Noise on a client's answer.");
const SAMPLING: MechanismSlot<Ids> = MechanismSlot::new(
    "sampling",
    "Draws the examples that a client trains on (as in FedMD-NFDP).",
);

const WARM_UP: Exchange<Nothing, Nothing> = Exchange::new("warm-up");
const MEANS: Exchange<Nothing, ClassMeans> = Exchange::new("mean outputs of own classes");
const LEARN: Exchange<ClassMeans, Nothing> = Exchange::new("learning from class means");

impl Protocol for ClassDistill {
    fn declare(&self) -> Declaration<'_> {
        let model = MODEL
            .spec()
            .lasting()
            .published_if(self.evaluate_clients)
            .through(&SAMPLING);
        let model = self.local.needs(model).needs(Ability::TaskLoss);
        let model = model.needs(Ability::SoftTargets);
        let model = self
            .warm_up
            .iter()
            .fold(model, |model, training| training.needs(model));
        let means = MEANS.answered_by(|client, _| self.means(client));
        let means = if self.resample {
            means.draws(&SAMPLING)
        } else {
            means.through(&SAMPLING)
        };
        Declaration::new()
            .rounds(self.rounds)
            .grows_by("rounds")
            .measures(self.evaluate_clients.then(|| Measurement::clients(&MODEL)))
            .measures([Measurement::number("taught.classes")])
            .slot(model)
            .exchange(
                WARM_UP
                    .answered_by(|client, _| self.warm_up(client))
                    .draws(&SAMPLING),
            )
            // noise on the means does not hide for which classes a client has examples
            .exchange(
                means
                    .each_round()
                    .into(&ENSEMBLE)
                    .releases(&PRIVACY)
                    .partly_if(true),
            )
            .exchange(
                LEARN
                    .answered_by(|client, means| self.learn(client, means))
                    .each_round(),
            )
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        let all = server.everyone();
        server.once("warm-up", &mut (), |server, (), round| {
            server.collect(round, &WARM_UP, |_| &Nothing).map(|_| ())
        })?;
        let mut silent = 0;
        server.rounds(&mut silent, |server, silent, round| {
            // each client sends the mean output of its model over its examples of each class that
            // it has
            let answers = server.collect(round, &MEANS, |_| &Nothing)?;
            // the server computes for each class the mean over the clients that have it
            let mean = server.aggregate(&MEANS, round, &answers)?;
            let others = if self.leave_one_out {
                means_of_others(server, round, &answers, &all)?
            } else {
                BTreeMap::new()
            };
            let taught = |id| others.get(&id).unwrap_or(&mean);
            // a client has examples of the classes that it has sent
            let told = answers.iter().flat_map(|mail| {
                let own = mail.body.rows.iter();
                own.filter(|class| taught(mail.from).class(**class).is_some())
            });
            let told = told.collect::<BTreeSet<_>>().len();
            *silent += usize::from(told == 0);
            server.record(round, "taught.classes", told as f64)?;
            // each client trains towards its labels and the means of their classes
            server.collect(round, &LEARN, taught)?;
            if self.evaluate_clients {
                server.evaluate_clients(round, &MODEL)?;
            }
            Ok(())
        })?;
        if silent > 0 {
            server.warn(&format!("in {silent} rounds no client was sent the mean of a class that it has, so nothing was learnt from the others there; let clients share classes (`data.split`), or set `leave-one-out: false`"));
        }
        if self.evaluate_clients {
            server.keep_clients(&MODEL)?;
        }
        Ok(())
    }

    fn suits(&self, kind: TaskKind, _: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
        one_class_each(kind)
    }

    fn conflicts(&self, has: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let idle = Conflict::idle("resample", &SAMPLING);
        let idle = idle.when(self.resample && !has(&SAMPLING));
        let rate = self.local.conflict("local.rate.by-round", self.rounds);
        [idle, rate].into_iter().flatten().collect()
    }
}
plugin!(protocol "class-distill" => ClassDistill,
    aliases: [
        "fkd" with "{ ensemble: { use: mean-of-classes, which: all } }",
        "pls" with "{ ensemble: { use: mean-of-classes, which: agreeing } }",
    ],
    papers: ["Jeong et al. 2018"]);

/// Returns for each client the means over the others; no class if there are no others.
fn means_of_others(
    server: &mut Server<'_>,
    round: &Round,
    answers: &Inbox<ClassMeans>,
    all: &[u32],
) -> Result<BTreeMap<u32, ClassMeans>> {
    let outputs = server.task().kind.outputs();
    let of = |id: &u32| {
        let others = answers.iter().filter(|mail| mail.from != *id).cloned();
        let means = match Inbox::new(others.collect()) {
            Ok(others) => server.aggregate(&MEANS, round, &others)?,
            Err(_) => ClassMeans::new(Vec::new(), Array2::zeros((0, outputs))),
        };
        Ok((*id, means))
    };
    all.iter().map(of).collect()
}

impl ClassDistill {
    fn warm_up(&self, client: &mut Client) -> Result<Nothing> {
        if let Some(warm_up) = &self.warm_up {
            let (own, pass) = (client.private(&SAMPLING)?, warm_up.pass(Loss::CrossEntropy));
            client.fit_examples(&MODEL, &own, &pass)?;
        }
        Ok(Nothing)
    }

    /// Returns the mean output of a client's model over its examples of each class.
    fn means(&self, client: &mut Client) -> Result<ClassMeans> {
        let own = client.private(&SAMPLING)?;
        let outputs = softmax(client.model(&MODEL)?.predict(&own.samples)?.view(), 1.0);
        ClassMeans::of(outputs.view(), &classes(&own)?)
    }

    /// Trains on the cross-entropy to the label, plus `weight` times that to the mean of the
    /// label's class. This is one cross-entropy, to the sum of the two targets. A class without a
    /// mean adds no term.
    fn learn(&self, client: &mut Client, means: &ClassMeans) -> Result<Nothing> {
        let own = client.private(&SAMPLING)?;
        let labels = classes(&own)?;
        let mut target = Array2::<f32>::zeros((labels.len(), own.labels().classes()));
        for (mut row, label) in target.rows_mut().into_iter().zip(&labels) {
            row[*label as usize] = 1.0;
            if let Some(mean) = means.class(*label) {
                row.zip_mut_with(&mean, |t, m| *t += self.weight as f32 * m);
            }
        }
        let pass = self.local.pass(Loss::CrossEntropy, client.round_number());
        let stream = client.stream(&MODEL);
        let target = Target::Soft(target.view());
        let model = client.model(&MODEL)?;
        let fitted = model.fit(&own.samples, target, &pass, &stream)?;
        if fitted.steps == 0 && !own.is_empty() {
            client.note_no_step(&MODEL)?;
        }
        Ok(Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::settings::read_yaml;

    #[test]
    fn what_is_about_public_samples_is_no_setting_here() {
        let wrong = "{filter-on: scores, samples: 80, labels: class-means}";
        insta::assert_snapshot!(read_yaml::<ClassDistill>(wrong).unwrap_err(), @"
        filter-on: no such setting; known: rounds, warm-up, local, weight, leave-one-out, resample, evaluate-clients
        labels: no such setting; known: rounds, warm-up, local, weight, leave-one-out, resample, evaluate-clients
        samples: no such setting; known: rounds, warm-up, local, weight, leave-one-out, resample, evaluate-clients
        ");
    }

    #[test]
    fn drawing_anew_needs_something_to_draw() {
        let read: ClassDistill = read_yaml("{resample: true}").unwrap();
        assert_eq!(read.conflicts(&|slot| slot == "model").len(), 1);
        assert_eq!(read.conflicts(&|slot| slot == "sampling").len(), 0);
    }
}
