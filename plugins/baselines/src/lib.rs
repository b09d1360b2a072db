#![doc = include_str!("../README.md")]

use fl_core::TaskKind;
use fl_core::prelude::*;

settings! {
    /// Every client trains alone; nothing is exchanged (Standalone, SOLO). The result is the mean
    /// and deviation over clients.
    pub struct Solo {
        /// Each client's training.
        local: Training = Training::epochs(10, 32);
        /// Keep the clients' models as results of the run.
        keep_clients: bool = false;
    }
}

settings! {
    /// One model on all clients' data in one place: the result that a federation is compared with.
    pub struct Centralised {
        /// The training.
        local: Training = Training::epochs(10, 32);
        /// Keep the model as a result of the run, as that of client 0.
        keep_clients: bool = false;
    }
}

const MODEL: TrainerSlot = TrainerSlot::new("model", "The model.");
const TRAIN: Exchange<Nothing, Nothing> = Exchange::new("training");

fn lead(server: &mut Server<'_>, keep_clients: bool) -> Result<()> {
    server.once("training", &mut (), |server, (), round| {
        server.collect(round, &TRAIN, |_| &Nothing)?;
        server.evaluate_clients(round, &MODEL)
    })?;
    match keep_clients {
        true => server.keep_clients(&MODEL),
        false => Ok(()),
    }
}

fn declare(local: &Training) -> Declaration<'_> {
    let train = TRAIN.answered_by(|client, _| {
        let pass = local.pass(client.task().kind.loss());
        client.fit_own(&MODEL, &pass).map(|_| Nothing)
    });
    Declaration::new()
        .slot(
            MODEL
                .spec()
                .lasting()
                .trained_by("local", local, (false, 1)),
        )
        .exchange(train)
        .measures([Measurement::clients(&MODEL)])
}

macro_rules! trains_alone {
    ($name:literal, $t:ty $(, $pools:ident)?) => {
        impl Protocol for $t {
            fn declare(&self) -> Declaration<'_> {
                declare(&self.local)$(.$pools())?
            }
            fn lead(&self, server: &mut Server<'_>) -> Result<()> {
                lead(server, self.keep_clients)
            }
            fn suits(&self, _: TaskKind, _: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
                Ok(())
            }
        }
        plugin!(protocol $name => $t);
    };
}
trains_alone!("solo", Solo);
trains_alone!("centralised", Centralised, pools_data);

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
            .slot(MODEL.spec().at_server())
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
