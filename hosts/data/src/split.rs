//! Draws a partition as a spec describes it. The rules are in [`crate::partition`].

use crate::partition::{
    Partition, by_class, check_first_classes, class_blocks, covering_classes, cumulative_counts,
    deal, floor_counts, iid_sizes, proportional_sizes, rarest_positive,
};
use crate::published;
use crate::split_spec::{
    Dirichlet, MAX_CLIENTS, PublishedSplit, Reading, Sizes, Split, check_files, check_shares,
    check_users,
};
use anyhow::{Context, Result, bail, ensure};
use fl_core::{Draws, Examples, Stream};
use fl_data_kit::check_ranges;

/// How often a Dirichlet split is drawn before it gives up on its smallest size.
const TRIES: u64 = 1000;

/// The fewest samples of a client whose size is drawn.
const LEAST_DRAWN: usize = 10;

/// A client with more than this multiple of the median's samples is worth a note.
const EXTREME: usize = 20;

/// Each sample of a view in one group, which is what class-wise splits share out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// The group of each sample.
    pub of: Vec<usize>,
    /// How many groups there are.
    pub count: usize,
}

impl Groups {
    /// The classes; for findings, each sample's rarest positive finding and, as the last group,
    /// samples without one; for masks and numbers, all in one group.
    pub fn of(examples: &Examples) -> Self {
        let count = examples.labels().classes();
        match examples.multi_label() {
            Some(findings) => {
                let (_, rarest) = rarest_positive(findings.view());
                Self {
                    of: rarest.into_iter().map(|f| f.unwrap_or(count)).collect(),
                    count: count + 1,
                }
            }
            None => match examples.classes() {
                Some(classes) => Self {
                    of: classes.into_iter().map(|c| c as usize).collect(),
                    count,
                },
                // images whose pixels have classes, and numbers
                None => Self {
                    of: vec![0; examples.len()],
                    count: 1,
                },
            },
        }
    }

    /// As [`Groups::of`], and numbers in `count` groups of the same size, if given, from the smallest
    /// to the largest. Equal numbers are in one group.
    pub fn to_split(examples: &Examples, count: Option<usize>) -> Self {
        let (Some(numbers), Some(count)) = (examples.numbers(), count) else {
            return Self::of(examples);
        };
        // of several numbers the first
        let values = numbers.of().column(0).to_vec();
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
        let mut of = vec![0; values.len()];
        for (rank, row) in order.iter().enumerate() {
            let before = rank.checked_sub(1).map(|rank| order[rank]);
            of[*row] = match before.filter(|before| values[*before] == values[*row]) {
                Some(before) => of[before],
                None => rank * count / values.len(),
            };
        }
        Self { of, count }
    }

    /// Positions of `total` samples, ascending, from every group in proportion to its size.
    ///
    /// `choose` takes (group, its size, how many of it) and says which, ascending.
    ///
    /// # Errors
    /// If there are fewer than `total` samples.
    pub fn take(
        &self,
        total: usize,
        choose: impl Fn(usize, usize, usize) -> Vec<usize>,
    ) -> Result<Vec<usize>> {
        ensure!(
            total <= self.of.len(),
            "{total} samples of {}; there are too few",
            self.of.len()
        );
        if total == 0 {
            return Ok(vec![]);
        }
        let groups = by_class(&self.of, self.count)?;
        let sizes: Vec<f64> = groups.iter().map(|g| g.len() as f64).collect();
        let mut taken = Vec::with_capacity(total);
        for (at, (group, k)) in groups
            .iter()
            .zip(proportional_sizes(total, &sizes)?)
            .enumerate()
        {
            taken.extend(choose(at, group.len(), k).into_iter().map(|i| group[i]));
        }
        taken.sort_unstable();
        Ok(taken)
    }
}

/// Shares out all samples to `clients`; `set` is the name of the set, which a published split asks
/// for. Every sample goes to exactly one client; with more clients than samples some own none.
///
/// # Errors
/// If there are no clients, a number of the split is out of its range, or the split cannot be had;
/// says what to change.
pub fn split(
    groups: &Groups,
    how: &Split,
    clients: usize,
    set: &str,
    stream: &Stream,
) -> Result<Partition> {
    ensure!(
        (1..=MAX_CLIENTS).contains(&clients),
        "{clients} clients; there must be at least 1 and at most {MAX_CLIENTS}"
    );
    check_ranges(how)?;
    let n = groups.of.len();
    match how {
        Split::Iid => Ok(at_random(&iid_sizes(n, clients)?, stream)),
        Split::Size(sizes) => Ok(at_random(&drawn_sizes(sizes, n, clients, stream)?, stream)),
        Split::Dirichlet(how) => dirichlet(groups, how, clients, stream),
        Split::Classes(per_client) => {
            let held = covering_classes(clients, groups.count, *per_client)?;
            deal_held(groups, &held, stream)
        }
        Split::RandomClasses(per_client) => {
            check_first_classes(clients, groups.count, *per_client)?;
            let classes = |k: usize| {
                let first = k % groups.count;
                let mut draws = stream.child("classes", k as u64).draws();
                let others = draws.choose(groups.count - 1, per_client - 1).into_iter();
                let others = others.map(|other| other + usize::from(other >= first));
                [first].into_iter().chain(others).collect()
            };
            let held: Vec<Vec<usize>> = (0..clients).map(classes).collect();
            deal_held(groups, &held, stream)
        }
        Split::ClassBlocks(per_client) => {
            let blocks = class_blocks(clients, groups.count, *per_client)?;
            let groups = shuffled(groups, stream)?;
            let counts: Vec<Vec<usize>> = (0..)
                .zip(groups.iter().zip(&blocks))
                .map(|(class, (group, holders))| {
                    let draws = &mut stream.child("parts", class).draws();
                    block_counts(group.len(), holders, clients, draws)
                })
                .collect();
            Ok(deal(&groups, &counts, clients))
        }
        Split::Shards(each) => {
            let order = shuffled(groups, stream)?.concat();
            let shards = clients.saturating_mul(*each);
            ensure!(
                shards <= n,
                "shards: {each} for each of {clients} clients are {shards}, and there are {n} rows: \
                 take fewer"
            );
            let sizes = iid_sizes(n, shards)?;
            let cuts = sizes.iter().scan(0, |end, size| {
                let start = std::mem::replace(end, *end + size);
                Some(start..*end)
            });
            let cuts: Vec<_> = cuts.collect();
            let dealt = stream.child("shards", 0).draws().permutation(cuts.len());
            let own = |mine: &[usize]| {
                let shards = mine.iter().map(|at| &order[cuts[*at].clone()]);
                shards.collect::<Vec<_>>().concat()
            };
            Ok(Partition {
                clients: dealt.chunks(*each).map(own).collect(),
            })
        }
        Split::Own => Ok(Partition {
            clients: vec![Vec::new(); clients],
        }),
        Split::ByFile | Split::ByUser => {
            bail!("a split by file or user needs these, not the classes of the rows")
        }
        Split::Published(PublishedSplit { alpha, seed }) => {
            published::find(set, *alpha, *seed)?.deal(&groups.of, clients)
        }
    }
}

/// Client `k` gets the samples that come from file `k`; `of` is the file of each sample, `files`
/// how many there are.
///
/// # Errors
/// If there are not as many files as clients.
pub fn by_file(of: &[usize], files: usize, clients: usize, set: &str) -> Result<Partition> {
    check_files(set, (files > 0).then_some(files), clients)?;
    Ok(Partition {
        clients: by_class(of, files)?,
    })
}

/// Each client gets the samples of whole users, as [`Split::ByUser`] says; `of` is the user of each
/// sample, `users` how many there are.
///
/// # Errors
/// If there are more clients than users.
pub fn by_user(
    of: &[usize],
    users: usize,
    clients: usize,
    set: &str,
    stream: &Stream,
) -> Result<Partition> {
    check_users(set, (users > 0).then_some(users), clients)?;
    let client_of = clients_of_users(users, clients, stream)?;
    let of: Vec<usize> = of.iter().map(|user| client_of[*user]).collect();
    Ok(Partition {
        clients: by_class(&of, clients)?,
    })
}

/// The client of each user.
///
/// # Errors
/// If there are no clients.
pub(crate) fn clients_of_users(
    users: usize,
    clients: usize,
    stream: &Stream,
) -> Result<Vec<usize>> {
    if clients == users {
        return Ok((0..users).collect());
    }
    let mut client_of = vec![0; users];
    let parts = at_random(&iid_sizes(users, clients)?, stream);
    for (client, own) in parts.clients.iter().enumerate() {
        own.iter().for_each(|user| client_of[*user] = client);
    }
    Ok(client_of)
}

/// What a user should know about the sizes of a split: clients without samples, and one that has
/// far more than the others.
pub fn extremes(sizes: &[usize]) -> Vec<String> {
    let mut sorted = sizes.to_vec();
    sorted.sort_unstable();
    let (Some(most), median) = (sorted.last(), sorted.get(sizes.len() / 2).unwrap_or(&0)) else {
        return Vec::new();
    };
    let empty = sizes.iter().filter(|n| **n == 0).count();
    let mut notes = Vec::new();
    if empty > 0 {
        let of = sizes.len();
        notes.push(format!("{empty} of {of} clients own no sample"));
    }
    if *most > EXTREME * (*median).max(1) {
        let who = sizes.iter().position(|n| n == most).unwrap_or(0);
        notes.push(format!(
            "an extreme split: client {who} owns {most} samples, the median client {median}"
        ));
    }
    notes
}

fn at_random(sizes: &[usize], stream: &Stream) -> Partition {
    let order = stream
        .child("order", 0)
        .draws()
        .permutation(sizes.iter().sum());
    deal(&[order], &[sizes.to_vec()], sizes.len())
}

fn drawn_sizes(sizes: &Sizes, n: usize, clients: usize, stream: &Stream) -> Result<Vec<usize>> {
    match sizes {
        Sizes::Power(exponent) => {
            let shares: Vec<f64> = (1..=clients)
                .map(|k| libm::pow(k as f64, -exponent))
                .collect();
            proportional_sizes(n, &shares)
        }
        Sizes::Shares(shares) => {
            check_shares(shares, clients)?;
            proportional_sizes(n, shares)
        }
        Sizes::Dirichlet(alpha) => {
            check_least(clients, LEAST_DRAWN, n, "")?;
            let drawn = |attempt| {
                let mut draws = stream.child("sizes", attempt).draws();
                let logs: Vec<f64> = (0..clients).map(|_| draws.ln_gamma_draw(*alpha)).collect();
                proportional_sizes(n, &proportions(&logs, |_| true)?).ok()
            };
            let large = |sizes: &Vec<usize>| sizes.iter().all(|size| *size >= LEAST_DRAWN);
            (0..TRIES).filter_map(drawn).find(large).with_context(|| {
                format!(
                    "no sizes with alpha {alpha} of {TRIES} drawn gave every one of {clients} clients at least \
                     {LEAST_DRAWN} of the {n} samples; raise alpha, or take fewer clients"
                )
            })
        }
    }
}

/// Each class in equal parts to the clients that hold it, the first ones the larger; `held` are
/// the classes of each client.
fn deal_held(groups: &Groups, held: &[Vec<usize>], stream: &Stream) -> Result<Partition> {
    let (groups, clients) = (shuffled(groups, stream)?, held.len());
    let share = |(class, group): (usize, &Vec<usize>)| {
        let holders: Vec<usize> = (0..clients).filter(|k| held[*k].contains(&class)).collect();
        let mut counts = vec![0; clients];
        for (k, size) in holders.iter().zip(iid_sizes(group.len(), holders.len())?) {
            counts[*k] = size;
        }
        Ok(counts)
    };
    let counts: Result<Vec<Vec<usize>>> = groups.iter().enumerate().map(share).collect();
    Ok(deal(&groups, &counts?, clients))
}

/// The counts of one class that its holders get, as [`Split::ClassBlocks`] says.
fn block_counts(n: usize, holders: &[usize], clients: usize, draws: &mut Draws) -> Vec<usize> {
    let mut counts = vec![0; clients];
    let Some((last, others)) = holders.split_last() else {
        return counts;
    };
    let (most, least) = (n / holders.len(), n / holders.len() / 10);
    for k in others {
        counts[*k] = least + draws.below((most - least).max(1));
    }
    counts[*last] = n - counts.iter().sum::<usize>();
    counts
}

/// The samples of each group in an order of its own.
fn shuffled(groups: &Groups, stream: &Stream) -> Result<Vec<Vec<usize>>> {
    let mut groups = by_class(&groups.of, groups.count)?;
    for (class, group) in groups.iter_mut().enumerate() {
        stream.child("order", class as u64).draws().shuffle(group);
    }
    Ok(groups)
}

/// Are `n` samples enough for clients with `least` each?
fn check_least(clients: usize, least: usize, n: usize, or: &str) -> Result<()> {
    ensure!(
        clients.checked_mul(least).is_some_and(|needed| needed <= n),
        "{clients} clients with at least {least} samples each need more than the {n} samples there are; \
         take fewer clients{or}"
    );
    Ok(())
}

impl Split {
    /// May there be no such split of the rows? It may be drawn until every client has enough
    /// samples, or need more rows than there are.
    pub fn draws_again(&self) -> bool {
        match self {
            Self::Shards(_) => true,
            Self::Dirichlet(how) => how.least() > 0,
            Self::Size(sizes) => matches!(sizes, Sizes::Dirichlet(_)),
            _ => false,
        }
    }

    /// Can so many clients have enough of at most `n` samples?
    pub(crate) fn check_least(&self, clients: usize, n: usize) -> Result<()> {
        match self {
            Self::Dirichlet(how) => check_least(clients, how.least(), n, " or a smaller min-size"),
            Self::Size(Sizes::Dirichlet(_)) => check_least(clients, LEAST_DRAWN, n, ""),
            _ => Ok(()),
        }
    }
}

impl Dirichlet {
    /// The fewest samples that a client may have.
    fn least(&self) -> usize {
        self.min_size.unwrap_or(self.reading.min_size())
    }
}

fn dirichlet(
    groups: &Groups,
    how: &Dirichlet,
    clients: usize,
    stream: &Stream,
) -> Result<Partition> {
    let Dirichlet { alpha, reading, .. } = how;
    let n = groups.of.len();
    let min_size = how.least();
    check_least(clients, min_size, n, " or a smaller min-size")?;
    let mut sizes = vec![0; groups.count];
    groups.of.iter().for_each(|class| sizes[*class] += 1);

    let mut best = 0;
    for attempt in 0..TRIES {
        let stream = stream.child("try", attempt);
        let counts = drawn_counts(&sizes, *alpha, reading, clients, &stream)?;
        let size = |k: usize| counts.iter().map(|of_class| of_class[k]).sum::<usize>();
        let smallest = (0..clients).map(size).min().unwrap_or(0);
        if smallest >= min_size {
            let groups = match reading {
                Reading::Floor => by_class(&groups.of, groups.count)?,
                Reading::Balanced | Reading::Plain => shuffled(groups, &stream)?,
            };
            return Ok(deal(&groups, &counts, clients));
        }
        best = best.max(smallest);
    }
    bail!(
        "no Dirichlet split with alpha {alpha} of {TRIES} drawn gave every one of {clients} clients at least {min_size} \
         of the {n} samples (the best left one with {best}); raise alpha, lower min-size, or take fewer clients"
    )
}

/// Samples of each class at each client, `classes x clients`.
fn drawn_counts(
    sizes: &[usize],
    alpha: f64,
    reading: &Reading,
    clients: usize,
    stream: &Stream,
) -> Result<Vec<Vec<usize>>> {
    let n: usize = sizes.iter().sum();
    let logs: Vec<Vec<f64>> = (0..sizes.len())
        .map(|class| {
            let mut draws = stream.child("class", class as u64).draws();
            (0..clients).map(|_| draws.ln_gamma_draw(alpha)).collect()
        })
        .collect();
    match reading {
        Reading::Floor => {
            let all: Option<Vec<_>> = logs
                .iter()
                .map(|logs| proportions(logs, |_| true))
                .collect();
            Ok(floor_counts(
                sizes,
                &all.context("a Dirichlet draw that is not finite")?,
            ))
        }
        Reading::Balanced | Reading::Plain => cumulative_counts(sizes, clients, |class, owned| {
            let balanced = *reading == Reading::Balanced;
            Ok(open_proportions(&logs[class], owned, n, balanced))
        }),
    }
}

/// The proportions of one class over the clients, from the logarithms of Gamma draws. With
/// `balanced`, a client that owns its equal share of all `n` samples gets none (FedKT, FedDF);
/// `owned` is how many each client has so far.
pub fn open_proportions(logs: &[f64], owned: &[usize], n: usize, balanced: bool) -> Vec<f64> {
    let clients = logs.len();
    // `owned < n / clients` in whole numbers; as some client is below its share while samples are
    // left, only a class without samples can find all clients closed
    let open = |k: usize| !balanced || owned[k] * clients < n;
    proportions(logs, open).unwrap_or_else(|| vec![0.0; clients])
}

/// Dirichlet proportions from the logarithms of Gamma draws, over the clients that are `open`;
/// `None` if none is.
///
/// With a small parameter the largest draws of most clients are below the smallest `f64`, so the
/// largest logarithm is taken away before `exp`. Closing clients here and not after `exp` matters
/// too: what remains may all be 0 then.
fn proportions(logs: &[f64], open: impl Fn(usize) -> bool) -> Option<Vec<f64>> {
    let top = (0..logs.len())
        .filter(|k| open(*k))
        .map(|k| logs[k])
        .reduce(f64::max)?;
    let weight = |k: usize| {
        if open(k) {
            libm::exp(logs[k] - top)
        } else {
            0.0
        }
    };
    let weights: Vec<f64> = (0..logs.len()).map(weight).collect();
    let sum: f64 = weights.iter().sum();
    Some(weights.into_iter().map(|w| w / sum).collect())
}

#[cfg(test)]
#[path = "split_tests.rs"]
mod tests;
