//! `fl run --watch`: the page of a run that goes on.

use crate::say;
use fl_core::RunEvent;
use fl_report::Run;
use fl_sim::RunRecord;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The page, in the run folder.
const PAGE: &str = "watch.html";
/// The shortest time between two pages, also in times that a page takes: a run is not slowed down.
const EVERY: Duration = Duration::from_secs(2);
const TIMES: u32 = 20;

/// The page of a run and what it has measured of time.
#[derive(Clone, Default)]
pub struct Watch(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    folder: Option<PathBuf>,
    /// Seconds of the run at the end of each step, by its name.
    clock: BTreeMap<String, f64>,
    /// When the next page is due.
    due: Option<Instant>,
}

impl Watch {
    /// Writes the page after steps of the run.
    pub fn listener(&self) -> impl FnMut(&RunEvent<'_>, &RunRecord) + 'static {
        let watch = self.clone();
        move |event: &RunEvent<'_>, run: &RunRecord| watch.0.borrow_mut().on(event, run)
    }

    /// Writes the last page, which does not renew itself.
    pub fn end(&self) {
        self.0.borrow().write(false);
    }
}

impl State {
    fn on(&mut self, event: &RunEvent<'_>, run: &RunRecord) {
        if let RunEvent::Begins(Some(folder)) = event {
            self.folder = Some(folder.to_path_buf());
            let page = folder.join(PAGE);
            say(format_args!("watch it in a browser: {}", page.display()));
            self.write(true);
        }
        if let Some(step) = run.step_report(event) {
            if let Some(seconds) = step.seconds {
                self.clock.insert(step.cost.step.clone(), seconds);
            }
            let now = Instant::now();
            if self.due.is_none_or(|due| now >= due) {
                self.write(true);
                self.due = Some(now + EVERY.max(now.elapsed() * TIMES));
            }
        }
    }

    /// A page that cannot be written does not stop the run.
    fn write(&self, going: bool) {
        let Some(folder) = &self.folder else { return };
        if let Err(error) = self.page(folder, going) {
            crate::log::note(format_args!("{PAGE}: {error:#}"));
        }
    }

    fn page(&self, folder: &Path, going: bool) -> anyhow::Result<()> {
        let run = Run::open_brief(folder)?;
        let page = fl_report::watch_page(&run, &self.clock, going);
        fl_files::write_unlinked(&folder.join(PAGE), page.as_bytes())
    }
}
