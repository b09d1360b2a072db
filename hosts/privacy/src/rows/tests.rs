use super::{DataId, RowKey, SAMPLE, Sharing};
use fl_data::RowIdentity;

fn data(key: &RowKey, clients: &[Vec<u32>], public: &[u32]) -> DataId {
    let row = |number: &u32| {
        let mut row = [0; 32];
        row[..4].copy_from_slice(&number.to_le_bytes());
        row
    };
    let identity = RowIdentity {
        clients: clients
            .iter()
            .map(|own| own.iter().map(row).collect())
            .collect(),
        public: public.iter().map(row).collect(),
    };
    let all = format!("{:?}", clients.concat());
    DataId::of("x".into(), key, (&all, &identity), Sharing::default())
}

#[test]
fn sealed_hashes_open_with_their_key_only() {
    let key = RowKey::of(b"a secret");
    let whole = data(&key, &[vec![1, 2], vec![3]], &[9]);
    let sealed = whole.clone().seal(&key).unwrap();
    assert_eq!(sealed.clone().open(&key), whole);
    let stays = sealed.clone().open(&RowKey::of(b"another"));
    assert_eq!(stays, sealed);
    let unknown = DataId::default();
    assert_eq!(unknown.clone().seal(&key).unwrap(), unknown);
}

#[test]
fn without_the_key_equal_rows_do_not_show_and_other_rows_have_no_other_length() {
    let key = RowKey::of(b"a secret");
    let most: Vec<u32> = (0..2_000_000).step_by(997).collect();
    assert!(most.len() > SAMPLE);
    let texts = [
        data(&key, &[vec![1, 2], vec![3]], &[9]),
        data(&key, &[vec![1, 2], vec![3]], &[9]),
        data(&key, &[vec![], vec![]], &[]),
        data(&key, &[most.clone(), vec![7; 90_000]], &most),
    ]
    .map(|of| serde_json::to_string(&of.seal(&key).unwrap()).unwrap());
    assert_ne!(texts[0], texts[1]);
    assert!(texts.iter().all(|text| text.len() == texts[0].len()));
}

#[test]
fn sealed_hashes_may_be_those_of_any_run_of_their_key() {
    let key = RowKey::of(b"a secret");
    let named = |name: &str, of: DataId| DataId {
        name: name.into(),
        ..of
    };
    let one = named("one", data(&key, &[vec![1], vec![2]], &[]));
    let other = named("other", data(&key, &[vec![4], vec![5]], &[]));
    assert!(!one.same_set(&other));
    let [one, other] = [one, other].map(|of| of.seal(&key).unwrap());
    assert!(one.same_set(&other));
    assert!(!one.same_split(&other) && !one.lies_in(&other));
    assert!(one.publishes(&other), "nobody can tell");
    let elsewhere = named("else", data(&RowKey::of(b"another"), &[vec![1]], &[]));
    assert!(!elsewhere.same_set(&one));
}
