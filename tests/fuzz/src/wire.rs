//! The wire form of every message.

use fl_core::message::{Message, Visitor, check, decode, encode, from_json, to_json, visit_all};

#[derive(Clone, Copy)]
struct Decode<'a>(&'a [u8]);

impl Visitor for Decode<'_> {
    type Out = ();
    fn visit<M: Message>(self) {
        let Ok(message) = decode::<M>(self.0) else {
            return;
        };
        let wire = encode(&message);
        if check(&message).is_err() {
            return;
        }
        let again = decode::<M>(&wire).expect("what was encoded is decoded");
        assert_eq!(encode(&again), wire, "another wire form the second time");
        let json = to_json(&message);
        // a list without numbers has no shape
        if let Ok(read) = from_json::<M>(json.as_object().expect("an object")) {
            assert_eq!(to_json(&read), json, "another message from JSON");
        }
    }
}

pub(crate) fn wire(bytes: &[u8]) {
    visit_all(Decode(bytes));
}
