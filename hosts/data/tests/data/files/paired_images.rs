use fl_core::settings::read_yaml;
use fl_core::{Stream, TaskKind};
use fl_data::{Assembled, DataSpec, build, fingerprints};
use std::fs;
use std::path::Path;

/// A grey PNG.
fn png(width: u32, bits: png::BitDepth, bytes: &[u8]) -> Vec<u8> {
    let height = bytes.len() as u32 / width / if bits == png::BitDepth::Sixteen { 2 } else { 1 };
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(bits);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(bytes).unwrap();
    writer.finish().unwrap();
    file
}

fn eight(bytes: &[u8]) -> Vec<u8> {
    png(3, png::BitDepth::Eight, bytes)
}

fn write(dir: &Path, name: &str, content: &[u8]) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Two clients with three images of 2 x 3 pixels together, and one for testing; `mask` makes the
/// masks.
fn folders(mask: impl Fn(u8) -> Vec<u8>) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (at, place) in ["a/x/1", "a/x/2", "b/x/7", "t/x/1"].into_iter().enumerate() {
        let image = eight(&[at as u8, 1, 2, 3, 4, 5]);
        write(dir.path(), &format!("{place}.png"), &image);
        let place = place.replace("/x/", "/y/");
        write(dir.path(), &format!("{place}.png"), &mask(at as u8));
    }
    dir
}

fn read(dir: &Path, more: &str) -> Result<Assembled, String> {
    let pair = |of: &str| format!("{{inputs: {of}/x, labels: {of}/y}}");
    let yaml = format!(
        "{{set: {{files: {{train: [{}, {}], test: {}, {more}}}}}, clients: 2}}",
        pair("a"),
        pair("b"),
        pair("t")
    );
    let mut spec: DataSpec = read_yaml(&yaml).map_err(|error| error.to_string())?;
    if let Some((_, text)) = spec.resolve(dir).into_iter().next() {
        return Err(text.replace(&format!("{}/", dir.display()), ""));
    }
    let files = fingerprints(&spec, dir).unwrap();
    assert_eq!(files.len(), 8, "every image and every mask: {files:?}");
    build(&spec, Path::new("nowhere"), &Stream::root(1)).map_err(|error| format!("{error:#}"))
}

#[test]
fn masks_are_read_by_the_names_of_their_images() {
    let dir = folders(|at| eight(&[0, 255, 0, 0, 0, if at == 1 { 255 } else { 0 }]));
    let data = read(dir.path(), "format: masks").unwrap();
    let task = TaskKind::Pixels {
        classes: 2,
        height: 2,
        width: 3,
    };
    assert_eq!(
        (data.task.kind, &data.task.input[..]),
        (task, &[1, 2, 3][..])
    );
    assert!(
        data.notes[0].ends_with("; it reads 255 as 1"),
        "{:?}",
        data.notes
    );
    let own = data.clients[0].masks().unwrap();
    assert_eq!(own.of().row(1).to_vec(), [0, 1, 0, 0, 0, 1]);
    assert_eq!((data.clients[0].len(), data.clients[1].len()), (2, 1));
    assert!(own.objects().is_none());

    // classes by number, named by the spec
    let dir = folders(|at| eight(&[0, at % 3, 2, 1, 0, 0]));
    let data = read(dir.path(), "format: masks, classes: [none, organ, tumour]").unwrap();
    assert_eq!(data.classes, ["none", "organ", "tumour"]);
    assert_eq!(
        data.test.masks().unwrap().of().row(0).to_vec(),
        [0, 0, 2, 1, 0, 0]
    );

    let data = read(
        dir.path(),
        "format: masks, classes: [none, organ, tumour, vessel]",
    )
    .unwrap();
    let absent = "no test mask has `vessel` (1 of 3 classes besides the background); an image \
                  where none of it is predicted counts as 1 in `dice`";
    assert!(data.hidden_notes.iter().any(|note| note == absent));

    // 255 often means "no class" elsewhere
    let dir = folders(|_| eight(&[0, 1, 2, 255, 0, 0]));
    let data = read(dir.path(), "format: masks").unwrap();
    assert!(
        data.notes[0].contains("the 256 classes of pixels")
            && data.notes[0].ends_with("; 252 of them have no pixel there: every number of a mask is a class, and 255 is no mark for pixels without one"),
        "{:?}",
        data.notes
    );

    // of listed classes, one pixel never decides what 255 means in other masks
    let white = |_| eight(&[0, 255, 0, 0, 0, 0]);
    let names: Vec<String> = (0..256).map(|n| format!("c{n}")).collect();
    let listed = format!("format: masks, classes: [{}]", names.join(", "));
    let data = read(folders(white).path(), &listed).unwrap();
    assert_eq!(data.clients[1].masks().unwrap().of()[[0, 1]], 255);
    let error = read(folders(white).path(), "format: masks, classes: [a, b, c]").unwrap_err();
    assert!(
        error.ends_with("a pixel of class 255, and there are 3 classes, from 0"),
        "{error}"
    );

    // numbers of objects, of 16 bits
    let dir = folders(|at| {
        let bytes = [0, 0, 1, at, 0, 0, 0, 7, 0, 7, 0, 0];
        png(3, png::BitDepth::Sixteen, &bytes)
    });
    let data = read(dir.path(), "format: {masks: {pixels: objects}}").unwrap();
    let own = data.clients[1].masks().unwrap();
    assert_eq!(own.objects().unwrap().row(0).to_vec(), [0, 258, 0, 7, 7, 0]);
    assert_eq!(own.of().row(0).to_vec(), [0, 1, 0, 1, 1, 0]);
    assert_eq!(data.classes, ["background", "object"]);
}

#[test]
fn what_is_wrong_with_masks_names_the_file() {
    let good = |_| eight(&[0, 1, 0, 0, 1, 0]);
    let said = |change: &dyn Fn(&Path), more: &str| {
        let dir = folders(good);
        change(dir.path());
        read(dir.path(), more).unwrap_err()
    };
    let masks = "format: masks, classes: [no, yes]";
    let high = |dir: &Path| write(dir, "b/y/7.png", &eight(&[0, 1, 0, 9, 1, 0]));
    assert_eq!(
        said(&high, masks),
        "b/y/7.png: a pixel of class 9, and there are 2 classes, from 0"
    );
    let size = |dir: &Path| write(dir, "a/y/2.png", &eight(&[0, 1, 0]));
    assert_eq!(
        said(&size, masks),
        "a/y/2.png: 1 x 3 pixels, but a/x/2.png has 2 x 3"
    );
    let text = |dir: &Path| write(dir, "a/y/1.png", b"no picture");
    assert_eq!(said(&text, masks), "a/y/1.png: a mask must be a PNG");
    let short = |dir: &Path| write(dir, "a/y/1.png", &good(0)[..60]);
    assert!(said(&short, masks).starts_with("a/y/1.png: "));
    let swapped = |dir: &Path| fs::rename(dir.join("t/y/1.png"), dir.join("t/y/2.png")).unwrap();
    assert_eq!(
        said(&swapped, masks),
        "t/x/1.png: there is no mask of its name in t/y; expected 1.png"
    );
    let more = |dir: &Path| write(dir, "b/y/8.png", &good(0));
    assert!(read(folders(good).path(), masks).is_ok());
    let alone = said(&more, masks);
    assert_eq!(alone, "b/y/8.png: there is no image of its name in b/x");
    let gone = |dir: &Path| fs::remove_dir_all(dir.join("t/y")).unwrap();
    assert_eq!(said(&gone, masks), "there is no file t/y");
    let none = |_: &Path| {};
    assert!(said(&none, "format: masks, label: x").contains("two folders"));
    let large = said(&none, "format: masks, max-bytes: 20");
    assert!(large.contains("more than 20 bytes"), "{large}");
}

#[test]
fn images_are_read_with_those_to_be_made_of_them() {
    // twice as wide and high as what they are made of
    let large = |at: u8| png(6, png::BitDepth::Eight, &[10 * at; 24]);
    let dir = folders(large);
    let data = read(dir.path(), "format: pairs").unwrap();
    let task = TaskKind::Image {
        channels: 1,
        height: 4,
        width: 6,
    };
    assert_eq!(
        (data.task.kind, &data.task.input[..]),
        (task, &[1, 2, 3][..])
    );
    let made = |of: &fl_core::Examples| of.images().unwrap().of().column(7).to_vec();
    let [a, b] = &data.clients[..] else { panic!() };
    assert_eq!(
        (made(a), made(b), made(&data.test)),
        (vec![0, 10], vec![20], vec![30])
    );
    assert!(data.classes.is_empty() && data.inferred.is_empty());

    let said = |change: &dyn Fn(&Path), more: &str| {
        let dir = folders(large);
        change(dir.path());
        read(dir.path(), more).unwrap_err()
    };
    let none = |_: &Path| {};
    let small = |dir: &Path| write(dir, "b/y/7.png", &eight(&[0; 6]));
    assert_eq!(
        said(&small, "format: pairs").replace(dir.path().to_str().unwrap(), ""),
        "b/y/7.png: 2 x 3 grey, but a/y/1.png is 4 x 6 grey; all target images must be alike"
    );
    let swapped = |dir: &Path| fs::rename(dir.join("t/y/1.png"), dir.join("t/y/2.png")).unwrap();
    assert_eq!(
        said(&swapped, "format: pairs"),
        "t/x/1.png: there is no second image of its name in t/y; expected 1.png, .jpg or .jpeg"
    );
    assert!(said(&none, "format: pairs, label: x").contains("two folders"));
    assert!(said(&none, "format: pairs, classes: [a, b]").contains("have none"));
    assert!(said(&none, "format: pairs, max-bytes: 20").contains("more than 20 bytes"));
}
