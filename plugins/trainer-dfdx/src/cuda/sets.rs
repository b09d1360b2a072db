//! Data sets that stay on a card from one call to the next.

use super::driver::{Buffer, Queue};
use fl_core::{Inputs, Result};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The most bytes of one data set, where the models of a card have no bound.
const MOST: u64 = 1 << 30;

/// Numbers that are copied to the card at once.
const AT_ONCE: usize = 1 << 20;

/// The data sets of one card.
#[derive(Debug, Default)]
pub struct Sets(Mutex<Vec<UsedSet>>);

/// A data set that calls have used.
#[derive(Debug)]
struct UsedSet {
    of: Weak<Inputs>,
    /// All rows, from the second call on.
    rows: Option<Arc<Buffer>>,
}

impl Sets {
    /// Frees the data sets that no call uses. Returns whether there was one.
    pub fn clear(&self) -> bool {
        // a call that copies a set here holds the lock, and does without the set
        let Ok(mut all) = self.0.try_lock() else {
            return false;
        };
        let unused = |kept: &mut UsedSet| {
            let rows = kept.rows.take_if(|rows| Arc::strong_count(rows) == 1);
            rows.is_some()
        };
        all.iter_mut()
            .filter_map(|kept| unused(kept).then_some(()))
            .count()
            > 0
    }

    /// Returns how many there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|kept| kept.rows.is_some()).count()
    }
}

/// A data set on a card, for the calls of one queue.
#[derive(Debug)]
pub struct Set {
    rows: Arc<Buffer>,
    width: usize,
    queue: Queue,
}

impl Drop for Set {
    fn drop(&mut self) {
        // whoever frees the rows must not be faster than this queue's work on them; a card that
        // fails says so at its next work
        let _ = self.queue.wait();
    }
}

impl Set {
    /// Returns a data set that is on the card. The second call for a set copies it there, if it
    /// fits.
    ///
    /// # Errors
    /// If the card fails.
    pub fn of(queue: &Queue, inputs: &Arc<Inputs>) -> Result<Option<Self>> {
        let sets = &queue.card().sets;
        let mut all = sets.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|kept| kept.of.strong_count() > 0);
        let known = all
            .iter_mut()
            .find(|k| k.of.as_ptr() == Arc::as_ptr(inputs));
        let Some(kept) = known else {
            all.push(UsedSet {
                of: Arc::downgrade(inputs),
                rows: None,
            });
            return Ok(None);
        };
        let width = inputs.width();
        if kept.rows.is_none() {
            let n = inputs.len() * width;
            let most = queue.most().map_or(MOST, |most| most / 2);
            if n == 0 || 4 * n as u64 > most {
                return Ok(None);
            }
            // no room now: a later call tries again
            let Ok(rows) = queue.room(n) else {
                return Ok(None);
            };
            copy(queue, inputs, &rows)?;
            kept.rows = Some(Arc::new(rows));
        }
        Ok(kept.rows.clone().map(|rows| Self {
            rows,
            width,
            queue: queue.clone(),
        }))
    }

    /// Returns a batch of the rows with these ids.
    ///
    /// # Errors
    /// If the card fails.
    pub fn pick(&self, ids: &[i32]) -> Result<Buffer> {
        let n = ids.len() * self.width;
        let (out, ids) = (self.queue.room(n)?, self.queue.upload_ints(ids)?);
        let arguments = arguments![n, self.width, &ids, &*self.rows, &out];
        self.queue.each("pick_rows", n, &arguments)?;
        Ok(out)
    }
}

/// Copies all rows, and waits for it: the queues of other models read them.
fn copy(queue: &Queue, inputs: &Inputs, rows: &Buffer) -> Result<()> {
    let width = inputs.width();
    let some = (AT_ONCE / width.max(1)).max(1);
    for first in (0..inputs.len()).step_by(some) {
        let last = inputs.len().min(first + some);
        let mut values = vec![0.0; (last - first) * width];
        for (row, to) in (first..last).zip(values.chunks_exact_mut(width)) {
            inputs.write_row(row, to);
        }
        queue.write(&values, rows, first * width)?;
    }
    queue.wait()
}
