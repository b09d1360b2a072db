//! An executor for the benches: hosts bring their own.

use fl_core::Executor;
use std::sync::Mutex;

/// A thread for each processor, each taking the next chunk.
pub struct Threads;

impl Executor for Threads {
    fn chunks(&self, data: &mut [f32], size: usize, work: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        let chunks = Mutex::new(data.chunks_mut(size).enumerate());
        let one = || {
            loop {
                let next = chunks.lock().expect("nobody panics").next();
                match next {
                    Some((at, chunk)) => work(at, chunk),
                    None => return,
                }
            }
        };
        std::thread::scope(|scope| {
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            (0..threads).for_each(|_| {
                scope.spawn(one);
            });
        });
    }
}
