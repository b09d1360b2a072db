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
        assert!(said.contains("not asked about or comes twice"), "{said}");
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
