use super::*;
use ndarray::array;

/// The gradient by central differences; all losses here are smooth at these scores.
fn by_difference(scores: &Array2<f64>, f: &dyn Fn(ArrayView2<'_, f64>) -> f64) -> Array2<f64> {
    Array2::from_shape_fn(scores.raw_dim(), |at| {
        let moved = |d: f64| {
            let mut s = scores.clone();
            s[at] += d;
            f(s.view())
        };
        (moved(1e-5) - moved(-1e-5)) / 2e-5
    })
}

/// A loss with its target filled in.
type Graded<'a> = dyn Fn(ArrayView2<'_, f64>) -> (f64, Array2<f64>) + 'a;

fn compare(name: &str, scores: &Array2<f64>, f: &Graded<'_>) {
    let (_, slope) = f(scores.view());
    let numeric = by_difference(scores, &|s| f(s).0);
    for (a, b) in slope.iter().zip(&numeric) {
        assert!((a - b).abs() < 1e-9, "{name}: {a}, by differences {b}");
    }
}

#[test]
fn close_gradients_are_the_differences() {
    let z = array![
        [0.9, 0.1, -0.4, 1.6],
        [0.3, -0.2, 1.4, 0.1],
        [0.5, -0.5, 0.25, 0.0]
    ];
    let t = array![
        [1.2, -0.7, 0.3, 2.2],
        [-1.5, 0.4, 0.9, 0.2],
        [0.1, 0.2, 0.3, 0.4]
    ];
    let p = log_softmax(t.view(), 1.0).mapv(f64::exp);
    let y = array![
        [1.0, 0.0, -1.0, 1.0],
        [0.0, -1.0, -1.0, 1.0],
        [0.5, 0.0, 0.0, 1.0]
    ];
    compare("mae", &z, &|z| absolute(z, t.view()));
    compare("mse", &z, &|z| squared(z, t.view()));
    compare("norm", &z, &|z| norm(z, t.view()));
    compare("kl", &z, &|z| kl(z, t.view(), 3.0));
    compare("cross-entropy", &z, &|z| cross_entropy(z, p.view()));
    compare("sigmoid cross-entropy", &z, &|z| {
        sigmoid_cross_entropy(z, y.view())
    });
    // KL and cross-entropy differ by the entropy of the target, which the student cannot change
    let (a, b) = (
        kl(z.view(), t.view(), 1.0).1,
        cross_entropy(z.view(), p.view()).1,
    );
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-12));
}

#[test]
fn close_known_values() {
    let t = array![
        [1.2, -0.7, 0.3, 2.2],
        [-1.5, 0.4, 0.9, 0.1],
        [0.0, 0.0, 0.0, 0.0]
    ];
    let z = array![
        [0.9, 0.1, -0.4, 1.6],
        [0.3, -0.2, 1.4, 0.1],
        [0.5, -0.5, 0.25, 0.0]
    ];
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
    near(absolute(z.view(), t.view()).0, 0.545_833_333_333_333_4);
    near(squared(z.view(), t.view()).0, 0.499_375);
    near(norm(z.view(), t.view()).0, 1.323_040_732_010_837_3);
    near(kl(z.view(), t.view(), 3.0).0, 0.170_583_568_776_956_52);
    assert_eq!(
        absolute(z.view(), t.view()).1[[1, 3]],
        0.0,
        "no slope where scores are equal"
    );
}

#[test]
fn unknown_findings_count_for_nothing() {
    let z = array![[3.0f32, -8.0], [90.0, -90.0]];
    let (value, slope) = sigmoid_cross_entropy(z.view(), array![[1.0, -1.0], [-1.0, 0.0]].view());
    assert!((value - f64::from((-3.0f32).exp().ln_1p()) / 2.0).abs() < 1e-6);
    assert_eq!((slope[[0, 1]], slope[[1, 0]]), (0.0, 0.0));
    assert_eq!(
        sigmoid_cross_entropy(z.view(), Array2::from_elem((2, 2), -1.0).view()).0,
        0.0
    );
    assert!(
        sigmoid_cross_entropy(array![[f32::NAN]].view(), array![[1.0]].view())
            .0
            .is_nan()
    );
}

#[test]
fn what_does_not_go_together_is_refused() {
    let soft = array![[0.5f32, 0.5]];
    let findings = array![[1i8, -1]];
    let refused =
        |loss, task, target: Target<'_>| check(loss, task, &target, 1).unwrap_err().to_string();
    let (one, many) = (TaskKind::Classes(2), TaskKind::Findings(2));
    assert!(
        refused(Loss::Mae, one, Target::Classes(&[1]))
            .contains("Mae cannot fit a single-label model to classes")
    );
    assert!(
        refused(Loss::CrossEntropy, many, Target::Classes(&[1]))
            .contains("multi-label model to classes")
    );
    assert!(
        refused(Loss::CrossEntropy, one, Target::Findings(findings.view())).contains("to findings")
    );
    assert!(
        refused(Loss::Kl { tau: 1.0 }, many, Target::Scores(soft.view())).contains("multi-label")
    );
    assert_eq!(
        refused(Loss::CrossEntropy, one, Target::Classes(&[2])),
        "class 2 of 2"
    );
    assert_eq!(
        refused(Loss::CrossEntropy, one, Target::Classes(&[0, 1])),
        "2 targets for 1 samples"
    );
    assert_eq!(
        refused(Loss::Mse, TaskKind::Classes(3), Target::Scores(soft.view())),
        "targets of width 2 for a model with 3 outputs"
    );
    assert!(
        refused(Loss::Kl { tau: 0.0 }, one, Target::Soft(soft.view())).contains("above 0, got 0")
    );
    assert!(check(Loss::CrossEntropy, many, &Target::Soft(soft.view()), 1).is_ok());
    let (value, _) = batch(
        Loss::Kl { tau: 2.0 },
        one,
        array![[0.7f32, 0.7]].view(),
        &Target::Soft(soft.view()),
        &[0],
    );
    assert!(
        value.abs() < 1e-7,
        "equal distributions do not diverge: {value}"
    );
}
