use super::*;
use fl_core::settings::defaults;

fn rows(set: &Cells) -> Rows {
    let dir = std::path::Path::new(".");
    set.load(&Folder::new("cells", set.facts(), dir)).unwrap()
}

fn masks(labels: &Labels) -> &Masks {
    match labels {
        Labels::Pixels(masks) => masks,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nuclei_are_where_the_mask_says() {
    let all = rows(&defaults::<Cells>());
    let (inputs, masks) = (&all.train.0, masks(&all.train.1));
    assert_eq!((inputs.len(), inputs.shape()), (240, vec![3, 32, 32]));
    assert_eq!(
        all.sources.iter().map(|s| s.rows).collect::<Vec<_>>(),
        [80; 3]
    );
    let (of, objects) = (masks.of(), masks.objects().unwrap());
    assert!(of.iter().zip(objects).all(|(c, o)| (*c == 1) == (*o > 0)));
    let mut row = vec![0.0; inputs.width()];
    for domain in 0..3 {
        let (mut sums, mut counts) = ([[0.0; 3]; 2], [0.0; 2]);
        for at in domain * 80..domain * 80 + 80 {
            inputs.write_row(at, &mut row);
            for (pixel, class) in of.row(at).iter().enumerate() {
                counts[usize::from(*class)] += 1.0;
                for (c, sum) in sums[usize::from(*class)].iter_mut().enumerate() {
                    *sum += f64::from(row[c * 1024 + pixel]);
                }
            }
        }
        let share = counts[1] / (counts[0] + counts[1]);
        assert!((0.1..0.45).contains(&share), "{domain}: {share}");
        let apart = (0..3).map(|c| (sums[0][c] / counts[0] - sums[1][c] / counts[1]).abs());
        assert!(apart.clone().fold(0.0, f64::max) > 0.2, "{domain}");
        let bright = sums[1][2] / counts[1] > sums[0][2] / counts[0];
        assert_eq!(bright, domain == 2, "only fluorescence is bright on dark");
    }
    // some nuclei touch: two numbers side by side
    let touch = |at: usize| {
        let row = objects.row(at);
        (0..1023).any(|i| i % 32 < 31 && row[i] != row[i + 1] && row[i] > 0 && row[i + 1] > 0)
    };
    assert!((0..240).filter(|at| touch(*at)).count() > 60);
}

#[test]
fn a_laboratory_is_a_client() {
    let spec: fl_data::DataSpec = fl_core::settings::read_yaml(
        "{set: {cells: {train: 30, test: 9}}, clients: 3, public: {from: {share: 0.2}}}",
    )
    .unwrap();
    let dir = std::path::Path::new(".");
    let data = fl_data::build(&spec, dir, &Stream::root(1)).unwrap();
    let sizes: Vec<usize> = data.clients.iter().map(fl_core::Examples::len).collect();
    assert_eq!(
        sizes.iter().sum::<usize>() + data.public.unwrap().samples.len(),
        30
    );
    for (k, own) in data.clients.iter().enumerate() {
        let ids = own.samples.ids();
        assert!(ids.iter().all(|id| *id as usize / 10 == k), "{k}: {ids:?}");
        assert_eq!(own.class_counts(), [own.len() as u32; 2]);
    }
    for (wrong, said) in [
        ("clients: 4", "by-file"),
        (
            "clients: 3, split: {dirichlet: {alpha: 0.5}}",
            "every pixel has a class",
        ),
        ("clients: 3, domains: {turned: [0, 90]}", "not turned"),
        (
            "clients: 3, class-order: [1, 0]",
            "no single class for each row",
        ),
    ] {
        let yaml = format!("{{set: {{cells: {{train: 30, test: 9}}}}, {wrong}}}");
        let mut read: fl_data::DataSpec = fl_core::settings::read_yaml(&yaml).unwrap();
        let refused = format!("{:?}", read.resolve(std::path::Path::new(".")));
        assert!(refused.contains(said), "{wrong}: {refused}");
    }
    for bad in ["{domains: 3, train: 2}", "{side: 8}", "{domains: 4}"] {
        let yaml = format!("{{set: {{cells: {bad}}}, clients: 3}}");
        assert!(
            fl_core::settings::read_yaml::<fl_data::DataSpec>(&yaml).is_err(),
            "{bad}"
        );
    }
}
