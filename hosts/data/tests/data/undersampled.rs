use fl_core::settings::read_yaml;
use fl_core::{Examples, Inputs, Samples, Stream};
use fl_data::{Assembled, DataSpec, Undersampled, build};
use std::path::Path;

#[test]
fn everybody_has_the_whole_images_to_make() {
    let read = |yaml: &str| read_yaml::<DataSpec>(yaml);
    let made = |yaml: &str, seed| {
        let spec = read(yaml).map_err(|error| error.to_string())?;
        let built = build(&spec, Path::new("."), &Stream::root(seed));
        built.map_err(|error| format!("{error:#}"))
    };
    let set = "set: {glyphs: {train: 60, test: 20}}, clients: 3, validation: 0.2";
    let plain = format!("{{{set}, public: {{from: {{share: 0.3}}, labelled: true}}}}");
    let less = plain.replace("clients: 3", "clients: 3, undersampled: {}");
    let (plain, less) = (made(&plain, 1).unwrap(), made(&less, 1).unwrap());
    assert_eq!(less.task.kind.to_string(), "images of 1x28x28 values");
    assert!(
        less.notes.iter().any(|note| note.contains("a PSNR of 1")),
        "{:?}",
        less.notes
    );
    let bytes = |of: &Samples| -> Vec<u8> {
        let Inputs::Bytes { data, .. } = &**of.inputs() else {
            panic!()
        };
        let rows = of.ids().iter().map(|id| *id as usize * 784);
        rows.flat_map(|start| data[start..start + 784].to_vec())
            .collect()
    };
    let pairs = |of: &Assembled| -> Vec<Examples> {
        let public = of.public.as_ref().unwrap();
        let known = public.labelled.iter().chain(&public.truth);
        let own = of.clients.iter().chain(&of.client_validation);
        own.chain([&of.test]).chain(known).cloned().collect()
    };
    let (before, after) = (pairs(&plain), pairs(&less));
    assert_eq!((before.len(), after.len()), (9, 9));
    for (before, after) in before.iter().zip(&after) {
        let whole = after.images().unwrap();
        assert_eq!(
            whole.of().iter().copied().collect::<Vec<_>>(),
            bytes(&before.samples)
        );
        assert_ne!(bytes(&after.samples), bytes(&before.samples));
    }
    let public = less.public.as_ref().unwrap();
    assert_eq!(
        bytes(&public.samples),
        bytes(&public.truth.as_ref().unwrap().samples)
    );
    // clients and public samples still share one set: they can be joined
    assert!(
        less.clients[0]
            .join(public.labelled.as_ref().unwrap())
            .is_ok()
    );
    // the same images for every client and seed
    let again = made(&format!("{{{set}, undersampled: {{}}}}"), 7).unwrap();
    assert_eq!(bytes(&again.test.samples), bytes(&less.test.samples));
    // in a user's own file one row in front of others moves their masks
    let d = tempfile::tempdir().unwrap();
    let npy = |name: &str, shape: &str, n: usize| {
        let head = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({shape}), }}");
        let head = format!("{head:<117}\n");
        let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        bytes.extend(head.as_bytes());
        bytes.extend((0..n).map(|at| (at % 2) as u8));
        std::fs::write(d.path().join(name), bytes).unwrap();
        d.path().join(name).display().to_string()
    };
    let (x, y) = (npy("x.npy", "6, 1, 8, 8", 384), npy("y.npy", "6,", 6));
    let pair = format!("{{inputs: {x}, labels: {y}}}");
    let own = format!(
        "set: {{files: {{format: npy, train: [{pair}], test: {pair}}}}}, clients: 1, split: by-file"
    );
    let inferred = |more: &str| {
        made(&format!("{{{own}{more}}}"), 1)
            .unwrap()
            .inferred
            .join("; ")
    };
    assert!(!inferred("").contains("frequencies"));
    assert!(inferred(", undersampled: {}").contains("a row's place in its file"));
    let how: Undersampled = fl_core::settings::defaults();
    let node = how
        .of(&made(&format!("{{{set}}}"), 1).unwrap().clients[0])
        .unwrap();
    assert_eq!(node.task().kind, less.task.kind);

    let refused = |yaml: &str| made(yaml, 1).unwrap_err();
    let rows = refused("{set: {blobs: {train: 9}}, undersampled: {}}");
    assert!(rows.contains("only images have frequencies"), "{rows}");
    let pixels = refused("{set: cells, clients: 3, undersampled: {}}");
    assert!(pixels.contains("classes of their pixels"), "{pixels}");
    let turned = format!("{{{set}, undersampled: {{}}, domains: {{turned: [0, 90]}}}}");
    assert!(refused(&turned).contains("leave `domains` out"));
}
