use fl_core::settings::read_yaml;
use fl_core::{Examples, Inputs, Samples, Stream};
use fl_data::{Assembled, DataSpec, build};
use std::f64::consts::PI;
use std::path::Path;
use std::sync::Arc;

fn made(folder: &Path, yaml: &str, seed: u64) -> Result<Assembled, String> {
    let mut spec = read_yaml::<DataSpec>(yaml).map_err(|error| error.to_string())?;
    if let Some((_, wrong)) = spec.resolve(folder).pop() {
        return Err(wrong);
    }
    let built = build(&spec, Path::new("."), &Stream::root(seed).child("data", 0));
    built.map_err(|error| format!("{error:#}"))
}

fn rows(of: &Samples) -> Vec<Vec<f64>> {
    let values = of.values().mapv(f64::from);
    values.rows().into_iter().map(|row| row.to_vec()).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

const BLOBS: &str = "set: {blobs: {features: 6, train: 40, test: 12}}, clients: 3, validation: 0.2, public: {from: {share: 0.3}, labelled: true}";

/// The rows of every view.
fn views(of: &Assembled) -> Vec<Vec<Vec<f64>>> {
    let public = of.public.as_ref().unwrap();
    let known = public.labelled.iter().chain(&public.truth);
    let own = of.clients.iter().chain(&of.client_validation);
    let all: Vec<&Examples> = own.chain([&of.test]).chain(known).collect();
    let samples = all.iter().map(|view| &view.samples);
    samples.chain([&public.samples]).map(rows).collect()
}

#[test]
fn close_products_of_random_features_are_the_papers_kernels() {
    let here = Path::new(".");
    let plain = made(here, &format!("{{{BLOBS}}}"), 1).unwrap();
    let x: Vec<Vec<f64>> = views(&plain).concat();
    let products = |features: &str, seed| {
        let made = made(here, &format!("{{{BLOBS}, features: {features}}}"), seed).unwrap();
        assert_eq!(made.task.input, [20_000]);
        let z = views(&made).concat();
        assert_eq!(z.len(), x.len());
        z
    };
    let close = |z: &[Vec<f64>], kernel: &dyn Fn(&[f64], &[f64]) -> f64, within: f64| {
        for at in (0..x.len()).step_by(5) {
            for other in (0..x.len()).step_by(7) {
                let (found, due) = (dot(&z[at], &z[other]), kernel(&x[at], &x[other]));
                let size = (dot(&x[at], &x[at]) * dot(&x[other], &x[other])).sqrt();
                assert!(
                    (found - due).abs() < within * size.max(1.0),
                    "{found}, by the paper {due}"
                );
            }
        }
    };
    // Rahimi and Recht 2007: exp(-|x - y|^2 / (2 scale^2))
    let z = products("{random-fourier: {width: 20000, scale: 3}}", 1);
    let gauss = |a: &[f64], b: &[f64]| {
        let apart = dot(a, a) + dot(b, b) - 2.0 * dot(a, b);
        libm::exp(-apart / 18.0)
    };
    close(&z, &gauss, 0.03);
    // Cho and Saul 2009, order 1: |x| |y| (sin t + (pi - t) cos t) / pi
    let z = products("{random-relu: {width: 20000}}", 1);
    let arc = |a: &[f64], b: &[f64]| {
        let size = (dot(a, a) * dot(b, b)).sqrt();
        let t = libm::acos((dot(a, b) / size).clamp(-1.0, 1.0));
        size * (libm::sin(t) + (PI - t) * libm::cos(t)) / PI
    };
    close(&z, &arc, 0.05);
}

#[test]
fn exact_random_features_follow_their_own_seed_alone() {
    let here = Path::new(".");
    let test = |features: &str, seed| {
        let set = "set: {blobs: {features: 6, train: 40, test: 12}}, clients: 3";
        let made = made(here, &format!("{{{set}, features: {features}}}"), seed).unwrap();
        rows(&made.test.samples)
    };
    for kind in ["random-fourier", "random-relu"] {
        let one = test(&format!("{{{kind}: {{width: 5}}}}"), 1);
        assert_eq!(one, test(&format!("{{{kind}: {{width: 5}}}}"), 2));
        assert_ne!(one, test(&format!("{{{kind}: {{width: 5, seed: 1}}}}"), 1));
    }
    // the same bits on every processor
    let features = "{random-fourier: {width: 3, scale: 2}}";
    let found: Vec<u32> = test(features, 1)[0]
        .iter()
        .map(|v| (*v as f32).to_bits())
        .collect();
    assert_eq!(found, [1_059_972_233, 3_209_467_046, 1_053_213_336]);
}

#[test]
fn close_principal_components_are_those_of_numpy_on_public_rows() {
    let d = tempfile::tempdir().unwrap();
    let write = |name: &str, rows: &[[f64; 3]]| {
        let rows = rows.iter().enumerate();
        let rows = rows.map(|(k, [a, b, c])| format!("{a},{b},{c},{}\n", ["no", "yes"][k % 2]));
        let text = format!("a,b,c,y\n{}", rows.collect::<String>());
        std::fs::write(d.path().join(name), text).unwrap();
    };
    let public = [
        [1.0, 2.0, 0.0],
        [2.0, 1.0, 1.0],
        [3.0, 5.0, -1.0],
        [4.0, 4.0, 2.0],
        [5.0, 9.0, 0.0],
        [6.0, 7.0, 3.0],
        [0.0, 1.0, -2.0],
        [2.0, 3.0, 4.0],
    ];
    let test = [[1.0, 1.0, 1.0], [7.0, 0.0, -3.0], [2.5, 4.5, 0.5]];
    write("public.csv", &public);
    write("test.csv", &test);
    write("own.csv", &[[90.0, -50.0, 7.0], [1.0, 2.0, 3.0]]);
    let files = |train: &str, more: &str| {
        format!("{{files: {{format: csv, train: {train}{more}, label: y, classes: [no, yes]}}}}")
    };
    let spec = |how: &str| {
        let (own, open) = (
            files("own.csv", ", test: test.csv"),
            files("public.csv", ""),
        );
        format!(
            "{{set: {own}, clients: 1, split: iid, normalise: {{mean: [0, 0, 0], std: [1, 1, 1]}}, public: {{from: {{set: {open}}}}}, features: {{principal-components: {{{how}}}}}}}"
        )
    };
    // (t - x.mean(0)) @ v of `np.linalg.eigh(np.cov(x.T))`, the largest entry of each vector positive
    let due = [
        [-3.41228876, 0.93931047],
        [-1.7550625, -1.85403806],
        [0.1033579, -0.55800915],
    ];
    let whitened = [
        [-0.97752139, 0.47176458],
        [-0.50277431, -0.93118252],
        [0.02960903, -0.28025766],
    ];
    for (how, due) in [("width: 2", due), ("width: 2, whiten: true", whitened)] {
        let made = made(d.path(), &spec(how), 1).unwrap();
        let found = rows(&made.test.samples);
        let pairs = found.iter().flatten().zip(due.iter().flatten());
        for (found, due) in pairs {
            assert!((found - due).abs() < 1e-6, "{how}: {found}, by NumPy {due}");
        }
        assert_eq!(made.clients[0].samples.shape(), [2]);
    }
    let error = made(d.path(), &spec("width: 4"), 1).unwrap_err();
    assert!(error.contains("4 components of 3 inputs"), "{error}");
    write("public.csv", &public[..2]);
    let error = made(d.path(), &spec("width: 2"), 1).unwrap_err();
    assert!(
        error.contains("the 2 public samples have 1 components"),
        "{error}"
    );
}

#[test]
fn rows_are_the_same_before_features_and_not_by_them() {
    let d = tempfile::tempdir().unwrap();
    let write = |name: &str, rows: &str| {
        std::fs::write(d.path().join(name), format!("a,b,y\n{rows}")).unwrap();
    };
    write("own.csv", "9,8,no\n7,6,yes\n");
    write("test.csv", "3,4,no\n5,6,yes\n");
    write("public.csv", "1,0,no\n2,0,yes\n4,0,no\n");
    let files = |train: &str, more: &str| {
        format!(
            "{{files: {{format: csv, train: {train}{more}, label: y, classes: [no, yes], columns: {{a: number, b: number}}}}}}"
        )
    };
    let (own, open) = (
        files("own.csv", ", test: test.csv"),
        files("public.csv", ""),
    );
    let spec = format!(
        "{{set: {own}, clients: 1, split: iid, normalise: {{mean: [0, 0], std: [1, 1]}}, public: {{from: {{set: {open}}}}}, features: {{principal-components: {{width: 1}}}}}}"
    );
    let made = made(d.path(), &spec, 1).unwrap();
    // the component is `a`: only the second row is public, and only the last is a test row
    let data = vec![1.0, 5.0, 2.0, 0.0, 3.0, 0.0, 5.0, 6.0];
    let shape = vec![2];
    let mut rows = Samples::all(Arc::new(Inputs::Dense { shape, data }));
    assert_eq!(made.shared_rows(&rows), [1, 1]);
    made.features
        .as_ref()
        .unwrap()
        .apply(vec![&mut rows])
        .unwrap();
    let public = &made.public.as_ref().unwrap().samples;
    let same = [&made.test.samples, public].map(|of| fl_data::shared_rows(&rows, of));
    assert_eq!(same, [2, 2]);
}

#[test]
fn features_that_cannot_be_are_refused() {
    let here = Path::new(".");
    let set = "set: {glyphs: {train: 60, test: 20}}, clients: 3";
    for (spec, part) in [
        (
            format!("{{{set}, features: {{principal-components: {{width: 3}}}}}}"),
            "are of public samples alone; give `public`",
        ),
        (
            format!("{{{set}, undersampled: {{}}, features: {{random-relu: {{width: 3}}}}}}"),
            "features have no pixels to predict",
        ),
        (
            format!("{{{set}, features: {{random-fourier: {{width: 0}}}}}}"),
            "width",
        ),
        (
            "{set: {blobs: {features: 4000, train: 60, test: 20}}, features: {random-relu: {width: 65536}}}".into(),
            "65536 features of 4000 inputs would take 2.1 GB, and at most 1.1 GB are possible; take a smaller `width`",
        ),
        (
            "{set: {blobs: {features: 2, train: 40000, test: 10}}, features: {random-fourier: {width: 65536}}}".into(),
            "65536 features of 40010 rows would take 10.5 GB, and at most 8.6 GB are possible; take a smaller `width`",
        ),
    ] {
        let error = made(here, &spec, 1).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}
