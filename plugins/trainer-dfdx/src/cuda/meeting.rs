//! Small models of one kind that train at the same time share launches.
//!
//! Each model's thread keeps its work until it needs a result. The last of them does the work of
//! all, piece by piece: one launch for up to [`MEMBERS`] models, each with its own arguments. So
//! every number has the sum that it has alone, and no result depends on who met whom.

use super::driver::{MEMBERS, Queue, Work};
use anyhow::anyhow;
use fl_core::Result;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The models that train on one card now, by their kind.
#[derive(Debug, Default)]
pub struct Meetings {
    all: Mutex<BTreeMap<String, Vec<Member>>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Member {
    queue: Queue,
    turn: Turn,
    /// How often it has waited in this step.
    phase: usize,
}

#[derive(Debug)]
enum Turn {
    /// Its work begins at once: nobody else was there at the start of its step.
    Alone,
    /// Its thread computes; the others wait for its work.
    Busy,
    /// It waits with this work.
    Waits(Vec<Work>),
    /// Its work is in the queue, or failed.
    Done(Result<(), String>),
}

/// A model's place in a meeting, until it is dropped.
#[derive(Debug)]
pub struct Seat {
    queue: Queue,
    kind: String,
}

impl Seat {
    /// Takes a place among the models of this kind.
    pub fn take(queue: &Queue, kind: String) -> Self {
        let member = Member {
            queue: queue.clone(),
            turn: Turn::Alone,
            phase: 0,
        };
        let mut all = queue.card().meetings.lock();
        all.entry(kind.clone()).or_default().push(member);
        Self {
            queue: queue.clone(),
            kind,
        }
    }

    /// Begins a step: together with the other models, if there are any.
    ///
    /// # Errors
    /// If work that was kept fails.
    pub fn begin_step(&self) -> Result<()> {
        let meetings = &self.queue.card().meetings;
        let together = {
            let mut all = meetings.lock();
            let members = all.entry(self.kind.clone()).or_default();
            let together = members.len() > 1;
            for me in members.iter_mut().filter(|m| m.queue.is(&self.queue)) {
                me.phase = 0;
                me.turn = if together { Turn::Busy } else { Turn::Alone };
            }
            together
        };
        meetings.changed.notify_all();
        self.queue.keep(together)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // a card that fails says so at its next work
        let _ = self.queue.keep(false);
        let meetings = &self.queue.card().meetings;
        let mut all = meetings.lock();
        if let Some(members) = all.get_mut(&self.kind) {
            members.retain(|m| !m.queue.is(&self.queue));
            if members.is_empty() {
                all.remove(&self.kind);
            }
        }
        drop(all);
        meetings.changed.notify_all();
    }
}

impl Meetings {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Member>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the kept work of a queue on the card, when all models of its meeting have come as far.
    ///
    /// # Errors
    /// If the work fails.
    pub fn flush(queue: &Queue) -> Result<()> {
        let meetings = &queue.card().meetings;
        let mut all = meetings.lock();
        loop {
            let mut members = all.values_mut();
            let meeting = members.find(|m| m.iter().any(|m| m.queue.is(queue)));
            let Some(meeting) = meeting else {
                return queue.keep(false);
            };
            for me in meeting.iter_mut().filter(|m| m.queue.is(queue)) {
                match &me.turn {
                    Turn::Alone => return Ok(()),
                    Turn::Busy => {
                        me.turn = Turn::Waits(queue.taken());
                        // `wait_for` counts those that wait; the models need no notice
                        #[cfg(test)]
                        meetings.changed.notify_all();
                    }
                    Turn::Waits(_) => {}
                    Turn::Done(result) => {
                        let result = result.clone().map_err(|why| anyhow!(why));
                        me.turn = Turn::Busy;
                        me.phase += 1;
                        return result;
                    }
                }
            }
            if meeting
                .iter()
                .all(|m| matches!(m.turn, Turn::Alone | Turn::Waits(_)))
            {
                lead(meeting);
                meetings.changed.notify_all();
            } else {
                let waited = meetings.changed.wait(all);
                all = waited.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Waits until `n` models of a meeting wait for another one.
    #[cfg(test)]
    pub(super) fn wait_for(&self, n: usize) {
        let waits = |m: &&Member| matches!(m.turn, Turn::Waits(_));
        let mut all = self.lock();
        while all.values().flatten().filter(waits).count() < n {
            all = self
                .changed
                .wait(all)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Does the work of those that have come furthest in their step, so that all begin the next step
/// together. Lists of other kinds of work do not go together.
fn lead(meeting: &mut [Member]) {
    let waits = |m: &&mut Member| matches!(m.turn, Turn::Waits(_));
    let furthest = meeting.iter_mut().filter(waits).map(|m| m.phase).max();
    let mut alike = BTreeMap::<Vec<usize>, Vec<(&mut Member, Vec<Work>)>>::new();
    for member in meeting.iter_mut().filter(|m| Some(m.phase) == furthest) {
        if let Turn::Waits(work) = &mut member.turn {
            let work = std::mem::take(work);
            let kinds = work.iter().map(Work::kind).collect();
            alike.entry(kinds).or_default().push((member, work));
        }
    }
    for mut members in alike.into_values() {
        for some in members.chunks_mut(MEMBERS) {
            let queues: Vec<Queue> = some.iter().map(|(m, _)| m.queue.clone()).collect();
            let lists: Vec<&[Work]> = some.iter().map(|(_, work)| work.as_slice()).collect();
            let done = Queue::together(&queues, &lists).map_err(|e| format!("{e:#}"));
            for (member, _) in some {
                member.turn = Turn::Done(done.clone());
            }
        }
    }
}
