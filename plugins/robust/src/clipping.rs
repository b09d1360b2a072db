//! Steps before an aggregator: shorter updates.
use fl_core::message::{ParamsList, alike};
use fl_core::prelude::*;

settings! {
    /// Shortens each client's update, `answer - sent`, to a Euclidean norm (static clipping, which
    /// Allouah et al. 2024 compare with ARC).
    pub struct UpdateClipping {
        /// The largest norm of an update.
        radius: f64 = 1.0, in above(0.0);
    }
}

settings! {
    /// Shortens the `k = floor(2 f / n (n - f))` longest updates, `answer - sent`, to the norm of
    /// the next one (adaptive robust clipping, ARC; Allouah et al. 2024). Needs `n >= 2 f + 1`.
    pub struct AdaptiveClipping {
        /// Share of the clients that may be bad: `f = floor(byzantine-share * n)`.
        byzantine_share: f64 = 0.2, in 0.0..0.5;
    }
}

/// Returns the answers with updates of at most the norm that `radius` chooses from their norms,
/// longest first.
fn clipped(
    round: &Round,
    inbox: &Inbox<Params>,
    radius: impl Fn(&[f64]) -> f64,
) -> Result<ParamsList> {
    let sent: &Params = round
        .sent()
        .context("it shortens changes of the parameters sent, and there are none")?;
    let norm = |answer: &Params| {
        let both = answer.iter().zip(sent.iter());
        let squares = both.map(|(x, s)| (f64::from(*x) - f64::from(*s)).powi(2));
        squares.sum::<f64>().sqrt()
    };
    let mut norms = Vec::with_capacity(inbox.len());
    for mail in inbox.iter() {
        alike(sent, &mail.body).context("the message sent and the answer")?;
        norms.push(norm(&mail.body));
    }
    let mut longest = norms.clone();
    longest.sort_by(|a, b| b.total_cmp(a));
    let radius = radius(&longest);
    let long = norms.iter().filter(|norm| **norm > radius).count();
    round.record("shortened", long as f64 / norms.len() as f64);
    let shorter = |(mail, norm): (&fl_core::ClientMessage<Params>, &f64)| {
        let body = if *norm > radius {
            mail.body.zip(sent, |x, s| {
                let (x, s) = (f64::from(x), f64::from(s));
                (s + (x - s) * (radius / norm)) as f32
            })?
        } else {
            mail.body.clone()
        };
        Ok((mail.weight, body))
    };
    let all: Result<Vec<_>> = inbox.iter().zip(&norms).map(shorter).collect();
    ParamsList::new(all?)
}

impl Aggregator for UpdateClipping {
    type In = Params;
    type Out = ParamsList;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<ParamsList> {
        clipped(round, inbox, |_| self.radius)
    }
    fn needs(&self) -> RequiredInputs {
        RequiredInputs::SENT
    }
}
plugin!(aggregator "update-clipping" => UpdateClipping, papers: ["Allouah et al. 2024"]);

impl Aggregator for AdaptiveClipping {
    type In = Params;
    type Out = ParamsList;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<ParamsList> {
        let n = inbox.len();
        let f = floor_share(self.byzantine_share, n);
        // below n, as f is less than half of it
        let k = 2 * f * (n - f) / n;
        clipped(round, inbox, |longest| longest[k])
    }
    fn needs(&self) -> RequiredInputs {
        RequiredInputs::SENT
    }
    fn robustness(&self) -> Option<Robustness> {
        (self.byzantine_share > 0.0).then(|| Robustness::of_share(self.byzantine_share, 2, 1))
    }
}
plugin!(aggregator "adaptive-clipping" => AdaptiveClipping, aliases: ["arc"],
    papers: ["Allouah et al. 2024"]);
