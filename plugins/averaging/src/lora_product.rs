//! The mean of products of low-rank factors (LoRA).

use fl_core::Problem;
use fl_core::portable::product;
use fl_core::prelude::*;
use fl_linalg::{Svd, svd};
use ndarray::{Array1, Array2, ArrayD, Axis, concatenate, s};

/// The names of factors in PEFT (Hugging Face), of linear layers and of embeddings.
const PEFT: [(&str, &str); 2] = [
    ("lora_A", "lora_B"),
    ("lora_embedding_A", "lora_embedding_B"),
];

/// A singular value that is smaller by this factor than the largest counts as 0: 32-bit floats do
/// not show it.
const LEAST: f64 = 1e-12;

settings! {
    /// Averages the products of low-rank factors (LoRA, Hu et al. 2022) and factorises each mean
    /// again, by its singular values (FlexLoRA, Bai et al. 2024). Averages all other parameters as
    /// `mean`.
    pub struct LoraProduct {
        /// The weight of a client.
        weigh: Weigh = Weigh::Samples;
        /// The word, between dots or slashes, in the name of a factor `rank x inputs`. PEFT's
        /// `lora_embedding_A` is known too.
        down: String = "lora_A".to_string();
        /// The word in its place in the name of the other factor, `outputs x rank`.
        up: String = "lora_B".to_string();
    }
}

/// Names of the two factors of an update.
type Pair = (String, String);

/// Returns the name with the word `up` in place of `down`, which stands between dots or slashes.
fn other(name: &str, down: &str, up: &str) -> Option<String> {
    let words = name.split_inclusive(['.', '/']);
    let mut found = false;
    let renamed = words.map(|word| match word.strip_suffix(['.', '/']) {
        _ if word == down => {
            found = true;
            up.to_string()
        }
        Some(bare) if bare == down => {
            found = true;
            format!("{up}{}", &word[bare.len()..])
        }
        _ => word.to_string(),
    });
    let renamed: String = renamed.collect();
    found.then_some(renamed)
}

/// Returns the pairs of factors among these parameters, in the order of their names.
fn pairs<'w>(
    params: &Params,
    words: impl Iterator<Item = (&'w str, &'w str)> + Clone,
) -> Vec<Pair> {
    let names = params.0.keys();
    let pair = |name: &String| {
        let mut others = words.clone().filter_map(|(down, up)| other(name, down, up));
        let up = others.find(|up| up != name && params.0.contains_key(up))?;
        Some((name.clone(), up))
    };
    names.filter_map(pair).collect()
}

/// Returns the remark that a mean of these parameters, number by number, averages factors of LoRA.
pub(crate) fn mean_of_factors(params: &Params) -> Option<String> {
    let pairs = pairs(params, PEFT.into_iter());
    let (down, up) = pairs.first()?;
    Some(format!(
        "it averages the factors of {} low-rank updates one by one (`{down}`, `{up}`), and the product of two means is not the mean of the products: `lora-product` averages the products",
        pairs.len()
    ))
}

/// Returns the factors of one client as matrices, `rank x inputs` and `outputs x rank`.
fn matrices(body: &Params, (down, up): &Pair) -> Result<(Array2<f64>, Array2<f64>)> {
    let (a, b) = (&body.0[down], &body.0[up]);
    let rank = a.shape().first().copied().unwrap_or(0);
    let fits = a.ndim() >= 2 && b.ndim() >= 2 && b.shape()[1] == rank;
    Problem::shape_unless(
        fits && b.shape()[2..].iter().all(|n| *n == 1) && rank > 0 && !a.is_empty(),
        || {
            format!(
                "`{down}` is {:?} and `{up}` {:?}: factors of one update must be rank x inputs and outputs x rank; name other words in `down` and `up`",
                a.shape(),
                b.shape()
            )
        },
    )?;
    let (inputs, outputs) = (a.len() / rank, b.shape()[0]);
    Ok((
        a.to_shape((rank, inputs))?.mapv(f64::from),
        b.to_shape((outputs, rank))?.mapv(f64::from),
    ))
}

/// Returns orthonormal rows that span those of `a`.
fn basis(a: &Array2<f64>) -> Result<Array2<f64>> {
    let Svd { values, right } = svd(a.clone())?;
    Ok(right.slice(s![..nonzero(&values), ..]).to_owned())
}

/// Returns how many singular values are not 0.
fn nonzero(values: &Array1<f64>) -> usize {
    let largest = values.first().copied().unwrap_or(0.0);
    let counts = |value: &&f64| **value > LEAST * largest;
    values.iter().take_while(counts).count()
}

/// Adds rows to `rows`, up to `wanted`, each of length 1 and orthogonal to those before: what is
/// new in `candidates`, then in the axes.
fn complete(mut rows: Array2<f64>, wanted: usize, candidates: &Array2<f64>) -> Result<Array2<f64>> {
    let width = rows.ncols();
    let axes = (0..width).map(|at| Array1::from_shape_fn(width, |i| f64::from(u8::from(i == at))));
    let given = candidates.rows().into_iter().map(|row| row.to_owned());
    for mut new in given.chain(axes) {
        if rows.nrows() >= wanted {
            break;
        }
        let before = length(&new);
        for _ in 0..2 {
            for row in rows.rows() {
                let along: f64 = row.iter().zip(&new).map(|(x, y)| x * y).sum();
                new.scaled_add(-along, &row);
            }
        }
        let left = length(&new);
        if left > 1e-6 * before {
            rows.push_row((new / left).view())?;
        }
    }
    while rows.nrows() < wanted {
        rows.push_row(Array1::zeros(width).view())?;
    }
    Ok(rows)
}

fn length(row: &Array1<f64>) -> f64 {
    row.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// The factors of a mean of products.
struct Factors {
    /// `rank x inputs`; rows have length 1 and are orthogonal.
    down: Array2<f64>,
    /// `outputs x rank`; columns are orthogonal, the longest first.
    up: Array2<f64>,
    /// The squared Frobenius norms of the mean, and of the product of these factors.
    squares: (f64, f64),
}

/// Returns the best factors of rank `rank` of the mean `sum_k weight_k up_k down_k`, where `downs`
/// has the rows of all `down_k`, and `ups` the columns of all `weight_k up_k`.
fn factorise(downs: &Array2<f64>, ups: &Array2<f64>, rank: usize) -> Result<Factors> {
    // the mean is `left' core right`, with few rows in each
    let (left, right) = (basis(&ups.t().to_owned())?, basis(downs)?);
    let core = product(
        product(left.view(), ups.view()).view(),
        product(downs.view(), right.t()).view(),
    );
    let Svd {
        values,
        right: turns,
    } = svd(core.clone())?;
    let kept = nonzero(&values).min(rank);
    let turns = turns.slice(s![..kept, ..]);
    let lengths = product(core.view(), turns.t());
    let mut up = Array2::zeros((ups.nrows(), rank));
    up.slice_mut(s![.., ..kept])
        .assign(&product(left.t(), lengths.view()));
    let squares = |values: ndarray::ArrayView1<'_, f64>| values.iter().map(|v| v * v).sum::<f64>();
    Ok(Factors {
        // rows of 0 beside columns of 0 would never learn
        down: complete(product(turns, right.view()), rank, downs)?,
        up,
        squares: (squares(values.view()), squares(values.slice(s![..kept]))),
    })
}

impl LoraProduct {
    fn words(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        [(&*self.down, &*self.up)].into_iter().chain(PEFT)
    }

    fn mean_product(inbox: &Inbox<Params>, pair: &Pair) -> Result<Factors> {
        let total: f64 = inbox.iter().map(|mail| mail.weight).sum();
        let (mut downs, mut ups, mut rank) = (Vec::new(), Vec::new(), 0);
        for mail in inbox.iter().filter(|mail| mail.weight > 0.0) {
            let (down, up) = matrices(&mail.body, pair)?;
            rank = down.nrows();
            downs.push(down);
            ups.push(up * (mail.weight / total));
        }
        let views = |all: &[Array2<f64>], axis| {
            let all: Vec<_> = all.iter().map(|one| one.view()).collect();
            concatenate(Axis(axis), &all)
        };
        factorise(&views(&downs, 0)?, &views(&ups, 1)?, rank)
    }
}

impl Aggregator for LoraProduct {
    type In = Params;
    type Out = Params;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let weights: Vec<f64> = inbox.iter().map(|mail| mail.weight).collect();
        let mut mean = inbox.weighted_mean(&weights, &*round.exec);
        let pairs = pairs(&mean, self.words());
        if pairs.is_empty() {
            round.note(format!(
                "no two parameters are factors by their names (`{}` and `{}`), so it is a plain mean: name the words in `down` and `up`",
                self.down, self.up
            ));
            return Ok(mean);
        }
        let (mut all, mut kept) = (0.0, 0.0);
        for pair in &pairs {
            let found = Self::mean_product(inbox, pair)?;
            all += found.squares.0;
            kept += found.squares.1;
            for (name, factor) in [(&pair.0, found.down), (&pair.1, found.up)] {
                let numbers: Vec<f32> = factor.iter().map(|x| *x as f32).collect();
                let shape = mean.0[name].raw_dim();
                mean.0
                    .insert(name.clone(), ArrayD::from_shape_vec(shape, numbers)?);
            }
        }
        round.record("kept", if all > 0.0 { kept / all } else { 1.0 });
        Ok(mean)
    }

    fn needs(&self) -> RequiredInputs {
        self.weigh.needs()
    }
}
plugin!(aggregator "lora-product" => LoraProduct,
    papers: ["Hu et al. 2022", "Bai et al. 2024"]);

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array, arr2};

    const DOWN: &str = "layer.lora_A.default.weight";
    const UP: &str = "layer.lora_B.default.weight";

    fn part() -> LoraProduct {
        LoraProduct {
            weigh: Weigh::Samples,
            down: "lora_A".into(),
            up: "lora_B".into(),
        }
    }

    fn body(down: Array2<f32>, up: Array2<f32>) -> Params {
        let head = ndarray::arr1(&[down[[0, 0]]]).into_dyn();
        let all = [(DOWN, down.into_dyn()), (UP, up.into_dyn()), ("head", head)];
        all.map(|(name, tensor)| (name.to_string(), tensor))
            .into_iter()
            .collect()
    }

    fn inbox(bodies: Vec<Params>, weights: &[f64]) -> Inbox<Params> {
        let mail = (0..).zip(bodies).zip(weights);
        let mail = mail.map(|((from, body), weight)| ClientMessage::new(from, *weight, body));
        Inbox::new(mail.collect()).unwrap()
    }

    fn matrix(params: &Params, name: &str) -> Array2<f32> {
        params.0[name].clone().into_dimensionality().unwrap()
    }

    fn product_of(params: &Params) -> Array2<f32> {
        product(matrix(params, UP).view(), matrix(params, DOWN).view())
    }

    fn drawn(seed: u64, rank: usize, own: usize) -> Params {
        let mut draws = fl_core::Stream::root(seed).draws();
        let down = Array::from_shape_simple_fn((rank, 7), || draws.normal() as f32);
        let mut up = Array::from_shape_simple_fn((5, rank), || draws.normal() as f32);
        up.slice_mut(s![.., own..]).fill(0.0);
        body(down, up)
    }

    fn close(found: &Array2<f32>, wanted: &Array2<f32>) {
        let far = (found - wanted)
            .iter()
            .fold(0f32, |far, x| far.max(x.abs()));
        assert!(far < 1e-5, "{found} is not {wanted}");
    }

    #[test]
    fn it_keeps_its_claims() {
        fl_conformance::aggregator(part);
    }

    #[test]
    fn close_the_product_is_the_weighted_mean_of_products_where_its_rank_allows() {
        // ranks 1 and 2 of 3: the sum has rank 3
        let inbox = inbox(vec![drawn(1, 3, 1), drawn(2, 3, 2)], &[10.0, 30.0]);
        let bodies: Vec<_> = inbox.iter().map(|mail| &mail.body).collect();
        let wanted = product_of(bodies[0]) * 0.25 + product_of(bodies[1]) * 0.75;
        let round = Round::first();
        let found = part().aggregate(&round, &inbox).unwrap();
        close(&product_of(&found), &wanted);
        // .. and a mean of factors is another matrix
        let mean = inbox.weighted_mean(&[10.0, 30.0], &*round.exec);
        assert!((product_of(&mean) - wanted).iter().any(|x| x.abs() > 0.1));
        assert_eq!(found.0["head"], mean.0["head"]);
        let kept = round.take_log();
        assert!(
            matches!(&kept[..], [fl_core::LogEvent::Number(name, kept)] if name == "kept" && (kept - 1.0).abs() < 1e-12)
        );
    }

    #[test]
    fn close_a_smaller_rank_keeps_the_largest_singular_values_first() {
        let all: Vec<_> = (0..6).map(|seed| drawn(seed, 2, 2)).collect();
        let mut mean = Array2::<f64>::zeros((5, 7));
        for body in &all {
            mean += &(product_of(body).mapv(f64::from) / 6.0);
        }
        let inbox = inbox(all, &[1.0; 6]);
        let round = Round::first();
        let found = part().aggregate(&round, &inbox).unwrap();
        let values = svd(mean.clone()).unwrap().values;
        let off = mean - product_of(&found).mapv(f64::from);
        let squares =
            |values: ndarray::ArrayView1<'_, f64>| values.iter().map(|v| v * v).sum::<f64>();
        // Eckart and Young: what is left are the other singular values
        let left = off.iter().map(|x| x * x).sum::<f64>();
        assert!(
            (left - squares(values.slice(s![2..]))).abs() < 1e-5,
            "{left} {values}"
        );
        let (down, up) = (matrix(&found, DOWN), matrix(&found, UP));
        close(&product(down.view(), down.t()), &Array2::eye(2));
        for at in 0..2 {
            let column = f64::from(product(up.t(), up.view())[[at, at]].sqrt());
            assert!((column - values[at]).abs() < 1e-5, "{column} {values}");
        }
        let share = squares(values.slice(s![..2])) / squares(values.view());
        let log = round.take_log();
        assert!(
            matches!(log[..], [fl_core::LogEvent::Number(_, kept)] if (kept - share).abs() < 1e-6)
        );
    }

    #[test]
    fn exact_factors_that_have_learnt_nothing_can_still_learn() {
        let zero = |k: u64| {
            let mut body = drawn(k, 2, 2);
            body.0.get_mut(UP).unwrap().fill(0.0);
            body
        };
        let found = part()
            .aggregate(&Round::first(), &inbox(vec![zero(1), zero(2)], &[1.0, 1.0]))
            .unwrap();
        let down = matrix(&found, DOWN);
        close(&product(down.view(), down.t()), &Array2::eye(2));
        assert!(found.0[UP].iter().all(|x| *x == 0.0));
        // also where all rows are 0, or are more than there are inputs
        let none = body(Array2::zeros((3, 2)), Array2::zeros((4, 3)));
        let found = part()
            .aggregate(&Round::first(), &inbox(vec![none], &[1.0]))
            .unwrap();
        let wanted = arr2(&[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]);
        assert_eq!(matrix(&found, DOWN), wanted);
    }

    #[test]
    fn names_of_peft_of_embeddings_and_of_settings_are_pairs() {
        let named = |words: &[(&str, &[usize])]| {
            let tensor =
                |(name, shape): &(&str, &[usize])| (name.to_string(), ArrayD::ones(*shape));
            words.iter().map(tensor).collect::<Params>()
        };
        let own = LoraProduct {
            down: "down".into(),
            up: "up".into(),
            ..part()
        };
        let all = named(&[
            ("a.lora_A.default.weight", &[2, 3]),
            ("a.lora_B.default.weight", &[4, 2]),
            ("b/down", &[2, 3]),
            ("b/up", &[4, 2]),
            ("c.lora_embedding_A.default", &[2, 9]),
            ("c.lora_embedding_B.default", &[4, 2]),
            ("d.lora_A.weight", &[2, 3]),
            ("download.up", &[1]),
        ]);
        let found = pairs(&all, own.words());
        let downs: Vec<_> = found.iter().map(|(down, _)| &down[..]).collect();
        insta::assert_snapshot!(downs.join(" "), @"a.lora_A.default.weight b/down c.lora_embedding_A.default");
        // a convolution: rank x inputs x 3 x 3, and outputs x rank x 1 x 1
        let conv = named(&[("lora_A", &[2, 3, 3, 3]), ("lora_B", &[4, 2, 1, 1])]);
        let found = part()
            .aggregate(&Round::first(), &inbox(vec![conv.clone()], &[1.0]))
            .unwrap();
        fl_core::message::alike(&conv, &found).unwrap();
        let wrong = named(&[("lora_A", &[2, 3]), ("lora_B", &[2, 4])]);
        let error = part().aggregate(&Round::first(), &inbox(vec![wrong], &[1.0]));
        insta::assert_snapshot!(error.unwrap_err(), @"`lora_A` is [2, 3] and `lora_B` [2, 4]: factors of one update must be rank x inputs and outputs x rank; name other words in `down` and `up`");
    }

    #[test]
    fn a_plain_mean_of_factors_and_a_product_without_factors_are_noted() {
        let bodies = || inbox(vec![drawn(1, 2, 2), drawn(2, 2, 2)], &[1.0, 1.0]);
        let notes = |round: &Round| {
            let log = round.take_log().into_iter();
            let text = log.filter_map(|event| match event {
                fl_core::LogEvent::Note(text) => Some(text),
                fl_core::LogEvent::Number(..) => None,
            });
            text.collect::<Vec<_>>().join("\n")
        };
        let mut mean = crate::Mean {
            weigh: Weigh::Samples,
            sum: crate::Sum::F64,
        };
        let (round, folding) = (Round::first(), Round::first());
        let found = mean.aggregate(&round, &bodies()).unwrap();
        let updated = mean.update(&folding, found.clone()).unwrap();
        assert_eq!(found, updated);
        let note = notes(&round);
        assert_eq!(note, notes(&folding));
        insta::assert_snapshot!(note, @"it averages the factors of 1 low-rank updates one by one (`layer.lora_A.default.weight`, `layer.lora_B.default.weight`), and the product of two means is not the mean of the products: `lora-product` averages the products");
        let plain = fl_conformance::params(&[&[1.0], &[2.0]]);
        mean.aggregate(&round, &plain).unwrap();
        assert_eq!(notes(&round), "");
        part().aggregate(&round, &plain).unwrap();
        insta::assert_snapshot!(notes(&round), @"no two parameters are factors by their names (`lora_A` and `lora_B`), so it is a plain mean: name the words in `down` and `up`");
    }
}
