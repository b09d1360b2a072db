//! Parts for groups of clients: each client in exactly one group, and only clients of the spec.

use crate::sections::Clients;
use fl_core::settings::{Step, show_path};
use fl_core::{ClientId, Role, SlotSpec};

/// One part of a slot: where it stands, and for whom it is; `Some(None)` for all, `None` if that
/// could not be read.
type Share = (Vec<Step>, Option<Option<Clients>>);

/// What to say of a client that a spec with `n` clients lacks.
pub(crate) fn no_client(id: ClientId, n: usize) -> String {
    match n {
        0 => format!("there is no client {id}; the spec has none"),
        n => format!("there is no client {id}; the spec has {n}: 0-{}", n - 1),
    }
}

/// What is wrong with the groups of one slot.
pub(crate) fn check(
    slot: &SlotSpec,
    path: &[Step],
    shares: &[Share],
    clients: Option<usize>,
) -> Vec<(Vec<Step>, String)> {
    let mut wrong = Vec::new();
    let at_clients = |path: &[Step]| [path, &[Step::Key("clients".into())]].concat();
    let at_server = !slot.for_some
        && matches!(
            slot.role,
            Role::Aggregator | Role::Generator | Role::Accountant
        );
    let mut for_all: Option<&[Step]> = None;
    let mut ranges: Vec<(ClientId, ClientId, usize)> = Vec::new();
    for (at, (path, share)) in shares.iter().enumerate() {
        match share {
            Some(Some(_)) if at_server => {
                let text = format!(
                    "{} works at the server, for all clients alike; leave out `clients`",
                    slot.role.with_article()
                );
                wrong.push((at_clients(path), text));
            }
            Some(Some(Clients(some))) => {
                ranges.extend(some.iter().map(|r| (*r.start(), *r.end(), at)));
            }
            Some(None) => match for_all {
                None => for_all = Some(path),
                Some(first) => {
                    let text = format!(
                        "{} is already for all clients; at most one part of a slot may leave out `clients`",
                        show_path(first)
                    );
                    wrong.push((path.clone(), text));
                }
            },
            None => {}
        }
    }
    let for_some = |share: &Share| matches!(share.1, Some(Some(_)));
    if slot.server && !at_server && !shares.is_empty() && shares.iter().all(for_some) {
        let text = format!(
            "no part here is for the server, which needs {} too: leave out `clients` in one of the parts",
            slot.role.with_article()
        );
        wrong.push((path.to_vec(), text));
    }
    if let Some(n) = clients {
        for (_, last, at) in ranges.iter().filter(|r| r.1 as usize >= n) {
            wrong.push((at_clients(&shares[*at].0), no_client(*last, n)));
        }
    }
    ranges.sort_unstable();
    let mut gaps = Vec::new();
    let mut reach: Option<(ClientId, usize)> = None;
    for (first, last, at) in ranges {
        match reach {
            Some((end, other)) if first <= end => {
                // the mistake is reported at the later of two groups
                let (early, late) = (at.min(other), at.max(other));
                let text = if early == late {
                    format!("client {first} is named twice")
                } else {
                    format!(
                        "client {first} is already in {}",
                        show_path(&shares[early].0)
                    )
                };
                wrong.push((at_clients(&shares[late].0), text));
            }
            _ => {
                let next = reach.map_or(0, |(end, _)| end.saturating_add(1));
                if next < first {
                    gaps.push((next, first - 1));
                }
            }
        }
        if reach.is_none_or(|(end, _)| last > end) {
            reach = Some((last, at));
        }
    }
    if let Some((end, _)) = reach
        && end < ClientId::MAX
    {
        gaps.push((end + 1, ClientId::MAX));
    }
    let last = clients.and_then(|n| ClientId::try_from(n).ok()?.checked_sub(1));
    gaps.retain(|(from, _)| last.is_some_and(|last| *from <= last));
    let readable = shares.iter().all(|(_, share)| share.is_some());
    if for_all.is_none() && readable && !gaps.is_empty() && !slot.for_some {
        let gaps: Vec<String> = gaps
            .iter()
            .take(5)
            .map(|(a, b)| (*a, last.map_or(*b, |last| last.min(*b))))
            .map(|(a, b)| {
                if a == b {
                    a.to_string()
                } else {
                    format!("{a}-{b}")
                }
            })
            .collect();
        let text = format!(
            "no part for client{} {}; a part without `clients` is for all others",
            if gaps.len() == 1 && !gaps[0].contains('-') {
                ""
            } else {
                "s"
            },
            gaps.join(", ")
        );
        wrong.push((path.to_vec(), text));
    }
    wrong
}
