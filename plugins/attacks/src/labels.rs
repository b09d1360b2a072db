//! Attacks on labels: of training data, and of the samples that a client labels for others.
use fl_core::Problem;
use fl_core::message::{SoftLabels, Votes};
use fl_core::prelude::*;
use ndarray::{Array2, Axis};

settings! {
    /// Two classes.
    #[check(Pair::differ)]
    pub struct Pair {
        /// Examples of this class ..
        from: u32, in 0..;
        /// .. get the label of this one.
        to: u32, in 0..;
    }
}

impl Pair {
    fn differ(&self) -> Result<(), String> {
        if self.from == self.to {
            return Err("`from` and `to` are one class, so nothing changes".into());
        }
        Ok(())
    }
}

choices! {
    /// The mapping of classes.
    pub enum Flip {
        /// Class `c` of `C` becomes `C - 1 - c` (Fang et al. 2020). If `C` is odd, the middle class
        /// stays what it is; with `next` every class changes.
        Opposite = "opposite",
        /// Every class becomes the next one, the last the first.
        Next = "next",
        /// One class becomes another (Tolpegin et al. 2020). An attacker without examples of the
        /// first changes nothing.
        Pair(Pair) = "pair",
    }
}

impl Flip {
    /// Returns the class that class `c` of `classes` becomes.
    fn of(&self, c: u32, classes: u32) -> u32 {
        match self {
            Self::Opposite => classes - 1 - c,
            Self::Next => (c + 1) % classes,
            Self::Pair(pair) if c == pair.from => pair.to,
            Self::Pair(_) => c,
        }
    }

    /// Refuses classes that do not exist, and notes one that stays what it is.
    fn check(&self, round: &Round, classes: usize) -> Result<()> {
        match self {
            Self::Pair(pair) => {
                let most = pair.from.max(pair.to);
                let text = format!("flip: there is no class {most}; there are {classes}, from 0");
                ensure!((most as usize) < classes, Problem::Lacks(text));
            }
            Self::Opposite if classes % 2 == 1 => round.note(format!(
                "flip: of {classes} classes the middle one, {}, is its own opposite and stays right; `flip: next` changes every class",
                classes / 2
            )),
            _ => {}
        }
        Ok(())
    }

    /// Moves every class's column to the class that it becomes. The columns of a pair change
    /// places, so every row keeps its numbers.
    fn columns(&self, round: &Round, values: &Array2<f32>) -> Result<Array2<f32>> {
        let classes = values.ncols();
        self.check(round, classes)?;
        let mut from: Vec<usize> = (0..classes).collect();
        match self {
            Self::Pair(pair) => from.swap(pair.from as usize, pair.to as usize),
            _ => (0..classes).for_each(|c| from[self.of(c as u32, classes as u32) as usize] = c),
        }
        Ok(values.select(Axis(1), &from))
    }
}

/// What an attacker would have answered, had it been honest.
fn honest<M: Message>(inbox: &Inbox<M>) -> Result<&M> {
    let own = inbox.iter().next().context("an inbox is never empty")?;
    Ok(&own.body)
}

const CLAIMS: Properties = Properties {
    order_free: false,
    weight_scale_free: true,
    weight_free: true,
    within_hull: false,
    of_mean: false,
};

settings! {
    /// Gives samples labels of other classes (label flipping; Fang et al. 2020).
    pub struct LabelFlip {
        /// The mapping of classes.
        flip: Flip = Flip::Opposite;
    }
}

impl Aggregator for LabelFlip {
    type In = Votes;
    type Out = Votes;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Votes>) -> Result<Votes> {
        let mut votes = honest(inbox)?.clone();
        let classes = votes.classes();
        self.flip.check(round, classes)?;
        votes
            .labels
            .mapv_inplace(|c| self.flip.of(c, classes as u32));
        Ok(votes)
    }

    fn claims(&self) -> Properties {
        CLAIMS
    }
}
plugin!(attack "label-flip" => LabelFlip,
    papers: ["Fang et al. 2020"]);

/// Declares an attack on the numbers that a client gives each class of public samples.
macro_rules! flips_columns {
    ($(#[doc = $doc:literal])+ $name:literal => $attack:ident on $message:ident, $(#[doc = $pair:literal])+) => {
        settings! {
            $(#[doc = $doc])+
            pub struct $attack {
                $(#[doc = $pair])+
                flip: Flip = Flip::Opposite;
            }
        }

        impl Aggregator for $attack {
            type In = $message;
            type Out = $message;

            fn aggregate(&mut self, round: &Round, inbox: &Inbox<$message>) -> Result<$message> {
                let own = honest(inbox)?;
                let values = self.flip.columns(round, &own.values)?;
                Ok($message::new(own.rows.clone(), values))
            }

            fn claims(&self) -> Properties {
                CLAIMS
            }
        }
        plugin!(attack $name => $attack,
            papers: ["Fang et al. 2020"]);
    };
}

flips_columns! {
    /// Answers with the probabilities of wrong classes (label flipping in distillation).
    "soft-label-flip" => SoftLabelFlip on SoftLabels,
    /// The mapping of classes; the probabilities of a pair change places.
}

flips_columns! {
    /// Answers with the scores of wrong classes (label flipping in distillation).
    "score-flip" => ScoreFlip on Logits,
    /// The mapping of classes; the scores of a pair change places.
}
