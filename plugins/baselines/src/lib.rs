#![doc = include_str!("../README.md")]

use fl_core::prelude::*;
use fl_core::settings::Joined;
use fl_core::{InitialModel, TaskKind};

settings! {
    /// The settings of a training without exchanges.
    pub struct AloneSettings {
        /// The training of each client, or of the one that has all data.
        local: Training = Training::epochs(10, 32);
        /// Keep the clients' models as results of the run.
        keep_clients: bool = false;
        /// Start from a model that another run kept: a path from the working directory, such as
        /// `runs/fedavg-1/models/model`. The server sends it to the clients.
        initial: Option<String> = None;
        /// Whether that model was trained without private data. Otherwise a run that starts from it
        /// has no guarantee.
        initial_is_public: bool = false;
        /// Start from the server's model: in a later stage of a run that of the stage before
        /// (fine-tuning), and otherwise a random one that all clients have in common.
        from_server: bool = false;
    }
}

settings! {
    /// Every client trains alone; nothing is exchanged (Standalone, SOLO). The result is the mean
    /// and deviation over clients.
    pub struct Solo {}
}

settings! {
    /// One model on all clients' data in one place: the result that a federation is compared with.
    /// It is kept as that of client 0.
    pub struct Centralised {}
}

const MODEL: TrainerSlot = TrainerSlot::new("model", "The model.");
const BEGIN: Exchange<Params, Nothing> = Exchange::new("first model");
const TRAIN: Exchange<Nothing, Nothing> = Exchange::new("training");

/// Who has the data.
trait Holder: Send + Sync {
    /// Whether one client has the data of all.
    const POOLS: bool;
}

impl Holder for Solo {
    const POOLS: bool = false;
}

impl Holder for Centralised {
    const POOLS: bool = true;
}

/// Training without exchanges.
struct Alone<H>(Joined<AloneSettings, H>);

impl<H> From<Joined<AloneSettings, H>> for Alone<H> {
    fn from(settings: Joined<AloneSettings, H>) -> Self {
        Self(settings)
    }
}

impl<H> Alone<H> {
    fn initial(&self) -> Option<InitialModel> {
        InitialModel::of(MODEL.name(), "initial", &self.0.shared.initial)
    }

    /// Does the server send the first model?
    fn is_sent(&self) -> bool {
        self.0.shared.from_server || self.0.shared.initial.is_some()
    }
}

impl<H: Holder> Protocol for Alone<H> {
    fn declare(&self) -> Declaration<'_> {
        let local = &self.0.shared.local;
        let model = MODEL.spec().lasting().published_if(true);
        let model = model.trained_by("local", local, (false, 1));
        let model = if self.is_sent() {
            model.shared_parameters().at_server()
        } else {
            model
        };
        let begin = || {
            BEGIN.answered_by(|client, first| {
                client.parametric(&MODEL)?.set_params(first)?;
                Ok(Nothing)
            })
        };
        let train = TRAIN.answered_by(|client, _| {
            let pass = local.pass(client.task().kind.loss());
            client.fit_own(&MODEL, &pass).map(|_| Nothing)
        });
        let all = Declaration::new()
            .loads(self.initial(), self.0.shared.initial_is_public)
            .slot(model)
            .exchange_if(self.is_sent(), begin)
            .exchange(train)
            .measures([Measurement::clients(&MODEL)]);
        if H::POOLS { all.pools_data() } else { all }
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        if self.is_sent() {
            server.once("first model", &mut (), |server, (), round| {
                if let Some(initial) = self.initial() {
                    initial.load(server)?;
                }
                let first = server.parametric(&MODEL)?.params();
                server.collect(round, &BEGIN, |_| &first).map(drop)
            })?;
        }
        server.once("training", &mut (), |server, (), round| {
            server.collect(round, &TRAIN, |_| &Nothing)?;
            server.evaluate_clients(round, &MODEL)
        })?;
        if self.0.shared.keep_clients {
            server.keep_clients(&MODEL)
        } else {
            Ok(())
        }
    }

    fn conflicts(&self, _: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let settings = &self.0.shared;
        let initial = self.initial();
        let initial = InitialModel::conflict(initial.as_ref(), settings.initial_is_public);
        let two = Conflict::at(
            "from-server",
            "does not go with `initial`, which the server sends anyway: leave one of them out",
        );
        let two = two.when(settings.from_server && settings.initial.is_some());
        [initial, two].into_iter().flatten().collect()
    }

    fn suits(&self, _: TaskKind, _: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
        Ok(())
    }
}

plugin!(protocol "solo" => Joined<AloneSettings, Solo> as Alone<Solo>);
plugin!(protocol "centralised" => Joined<AloneSettings, Centralised> as Alone<Centralised>);

settings! {
    /// The server trains on the labelled public data; clients get no requests.
    pub struct PublicOnly {
        /// The training.
        training: Training = Training::epochs(10, 32);
    }
}

impl Protocol for PublicOnly {
    fn suits(&self, _: TaskKind, _: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
        Ok(())
    }
    fn declare(&self) -> Declaration<'_> {
        Declaration::new()
            .slot(self.training.needs(MODEL.spec().at_server()))
            .measures([Measurement::server(&MODEL)])
    }
    fn conflicts(&self, has: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let text =
            "the server learns from labelled public samples: set `data.public.labelled: true`";
        let lacks = Conflict::between(text).when(!has("data.public.labelled"));
        lacks.into_iter().collect()
    }
    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        server.once("training", &mut (), |server, (), round| {
            let public = server.public()?;
            server.fit_examples(
                &MODEL,
                &round.stream,
                public.examples()?,
                &self.training.pass(server.task().kind.loss()),
            )?;
            server.evaluate(round, &MODEL)
        })?;
        server.keep_model(&MODEL)
    }
}
plugin!(protocol "public-only" => PublicOnly);

fl_core::export_plugins!();
