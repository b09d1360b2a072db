//! A process that does not do what processes do.

use fl_core::Problem;
use fl_remote::wire::Packet;
use fl_remote::{ProcessLayout, Processes, Transport};
use std::cell::RefCell;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

#[test]
fn whoever_does_not_take_a_request_has_not_replied() {
    let d = tempfile::tempdir().unwrap();
    let theirs = RefCell::new(Vec::new());
    let begin = |_| {
        // it lives, its end of the socket is open, and it does not read
        let (ours, end) = UnixStream::pair()?;
        theirs.borrow_mut().push(end);
        Ok((Command::new("sleep").arg("600").spawn()?, ours))
    };
    let deadline = Some(Duration::from_millis(50));
    let folder = d.path().join("run");
    let (begin, tell) = (Box::new(begin), Box::new(|_: &str| ()));
    let mut processes = Processes::new(ProcessLayout::Any(1), deadline, folder, begin, tell);
    // more than a socket holds
    let (head, body) = (vec![1, 2, 3], vec![7; 32 << 20].into());
    processes.send(5, Packet { head, body }).unwrap();
    let (from, reply) = processes.receive().unwrap();
    let error = reply.unwrap_err();
    assert_eq!(from, 5);
    assert!(
        matches!(error.downcast_ref(), Some(Problem::Absent(_))),
        "{error:#}"
    );
    assert!(error.to_string().contains("within 0.05 s"), "{error:#}");
}
