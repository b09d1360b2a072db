//! [`Unpriced`]: the one rule for what a run tells beside an accountant.

const WITHHELD: &str = "with an accountant the text of an error stays at the \
                        terminal, because it may hold private values";

/// Whether a run tells facts that follow from its clients' data and have no price: seconds, as a
/// client with more data takes longer; numbers of rows and of classes, and the clients without any;
/// hashes of data files; the text of an error, which may hold values. With an accountant these
/// facts stay at the terminal. What is in [`RunEvent`](fl_core::RunEvent)s needs no such question:
/// it is priced, or public, or only for those that see messages
/// ([`Listener::sees_messages`](crate::Listener::sees_messages)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpriced {
    /// The run has no accountant.
    Told,
    /// The run has one.
    Withheld,
}

impl Unpriced {
    /// Returns the rule of a run that has an accountant, or none.
    pub fn beside(accountant: bool) -> Self {
        if accountant {
            Self::Withheld
        } else {
            Self::Told
        }
    }

    /// Returns the fact, if it is told.
    pub fn tell<T>(self, fact: impl FnOnce() -> T) -> Option<T> {
        (self == Self::Told).then(fact)
    }

    /// Returns the text of an error for files, tables and sinks.
    pub fn error(self, error: &str) -> &str {
        self.tell(|| error).unwrap_or(WITHHELD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunRecord;
    use fl_core::{RunEvent, StepCost};

    #[test]
    fn a_listener_gets_no_seconds_beside_an_accountant() {
        let bytes = r#""bytes_up": 0, "bytes_down": 0"#;
        let cost = format!(r#"{{"step": "round 1", "round": 1, {bytes}, "privacy": null}}"#);
        let cost: StepCost = serde_json::from_str(&cost).unwrap();
        let seconds = |accountant: bool| {
            let mut run = RunRecord::new(0.0, Vec::new(), Unpriced::beside(accountant));
            run.add(&RunEvent::Cost(&cost));
            let ends = RunEvent::StepEnds { number: 1, of: 2 };
            run.step_report(&ends).unwrap().seconds
        };
        assert_eq!(seconds(false), Some(0.0));
        assert_eq!(seconds(true), None);
    }

    #[test]
    fn the_text_of_an_error_is_withheld_beside_an_accountant() {
        assert_eq!(
            Unpriced::beside(false).error("row 7 is 3.5"),
            "row 7 is 3.5"
        );
        assert!(!Unpriced::beside(true).error("row 7 is 3.5").contains("3.5"));
    }
}
