//! Models of the clients' own: what clients share of the model and what stays with them, the first
//! model that they begin with, and fine-tuning after the last round.
use crate::family::Family;
use crate::learnt::learnt;
use crate::slots::MODEL;
use fl_core::prelude::*;
use fl_core::{Parametric, parameters_in};
use fl_plugin_dp_sgd as dp_sgd;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// The model that clients begin with, if they keep one of their own.
const BEGIN: Exchange<Params, Nothing> = Exchange::new("first model");

/// Fine-tuning of the last model.
const TUNE: Exchange<Params, Nothing> = Exchange::new("fine-tuning");

/// The parameters that a training changes.
#[derive(Clone, Copy, Default)]
pub(crate) enum Trains {
    /// All, or with `freeze-rest` those that are shared.
    #[default]
    Usual,
    /// Those that are not shared.
    Own,
    /// Those that are shared.
    Shared,
}

/// Declares that clients get the first model.
pub(crate) fn begin<'p>() -> Declared<'p, Params, Nothing> {
    BEGIN.answered_by(|client, first| {
        client.parametric(&MODEL)?.set_params(first)?;
        Ok(Nothing)
    })
}

impl<'p> Family<'p> {
    /// Returns whether clients keep their model from one round to the next.
    pub(crate) fn begins(self) -> bool {
        self.personal || !self.share.is_empty()
    }

    /// Returns whether clients keep a model of their own, which is measured.
    pub(crate) fn keeps(self) -> bool {
        self.begins() || self.settings.tune.is_some()
    }

    /// Returns what is shared of these parameters of `model`.
    pub(crate) fn part_of(self, model: &dyn Parametric, whole: Params) -> Result<Params> {
        match self.share {
            [] => Ok(whole),
            groups => Ok(whole.only(&parameters_in(groups, model)?)),
        }
    }

    /// Returns what a model shares.
    pub(crate) fn shared(self, model: &dyn Parametric) -> Result<Params> {
        self.part_of(model, model.params())
    }

    /// Gives a model the parameters that were sent; it keeps the others. Returns all.
    pub(crate) fn install<'a>(
        self,
        model: &mut dyn Parametric,
        sent: &'a Params,
    ) -> Result<Cow<'a, Params>> {
        let whole = match self.share {
            [] => Cow::Borrowed(sent),
            _ => Cow::Owned(model.params().with(sent)?),
        };
        model.set_params(&whole)?;
        Ok(whole)
    }

    /// Returns the parameters that a training leaves as they are; `None` if it changes all.
    pub(crate) fn frozen(
        self,
        model: &dyn Parametric,
        trains: Trains,
    ) -> Result<Option<BTreeSet<String>>> {
        let own = match trains {
            Trains::Usual if !self.settings.freeze_rest => return Ok(None),
            Trains::Own => return parameters_in(self.share, model).map(Some),
            Trains::Usual | Trains::Shared => parameters_in(self.share, model)?,
        };
        let all = model.params().0.into_keys();
        Ok(Some(all.filter(|name| !own.contains(name)).collect()))
    }

    /// Returns the mean loss of the model that was sent on the client's own examples. The client's
    /// model stays as it is.
    pub(crate) fn own_loss(self, client: &mut Client, sent: &Params) -> Result<Scalar> {
        let loss = client.with_params(&MODEL, sent, |client| client.own_loss(&MODEL))?;
        Ok(Scalar::new(loss as f32))
    }

    /// Sends the server's first model to all clients.
    pub(crate) fn send_first(self, server: &mut Server<'_>, round: &Round) -> Result<()> {
        let first = server.parametric(&MODEL)?.params();
        server.collect(round, &BEGIN, |_| &first).map(drop)
    }

    /// Declares fine-tuning.
    pub(crate) fn tunes(self) -> Declared<'p, Params, Nothing> {
        let tune = TUNE.answered_by(move |client, last| {
            self.install(client.parametric(&MODEL)?, last)?;
            let Some(training) = &self.settings.tune else {
                return Ok(Nothing);
            };
            let pass = FitOptions {
                fresh: self.settings.fresh,
                ..training.pass(client.task().kind.loss())
            };
            let examples = learnt(client)?;
            client.fit_examples(&MODEL, &examples, &pass)?;
            Ok(Nothing)
        });
        tune.shares(self.share)
    }

    /// Lets all clients fine-tune the last model, and measures theirs.
    pub(crate) fn tune(self, server: &mut Server<'_>, round: &Round, last: &Params) -> Result<()> {
        server.collect(round, &TUNE, |_| last)?;
        server.evaluate_clients(round, &MODEL)
    }

    /// Measures the server's model, and those of the clients.
    pub(crate) fn evaluate(
        self,
        server: &mut Server<'_>,
        round: &Round,
        shared: &Params,
    ) -> Result<()> {
        if !self.share.is_empty() {
            return server.evaluate_clients_with(round, &MODEL, shared);
        }
        server.evaluate(round, &MODEL)?;
        if self.personal {
            server.evaluate_clients(round, &MODEL)
        } else {
            Ok(())
        }
    }

    /// Returns the conflict of several trainings in a round with what a client keeps of each.
    pub(crate) fn one_training(self) -> Option<Conflict> {
        Conflict::at(
            "attacker-trainings",
            "would train what a client keeps several times in a round: leave it at 1",
        )
        .when(self.settings.attacker_trainings > 1)
    }

    /// Returns the conflicts of these settings. `whole`: the method needs whole models.
    pub(crate) fn misfits(
        self,
        whole: bool,
        has: &dyn Fn(&str) -> bool,
    ) -> impl Iterator<Item = Conflict> + use<> {
        let settings = self.settings;
        let (shares, keeps) = (!self.share.is_empty(), self.begins());
        let whole = Conflict::at(
            "share",
            "leaves parameters at the clients, and the server of this method uses their whole models: leave it out, or use `fedavg`",
        )
        .when(shares && whole);
        let twice = Conflict::at(
            "share",
            "has no use here: each client of this method has a whole model of its own; leave it out, or use `fedavg`",
        )
        .when(shares && self.personal);
        let steps = Conflict::between(
            "`example-privacy` clips the gradients of the whole model, and clients share only a part of it (`share`): leave one out, or use `parts.privacy`",
        )
        .when(shares && has(&dp_sgd::SLOT));
        let looks = self.one_training().filter(|_| keeps);
        let idle = Conflict::at(
            "freeze-rest",
            "has no effect without `share`: leave it out, or say what clients share",
        )
        .when(settings.freeze_rest && !shares);
        let moved = Conflict::at(
            "fresh",
            "must be true: clients train two models by one optimiser, which must not go on from the other",
        )
        .when(self.personal && !settings.fresh);
        let thawed = Conflict::at(
            "fresh",
            "must be true: `tune` trains what `freeze-rest` kept as it is by the same optimiser, which must not go on from that",
        )
        .when(settings.freeze_rest && shares && settings.tune.is_some() && !settings.fresh);
        let none = Conflict::at(
            "keep-clients",
            "has no effect: clients keep no model of their own; leave it out, or set `share` or `tune`",
        )
        .when(settings.keep_clients && !self.keeps());
        let clip = Conflict::no_effect("local.clip", "on the plain steps of this method")
            .when(self.by_gradients && settings.local.clip.is_some());
        let frozen = Conflict::at(
            "local.clip",
            "would count the gradients of what `freeze-rest` keeps as it is: leave it out",
        )
        .when(settings.freeze_rest && shares && settings.local.clip.is_some());
        [
            whole, twice, steps, looks, idle, moved, thawed, none, clip, frozen,
        ]
        .into_iter()
        .flatten()
    }
}
