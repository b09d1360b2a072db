//! Reading of [`PrivacyEvent::Repeated`] without recursion: a sender could otherwise nest it until
//! the stack overflows.

use super::PrivacyEvent;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::cell::Cell;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Marks that a repetition is being read, until it is dropped.
struct Inside;

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// Reads an event that is not a repetition.
pub(super) fn once<'de, D: Deserializer<'de>>(from: D) -> Result<Box<PrivacyEvent>, D::Error> {
    if INSIDE.replace(true) {
        return Err(D::Error::custom("a repetition of repetitions"));
    }
    let _inside = Inside;
    PrivacyEvent::deserialize(from).map(Box::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privacy::Unit;

    #[test]
    fn an_event_with_a_field_that_it_has_not_is_refused() {
        for text in [
            r#"{"Laplace": {"sensitivity": 1, "scale": 2, "unit": "party", "delta": 0}}"#,
            r#"{"Repeated": {"times": 2, "event": {"Unaccounted": {"why": "a", "delta": 0}}}}"#,
        ] {
            let error = serde_json::from_str::<PrivacyEvent>(text).unwrap_err();
            assert!(error.to_string().contains("field `delta`"), "{error}");
        }
    }

    #[test]
    fn a_repetition_is_read_back_and_one_of_repetitions_is_refused() {
        let again = |event| PrivacyEvent::Repeated {
            times: 3,
            event: Box::new(event),
        };
        let (epsilon, times, unit) = (0.5, 2, Unit::Example);
        let one = again(PrivacyEvent::Pure {
            epsilon,
            times,
            unit,
        });
        let mut deep = one.clone();
        for _ in 0..1000 {
            deep = again(deep);
        }
        // twice: a refusal must leave no state behind
        for _ in 0..2 {
            let bytes = postcard::to_stdvec(&deep).unwrap();
            assert!(postcard::from_bytes::<PrivacyEvent>(&bytes).is_err());
            let bytes = postcard::to_stdvec(&one).unwrap();
            assert_eq!(postcard::from_bytes::<PrivacyEvent>(&bytes).unwrap(), one);
        }
        let text = serde_json::to_string(&again(one.clone())).unwrap();
        let error = serde_json::from_str::<PrivacyEvent>(&text).unwrap_err();
        assert!(error.to_string().contains("repetition"), "{error}");
    }
}
