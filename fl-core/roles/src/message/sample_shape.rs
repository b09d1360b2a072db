//! [`SampleShape`]: the common properties of sample messages.

use crate::Draws;

/// A multiple of every number of forms that a message may have, so that each form is equally
/// likely.
const FORMS: usize = 60;

/// The common properties of the answers to one request, for
/// [`Message::sample`](super::Message::sample): the samples, classes and voters. Properties that a
/// message does not use are not drawn.
pub struct SampleShape<'a> {
    /// The source of all draws.
    pub draws: &'a mut Draws,
    number: &'a dyn Fn(&mut Draws) -> f32,
    clients: usize,
    client: usize,
    spoken: Option<Vec<Vec<u32>>>,
    classes: Option<usize>,
    voters: Option<usize>,
    variant: Option<usize>,
}

impl<'a> SampleShape<'a> {
    /// Makes the properties of the answers of `clients` clients, with scores and parameters from
    /// `number`.
    pub fn new(
        clients: usize,
        number: &'a dyn Fn(&mut Draws) -> f32,
        draws: &'a mut Draws,
    ) -> Self {
        Self {
            draws,
            number,
            clients,
            client: 0,
            spoken: None,
            classes: None,
            voters: None,
            variant: None,
        }
    }

    /// Fixes the samples of all clients, the classes and the voters.
    pub fn fixed(mut self, rows: &[u32], classes: usize, voters: usize) -> Self {
        self.spoken = Some(vec![rows.to_vec(); self.clients]);
        (self.classes, self.voters, self.variant) = (Some(classes), Some(voters), Some(0));
        self
    }

    /// Draws classes, voters and form from `draws`, so that the messages of several rounds share
    /// them.
    pub fn shaped(mut self, draws: &mut Draws) -> Self {
        self.classes = Some(1 + draws.below(5));
        self.voters = Some(1 + draws.below(3));
        self.variant = Some(draws.below(FORMS));
        self
    }

    /// Continues with client `k`, by its position and not its id.
    pub fn client(&mut self, k: usize) {
        self.client = k.min(self.clients.saturating_sub(1));
    }

    /// Returns a parameter or a score.
    pub fn number(&mut self) -> f32 {
        (self.number)(self.draws)
    }

    /// Returns this client's samples: ascending ids below 40. For most requests they are a part of
    /// the requested samples, possibly empty.
    pub fn rows(&mut self) -> Vec<u32> {
        let (clients, draws) = (self.clients, &mut *self.draws);
        let spoken = self.spoken.get_or_insert_with(|| spoken(clients, draws));
        spoken.get(self.client).cloned().unwrap_or_default()
    }

    /// Returns the number of classes: 1 to 5.
    pub fn classes(&mut self) -> usize {
        let draws = &mut *self.draws;
        *self.classes.get_or_insert_with(|| 1 + draws.below(5))
    }

    /// Returns the number of voters of each client: 1 to 3.
    pub fn voters(&mut self) -> usize {
        let draws = &mut *self.draws;
        *self.voters.get_or_insert_with(|| 1 + draws.below(3))
    }

    /// Returns which of `n` forms the messages of this request have.
    pub fn variant(&mut self, n: usize) -> usize {
        let draws = &mut *self.draws;
        self.variant
            .get_or_insert_with(|| draws.below(FORMS))
            .checked_rem(n)
            .unwrap_or(0)
    }
}

/// Draws the samples of a request, and those that each client answers for: all or, in most cases,
/// some.
fn spoken(clients: usize, draws: &mut Draws) -> Vec<Vec<u32>> {
    let (n, ragged) = (1 + draws.below(12), draws.below(3) > 0);
    let asked: Vec<u32> = draws
        .choose(40, n)
        .into_iter()
        .map(|id| id as u32)
        .collect();
    let mut some = || {
        let spoken = asked.iter().filter(|_| !ragged || draws.below(5) < 3);
        spoken.copied().collect()
    };
    (0..clients).map(|_| some()).collect()
}
