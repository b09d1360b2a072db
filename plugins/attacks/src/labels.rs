//! Attacks on the labels of training data.
use fl_core::message::Votes;
use fl_core::prelude::*;

settings! {
    /// Two classes.
    pub struct Pair {
        /// Examples of this class ..
        from: u32, in 0..;
        /// .. get the label of this one.
        to: u32, in 0..;
    }
}

choices! {
    /// The mapping of classes.
    pub enum Flip {
        /// Class `c` of `C` becomes `C - 1 - c` (Fang et al. 2020).
        Opposite = "opposite",
        /// Every class becomes the next one, the last the first.
        Next = "next",
        /// One class becomes another (Tolpegin et al. 2020).
        Pair(Pair) = "pair",
    }
}

settings! {
    /// Trains on wrong labels (label flipping; Fang et al. 2020).
    pub struct LabelFlip {
        /// The mapping of classes.
        flip: Flip = Flip::Opposite;
    }
}

impl Aggregator for LabelFlip {
    type In = Votes;
    type Out = Votes;

    fn aggregate(&mut self, _: &Round, inbox: &Inbox<Votes>) -> Result<Votes> {
        let own = inbox.iter().next().context("an inbox is never empty")?;
        let (mut votes, classes) = (own.body.clone(), own.body.classes() as u32);
        if let Flip::Pair(pair) = &self.flip {
            let most = pair.from.max(pair.to);
            ensure!(
                most < classes,
                "flip: there is no class {most}; there are {classes}, from 0"
            );
        }
        votes.labels.mapv_inplace(|c| match &self.flip {
            Flip::Opposite => classes - 1 - c,
            Flip::Next => (c + 1) % classes,
            Flip::Pair(pair) if c == pair.from => pair.to,
            Flip::Pair(_) => c,
        });
        Ok(votes)
    }

    fn claims(&self) -> Properties {
        Properties {
            weight_free: true,
            weight_scale_free: true,
            ..Properties::default()
        }
    }
}
plugin!(attack "label-flip" => LabelFlip,
    papers: ["Fang et al. 2020"]);
