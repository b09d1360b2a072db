//! What made-up messages have in common.

use crate::Draws;

/// A multiple of however many forms a message may have, so that each form comes equally often.
const FORMS: usize = 60;

/// What the answers to one question have in common, for [`Message::sample`](super::Message::sample): which samples they
/// are about, how many classes and voters there are. What a message does not ask for is not drawn.
pub struct SampleShape<'a> {
    /// Where everything is drawn from.
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
    /// For the answers of so many clients, with scores and parameters from `number`.
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

    /// With these samples for everybody, and so many classes and voters.
    pub fn fixed(mut self, rows: &[u32], classes: usize, voters: usize) -> Self {
        self.spoken = Some(vec![rows.to_vec(); self.clients]);
        (self.classes, self.voters, self.variant) = (Some(classes), Some(voters), Some(0));
        self
    }

    /// With classes, voters and form from `draws`, so that the messages of several rounds are alike in them.
    pub fn shaped(mut self, draws: &mut Draws) -> Self {
        self.classes = Some(1 + draws.below(5));
        self.voters = Some(1 + draws.below(3));
        self.variant = Some(draws.below(FORMS));
        self
    }

    /// Goes on with client `k`, who comes as number `k` and not by id.
    pub fn client(&mut self, k: usize) {
        self.client = k.min(self.clients.saturating_sub(1));
    }

    /// A parameter or a score.
    pub fn number(&mut self) -> f32 {
        (self.number)(self.draws)
    }

    /// The samples that this client speaks about: ascending ids below 40, for most questions not all that were asked
    /// about, for some none.
    pub fn rows(&mut self) -> Vec<u32> {
        let (clients, draws) = (self.clients, &mut *self.draws);
        let spoken = self.spoken.get_or_insert_with(|| spoken(clients, draws));
        spoken.get(self.client).cloned().unwrap_or_default()
    }

    /// How many classes there are: 1 to 5.
    pub fn classes(&mut self) -> usize {
        let draws = &mut *self.draws;
        *self.classes.get_or_insert_with(|| 1 + draws.below(5))
    }

    /// How many voters each client has: 1 to 3.
    pub fn voters(&mut self) -> usize {
        let draws = &mut *self.draws;
        *self.voters.get_or_insert_with(|| 1 + draws.below(3))
    }

    /// Which of `n` forms the messages of this question have.
    pub fn variant(&mut self, n: usize) -> usize {
        let draws = &mut *self.draws;
        self.variant
            .get_or_insert_with(|| draws.below(FORMS))
            .checked_rem(n)
            .unwrap_or(0)
    }
}

/// The samples that a question is about, and which of them each client speaks about: all, or, in most cases, some.
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
