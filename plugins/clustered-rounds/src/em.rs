//! FeSEM's two steps (Xie et al. 2020), on plain lists of numbers.

/// Returns the squared Euclidean distance of a point from a centre, in 64 bits.
pub fn squared_distance<T: Copy + Into<f64>>(point: &[T], centre: &[T]) -> f64 {
    let away = |(p, c): (&T, &T)| {
        let d: f64 = (*p).into() - (*c).into();
        d * d
    };
    point.iter().zip(centre).map(away).sum()
}

/// Returns the position of the least number; the first on a tie.
pub fn least(numbers: &[f64]) -> usize {
    let first_of = |best: usize, at: usize| {
        if numbers[at] < numbers[best] {
            at
        } else {
            best
        }
    };
    (0..numbers.len()).fold(0, first_of)
}

/// The E step: returns the nearest centre of each point.
pub fn assign<T: Copy + Into<f64>>(points: &[&[T]], centres: &[&[T]]) -> Vec<usize> {
    let nearest = |point: &&[T]| {
        let distances: Vec<f64> = centres.iter().map(|c| squared_distance(point, c)).collect();
        least(&distances)
    };
    points.iter().map(nearest).collect()
}

/// Returns the objective that both steps reduce: the mean squared distance of points from their
/// centres.
pub fn objective<T: Copy + Into<f64>>(points: &[&[T]], centres: &[&[T]], of: &[usize]) -> f64 {
    let both = points.iter().zip(of);
    let sum: f64 = both
        .map(|(point, at)| squared_distance(point, centres[*at]))
        .sum();
    sum / points.len().max(1) as f64
}

/// The M step: the new centre of every cluster is `mean` of its number and its members'
/// positions; an empty cluster keeps its centre.
pub fn recentre<C: Clone, E>(
    of: &[usize],
    centres: &mut [C],
    mut mean: impl FnMut(usize, &[usize], &C) -> Result<C, E>,
) -> Result<(), E> {
    for (j, centre) in centres.iter_mut().enumerate() {
        let members: Vec<usize> = (0..of.len()).filter(|at| of[*at] == j).collect();
        if !members.is_empty() {
            *centre = mean(j, &members, centre)?;
        }
    }
    Ok(())
}

/// Returns the squared distances of all pairs of points.
pub fn pairwise<T: Copy + Into<f64>>(points: &[&[T]]) -> Vec<Vec<f64>> {
    let from = |a: &&[T]| points.iter().map(|b| squared_distance(a, b)).collect();
    points.iter().map(from).collect()
}

/// Runs `passes` E steps with plain M steps in between, from centres at the `first` points. Uses
/// only the squared distances `apart` of all pairs. Returns the assignment and the objective. The
/// squared distance from the mean of points is the mean squared distance from them, minus half the
/// mean squared distance between them.
pub fn among_points(apart: &[Vec<f64>], first: &[usize], passes: usize) -> (Vec<usize>, f64) {
    let mut clusters: Vec<Vec<usize>> = first.iter().map(|at| vec![*at]).collect();
    let (mut of, mut objective) = (Vec::new(), 0.0);
    for _ in 0..passes {
        let mean = |from: usize, to: &[usize]| {
            to.iter().map(|at| apart[from][*at]).sum::<f64>() / to.len() as f64
        };
        let spread: Vec<f64> = clusters
            .iter()
            .map(|c| c.iter().map(|at| mean(*at, c)).sum::<f64>() / c.len() as f64 / 2.0)
            .collect();
        let mut sum = 0.0;
        of = (0..apart.len())
            .map(|point| {
                let both = clusters.iter().zip(&spread);
                let distances: Vec<f64> = both.map(|(c, s)| mean(point, c) - s).collect();
                let at = least(&distances);
                sum += distances[at];
                at
            })
            .collect();
        objective = sum / apart.len().max(1) as f64;
        for (j, cluster) in clusters.iter_mut().enumerate() {
            let members: Vec<usize> = (0..of.len()).filter(|at| of[*at] == j).collect();
            if !members.is_empty() {
                *cluster = members;
            }
        }
    }
    (of, objective)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::Stream;

    /// Four clouds of ten points each; one point of each cloud suffices to find the means.
    #[test]
    fn close_centres_of_a_mixture_are_recovered() {
        let truth = [
            [0.0, 0.0, 5.0],
            [5.0, 0.0, 0.0],
            [0.0, 5.0, 0.0],
            [5.0, 5.0, 5.0],
        ];
        let mut draws = Stream::root(1).draws();
        let mut point = |at: usize| -> Vec<f32> {
            truth[at % 4]
                .iter()
                .map(|c| (c + 0.3 * draws.normal()) as f32)
                .collect()
        };
        let points: Vec<Vec<f32>> = (0..40).map(&mut point).collect();
        let points: Vec<&[f32]> = points.iter().map(Vec::as_slice).collect();
        let mean = |members: &[usize]| -> Vec<f32> {
            let sum = |c: usize| members.iter().map(|at| points[*at][c]).sum::<f32>();
            (0..3).map(|c| sum(c) / members.len() as f32).collect()
        };
        let mut centres: Vec<Vec<f32>> = points[..4].iter().map(|p| p.to_vec()).collect();
        let (mut of, mut objectives) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let views: Vec<&[f32]> = centres.iter().map(Vec::as_slice).collect();
            of = assign(&points, &views);
            objectives.push(objective(&points, &views, &of));
            let done: Result<(), ()> = recentre(&of, &mut centres, |_, m, _| Ok(mean(m)));
            done.unwrap();
        }
        for passes in 1..=3 {
            let (found, objective) = among_points(&pairwise(&points), &[0, 1, 2, 3], passes);
            assert_eq!(found, of);
            let wanted = objectives[passes - 1];
            assert!((objective - wanted).abs() < 1e-5, "{objective}, {wanted}");
        }
        assert_eq!(of, (0..40).map(|i| i % 4).collect::<Vec<_>>());
        for (found, wanted) in centres.iter().zip(truth) {
            let near = found
                .iter()
                .zip(wanted)
                .all(|(f, w)| (f64::from(*f) - w).abs() < 0.4);
            assert!(near, "{found:?}, {wanted:?}");
        }
    }

    #[test]
    fn an_empty_cluster_keeps_its_centre_and_ties_go_to_the_first() {
        let mut centres = [vec![0.0f32], vec![9.0], vec![2.0]];
        let points: [&[f32]; 2] = [&[1.0], &[2.5]];
        let of = assign(&points, &[&[0.0], &[9.0], &[2.0]]);
        assert_eq!(of, [0, 2]);
        let done: Result<(), ()> = recentre(&of, &mut centres, |_, m, _| Ok(points[m[0]].to_vec()));
        done.unwrap();
        assert_eq!(centres, [vec![1.0], vec![9.0], vec![2.5]]);
        assert_eq!(least(&[3.0, 1.0, 1.0]), 1);
    }
}
