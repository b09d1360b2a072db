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
