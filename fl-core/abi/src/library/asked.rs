//! What the other side is asked for in the middle of its call.

use crate::ask::ErrorText;
use crate::caller::Means;
use crate::host::{Answer, Call, checked};
use crate::marshal::{OutgoingMessage, with_messages};
use crate::raw::{FL_OK, FlHost, FlInput};
use anyhow::Context;
use fl_roles::Result;

/// Asks the maker of `host` for an operation of the part with this number there, or of itself (0).
/// `None`: there is no such operation.
pub(crate) fn ask_other(
    host: &FlHost,
    part: u64,
    operation: u32,
    text: &str,
    letters: &[OutgoingMessage<'_, '_>],
    means: Means<'_>,
) -> Result<Option<Answer>> {
    let call = host
        .call
        .context("only a protocol that leads or answers, and a trainer that fits, may ask the program for something")?;
    let (code, answer) = with_messages(letters, |messages| {
        let input = FlInput::of(text, messages);
        Call::new("the program", means).run_back(|sink| {
            // SAFETY: the other side's own function and context, in the middle of its call; what is
            // handed over lives through this one.
            unsafe { call(host.context, part, operation, &raw const input, sink) }
        })
    });
    checked(code, told(code, answer)?)
}

/// Returns the answer, or the error that its text holds.
pub(crate) fn told(code: i32, answer: Answer) -> Result<Answer> {
    if code != FL_OK
        && answer.misuse.is_none()
        && let Some(text) = &answer.text
        && let Ok(error) = serde_json::from_str::<ErrorText>(text)
    {
        return Err(error.error());
    }
    Ok(answer)
}
