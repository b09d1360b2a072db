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
    let sum: f64 = both.map(|(point, at)| squared_distance(point, centres[*at])).sum();
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
