//! A step that takes long: who has answered is not asked again after a stop in the middle of it.

use fl_core::message::{Nothing, Params};
use fl_core::prelude::*;
use fl_core::settings::read_yaml;
use fl_core::{Examples, Inputs, Labels, Parts, RunEvent, RunOptions};
use fl_sim::{
    EventLog, Execution, Listener, Manifest, Outcome, ResumePoint, RunFolder, RunRecord, Session,
    Setup, StoppedRun, Verdict, run,
};
use ndarray::{ArrayD, IxDyn};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const NUMBERS: Exchange<Nothing, Params> = Exchange::new("numbers");

/// Two exchanges a round; the server is gone after a number of answers. Clients count their
/// requests.
struct Gone {
    after: usize,
    answers: AtomicUsize,
    asked: Mutex<Vec<u32>>,
}

fn number(value: f32) -> Params {
    Params([("w".to_string(), ArrayD::from_elem(IxDyn(&[2]), value))].into())
}

impl Protocol for Gone {
    fn declare(&self) -> Declaration<'_> {
        let numbers = NUMBERS.answered_by(|me, _| {
            self.asked.lock().unwrap().push(me.id());
            let times = me.stashed::<Scalar>("times")?.map_or(0.0, |s| s.value()) + 1.0;
            me.stash("times", &Scalar::new(times));
            Ok(number(times + me.stream("x").draws().uniform() as f32))
        });
        Declaration::new().rounds(2).exchange(numbers.times(4))
    }
    fn lead(&self, fed: &mut Server<'_>) -> Result<()> {
        fed.rounds(&mut (), |fed, (), round| {
            for _ in 0..2 {
                let all = fed.everyone();
                fed.collect_each(
                    round,
                    &NUMBERS,
                    &all,
                    |_| &Nothing,
                    |_, answer| {
                        let before = self.answers.fetch_add(1, Ordering::Relaxed);
                        ensure!(before < self.after, "the server is gone");
                        Ok(answer)
                    },
                )?;
            }
            Ok(())
        })
    }
}

fn manifest() -> Manifest {
    Manifest::new(Session::now("0", &[]), 1, "long", Vec::new(), Vec::new())
}

/// Six clients, one after the other; every answer counts as one that took long.
fn until(
    after: usize,
    folder: Option<RunFolder>,
    resumed: Option<ResumePoint>,
) -> (Result<Outcome>, Vec<u32>) {
    with_listeners(after, folder, resumed, Execution::default())
}

/// As [`until`], with this `execution`.
fn with_listeners(
    after: usize,
    folder: Option<RunFolder>,
    resumed: Option<ResumePoint>,
    execution: Execution<'_>,
) -> (Result<Outcome>, Vec<u32>) {
    let inputs = Arc::new(Inputs::Dense {
        shape: vec![2],
        data: (0..120).map(|i| i as f32).collect(),
    });
    let labels = Arc::new(Labels::Classes {
        of: (0..60).map(|i| i % 2).collect(),
        classes: 2,
    });
    let all = Examples::all(inputs, labels).unwrap();
    let own = |k: usize| all.pick(&(10 * k..10 * (k + 1)).collect::<Vec<_>>());
    let protocol = Arc::new(Gone {
        after,
        answers: AtomicUsize::new(0),
        asked: Mutex::default(),
    });
    let outcome = run(Setup {
        folder,
        resumed,
        execution,
        checkpoints: read_yaml("{every: {seconds: 1e-9}}").unwrap(),
        ..Setup::new(
            protocol.clone(),
            Arc::new(Parts::default()),
            RunOptions::new(1, all.task()),
            (0..6).map(own).collect(),
            all.pick(&[0, 1]),
        )
    });
    let asked = protocol.asked.lock().unwrap().clone();
    (outcome, asked)
}

fn again(path: &Path) -> (Option<RunFolder>, Option<ResumePoint>) {
    let (folder, resumed) = StoppedRun::open(path, false)
        .unwrap()
        .go_on(manifest(), "long")
        .unwrap();
    (Some(folder), resumed)
}

#[test]
fn who_has_answered_in_a_long_step_is_not_asked_again() {
    let dir = tempfile::tempdir().unwrap();
    let folder =
        |name: &str| RunFolder::create(&dir.path().join(name), "long", &manifest()).unwrap();
    let (straight, asked) = until(usize::MAX, Some(folder("straight")), None);
    let digest = straight.unwrap().digest;
    assert_eq!(asked.len(), 24);

    // gone at the last answer of the first step but one, and then in the second step
    let (error, asked) = until(10, Some(folder("r")), None);
    assert!(format!("{:#}", error.unwrap_err()).contains("the server is gone"));
    assert_eq!(asked.len(), 11);
    let path = dir.path().join("r");
    let (f, r) = again(&path);
    assert!(r.is_none(), "there was no checkpoint");
    let (error, asked) = until(15, f, r);
    assert!(error.is_err());
    // one more answer of the first step, and of the second as many as came
    assert_eq!(asked, [5, 0, 1, 2, 3], "eleven were known");
    // a record that was cut short is asked for again
    let answers = path.join("answers");
    let bytes = std::fs::read(&answers).unwrap();
    std::fs::write(&answers, &bytes[..bytes.len() - 1]).unwrap();
    let (f, r) = again(&path);
    assert!(r.is_some());
    let (outcome, asked) = until(usize::MAX, f, r);
    assert_eq!(outcome.unwrap().digest, digest);
    assert_eq!(asked, [3, 4, 5, 0, 1, 2, 3, 4, 5]);
    assert!(!answers.exists(), "a run that is done keeps no answers");
}

/// Has a log outside of the run folder.
struct Outside(EventLog);

impl Listener for Outside {
    fn on(&mut self, _: &RunEvent<'_>, _: &RunRecord) -> Result<Verdict> {
        Ok(Verdict::GoOn)
    }
    fn log(&self) -> Option<&EventLog> {
        Some(&self.0)
    }
}

#[test]
fn a_run_that_cannot_open_its_logs_leaves_no_folder() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r");
    let folder = RunFolder::create(&path, "long", &manifest()).unwrap();
    let execution = Execution {
        listeners: vec![Box::new(Outside(EventLog::new("../energy.jsonl")))],
        ..Execution::default()
    };
    let (outcome, asked) = with_listeners(usize::MAX, Some(folder), None, execution);
    let error = format!("{:#}", outcome.unwrap_err());
    assert!(
        error.contains("`../energy.jsonl`; give it a name"),
        "{error}"
    );
    assert!(asked.is_empty() && !path.exists());
}
