//! FeSEM's two steps (Xie et al. 2020), on plain lists of numbers.

/// The squared Euclidean distance of a point from a centre, in 64 bits.
pub fn squared_distance<T: Copy + Into<f64>>(point: &[T], centre: &[T]) -> f64 {
    let away = |(p, c): (&T, &T)| {
        let d: f64 = (*p).into() - (*c).into();
        d * d
    };
    point.iter().zip(centre).map(away).sum()
}

/// The position of the least; of several, the first.
pub fn least(numbers: &[f64]) -> usize {
    let first_of = |best: usize, at: usize| match numbers[at] < numbers[best] {
        true => at,
        false => best,
    };
    (0..numbers.len()).fold(0, first_of)
}

/// The E step: the nearest centre of each point.
pub fn assign<T: Copy + Into<f64>>(points: &[&[T]], centres: &[&[T]]) -> Vec<usize> {
    let nearest = |point: &&[T]| {
        let distances: Vec<f64> = centres.iter().map(|c| squared_distance(point, c)).collect();
        least(&distances)
    };
    points.iter().map(nearest).collect()
}

/// What both steps make smaller: the mean squared distance of the points from their centres.
pub fn objective<T: Copy + Into<f64>>(points: &[&[T]], centres: &[&[T]], of: &[usize]) -> f64 {
    let both = points.iter().zip(of);
    let sum: f64 = both
        .map(|(point, at)| squared_distance(point, centres[*at]))
        .sum();
    sum / points.len().max(1) as f64
}

/// The M step: the new centre of every cluster is `mean` of its members' positions; an empty one keeps the old.
pub fn recentre<C: Clone, E>(
    of: &[usize],
    centres: &mut [C],
    mut mean: impl FnMut(&[usize], &C) -> Result<C, E>,
) -> Result<(), E> {
    for (j, centre) in centres.iter_mut().enumerate() {
        let members: Vec<usize> = (0..of.len()).filter(|at| of[*at] == j).collect();
        if !members.is_empty() {
            *centre = mean(&members, centre)?;
        }
    }
    Ok(())
}

/// The plain mean of the points at these positions, in 64 bits, rounded once.
pub fn mean(points: &[&[f32]], members: &[usize]) -> Vec<f32> {
    let mut sums = vec![0.0f64; points.first().map_or(0, |p| p.len())];
    for at in members {
        sums.iter_mut()
            .zip(points[*at])
            .for_each(|(s, x)| *s += f64::from(*x));
    }
    sums.iter()
        .map(|s| (s / members.len() as f64) as f32)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::Stream;

    /// Four clouds of ten points each; the means of the clouds are found from one point of each.
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
        let mut centres: Vec<Vec<f32>> = points[..4].iter().map(|p| p.to_vec()).collect();
        let mut of = Vec::new();
        for _ in 0..3 {
            let views: Vec<&[f32]> = centres.iter().map(Vec::as_slice).collect();
            of = assign(&points, &views);
            let done: Result<(), ()> = recentre(&of, &mut centres, |m, _| Ok(mean(&points, m)));
            done.unwrap();
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
        let done: Result<(), ()> = recentre(&of, &mut centres, |m, _| Ok(mean(&points, m)));
        done.unwrap();
        assert_eq!(centres, [vec![1.0], vec![9.0], vec![2.5]]);
        assert_eq!(least(&[3.0, 1.0, 1.0]), 1);
    }
}
