use super::*;
use ndarray::{Array2, ArrayD, IxDyn, array};

pub(super) fn logits() -> Logits {
    Logits::new(
        vec![4, 9, 11],
        Array2::from_shape_fn((3, 5), |(i, j)| {
            (i as f32 - 1.0) * 0.7 + j as f32 * 0.31 - 1.0
        }),
    )
}

pub(super) fn params() -> Params {
    let tensor = |shape: &[usize]| ArrayD::from_shape_fn(IxDyn(shape), |i| i[0] as f32 * 0.3 - 1.0);
    Params(
        [
            ("w".to_string(), tensor(&[3, 2])),
            ("b".to_string(), tensor(&[4])),
        ]
        .into(),
    )
}

#[test]
fn an_answer_is_about_what_was_asked_about() {
    assert!(check_rows(&logits(), &[11, 9, 5, 4]).is_ok());
    assert!(check_rows(&params(), &[]).is_ok());
    let twice = Logits::new(vec![4, 9, 4], logits().values);
    for (answer, asked) in [(logits(), &[4, 9][..]), (twice, &[4, 9, 11])] {
        let said = check_rows(&answer, asked).unwrap_err().to_string();
        assert!(said.contains("twice, or unasked"), "{said}");
    }
}

#[test]
fn exact_what_is_encoded_decodes_to_the_same() {
    assert_eq!(decode::<Logits>(&encode(&logits())).unwrap(), logits());
    assert_eq!(decode::<Params>(&encode(&params())).unwrap(), params());
    assert_eq!(
        decode::<Ids>(&encode(&Ids(vec![3, 1]))).unwrap(),
        Ids(vec![3, 1])
    );
    assert_eq!(
        decode::<Scalar>(&encode(&Scalar::new(2.5)))
            .unwrap()
            .value(),
        2.5
    );
    assert_eq!(decode::<Nothing>(&encode(&Nothing)).unwrap(), Nothing);
}

#[test]
fn exact_labels_decode_to_the_same() {
    let soft = SoftLabels::new(vec![3, 9], array![[0.25, 0.75], [1.0, 0.0]]);
    assert_eq!(decode::<SoftLabels>(&encode(&soft)).unwrap(), soft);
    let means = ClassMeans::new(vec![0, 2], array![[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]]);
    assert_eq!(decode::<ClassMeans>(&encode(&means)).unwrap(), means);
    for n in [0, 1, 7, 8, 9, 100] {
        let mask = Mask::new(&(0..n).step_by(3).collect::<Vec<_>>(), n);
        assert_eq!(decode::<Mask>(&encode(&mask)).unwrap(), mask);
        assert!(check(&mask).is_ok());
        assert_eq!(mask.positions(), (0..n).step_by(3).collect::<Vec<_>>());
    }
}

#[test]
fn keys_cost_nothing_a_mask_or_ids() {
    let values = 60;
    assert_eq!(
        bytes(&logits(), Some(&[4, 9, 11])),
        Bytes { values, keys: 0 }
    );
    assert_eq!(
        bytes(&logits(), Some(&(0..17).collect::<Vec<_>>())),
        Bytes { values, keys: 3 }
    );
    assert_eq!(bytes(&logits(), None), Bytes { values, keys: 12 });
    let all = Logits::new(vec![0, 1, 2], logits().values);
    assert_eq!(bytes(&all, None), Bytes { values, keys: 0 });
}

#[test]
fn every_cut_of_a_message_is_an_error() {
    let whole = encode(&logits());
    for cut in 0..whole.len() {
        assert!(
            decode::<Logits>(&whole[..cut]).is_err(),
            "{cut} of {} bytes",
            whole.len()
        );
    }
    let mut lying = whole.clone();
    lying[0..4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(decode::<Logits>(&lying).is_err());
    assert_eq!(
        decode::<Params>(&whole).unwrap_err().to_string(),
        "a message of kind logits where params was due"
    );
}

#[test]
fn nan_is_found_where_it_stands() {
    let mut bad = logits();
    bad.values[[1, 2]] = f32::NAN;
    assert_eq!(
        check(&bad).unwrap_err().to_string(),
        "`values` holds NaN at position 7; every number must be finite"
    );
}

#[test]
fn one_nan_among_many_numbers_is_found_in_any_layout() {
    let mut numbers = ArrayD::<f32>::zeros(IxDyn(&[50, 60]));
    numbers[[41, 7]] = f32::NEG_INFINITY;
    let turned = numbers.clone().reversed_axes();
    for (numbers, at) in [(numbers, 41 * 60 + 7), (turned, 7 * 50 + 41)] {
        let message = Params([("w".to_string(), numbers)].into());
        let text = check(&message).unwrap_err().to_string();
        assert!(
            text.contains(&format!("holds -inf at position {at};")),
            "{text}"
        );
    }
}

#[test]
fn only_trailing_shapes_of_row_keyed_messages_must_agree() {
    let few = Logits::new(vec![9], Array2::zeros((1, 5)));
    assert!(alike(&logits(), &few).is_ok());
    let narrow = Logits::new(vec![9], Array2::zeros((1, 4)));
    assert_eq!(
        alike(&logits(), &narrow).unwrap_err().to_string(),
        "`values` is [1, 4] here, [3, 5] in the first answer"
    );
    let mut other = params();
    other.0.insert("w".into(), ArrayD::zeros(IxDyn(&[2, 3])));
    assert_eq!(
        alike(&params(), &other).unwrap_err().to_string(),
        "`w` is [2, 3] here, [3, 2] in the first answer"
    );
}

#[test]
fn a_digest_knows_names_shapes_and_numbers() {
    let mut other = params();
    other.0.get_mut("b").unwrap()[[0]] += 1e-6;
    let mut renamed = params();
    let w = renamed.0.remove("w").unwrap();
    renamed.0.insert("v".into(), w);
    assert_ne!(digest(&params()), digest(&other));
    assert_ne!(digest(&params()), digest(&renamed));
    assert_eq!(digest(&params()), digest(&params()));
}

#[test]
fn every_message_is_what_its_columns_say_on_the_wire_and_in_json() {
    for of in types::CORE {
        let kind = of.kind;
        assert!(!of.doc.is_empty(), "{kind} has no doc");
        let message = table::example(of).unwrap_or_else(|| panic!("{kind} has no sample"));
        check(&*message).unwrap();
        let due = digest(&*message);
        let back = of.decode(&encode(&*message)).unwrap();
        assert_eq!(digest(&*back), due, "{kind} on the wire");
        let json = to_json(&*message);
        let back = of.from_json(json.as_object().unwrap()).unwrap();
        assert_eq!(digest(&*back), due, "{kind} as JSON");

        let (rows, classes, voters) = table::EXAMPLE;
        let shape = |text: &str, found: &[usize]| match text {
            "any" => true,
            "rows" if kind == "class-means" => found.len() == 1,
            "rows x classes" if kind == "class-means" => found.len() == 2 && found[1] == classes,
            "rows" => found == [rows],
            "rows x classes" => found == [rows, classes],
            "rows x voters" => found == [rows, voters],
            "rows / 8" => found == [rows.div_ceil(8)],
            number => found.len() == 1 && number.parse() == Ok(found[0]),
        };
        let tensors = message.content();
        let any = of.columns.first().is_some_and(|c| c.name == "*");
        for (at, (name, view)) in tensors.iter().enumerate() {
            let column = &of.columns[if any { 0 } else { at }];
            assert!(any || column.name == name, "{kind}: `{name}`");
            assert_eq!(column.dtype, view.dtype(), "{kind}: `{name}`");
            assert!(
                shape(column.shape, &view.shape()),
                "{kind}: `{name}` is {:?}",
                view.shape()
            );
        }
        assert!(any || tensors.len() == of.columns.len(), "{kind}");

        let whole = encode(&*message);
        for cut in 0..whole.len() {
            assert!(of.decode(&whole[..cut]).is_err(), "{kind}, cut at {cut}");
        }
        if let Some(column) = of.columns.first() {
            let odd = serde_json::json!({ column.name: [[1], [2, 3]] });
            assert!(of.from_json(odd.as_object().unwrap()).is_err(), "{kind}");
        }
    }
}

#[test]
fn json_that_is_no_message_is_refused() {
    let error = |json: serde_json::Value| {
        let error = from_json::<Votes>(json.as_object().unwrap()).unwrap_err();
        format!("{error:#}")
    };
    use serde_json::json;
    for (json, says) in [
        (
            json!({"rows": [0], "labels": [[1.5]], ".classes": [2]}),
            "`labels`: whole numbers of 0..=4294967295 are due, found 1.5",
        ),
        (
            json!({"rows": [-1], "labels": [[1]], ".classes": [2]}),
            "found -1",
        ),
        (
            json!({"rows": [0], "labels": [[1], 2], ".classes": [2]}),
            "a list mixes numbers and lists",
        ),
        (
            json!({"rows": [0], "labels": [[4]], ".classes": [2]}),
            "a vote for class 4",
        ),
        (
            json!({"rows": [0], "labels": [[4]]}),
            "no tensor `.classes`",
        ),
        (
            json!({"rows": [0], "labels": [[4]], ".classes": [4_294_967_295u32]}),
            "at most 67108864 counts",
        ),
        (
            json!({"rows": [0], "label": [[4]]}),
            "there is no such tensor; there are `rows`, `labels`, `.classes`",
        ),
        (
            json!({"rows": [0], "packed": [256], ".shape": [1, 2]}),
            "0..=255",
        ),
        (
            json!({"rows": [0], "packed": [1], ".shape": [4_000_000_000u32, 2]}),
            "1 bytes for 1 x 4000000000",
        ),
    ] {
        let found = error(json);
        assert!(found.contains(says), "{found}, not {says}");
    }
    let nan = json!({"value": ["nan"]});
    let error = from_json::<Scalar>(nan.as_object().unwrap()).unwrap_err();
    assert!(error.to_string().contains("holds NaN"), "{error}");
}
