#![doc = include_str!("../README.md")]

use fl_core::TaskKind;
use fl_core::prelude::*;

settings! {
    /// Every client trains alone; nothing is exchanged (Standalone, SOLO). The result is the mean and deviation over clients.
    pub struct Solo {
        /// Each client's training.
        local: Training = Training::epochs(10, 32);
    }
}

settings! {
    /// One model on everybody's data in one place: what a federation gives up.
    pub struct Centralised {
        /// The training.
        local: Training = Training::epochs(10, 32);
    }
}

const TRAIN: Ask<Nothing, Nothing> = Ask::new("training");

fn lead(fed: &mut Federation<'_>) -> Result<()> {
    fed.once("training", &mut (), |fed, (), round| {
        let all = fed.everyone();
        fed.ask(round, &TRAIN, &all, |_| &Nothing)?;
        fed.evaluate_clients(round, "model")
    })
}

fn answer(local: &Training, me: &mut Client, question: Question<'_>) -> Result<Answer> {
    let train = |me: &mut Client, _: &Nothing| {
        me.fit_own("model", &local.pass(me.task().kind.loss()))
            .map(|_| Nothing)
    };
    question.on(&TRAIN, me, train).end()
}

macro_rules! trains_alone {
    ($name:literal, $t:ty, $pools:literal) => {
        impl Protocol for $t {
            fn slots(&self) -> Vec<Slot> {
                vec![Slot::trainer("model", "The model.").lasting()]
            }
            fn questions(&self) -> Vec<Asked> {
                vec![TRAIN.asked()]
            }
            fn lead(&self, fed: &mut Federation<'_>) -> Result<()> {
                lead(fed)
            }
            fn answer(&self, me: &mut Client, question: Question<'_>) -> Result<Answer> {
                answer(&self.local, me, question)
            }
            fn pools_data(&self) -> bool {
                $pools
            }
            fn suits(&self, _: TaskKind, _: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
                Ok(())
            }
        }
        plugin!(protocol $name => $t);
    };
}
trains_alone!("solo", Solo, false);
trains_alone!("centralised", Centralised, true);

settings! {
    /// The server trains on the labelled public data; no client is asked anything.
    pub struct PublicOnly {
        /// The training.
        training: Training = Training::epochs(10, 32);
    }
}

impl Protocol for PublicOnly {
    fn suits(&self, _: TaskKind, _: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
        Ok(())
    }
    fn slots(&self) -> Vec<Slot> {
        vec![Slot::trainer("model", "The model.").at_server()]
    }
    fn conflicts(&self, has: &dyn Fn(&str) -> bool) -> Vec<String> {
        let lacks = !has("data.public.labelled");
        let text =
            "the server learns from labelled public samples: set `data.public.labelled: true`";
        lacks.then(|| text.to_string()).into_iter().collect()
    }
    fn questions(&self) -> Vec<Asked> {
        Vec::new()
    }
    fn lead(&self, fed: &mut Federation<'_>) -> Result<()> {
        fed.once("training", &mut (), |fed, (), round| {
            let public = fed.public()?;
            fed.fit_examples(
                "model",
                &round.stream,
                public.examples()?,
                &self.training.pass(fed.task().kind.loss()),
            )?;
            fed.evaluate(round, "model")
        })?;
        fed.keep_model("model")
    }
    fn answer(&self, _: &mut Client, question: Question<'_>) -> Result<Answer> {
        question.end()
    }
}
plugin!(protocol "public-only" => PublicOnly);
