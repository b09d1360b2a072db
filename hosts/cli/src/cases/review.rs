//! `fl test --review`: one difference after the other, with the keys of `cargo insta review`.

use super::text;
use crate::sanitize::plain;
use crate::{Failure, print, print_coloured};
use console::{Key, Term, style};
use fl_cases::{CaseResult, Choice, pretty};
use serde_json::Value as Json;
use std::io::IsTerminal;

/// Fails if there is no terminal to answer at.
pub fn needs_a_terminal() -> Result<(), Failure> {
    let seen = std::io::stdin().is_terminal() && Term::stdout().is_term();
    if seen && !crate::capture::keeps() {
        Ok(())
    } else {
        Err(Failure::usage(
            "--review needs a terminal; without --review fl shows the differences, and --accept=CASE accepts one",
        ))
    }
}

const KEYS: &str =
    "a accept, r reject, s skip, d show both answers whole; A, R, S for all that follow; q quit";

/// Asks about one answer after the other.
pub struct Review<'k> {
    /// The next key that the user presses.
    key: Box<dyn FnMut() -> std::io::Result<char> + 'k>,
    /// What was chosen for all that follow.
    always: Option<Choice>,
}

impl Review<'_> {
    pub fn on_terminal() -> Self {
        Self::new(|| match Term::stdout().read_key()? {
            Key::Char(key) => Ok(key),
            Key::Escape => Ok('q'),
            Key::CtrlC => Err(std::io::ErrorKind::Interrupted.into()),
            _ => Ok(' '),
        })
    }
}

impl<'k> Review<'k> {
    fn new(key: impl FnMut() -> std::io::Result<char> + 'k) -> Self {
        Self {
            key: Box::new(key),
            always: None,
        }
    }

    /// Shows a difference and asks until a key says what to do.
    pub fn ask(
        &mut self,
        tested: &CaseResult,
        expected: Option<&Json>,
        found: &Json,
    ) -> Result<Choice, Failure> {
        if let Some(choice) = self.always {
            return Ok(choice);
        }
        let inputs = tested.inputs.iter();
        let inputs: String = inputs
            .map(|line| format!("    {}\n", plain(line)))
            .collect();
        print_coloured(&format!("\n{inputs}{}", text(tested)))?;
        loop {
            print(KEYS)?;
            let key = (self.key)()?;
            let choice = match key.to_ascii_lowercase() {
                'a' => Choice::Accept,
                'r' => Choice::Reject,
                's' | 'q' => Choice::Skip,
                'd' => {
                    print_coloured(&whole(expected, found))?;
                    continue;
                }
                _ => continue,
            };
            if key.is_ascii_uppercase() || key == 'q' {
                self.always = Some(choice);
            }
            return Ok(choice);
        }
    }
}

fn whole(expected: Option<&Json>, found: &Json) -> String {
    let shown = |answer: &Json| {
        let mut json = String::new();
        pretty(answer, 0, &mut json);
        plain(&json)
    };
    let expected = expected.map_or("none".into(), shown);
    let (old, new) = (style("expected:").red(), style("found:").green());
    format!("{old}\n{expected}\n{new}\n{}", shown(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_cases::{Outcome, Verdict};
    use serde_json::json;

    fn one() -> CaseResult {
        CaseResult {
            place: None,
            name: "one".into(),
            inputs: vec!["part: aggregator mean".into()],
            verdict: Verdict {
                outcome: Outcome::Different,
                lines: vec!["tensors.w: differs".into()],
                answer: Some(json!(2)),
            },
        }
    }

    fn chosen(keys: &str, times: usize) -> (Vec<Choice>, String) {
        let mut left = keys.chars();
        let asked = crate::capture::kept(|| {
            let mut review =
                Review::new(|| left.next().ok_or(std::io::ErrorKind::UnexpectedEof.into()));
            let ask = |_| review.ask(&one(), Some(&json!(1)), &json!(2)).ok().unwrap();
            (0..times).map(ask).collect()
        });
        assert_eq!(left.as_str(), "", "every key is used");
        asked
    }

    #[test]
    fn a_review_asks_about_each_difference_and_capitals_answer_for_the_rest() {
        use Choice::{Accept, Reject, Skip};
        assert_eq!(chosen("asr", 3).0, [Accept, Skip, Reject]);
        assert_eq!(chosen("rA", 4).0, [Reject, Accept, Accept, Accept]);
        assert_eq!(chosen("q", 3).0, [Skip, Skip, Skip]);
    }

    #[test]
    fn a_review_shows_the_inputs_above_the_difference() {
        let (_, said) = chosen("s", 1);
        let [inputs, differs] = ["part: aggregator mean", "tensors.w: differs"];
        assert!(
            said.find(inputs).unwrap() < said.find(differs).unwrap(),
            "{said}"
        );
    }

    #[test]
    fn a_review_shows_whole_answers_and_explains_its_keys() {
        let (choice, said) = chosen("dxa", 1);
        assert_eq!(choice, [Choice::Accept]);
        assert!(said.contains("expected:\n1\nfound:\n2\n"), "{said}");
        assert_eq!(said.matches(KEYS).count(), 3, "{said}");
    }
}
