//! Threads for the parts of a library's process.

/// Threads that start at a part's first use: most processes of a library need none.
#[derive(Default)]
pub struct LazyExecutor(std::sync::OnceLock<fl_core::SharedExecutor>);

impl fl_core::Executor for LazyExecutor {
    fn chunks(&self, data: &mut [f32], size: usize, work: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        let made = || {
            let threads = fl_sim::executor(fl_engine::threads(None));
            threads.unwrap_or_else(|_| std::sync::Arc::new(fl_core::Serial))
        };
        self.0.get_or_init(made).chunks(data, size, work);
    }
}
