//! Has an answer the tensors of the request?

use anyhow::bail;
use fl_roles::message::{self, AnyMessage, Ids};
use fl_roles::{Problem, Result};
use std::collections::BTreeSet;

/// Tensors of the same names and shapes, or with other rows; some of the same ids.
pub(crate) fn like(sent: &dyn AnyMessage, given: &dyn AnyMessage) -> Result<()> {
    let ids = |of: &dyn AnyMessage| {
        of.as_any()
            .downcast_ref::<Ids>()
            .map(|Ids(all)| all.clone())
    };
    if let (Some(sent), Some(given)) = (ids(sent), ids(given)) {
        let sent: BTreeSet<u32> = sent.into_iter().collect();
        return match given.iter().find(|id| !sent.contains(id)) {
            Some(id) => bail!(Problem::Shape(format!("the id {id}, which was not sent"))),
            None => Ok(()),
        };
    }
    if message::alike(sent, given).is_ok() {
        return Ok(());
    }
    fn outline(message: &dyn AnyMessage) -> String {
        let tensors = message.content();
        let shown = tensors
            .iter()
            .take(5)
            .map(|(n, v)| format!("`{n}` {:?}", v.shape()));
        let shown = shown.collect::<Vec<_>>().join(", ");
        match tensors.len() {
            0 => "no tensors".into(),
            6.. => format!("{shown}, .."),
            _ => shown,
        }
    }
    let text = format!("{}, where {} was sent", outline(given), outline(sent));
    bail!(Problem::Shape(text))
}
