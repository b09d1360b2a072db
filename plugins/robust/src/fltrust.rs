//! A mean weighted by the agreement of clients with a trusted client.
use fl_core::ClientMessage;
use fl_core::message::alike;
use fl_core::prelude::*;

settings! {
    /// The mean of the clients' changes, each scaled to the length of a trusted client's and
    /// weighted by its cosine with it, if above 0 (FLTrust; Cao et al. 2021). The trusted client
    /// stands for the server: its examples are those that the server collected itself, and its
    /// change only serves for comparison. Robust to any number of bad clients; needs all answers at
    /// once.
    pub struct Fltrust {
        /// The trusted client. Without its answer the model stays as it was, so it should take part
        /// in every round.
        trusted: usize = 0, in 0..=4_294_967_295;
    }
}

/// Returns the change by a client's training.
fn change(of: &Params, sent: &Params) -> Result<Params> {
    alike(sent, of).context("the message sent and the answer")?;
    of.zip(sent, |after, before| after - before)
}

fn dot(a: &Params, b: &Params) -> f64 {
    let both = a.iter().zip(b.iter());
    both.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

impl Aggregator for Fltrust {
    type In = Params;
    type Out = Params;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let sent = round.sent();
        let sent: &Params =
            sent.context("it compares changes from the parameters sent, and there are none")?;
        let is_trusted = |mail: &&ClientMessage<Params>| mail.from as usize == self.trusted;
        let Some(trusted) = inbox.iter().find(is_trusted) else {
            round.note(format!(
                "the trusted client {} did not answer: the model stays unchanged",
                self.trusted
            ));
            return Ok(sent.clone());
        };
        let trusted = change(&trusted.body, sent)?;
        let (norm, mut sum, mut total, mut unlike) = (trusted.norm(), sent.zeros_like(), 0.0, 0.0);
        for mail in inbox.iter().filter(|mail| !is_trusted(mail)) {
            let mut change = change(&mail.body, sent)?;
            let product = dot(&change, &trusted);
            if product <= 0.0 {
                unlike += 1.0;
                continue;
            }
            let length = change.norm();
            let score = product / (length * norm);
            if length < norm {
                // a buffer is not extrapolated
                let back = |x: f32| (f64::from(x) * length / norm) as f32;
                let buffers = change.named_mut(round.buffers());
                buffers.for_each(|tensor| tensor.mapv_inplace(back));
            }
            sum.add_scaled(score * norm / length, &change)?;
            total += score;
        }
        round.record("distrusted", unlike / (inbox.len() as f64 - 1.0).max(1.0));
        let mut next = sent.clone();
        if total > 0.0 {
            next.add_scaled(1.0 / total, &sum)?;
        }
        Ok(next)
    }

    fn needs(&self) -> RequiredInputs {
        RequiredInputs::SENT
    }
    fn robustness(&self) -> Option<Robustness> {
        Some(Robustness {
            relies_on: ClientId::try_from(self.trusted).ok(),
            ..Robustness::at_least(2)
        })
    }
    fn claims(&self) -> Properties {
        Properties {
            weight_scale_free: true,
            ..Properties::default()
        }
    }
}
plugin!(aggregator "fltrust" => Fltrust,
    papers: ["Cao et al. 2021"]);
