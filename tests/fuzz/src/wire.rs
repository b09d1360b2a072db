//! The wire form of every message.

use fl_core::message::{check, encode, message_types, to_json};

pub(crate) fn wire(bytes: &[u8]) {
    for of in message_types() {
        let Ok(message) = of.decode(bytes) else {
            continue;
        };
        let wire = encode(&*message);
        if check(&*message).is_err() {
            continue;
        }
        let again = of.decode(&wire).expect("what was encoded is decoded");
        assert_eq!(encode(&*again), wire, "another wire form the second time");
        let json = to_json(&*message);
        // a list without numbers has no shape
        if let Ok(read) = of.from_json(json.as_object().expect("an object")) {
            assert_eq!(to_json(&*read), json, "another message from JSON");
        }
    }
}
