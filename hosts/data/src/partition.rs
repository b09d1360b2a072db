//! The rules that say which sample goes to which client once the proportions are known. Nothing
//! here is drawn: [`crate::split`] draws and calls these. A sample is its position in the label
//! list.
//!
//! Cut points are `floor(p * n)` in `f64`, in the order of operations of the published NumPy code.

use anyhow::{Context, Result, ensure};
use fl_core::floor_share;
use ndarray::ArrayView2;

/// Which samples each client owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Positions of each client's samples; a client may own none.
    pub clients: Vec<Vec<usize>>,
}

impl Partition {
    /// Samples of each client.
    pub fn sizes(&self) -> Vec<usize> {
        self.clients.iter().map(Vec::len).collect()
    }

    /// Samples of each class at each client, `clients x classes`; `labels` is what was split, each
    /// below `classes`.
    pub fn class_counts(&self, labels: &[usize], classes: usize) -> Vec<Vec<usize>> {
        let count = |owned: &Vec<usize>| {
            let mut counts = vec![0; classes];
            owned.iter().for_each(|at| counts[labels[*at]] += 1);
            counts
        };
        self.clients.iter().map(count).collect()
    }
}

/// The positions of each class, in data-set order.
///
/// # Errors
/// If a label is not below `classes`.
pub fn by_class(labels: &[usize], classes: usize) -> Result<Vec<Vec<usize>>> {
    let mut groups = vec![vec![]; classes];
    for (at, label) in labels.iter().enumerate() {
        let group = groups.get_mut(*label);
        group
            .with_context(|| format!("sample {at} has class {label}; there are {classes} classes"))?
            .push(at);
    }
    Ok(groups)
}

/// Deals out each group in its order: client `k` takes the next `counts[group][k]` samples of it,
/// so a client's samples stand class after class. Counts beyond the end of a group take what is
/// left.
pub fn deal(groups: &[Vec<usize>], counts: &[Vec<usize>], clients: usize) -> Partition {
    let mut owned = vec![vec![]; clients];
    for (group, counts) in groups.iter().zip(counts) {
        let mut rest = &group[..];
        for (client, count) in owned.iter_mut().zip(counts) {
            let (own, others) = rest.split_at((*count).min(rest.len()));
            client.extend_from_slice(own);
            rest = others;
        }
    }
    Partition { clients: owned }
}

/// The counts, `classes x clients`, of FedKD's and FedIOD's rule: of the `n` samples of a class,
/// client `k` gets the next `floor(p[k] * n)` in data-set order and the last client gets the rest.
/// Each row of `proportions` is a distribution over the clients.
pub fn floor_counts(class_sizes: &[usize], proportions: &[Vec<f64>]) -> Vec<Vec<usize>> {
    let counts = |(n, p): (&usize, &Vec<f64>)| {
        let mut left = *n;
        let last = p.len() - 1;
        let mut counts: Vec<usize> = Vec::with_capacity(p.len());
        for p in &p[..last] {
            let own = ((p * *n as f64).floor() as usize).min(left);
            counts.push(own);
            left -= own;
        }
        counts.push(left);
        counts
    };
    class_sizes.iter().zip(proportions).map(counts).collect()
}

/// The counts, `classes x clients`, of the rule of FedKT and FedDF: each class is cut at
/// `floor(cumsum(p) * n)`, where `p` is what `proportions` says for the class and for how much each
/// client owns so far.
///
/// # Errors
/// What `proportions` returns.
pub fn cumulative_counts(
    class_sizes: &[usize],
    clients: usize,
    mut proportions: impl FnMut(usize, &[usize]) -> Result<Vec<f64>>,
) -> Result<Vec<Vec<usize>>> {
    let mut owned = vec![0; clients];
    let mut all = Vec::with_capacity(class_sizes.len());
    for (class, n) in class_sizes.iter().enumerate() {
        let p = proportions(class, &owned)?;
        let (mut sum, mut from) = (0.0, 0);
        let mut counts = Vec::with_capacity(clients);
        for k in 0..clients {
            sum += p[k];
            let cut = if k + 1 == clients {
                *n
            } else {
                (sum * *n as f64).floor() as usize
            };
            // a sum a rounding error above 1 must not cut beyond the end
            let to = cut.clamp(from, *n);
            counts.push(to - from);
            owned[k] += to - from;
            from = to;
        }
        all.push(counts);
    }
    Ok(all)
}

/// `n` samples in `clients` parts as equal as can be; the first parts get what is left over
/// (`numpy.array_split`). With more clients than samples the last are empty.
///
/// # Errors
/// If there are no clients.
pub fn iid_sizes(n: usize, clients: usize) -> Result<Vec<usize>> {
    ensure!(clients > 0, "0 clients; there must be at least 1");
    Ok((0..clients)
        .map(|k| n / clients + usize::from(k < n % clients))
        .collect())
}

/// `n` samples in parts that follow `shares` (any scale) as closely as whole numbers can: every
/// part is rounded down and the largest remainders get what is left, the lower index on a tie.
///
/// # Errors
/// If there is no share, one is negative or not finite, or all are 0.
pub fn proportional_sizes(n: usize, shares: &[f64]) -> Result<Vec<usize>> {
    let sum: f64 = shares.iter().sum();
    ensure!(
        shares.iter().all(|s| s.is_finite() && *s >= 0.0) && sum > 0.0 && sum.is_finite(),
        "shares {shares:?}; they must be finite, at least 0, and not all 0"
    );
    let exact: Vec<f64> = shares.iter().map(|s| s / sum * n as f64).collect();
    let mut sizes: Vec<usize> = exact.iter().map(|e| (e.floor() as usize).min(n)).collect();
    let mut order: Vec<usize> = (0..shares.len()).filter(|k| shares[*k] > 0.0).collect();
    order.sort_by(|a, b| {
        (exact[*b] - exact[*b].floor()).total_cmp(&(exact[*a] - exact[*a].floor()))
    });
    let left = n.saturating_sub(sizes.iter().sum());
    order.iter().take(left).for_each(|k| sizes[*k] += 1);
    Ok(sizes)
}

/// The classes of each client, cyclic: client `k` holds `k, k + 1, ..` modulo `classes`. With one
/// class each this is Selective-FD's strong non-IID split, with two its weak one.
///
/// # Errors
/// If a client would hold no class, or one class twice.
pub fn classes_per_client(
    clients: usize,
    classes: usize,
    per_client: usize,
) -> Result<Vec<Vec<usize>>> {
    check_per_client(classes, per_client)?;
    Ok((0..clients)
        .map(|k| (0..per_client).map(|j| (k + j) % classes).collect())
        .collect())
}

/// As [`classes_per_client`] where there are at least as many clients as classes. With fewer, the
/// cyclic rule would leave classes without a client, so client `k` begins at class
/// `floor(k * classes / clients)` instead.
///
/// # Errors
/// As [`classes_per_client`], and if the clients cannot hold all classes.
pub fn covering_classes(
    clients: usize,
    classes: usize,
    per_client: usize,
) -> Result<Vec<Vec<usize>>> {
    if clients >= classes {
        return classes_per_client(clients, classes, per_client);
    }
    check_covering(clients, classes, per_client)?;
    let start = |k: usize| k * classes / clients;
    Ok((0..clients)
        .map(|k| (0..per_client).map(|j| (start(k) + j) % classes).collect())
        .collect())
}

/// The clients of each class, as [`crate::Split::ClassBlocks`] says.
///
/// # Errors
/// As [`classes_per_client`], and if a class has no client left, or a client holds fewer.
pub(crate) fn class_blocks(
    clients: usize,
    classes: usize,
    per_client: usize,
) -> Result<Vec<Vec<usize>>> {
    check_per_client(classes, per_client)?;
    let wanted = (clients * per_client).div_ceil(classes);
    let mut room = vec![per_client; clients];
    let advice = match classes % per_client {
        0 => format!("take a multiple of {} clients", classes / per_client),
        _ => format!(
            "take a number of classes that divides {classes}, or `split: {{ classes: {per_client} }}`"
        ),
    };
    let block = |class| {
        let open = (0..clients).filter(|k| room[*k] > 0).take(wanted);
        let holders: Vec<usize> = open.collect();
        ensure!(
            !holders.is_empty(),
            "{clients} clients with {per_client} of {classes} classes each leave class {class} to no client, since \
             each class goes to {wanted}; {advice}"
        );
        holders.iter().for_each(|k| room[*k] -= 1);
        Ok(holders)
    };
    let blocks = (0..classes).map(block).collect::<Result<_>>()?;
    let fewer = room.iter().position(|left| *left > 0);
    ensure!(
        fewer.is_none(),
        "client {} would hold fewer than {per_client} of {classes} classes, since each class goes to the next {wanted} of \
         {clients} clients; {advice}",
        fewer.unwrap_or(0)
    );
    Ok(blocks)
}

/// Is the first class of some client each class?
///
/// # Errors
/// If it is not; as [`classes_per_client`].
pub(crate) fn check_first_classes(clients: usize, classes: usize, per_client: usize) -> Result<()> {
    check_per_client(classes, per_client)?;
    ensure!(
        clients >= classes,
        "random-classes gives client `k` class `k` and others at random, so {clients} clients may leave some of \
         {classes} classes to no client; take at least {classes} clients, or `classes: {per_client}`"
    );
    Ok(())
}

/// Can the clients hold all classes?
pub(crate) fn check_covering(clients: usize, classes: usize, per_client: usize) -> Result<()> {
    check_per_client(classes, per_client)?;
    ensure!(
        clients.saturating_mul(per_client) >= classes,
        "{clients} clients with {per_client} of {classes} classes each leave some classes to no \
         client; give each at least {} classes, or take at least {} clients",
        classes.div_ceil(clients.max(1)),
        classes.div_ceil(per_client)
    );
    Ok(())
}

fn check_per_client(classes: usize, per_client: usize) -> Result<()> {
    ensure!(
        (1..=classes).contains(&per_client),
        "{per_client} classes per client; with {classes} classes it must be in 1..={classes}"
    );
    Ok(())
}

/// Multi-label samples by one class each: a sample counts for the rarest of its positive findings
/// (fewest positives in the whole set, the lowest on a tie), `None` if it has none. `labels` is
/// `samples x findings`; only 1 is positive. Also returns the positives of each finding.
pub fn rarest_positive(labels: ArrayView2<'_, i8>) -> (Vec<usize>, Vec<Option<usize>>) {
    let positive =
        |column: ndarray::ArrayView1<'_, i8>| column.iter().filter(|label| **label == 1).count();
    let counts: Vec<usize> = labels.columns().into_iter().map(positive).collect();
    let rarest = |row: ndarray::ArrayView1<'_, i8>| {
        (0..row.len())
            .filter(|c| row[*c] == 1)
            .min_by_key(|c| counts[*c])
    };
    let assigned = labels.rows().into_iter().map(rarest).collect();
    (counts, assigned)
}

/// `floor(n * fraction)` of a decimal fraction, and the rest.
///
/// # Errors
/// If `fraction` is not in `0..=1`.
pub fn fraction_split(n: usize, fraction: f64) -> Result<(usize, usize)> {
    ensure!(
        (0.0..=1.0).contains(&fraction),
        "fraction {fraction}; it must be in 0..=1"
    );
    let first = floor_share(fraction, n).min(n);
    Ok((first, n - first))
}

/// Sizes of FedKT's split of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TabularSplit {
    /// What the parties share out between them.
    pub train: usize,
    /// The public samples: half of the pool, rounded down.
    pub public: usize,
    /// The rest of the pool.
    pub test: usize,
    /// `public + test`: a quarter of all samples, rounded up.
    pub pool: usize,
}

/// FedKT's 75 % / 12.5 % / 12.5 % split of `n` rows.
pub fn fedkt_tabular_split(n: usize) -> TabularSplit {
    let pool = n.div_ceil(4);
    let (public, test) = fedkt_image_split(pool);
    TabularSplit {
        train: n - pool,
        public,
        test,
        pool,
    }
}

/// FedKT's halves of an official test set: public (rounded down) and test.
pub fn fedkt_image_split(test: usize) -> (usize, usize) {
    (test / 2, test - test / 2)
}

/// How many public samples FedKT asks about: a `fraction` of the pool, public and test together.
///
/// # Errors
/// If `fraction` is not in `0..=1`.
pub fn fedkt_queries(pool: usize, fraction: f64) -> Result<usize> {
    Ok(fraction_split(pool, fraction)?.0)
}

#[cfg(test)]
#[path = "partition_tests.rs"]
mod tests;
