//! Teachers on disjoint parts of the data, which label the public samples: shared by FedKT's
//! parties and PATE's data owner.
use fl_core::message::{Counts, Votes};
use fl_core::prelude::*;
use fl_core::{TaskKind, fit_examples, metrics};
use ndarray::Array2;

/// A party's teachers, or those of the owner of all data.
pub(crate) const TEACHER: TrainerSlot = TrainerSlot::new(
    "teacher",
    "A party's teachers; parties may have different ones.",
);
/// Noise on counts of votes.
pub(crate) const PRIVACY: MechanismSlot<Counts> =
    MechanismSlot::new("privacy", "Noise on the counts of votes.");

/// Returns the sizes of `t` nearly equal parts of `n` examples: the first `n mod t` get one more.
pub fn subset_sizes(n: usize, t: usize) -> Vec<usize> {
    (0..t).map(|i| n / t + usize::from(i < n % t)).collect()
}

/// Returns the positions of `t` disjoint parts of `n` examples, shuffled first.
fn subsets(n: usize, t: usize, stream: &Stream) -> Vec<Vec<usize>> {
    let order = stream.draws().permutation(n);
    let mut rest = &order[..];
    let cut = |size| {
        let (part, after) = rest.split_at(size);
        rest = after;
        part.to_vec()
    };
    subset_sizes(n, t).into_iter().map(cut).collect()
}

/// Returns the votes of several models, one column each, on all of `x`.
pub(crate) fn ballots(columns: &[Vec<u32>], classes: usize) -> Result<Votes> {
    let rows = columns.first().map_or(0, Vec::len);
    let table = Array2::from_shape_fn((rows, columns.len()), |(row, voter)| columns[voter][row]);
    Ok(Votes::new((0..rows as u32).collect(), table, classes))
}

/// Returns the first `queries` of the public samples; all if it is `None`.
pub(crate) fn asked_about(public: &Samples, queries: Option<usize>) -> Samples {
    match queries {
        Some(n) if n < public.len() => public.pick(&(0..n).collect::<Vec<_>>()),
        _ => public.clone(),
    }
}

/// The teachers' labels.
pub(crate) struct TeacherLabels {
    /// The label of every query, teacher by teacher.
    pub labels: Vec<Vec<u32>>,
    /// Number of teachers that saw examples of one class only, and so always predict it.
    pub constant: usize,
    /// A note, if the loss of one of them still fell when its training ended.
    pub unfinished: Option<String>,
    /// Number of teachers whose examples were too few for a step.
    pub untrained: usize,
}

/// Trains `t` teachers in turn, each on its part of the client's examples. Returns each teacher's
/// labels of all `queries`. `partition` numbers the repetitions. A teacher is dropped after its
/// labels. A teacher without examples predicts the first class.
pub(crate) fn teachers(
    client: &Client,
    queries: &Samples,
    partition: usize,
    t: usize,
    pass: &FitOptions<'_>,
) -> Result<TeacherLabels> {
    let stream = client
        .stream("teachers")
        .child("partition", partition as u64);
    let parts = subsets(client.own().len(), t, &stream.child("subsets", 0));
    let (mut constant, mut untrained, mut unfinished) = (0, 0, None);
    let speak = |(i, part): (usize, &Vec<usize>)| {
        if part.is_empty() {
            return Ok(vec![0; queries.len()]);
        }
        let mut teacher = client.new_model(&TEACHER, (partition * t + i) as u64)?;
        let stream = stream.child("teacher", i as u64);
        let own = client.own().pick(part);
        let held = own.class_counts().into_iter().filter(|n| *n > 0).count();
        constant += usize::from(held == 1);
        fit_examples(teacher.as_mut(), &own, pass, &stream)
            .and_then(|fitted| {
                match fitted.steps {
                    0 => untrained += 1,
                    _ => {
                        let note = fitted.unfinished(&TEACHER, pass.length);
                        unfinished = unfinished.take().or(note);
                    }
                }
                teacher.predict(queries)
            })
            .map(|scores| metrics::classes(scores.view()))
            .with_context(|| format!("teacher {i} of partition {partition}"))
    };
    let labels = parts.iter().enumerate().map(speak).collect::<Result<_>>()?;
    Ok(TeacherLabels {
        labels,
        constant,
        unfinished,
        untrained,
    })
}

/// The advice for a party with fewer examples than teachers.
pub(crate) const TOO_FEW: &str = "each needs one at least";

/// FedKT Theorem 9: returns the number of partitions in which some sample's two highest counts
/// differ by at most `most`. One example can change the training of such a partition's student.
pub fn close_votes(gaps: &[Vec<f64>], most: f64) -> usize {
    let close = |gaps: &&Vec<f64>| gaps.iter().any(|gap| *gap <= most);
    gaps.iter().filter(close).count()
}

/// Trains a model on the winners of a vote. Returns a note if it took no step, or if
/// its loss still fell at the end.
pub(crate) fn learn(
    (slot, student): (&TrainerSlot, &mut dyn Trainer),
    counts: &Counts,
    public: &Samples,
    pass: &FitOptions<'_>,
    stream: &Stream,
) -> Result<Option<String>> {
    ensure!(
        !counts.rows.is_empty(),
        "no public sample has a label, so there is nothing to learn from: the noise or the budget left none"
    );
    let at: Vec<usize> = counts.rows.iter().map(|id| *id as usize).collect();
    let winners = counts.winners();
    let fitted = student.fit(&public.pick(&at), Target::Classes(&winners), pass, stream)?;
    Ok(fitted.unfinished(slot, pass.length))
}

/// Returns the number of classes of the votes.
pub(crate) fn classes(kind: TaskKind) -> std::result::Result<usize, String> {
    match kind {
        TaskKind::Classes(classes) => Ok(classes),
        _ => Err("votes are for one class of several for each input".into()),
    }
}

/// Says that there is nothing to put to the vote.
pub(crate) fn no_public(has: &dyn Fn(&str) -> bool) -> Option<Conflict> {
    let text = "teachers label public samples, and there are none: set `data.public`";
    Conflict::between(text).when(!has("data.public"))
}

/// Checks the task and the public data before any training.
pub(crate) fn check(server: &Server<'_>) -> Result<usize> {
    let classes = classes(server.task().kind).map_err(anyhow::Error::msg)?;
    let public = server.public()?;
    let (shape, own) = (public.samples().shape(), &server.task().input);
    ensure!(
        !public.samples().is_empty(),
        "there are no public samples, so nothing can be put to the vote; ask for more in `data.public`"
    );
    ensure!(
        shape == *own,
        "public samples have the shape {shape:?}, the clients' own {own:?}: no model can look at both"
    );
    Ok(classes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_parts_are_disjoint_nearly_equal_and_everything() {
        assert_eq!(subset_sizes(23, 5), [5, 5, 5, 4, 4]);
        assert_eq!(subset_sizes(3, 5), [1, 1, 1, 0, 0]);
        let parts = subsets(23, 5, &Stream::root(1));
        let mut all: Vec<usize> = parts.concat();
        assert_eq!(
            parts.iter().map(Vec::len).collect::<Vec<_>>(),
            subset_sizes(23, 5)
        );
        assert_ne!(all, (0..23).collect::<Vec<_>>(), "shuffled");
        all.sort_unstable();
        assert_eq!(all, (0..23).collect::<Vec<_>>());
    }
}
