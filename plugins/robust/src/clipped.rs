//! Means that limit the influence of each client by a radius.
use fl_core::message::alike;
use fl_core::prelude::*;
use fl_core::{ClientMessage, Weigh};

settings! {
    /// The mean of the clients' changes, each shortened to a Euclidean norm (norm bounding; Sun et
    /// al. 2019): a client with a distant answer counts no more than others. Takes one answer at a
    /// time.
    pub struct NormBounding {
        /// The largest norm of a client's change, `answer - sent`.
        bound: f64 = 1.0, in above(0.0);
        /// The weight of a client.
        weigh: Weigh = Weigh::Samples;
    }
}

settings! {
    /// The mean of the clients' answers, each shortened to a radius around an extrapolation of the
    /// last round (centred clipping; Karimireddy et al. 2021). With one pass it takes one answer at
    /// a time, with more it needs all at once.
    pub struct CentredClipping {
        /// The radius.
        radius: f64 = 1.0, in above(0.0);
        /// Number of means, each the centre of the next.
        passes: usize = 1, in 1..=1000;
    }
}

/// `centre + mean over clients of (x - centre) min(1, radius / |x - centre|)`, one answer at a
/// time, in 64 bits.
struct ClippedMean {
    centre: Params,
    radius: f64,
    sums: Vec<f64>,
    total: f64,
    /// Number of answers, and of those that were shortened.
    seen: [usize; 2],
    round: Round,
}

impl ClippedMean {
    fn new(centre: Params, radius: f64, round: &Round) -> Self {
        Self {
            sums: vec![0.0; centre.count()],
            centre,
            radius,
            total: 0.0,
            seen: [0; 2],
            round: round.clone(),
        }
    }

    fn take(&mut self, mail: &ClientMessage<Params>) -> Result<()> {
        alike(&self.centre, &mail.body).context("the message sent and the answer")?;
        let away = |(x, c): (&f32, &f32)| f64::from(*x) - f64::from(*c);
        let both = || mail.body.iter().zip(self.centre.iter());
        let norm = both().map(away).map(|d| d * d).sum::<f64>().sqrt();
        let factor = if norm > self.radius {
            self.radius / norm
        } else {
            1.0
        };
        let (weight, sums) = (mail.weight * factor, &mut self.sums);
        let both = mail.body.iter().zip(self.centre.iter());
        for (sum, d) in sums.iter_mut().zip(both.map(away)) {
            *sum += weight * d;
        }
        self.total += mail.weight;
        self.seen = [self.seen[0] + 1, self.seen[1] + usize::from(factor < 1.0)];
        Ok(())
    }

    fn result(mut self) -> Result<Params> {
        ensure!(self.total > 0.0, "every weight is 0");
        self.round
            .record("shortened", self.seen[1] as f64 / self.seen[0] as f64);
        for (number, sum) in self.centre.0.values_mut().flatten().zip(&self.sums) {
            *number = (f64::from(*number) + sum / self.total) as f32;
        }
        Ok(self.centre)
    }
}

/// Takes one answer at a time; reports an initial error at the first answer.
struct Folding(Result<ClippedMean>);

impl Fold<Params, Params> for Folding {
    fn add(&mut self, mail: ClientMessage<Params>) -> Result<()> {
        match &mut self.0 {
            Ok(mean) => mean.take(&mail),
            Err(error) => bail!("{error:#}"),
        }
    }
    fn finish(self: Box<Self>) -> Result<Params> {
        self.0?.result()
    }
}

fn sent(round: &Round) -> Result<&Params> {
    round
        .sent()
        .context("it measures changes from the parameters sent, and there are none")
}

impl NormBounding {
    fn clipped(&self, round: &Round) -> Result<ClippedMean> {
        Ok(ClippedMean::new(sent(round)?.clone(), self.bound, round))
    }
}

impl Aggregator for NormBounding {
    type In = Params;
    type Out = Params;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let mut mean = self.clipped(round)?;
        inbox.iter().try_for_each(|mail| mean.take(mail))?;
        mean.result()
    }
    fn fold(&self, round: &Round) -> Option<Box<dyn Fold<Params, Params>>> {
        Some(Box::new(Folding(self.clipped(round))))
    }
    fn needs(&self) -> RequiredInputs {
        RequiredInputs {
            sent: true,
            ..self.weigh.needs()
        }
    }
    fn claims(&self) -> Properties {
        Properties::SCALE_FREE
    }
}
plugin!(aggregator "norm-bounding" => NormBounding,
    papers: ["Sun et al. 2019"]);

/// The aggregator of [`CentredClipping`]. Its state is the model's change in the last round.
#[derive(Debug)]
pub struct Clipping {
    settings: CentredClipping,
    last: Option<Params>,
}

impl Clipping {
    /// Clips around the sent model plus the last round's change.
    fn clipped(&self, round: &Round) -> Result<ClippedMean> {
        let mut centre = sent(round)?.clone();
        // a change of another model does not apply
        if let Some(last) = self
            .last
            .as_ref()
            .filter(|last| alike(*last, &centre).is_ok())
        {
            centre.add_scaled(1.0, last)?;
        }
        Ok(ClippedMean::new(centre, self.settings.radius, round))
    }
}

impl Aggregator for Clipping {
    type In = Params;
    type Out = Params;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let mut mean = self.clipped(round)?;
        for pass in 1..=self.settings.passes {
            inbox.iter().try_for_each(|mail| mean.take(mail))?;
            let centre = mean.result()?;
            if pass == self.settings.passes {
                return self.update(round, centre);
            }
            mean = ClippedMean::new(centre, self.settings.radius, round);
        }
        bail!("it takes at least one pass")
    }
    fn fold(&self, round: &Round) -> Option<Box<dyn Fold<Params, Params>>> {
        match self.settings.passes {
            1 => Some(Box::new(Folding(self.clipped(round)))),
            _ => None,
        }
    }
    fn update(&mut self, round: &Round, folded: Params) -> Result<Params> {
        let mut change = folded.zip(sent(round)?, |new, old| new - old)?;
        // a buffer is not extrapolated
        change
            .named_mut(round.buffers())
            .for_each(|tensor| tensor.fill(0.0));
        self.last = Some(change);
        Ok(folded)
    }
    fn needs(&self) -> RequiredInputs {
        RequiredInputs::SENT
    }
    fn claims(&self) -> Properties {
        Properties::SCALE_FREE
    }
    fn save(&self) -> Vec<u8> {
        self.last
            .as_ref()
            .map(|centre| fl_core::message::encode(centre))
            .unwrap_or_default()
    }
    fn load(&mut self, state: &[u8]) -> Result<()> {
        self.last = match state {
            [] => None,
            state => Some(fl_core::message::decode(state)?),
        };
        Ok(())
    }
}
plugin!(aggregator "centred-clipping" => CentredClipping as Clipping { last },
    papers: ["Karimireddy et al. 2021"]);
