//! A client's own examples, or the private sample of them that it may train on (FedMD-NFDP).
use crate::conversation::WARM_UP;
use fl_core::Examples;
use fl_core::prelude::*;

/// Draws the private sample, if `parts.sampling` is filled.
pub(crate) fn draw(me: &mut Client) -> Result<()> {
    if me.has("sampling") {
        let chosen = me.sample_own("sampling")?;
        me.stash("own", &chosen);
    }
    Ok(())
}

/// A client's own examples: all, or those of its private sample.
pub(crate) fn own(me: &Client) -> Result<Examples> {
    Ok(match me.stashed::<Ids>("own")? {
        Some(Ids(chosen)) => {
            let chosen: Vec<usize> = chosen.iter().map(|at| *at as usize).collect();
            me.own().pick(&chosen)
        }
        // a client whose warm-up was dropped must not fall back on all that it has
        None if me.has("sampling") => {
            bail!(
                "it has drawn no private sample; see its `{}`",
                WARM_UP.label()
            )
        }
        None => me.own().clone(),
    })
}
