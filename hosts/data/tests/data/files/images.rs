//! Images, and arrays of numbers.

use super::*;

#[test]
fn what_images_lose_is_told() {
    let case = Case::new(&[]);
    let png = |colour: png::ColorType, bits: png::BitDepth, width: u32, pixels: &[u8]| {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, 1);
        encoder.set_color(colour);
        encoder.set_depth(bits);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(pixels).unwrap();
        writer.finish().unwrap();
        bytes
    };
    use png::BitDepth::{Eight, Sixteen};
    use png::ColorType::{Grayscale, GrayscaleAlpha};
    let told = |more: &str| {
        let files = format!("{{format: {{images: {{{more}}}}}, train: a, test: a}}");
        let notes = case.data(&files, "").hidden_notes;
        let lost = |note: &String| note.contains(" image");
        notes
            .into_iter()
            .filter(lost)
            .collect::<Vec<_>>()
            .join("; ")
    };
    case.write(
        "a/cat/opaque.png",
        &png(GrayscaleAlpha, Eight, 2, &[9, 255, 8, 255]),
    );
    case.write("a/dog/plain.png", &png(Grayscale, Eight, 2, &[1, 2]));
    assert_eq!(told(""), "");
    // training and test rows are the same files here
    case.write(
        "a/cat/clear.png",
        &png(GrayscaleAlpha, Eight, 2, &[9, 255, 8, 0]),
    );
    case.write("a/cat/deep.png", &png(Grayscale, Sixteen, 2, &[1, 2, 3, 4]));
    assert_eq!(
        told(""),
        "2 of 8 images have transparent pixels; they get the colour that stands in the file; 2 of 8 images have 16 bits a channel; fl reads the upper 8"
    );
    // a folder in a folder of a class, another ending, an image beside the folders of classes
    for name in [
        "a/cat/more/1.png",
        "a/dog/2.webp",
        "a/0.png",
        "a/dog/.hidden",
    ] {
        case.write(name, &png(Grayscale, Eight, 2, &[1, 2]));
    }
    assert!(told("").ends_with(
        "; 3 entries of image folders are not read: `a/0.png`, `cat/more`, `dog/2.webp`; fl reads files that end in png, jpg, jpeg, and those in folders of classes if there are any"
    ), "{}", told(""));
    for name in ["a/cat/more/1.png", "a/dog/2.webp", "a/0.png"] {
        fs::remove_file(case.0.path().join(name)).unwrap();
    }
    fs::remove_dir(case.0.path().join("a/cat/more")).unwrap();
    case.write("a/cat/wide.png", &png(Grayscale, Eight, 4, &[1, 2, 3, 4]));
    let cut = "2 of 10 images have another shape than `resize`, which cuts off their sides; `by: stretch` keeps them";
    assert!(told("resize: {height: 1, width: 2}").ends_with(cut));
    assert!(!told("resize: {height: 1, width: 2, by: stretch}").contains("cuts"));
}

#[test]
fn arrays_with_labels_beside_or_inside() {
    let case = Case::new(&[]);
    case.write(
        "x.npy",
        &npy("<f4", "(3, 2)", &floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
    );
    case.write(
        "y.npy",
        &npy(
            "<i8",
            "(3, 1)",
            &[0i64, 7, 0].map(i64::to_le_bytes).concat(),
        ),
    );
    case.write(
        "xy.npy",
        &npy(
            "<f4",
            "(3, 3)",
            &floats(&[1.0, 0.0, 2.0, 3.0, 7.0, 4.0, 5.0, 0.0, 6.0]),
        ),
    );
    let pair = case.data(
        "{format: npy, train: {inputs: x.npy, labels: y.npy}, holdout: 0.34}",
        ", clients: 1",
    );
    let one = case.data(
        "{format: npy, train: xy.npy, label: 2, holdout: 0.34}",
        ", clients: 1",
    );
    for data in [&pair, &one] {
        assert_eq!(data.classes, ["0", "7"]);
    }
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, content) in [("x.npy", "x.npy"), ("t.npy", "y.npy")] {
        zip.start_file(name, zip::write::SimpleFileOptions::default())
            .unwrap();
        zip.write_all(&fs::read(case.0.path().join(content)).unwrap())
            .unwrap();
    }
    case.write("a.npz", &zip.finish().unwrap().into_inner());
    let files = "{format: npz, train: a.npz, label: t, holdout: 0.34}";
    assert_eq!(rows(&case.data(files, ", clients: 1")), rows(&pair));
    let error = case.error("{format: npz, train: a.npz, label: y, holdout: 0.1}");
    assert!(
        error.contains("there is no array `y`; it has: x, t"),
        "{error}"
    );
    case.write(
        "y.npy",
        &npy("<i8", "(2,)", &[0i64, 7].map(i64::to_le_bytes).concat()),
    );
    let error = case.error("{format: npy, train: {inputs: x.npy, labels: y.npy}, holdout: 0.34}");
    assert!(
        error.contains("x.npy holds 3 rows") && error.contains("y.npy holds 2 labels"),
        "{error}"
    );
    case.write(
        "x.npy",
        &npy(
            "<f4",
            "(3, 2)",
            &floats(&[1.0, f32::NAN, 3.0, 4.0, 5.0, 6.0]),
        ),
    );
    case.write("y.npy", &npy("|u1", "(3,)", &[0, 7, 0]));
    let error = case.error("{format: npy, train: {inputs: x.npy, labels: y.npy}, holdout: 0.34}");
    assert!(error.contains("x.npy: row 0, value 1: NaN"), "{error}");
}

#[test]
fn bytes_are_images_whichever_side_the_channels_are() {
    let case = Case::new(&[]);
    case.write("y.npy", &npy("|u1", "(2,)", &[0, 1]));
    // image, channel, row, column; and the same numbers with the channel last
    let number = |i: usize, c: usize, r: usize, x: usize| (100 * i + 10 * c + 2 * r + x) as u8;
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for i in 0..2 {
        (0..12).for_each(|at| before.push(number(i, at / 4, at / 2 % 2, at % 2)));
        (0..12).for_each(|at| after.push(number(i, at % 3, at / 6, at / 3 % 2)));
    }
    case.write("before.npy", &npy("|u1", "(2, 3, 2, 2)", &before));
    case.write("after.npy", &npy("|u1", "(2, 2, 2, 3)", &after));
    let of = |inputs: &str| {
        let pair = format!("{{inputs: {inputs}, labels: y.npy}}");
        rows(&case.data(
            &format!("{{format: npy, train: {pair}, test: {pair}}}"),
            ", clients: 1",
        ))
    };
    assert_eq!(of("before.npy"), of("after.npy"));
    assert!((of("after.npy")[1][5] * 255.0 - 111.0).abs() < 1e-3);
    let pair = "{inputs: after.npy, labels: y.npy}";
    let error = case.error(&format!("{{format: npy, train: {pair}, holdout: 0.01}}"));
    assert!(
        error.contains("there are no test rows"),
        "1 % of two rows: {error}"
    );
}

#[test]
fn a_note_says_whether_arrays_of_images_are_scaled() {
    let case = Case::new(&[]);
    case.write("y.npy", &npy("|u1", "(2,)", &[0, 1]));
    let bytes: Vec<u8> = (0..24).collect();
    let numbers = floats(&bytes.iter().map(|n| f32::from(*n)).collect::<Vec<_>>());
    let notes = |kind: &str, shape: &str, content: &[u8]| {
        case.write("x.npy", &npy(kind, shape, content));
        let pair = "{inputs: x.npy, labels: y.npy}";
        let files = format!("{{format: npy, train: {pair}, test: {pair}}}");
        let data = case.data(&files, ", clients: 1");
        (rows(&data)[0][1], data.notes.join("\n"))
    };
    let (divided, as_they_are) = ("divided by 255", "taken as they are");
    for shape in ["(2, 3, 4)", "(2, 1, 3, 4)"] {
        let (value, told) = notes("|u1", shape, &bytes);
        assert!((value * 255.0 - 1.0).abs() < 1e-6, "{value}");
        assert!(
            told.contains(divided) && !told.contains(as_they_are),
            "{told}"
        );
        let (value, told) = notes("<f4", shape, &numbers);
        assert_eq!(value, 1.0);
        assert!(
            !told.contains(divided) && told.contains(as_they_are),
            "{told}"
        );
    }
    // rows of a table
    let (value, told) = notes("|u1", "(2, 12)", &bytes);
    assert_eq!(value, 1.0);
    assert!(
        !told.contains(divided) && !told.contains(as_they_are),
        "{told}"
    );
}

/// Arrays of any numbers, and the shapes that can be read in two ways.
#[test]
fn images_of_any_numbers_have_their_channels_in_front() {
    let case = Case::new(&[]);
    case.write("y.npy", &npy("|u1", "(2,)", &[0, 1]));
    let images = |kind: &str, sides: [usize; 3]| {
        let count = 2 * sides.iter().product::<usize>();
        let content: Vec<u8> = match kind {
            "|u1" => (0..count).map(|at| at as u8).collect(),
            "<i8" => (0..count)
                .flat_map(|at| (at as i64).to_le_bytes())
                .collect(),
            _ => floats(&(0..count).map(|at| at as f32).collect::<Vec<_>>()),
        };
        let [a, b, c] = sides;
        case.write(
            "x.npy",
            &npy(kind, &format!("(2, {a}, {b}, {c})"), &content),
        );
    };
    let read = |format: &str| {
        let pair = "{inputs: x.npy, labels: y.npy}";
        let data = case.data(
            &format!("{{format: {format}, train: {pair}, test: {pair}}}"),
            ", clients: 1",
        );
        let pixel = rows(&data)[1].clone();
        assert!(
            data.inferred.iter().all(|text| !text.contains("channels")),
            "not of the rows"
        );
        (data.task.input, pixel, data.notes.join("\n"))
    };
    for kind in ["|u1", "<i8", "<f4"] {
        let scale = if kind == "|u1" { 255.0 } else { 1.0 };
        for channels in [1, 3, 4] {
            images(kind, [2, 5, channels]);
            let (shape, found, notes) = read("npy");
            assert_eq!(shape, [channels, 2, 5], "{kind}");
            // the first channel of the second pixel of the second image
            let due = (11 * channels) as f32 / scale;
            assert!((found[1] - due).abs() < 1e-6, "{kind}: {found:?}");
            let said = format!(
                "rows of 2 x 5 x {channels} values are read as images of {channels} channels and 2 x 5 pixels; `channels: last` in \
                 `format` says the same, and `channels: first` reads them the other way"
            );
            assert!(notes.contains(&said), "{notes}");
            assert_eq!(read("{npy: {channels: first}}").0, [2, 5, channels]);
            // as PyTorch has them there is nothing to say
            images(kind, [channels, 2, 5]);
            let (shape, _, notes) = read("npy");
            assert_eq!(
                (shape, notes.contains("values are read")),
                (vec![channels, 2, 5], false)
            );
        }
        for sides in [[3, 8, 3], [4, 4, 4], [8, 8, 8], [8, 8, 2]] {
            images(kind, sides);
            let (shape, _, notes) = read("npy");
            assert_eq!(shape, sides);
            assert!(
                notes.contains("`channels: last` reads them the other way"),
                "{notes}"
            );
            let (shape, _, notes) = read("{npy: {channels: last}}");
            assert_eq!(shape, [sides[2], sides[0], sides[1]]);
            assert!(!notes.contains("values are read"), "{notes}");
        }
    }
}

#[test]
fn images_stand_in_folders_of_their_class() {
    let case = Case::new(&[]);
    let png = |grey: u8| {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 2, 2);
        encoder.set_color(png::ColorType::Grayscale);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(&[grey, 0, 0, 255]).unwrap();
        writer.finish().unwrap();
        bytes
    };
    for (folder, grey) in [
        ("a/cat/1", 51),
        ("a/cat/2", 102),
        ("a/dog/1", 153),
        ("b/dog/1", 204),
        ("t/cat/1", 0),
    ] {
        case.write(&format!("{folder}.png"), &png(grey));
    }
    let data = case.data("{format: images, train: [a, b], test: t}", "");
    assert_eq!(
        (data.task.input.clone(), data.classes.clone()),
        (vec![1, 2, 2], vec!["cat".into(), "dog".into()])
    );
    assert_eq!(data.clients[0].class_counts(), [2, 1]);
    assert!((rows(&data)[3][0] - 0.8).abs() < 1e-6);
    let one = case.data("{format: images, train: a, holdout: 0.34}", ", clients: 2");
    assert_eq!((one.clients.len(), one.test.len()), (2, 1));
    let whole = png(1);
    case.write("b/dog/2.png", &whole[..whole.len() - 20]);
    assert!(
        case.error("{format: images, train: [a, b], test: t}")
            .contains("b/dog/2.png")
    );
    case.write("b/dog/2.png", b"GIF89a");
    assert!(
        case.error("{format: images, train: [a, b], test: t}")
            .contains("neither PNG nor JPEG")
    );
}

#[test]
fn images_of_different_sizes_get_one() {
    let case = Case::new(&[]);
    let png = |colour: png::ColorType, width: u32, pixels: &[u8]| {
        let mut bytes = Vec::new();
        let of_pixel = colour.samples() as u32;
        let height = pixels.len() as u32 / width / of_pixel;
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(colour);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(pixels).unwrap();
        writer.finish().unwrap();
        bytes
    };
    let grey = png::ColorType::Grayscale;
    let row = [0, 10, 20, 30];
    case.write("a/cat/wide.png", &png(grey, 4, &[row, row].concat()));
    let column = [0, 0, 10, 10, 20, 20, 30, 30];
    case.write("a/cat/high.png", &png(grey, 2, &column));
    case.write("a/dog/small.png", &png(grey, 1, &[77]));
    case.write("a/dog/fits.png", &png(grey, 2, &[1, 2, 3, 4]));
    let read = |by: &str| {
        let resize = format!("{{height: 2, width: 2, by: {by}}}");
        let format = format!("{{images: {{resize: {resize}}}}}");
        let data = case.data(&format!("{{format: {format}, train: a, test: a}}"), "");
        let bytes = |row: Vec<f32>| row.into_iter().map(|x| (x * 255.0).round()).collect();
        rows(&data)
            .into_iter()
            .map(bytes)
            .collect::<Vec<Vec<f32>>>()
    };
    // high, wide, fits, small
    let [fits, small] = [vec![1.0, 2.0, 3.0, 4.0], vec![77.0; 4]];
    let cut = [vec![10.0, 10.0, 20.0, 20.0], vec![10.0, 20.0, 10.0, 20.0]];
    assert_eq!(
        read("crop"),
        [&cut[..], &[fits.clone(), small.clone()]].concat()
    );
    // a triangle two pixels wide on either side: weights 3/7, 3/7 and 1/7
    let [low, high] = [50.0_f32 / 7.0, 160.0 / 7.0].map(f32::round);
    let stretched = [vec![low, low, high, high], vec![low, high, low, high]];
    assert_eq!(read("stretch"), [&stretched[..], &[fits, small]].concat());
    let error = case.error("{format: images, train: a, test: a}");
    assert!(
        error.contains("all images must be alike, or get one size by `resize`"),
        "{error}"
    );
    // grey and colour stay apart, unless the spec says which it is to be
    case.write("a/dog/red.png", &png(png::ColorType::Rgb, 1, &[90, 0, 8]));
    let coloured = |more: &str| {
        format!(
            "{{format: {{images: {{resize: {{height: 2, width: 2}}{more}}}}}, train: a, test: a}}"
        )
    };
    let error = case.error(&coloured(""));
    assert!(
        error.contains("in colour") && error.contains("by `colours` of `images`: grey or rgb"),
        "{error}"
    );
    // high, wide, fits, red, small
    let red = |colours: &str| {
        let data = case.data(&coloured(&format!(", colours: {colours}")), "");
        let bytes = rows(&data)[3..].concat();
        let bytes = bytes.iter().map(|x| (x * 255.0).round() as u8);
        bytes.collect::<Vec<u8>>()
    };
    assert_eq!(
        red("rgb"),
        [[90; 4], [0; 4], [8; 4], [77; 4], [77; 4], [77; 4]].concat()
    );
    // 0.299 90 + 0.114 8 = 27.82
    assert_eq!(red("grey"), [[28; 4], [77; 4]].concat());
    let one = "{format: {images: {resize: {height: 0, width: 2}}}, train: a, test: a}";
    assert!(case.error(one).contains("height: must be in 1..=4096"));
}

/// JPEG and PNG in one folder are of one set; so are files whose ending is another.
#[test]
fn jpeg_and_png_stand_side_by_side() {
    let case = Case::new(&[]);
    let sample = |name: &str| {
        let place = "../../tests/fuzz/corpus/images/";
        fs::read(format!("{}/{place}{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    };
    case.write("a/cat/1.jpg", &sample("grey.jpg"));
    case.write("a/dog/3.JPEG", &sample("grey.jpg"));
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 8, 8);
    encoder.set_color(png::ColorType::Grayscale);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&[51; 64]).unwrap();
    writer.finish().unwrap();
    case.write("a/cat/2.png", &bytes);
    let data = case.data("{format: images, train: a, test: a}", ", clients: 1");
    assert_eq!(data.task.input, [1, 8, 8]);
    assert_eq!(data.clients[0].class_counts(), [2, 1]);
    let all = rows(&data);
    assert_eq!(all[0], all[2]);
    assert!((all[1][0] - 0.2).abs() < 1e-6);
    assert_ne!(all[0], all[1]);
    case.write("a/cat/4.png", &sample("grey.png"));
    let error = case.error("{format: images, train: a, test: a}");
    assert!(error.contains("get one size by `resize`"), "{error}");
}

/// A row of a table, or the name of a folder, has the number of an image.
#[test]
fn exact_images_have_labels_in_a_table_or_numbers_for_folders() {
    let case = Case::new(&[
        (
            "ages.csv",
            "age,file,kind\n3,b/2.png,old\n1,a/1.png,new\n2.5,c/3.png,new\n",
        ),
        (
            "t.jsonl",
            "{\"file\": \"1.png\", \"age\": 7, \"kind\": \"old\"}\n",
        ),
        (
            "two.csv",
            "age,file\n1,a/1.png\n2,a/1.png\n,b/2.png\nten,c/3.png\n5,d/4.png\n",
        ),
        ("few.csv", "age,file\n1,a/1.png\n3,c/3.png\n"),
    ]);
    let png = |grey: u8| {
        let mut bytes = Vec::new();
        let mut writer = png::Encoder::new(&mut bytes, 1, 1).write_header().unwrap();
        writer.write_image_data(&[grey]).unwrap();
        writer.finish().unwrap();
        bytes
    };
    for (name, grey) in [
        ("p/a/1", 51),
        ("p/b/2", 102),
        ("p/c/3", 153),
        ("t/1", 204),
        ("n/1.5/x", 51),
        ("n/-2/y", 102),
        ("m/4/z", 0),
    ] {
        case.write(&format!("{name}.png"), &png(grey));
    }
    let of = |examples: &Examples| match &**examples.labels() {
        fl_core::Labels::Numbers(numbers) => numbers.of().iter().copied().collect::<Vec<f32>>(),
        other => panic!("{other:?}"),
    };
    let scale = "kind: {number: {centre: 1, spread: 0.5}}";
    let table = format!(
        "{{format: images, train: {{inputs: p, labels: ages.csv}}, test: {{inputs: t, labels: t.jsonl}}, label: {{column: age, {scale}}}}}"
    );
    let data = case.data(&table, ", clients: 1");
    assert_eq!(
        rows(&data)
            .concat()
            .iter()
            .map(|x| (x * 5.0).round())
            .collect::<Vec<_>>(),
        [1.0, 2.0, 3.0]
    );
    assert_eq!(of(&data.clients[0]), [0.0, 4.0, 3.0]);
    assert_eq!(of(&data.test), [12.0]);
    assert!(!data.hidden_notes.join("; ").contains("not read"));
    let folders = format!("{{format: images, train: n, test: m, label: {{{scale}}}}}");
    let data = case.data(&folders, ", clients: 1");
    assert_eq!(
        (of(&data.clients[0]), of(&data.test)),
        (vec![-6.0, 1.0], vec![6.0])
    );
    // a class in a table, and a table for each client
    let each = "{inputs: p, labels: ages.csv}, {inputs: t, labels: t.jsonl}";
    let data = case.data(
        &format!(
            "{{format: images, train: [{each}], test: {{inputs: t, labels: t.jsonl}}, label: kind}}"
        ),
        "",
    );
    assert_eq!(data.classes, ["new", "old"]);
    assert_eq!(data.clients[0].class_counts(), [2, 1]);
    assert_eq!(data.clients[1].class_counts(), [0, 1]);
    let wrong = |labels: &str, more: &str| {
        case.error(&format!(
            "{{format: {{images: {{{more}}}}}, train: {{inputs: p, labels: {labels}}}, holdout: 0.4, label: {{column: age, {scale}}}}}"
        ))
    };
    assert_eq!(
        wrong("two.csv", ""),
        "set.files.format.images.file: two.csv:3: column `file`: an earlier row names p/a/1.png, too; two.csv:4: column `age`: the label is missing; \
         two.csv:5: column `age`: `ten` is not a number; two.csv:6: column `file`: there is no image p/d/4.png"
    );
    assert_eq!(
        wrong("few.csv", ""),
        "set.files.format.images.file: p/b/2.png: no row of few.csv has its name in the column `file`"
    );
    assert!(wrong("ages.csv", "file: name").contains("there is no column `name`"));
    assert!(
        wrong("none.csv", "")
            .contains("there is no file none.csv; the labels of images are in one table")
    );
    // what a column of many decimals is told, it can do
    let decimals = Case::new(&[]);
    for at in 0..30 {
        decimals.write(&format!("a/{at}.5/1.png"), &png(at));
    }
    let error = decimals.error("{format: images, train: a, holdout: 0.1}");
    assert!(error.contains("say `label: { kind: number }`"), "{error}");
    let files = "{format: images, train: a, holdout: 0.1, label: {kind: number}}";
    assert_eq!(decimals.data(files, ", clients: 1").clients[0].len(), 27);
}

/// Truth values are no bytes of a picture.
#[test]
fn truth_values_are_numbers() {
    let case = Case::new(&[]);
    case.write("y.npy", &npy("|u1", "(2,)", &[0, 1]));
    for shape in ["(2, 1, 2, 2)", "(2, 2, 2)", "(2, 4)"] {
        case.write("x.npy", &npy("|b1", shape, &[0, 1, 0, 1, 1, 1, 0, 0]));
        let pair = "{inputs: x.npy, labels: y.npy}";
        let files = format!("{{format: npy, train: {pair}, test: {pair}}}");
        let data = case.data(&files, ", clients: 1");
        assert_eq!(
            rows(&data),
            [[0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0]],
            "{shape}"
        );
    }
    case.write("x.npy", &npy("<M8[ns]", "(2, 1)", &[0; 16]));
    let files = "{format: npy, train: {inputs: x.npy, labels: y.npy}, holdout: 0.5}";
    let error = case.error(files);
    assert!(
        error.contains("times (`<M8[ns]`) are not read; save them as numbers"),
        "{error}"
    );
}

#[test]
fn a_part_of_an_image_is_no_row() {
    let place = "../../tests/fuzz/corpus/images/grey.jpg";
    let whole = fs::read(format!("{}/{place}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let case = Case::new(&[]);
    case.write("a/cat/1.jpg", &whole);
    case.write("a/dog/2.jpg", &whole);
    case.data("{format: images, train: a, test: a}", ", clients: 1");
    // without the end of what is drawn
    let scan = whole.windows(2).position(|two| two == [0xff, 0xda]);
    case.write("a/dog/2.jpg", &whole[..scan.unwrap() + 12]);
    let error = case.error("{format: images, train: a, test: a}");
    assert!(error.contains("dog/2.jpg: damaged, cut off"), "{error}");
    // a preview before it, and the start of another image behind it, are none of its own
    let behind = [&whole[..], b"behind\xff\xda\0\x08"].concat();
    case.write("a/dog/2.jpg", &behind);
    case.data("{format: images, train: a, test: a}", ", clients: 1");
    let preview = b"\xff\xfe\0\x0a\xff\xda\0\x02\0\0\xff\xd9";
    let cut = [&whole[..2], preview, &whole[2..scan.unwrap() + 12]];
    case.write("a/dog/2.jpg", &cut.concat());
    let error = case.error("{format: images, train: a, test: a}");
    assert!(error.contains("dog/2.jpg: damaged, cut off"), "{error}");
}

#[test]
fn a_png_that_is_to_be_turned_is_told() {
    let case = Case::new(&[]);
    let png = |exif: Option<Vec<u8>>| {
        let mut bytes = Vec::new();
        let mut info = png::Info::with_size(2, 1);
        info.color_type = png::ColorType::Grayscale;
        info.exif_metadata = exif.map(Into::into);
        let encoder = png::Encoder::with_info(&mut bytes, info).unwrap();
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(&[1, 2]).unwrap();
        writer.finish().unwrap();
        bytes
    };
    let entry = [0x12, 1, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0];
    let exif = [&b"II*\0\x08\0\0\0\x01\0"[..], &entry, &[0; 4]].concat();
    case.write("a/cat/1.png", &png(Some(exif)));
    case.write("a/dog/2.png", &png(None));
    let data = case.data("{format: images, train: a, test: a}", ", clients: 1");
    let notes = data.hidden_notes.join("; ");
    assert!(
        notes.contains("2 of 4 images say that they are to be shown turned or mirrored"),
        "{notes}"
    );
}
