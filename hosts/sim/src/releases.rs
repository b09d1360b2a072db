//! [`Releases`]: everything that a run releases, each kind of release with its number.

use fl_core::privacy::{Observer, Protections};
use fl_core::{ClientId, PrivacyEvent};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Equal releases, and their number.
pub type Counted = Vec<(u64, PrivacyEvent)>;

/// The releases of some clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientReleases {
    /// The clients, as ranges of first and last id. Each of them has made all of these releases.
    pub clients: Vec<(ClientId, ClientId)>,
    /// The releases of one of them.
    pub events: Counted,
}

impl ClientReleases {
    fn has(&self, id: ClientId) -> bool {
        self.clients.iter().any(|(a, b)| (*a..=*b).contains(&id))
    }
}

/// The releases of a run, at the server and at its clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Releases {
    /// Those of the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server: Counted,
    /// Those of clients; a client is in one group at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientReleases>,
}

impl Releases {
    /// Collects the releases of a run.
    pub fn of(server: &[PrivacyEvent], clients: &BTreeMap<ClientId, Vec<PrivacyEvent>>) -> Self {
        let mut groups: BTreeMap<String, ClientReleases> = BTreeMap::new();
        for (id, events) in clients.iter().filter(|(_, events)| !events.is_empty()) {
            let events = counted(events);
            let key = format!("{events:?}");
            let group = groups.entry(key).or_insert_with(|| ClientReleases {
                clients: Vec::new(),
                events,
            });
            match group.clients.last_mut() {
                Some((_, last)) if *last + 1 == *id => *last = *id,
                _ => group.clients.push((*id, *id)),
            }
        }
        Self {
            server: counted(server),
            clients: groups.into_values().collect(),
        }
    }

    /// Returns the releases that the results of a run may show: those with a guarantee that does
    /// not depend on the data. With `alike`, each client counts with the most that any of them
    /// released: a run that draws clients does not tell who was drawn, and a row of a run that
    /// pools the rows of all clients has no other client.
    pub fn shown(
        alike: bool,
        server: &[PrivacyEvent],
        clients: &BTreeMap<ClientId, Vec<PrivacyEvent>>,
        privacy: &Protections,
    ) -> Option<Self> {
        let holds = |observer| {
            privacy
                .get(&observer)
                .is_some_and(|p| p.guarantee().is_some())
        };
        let [by_clients, others @ ..] = Observer::ALL.map(holds);
        let by_server = others.contains(&true);
        if !by_clients && !by_server {
            return None;
        }
        let mut shown = Self::of(if by_server { server } else { &[] }, clients);
        if alike && !shown.clients.is_empty() {
            shown.clients = vec![ClientReleases {
                clients: vec![(0, ClientId::MAX)],
                events: shown.of_any_client(),
            }];
        }
        Some(shown)
    }

    /// Returns the releases of one client.
    pub fn of_client(&self, id: ClientId) -> &[(u64, PrivacyEvent)] {
        let group = self.clients.iter().find(|group| group.has(id));
        group.map_or(&[], |group| &group.events)
    }

    /// Returns one client of each group of clients that these runs do not tell apart.
    pub fn representatives<'a>(runs: impl Iterator<Item = &'a Self>) -> BTreeSet<ClientId> {
        let groups = runs.flat_map(|run| &run.clients);
        let ranges = groups.flat_map(|group| &group.clients);
        // all clients from one start or end to the next are alike
        ranges
            .flat_map(|(first, last)| [Some(*first), last.checked_add(1)])
            .flatten()
            .collect()
    }

    /// Returns at least the releases of any one client: of each kind the largest number.
    pub fn of_any_client(&self) -> Counted {
        let mut most = Counted::new();
        for (times, event) in self.clients.iter().flat_map(|group| &group.events) {
            match most.iter_mut().find(|(_, known)| known == event) {
                Some((n, _)) => *n = (*n).max(*times),
                None => most.push((*times, event.clone())),
            }
        }
        most
    }
}

/// Counts equal releases. The counts of votes are left out: they are private, and a price that
/// follows them is no guarantee.
pub fn counted(events: &[PrivacyEvent]) -> Counted {
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let mut all = Counted::new();
    for event in events {
        let (times, event) = match event {
            PrivacyEvent::Repeated { times, event } => (*times as u64, &**event),
            event => (1, event),
        };
        let event = match event {
            PrivacyEvent::Votes(votes) => {
                let mut votes = votes.clone();
                votes.counts = None;
                PrivacyEvent::Votes(votes)
            }
            event => event.clone(),
        };
        let at = *known.entry(format!("{event:?}")).or_insert_with(|| {
            all.push((0, event));
            all.len() - 1
        });
        all[at].0 += times;
    }
    all
}

/// Returns equal releases as one event.
pub fn as_event((times, event): &(u64, PrivacyEvent)) -> PrivacyEvent {
    match times {
        1 => event.clone(),
        _ => PrivacyEvent::Repeated {
            times: usize::try_from(*times).unwrap_or(usize::MAX),
            event: Box::new(event.clone()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::privacy::{Guarantee, Neighbours, Noise, Protection, Unit};

    #[test]
    fn results_show_releases_of_guarantees_and_no_draw_of_clients() {
        let pure = |epsilon| PrivacyEvent::Pure {
            epsilon,
            times: 1,
            unit: Unit::Party,
        };
        let holds = Protection::Holds(Guarantee {
            epsilon: 1.0,
            delta: 0.0,
            unit: Unit::Party,
            neighbours: Neighbours::Replaced,
            after_split: false,
            finest_split: false,
            data_dependent: false,
            noise: Noise::System,
            claimed_by: Vec::new(),
        });
        let nothing = || Protection::nothing(vec!["it follows the data".into()]);
        let against = |server: &Protection, readers: &Protection| -> Protections {
            let all = [server, readers, readers].map(Clone::clone);
            Observer::ALL.into_iter().zip(all).collect()
        };
        let server = [pure(0.5)];
        let clients = BTreeMap::from([(0, vec![pure(0.1); 3]), (1, vec![pure(0.1)])]);
        let shown = |alike, privacy| Releases::shown(alike, &server, &clients, &privacy);
        let none = nothing();
        assert_eq!(shown(false, against(&none, &none)), None);
        // what only readers see is not the server's price
        let by_clients = shown(false, against(&holds, &none)).unwrap();
        assert!(by_clients.server.is_empty() && by_clients.clients.len() == 2);
        let whole = shown(false, against(&holds, &holds)).unwrap();
        assert_eq!(whole, Releases::of(&server, &clients));
        // who was drawn three times is not told
        let drawn = shown(true, against(&none, &holds)).unwrap();
        assert_eq!(drawn.server, whole.server);
        let [any] = &drawn.clients[..] else {
            panic!("{drawn:?}");
        };
        assert_eq!(any.clients, [(0, ClientId::MAX)]);
        assert_eq!(any.events, [(3, pure(0.1))]);
    }
}
