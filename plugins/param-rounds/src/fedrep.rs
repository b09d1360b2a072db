//! FedRep (Collins et al. 2021, algorithm 1): each client fits its own head, then the common body.
use crate::local::Extra;
use crate::personal::Trains;
use crate::rounds::{Family, RoundRule, Rounds, Shared, Start};
use fl_core::prelude::*;

settings! {
    /// FedAvg of the body, which clients train after their own head: first the head alone, by
    /// `head`, then the body alone, by `local` (FedRep, Collins et al. 2021).
    pub struct FedRep {
        /// The training of what a client does not share, its head, in one round. FedRep: 10 epochs.
        head: Training = Training::epochs(10, 32);
    }
}

impl RoundRule for FedRep {
    type State = ();
    const SHARE: &'static [&'static str] = &["body"];
    const TURNS: bool = true;

    fn train(&self, client: &mut Client, start: Start<'_>) -> Result<Params> {
        let head = Extra {
            trains: Trains::Own,
            training: Some(&self.head),
            ..Extra::default()
        };
        start.train(client, head)?;
        let body = Extra {
            trains: Trains::Shared,
            ..Extra::default()
        };
        Ok(start.train(client, body)?.params)
    }

    fn model(&self, slot: SlotSpec) -> SlotSpec {
        self.head.needs(slot)
    }

    fn conflicts(&self, family: Family<'_>, _: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let frozen = Conflict::at("freeze-rest", "must be false: clients train their heads");
        let frozen = frozen.when(family.settings.freeze_rest);
        let moved = Conflict::at(
            "fresh",
            "must be true: clients train two groups by one optimiser, which must not go on from the other",
        );
        let moved = moved.when(!family.settings.fresh);
        let clips = [
            ("local.clip", family.settings.local.clip),
            ("head.clip", self.head.clip),
        ];
        let clips = clips.map(|(at, clip)| {
            let text =
                "would count the gradients of what this training leaves as it is: leave it out";
            Conflict::at(at, text).when(clip.is_some())
        });
        let clips = clips.into_iter().flatten();
        frozen.into_iter().chain(moved).chain(clips).collect()
    }
}
plugin!(protocol "fedrep" => Shared<FedRep> as Rounds<FedRep>, papers: ["Collins et al. 2021"]);
