//! What two sides make of each other when what is between them, or one of them, does not do what it
//! should.

use crate::common::{Carry, Engine, SCAFFOLD, read};
use anyhow::Context;
use fl_core::{ClientId, Evaluation, Problem, Result};
use fl_remote::wire::{AnswerKind, Packet, ReplyHead, RequestHead, RequestKind, RunId};
use fl_remote::{Leader, Node};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

fn leader(dir: &Path) -> Leader {
    Leader::begin(&dir.join("leader")).unwrap()
}

/// One node for all, which is asked and replies.
fn honest(node: Node) -> Carry {
    let mut node = node;
    Box::new(move |to, request| vec![(to, node.reply(request))])
}

fn number(packet: &Packet) -> u64 {
    packet.read::<RequestHead>().unwrap().number
}

#[test]
fn exact_an_engine_that_mixes_doubles_and_delays_changes_nothing() {
    let (spec, d) = (read(SCAFFOLD), tempfile::tempdir().unwrap());
    let here = spec.run(None).unwrap();
    let plain = Engine::new(honest(spec.node(&d.path().join("a"))));
    let there = spec.run(Some((plain, leader(d.path())))).unwrap();
    assert_eq!(there.digest, here.digest);

    // every request is delivered twice, every reply comes twice and again with the next, the last
    // first
    let mut node = spec.node(&d.path().join("b"));
    let mut late: Vec<(ClientId, Packet)> = Vec::new();
    let doubled = Rc::new(RefCell::new(0));
    let count = doubled.clone();
    let carry: Carry = Box::new(move |to, request| {
        let first = node.reply(request).unwrap();
        let again = node.reply(request).unwrap();
        assert!(
            first == again,
            "the same request has the same reply, to the last bit"
        );
        *count.borrow_mut() += 1;
        let old = late.iter().filter(|(id, _)| *id == to).cloned();
        let mut all: Vec<_> = old.map(|(id, p)| (id, Ok(p))).collect();
        late.retain(|(id, _)| *id != to);
        late.push((to, first.clone()));
        all.extend([(to, Ok(first)), (to, Ok(again))]);
        all
    });
    let mixed = Engine::new(carry).backwards();
    let file = d.path().join("other");
    let there = spec
        .run(Some((mixed, Leader::begin(&file).unwrap())))
        .unwrap();
    assert_eq!(there.digest, here.digest);
    assert!(*doubled.borrow() > 12);
}

#[test]
fn exact_a_message_to_everybody_is_written_down_once() {
    let (spec, d) = (read(SCAFFOLD), tempfile::tempdir().unwrap());
    let mut node = spec.node(d.path());
    let bodies: Rc<RefCell<Vec<Arc<[u8]>>>> = Rc::default();
    let kept = bodies.clone();
    let carry: Carry = Box::new(move |to, request| {
        kept.borrow_mut().push(request.body.clone());
        vec![(to, node.reply(request))]
    });
    spec.run(Some((Engine::new(carry), leader(d.path()))))
        .unwrap();
    let bodies = bodies.borrow();
    let mut different: Vec<&Arc<[u8]>> = Vec::new();
    for body in bodies.iter().filter(|body| !body.is_empty()) {
        if !different.iter().any(|known| Arc::ptr_eq(known, body)) {
            different.push(body);
        }
    }
    // the greeting and three rounds
    assert_eq!((different.len(), bodies.len() / 4), (4, bodies.len() / 4));
    assert!(bodies.len() >= 16);
}

/// What becomes of the run when client 1's replies to questions are bent.
fn bent(
    policy: &str,
    bend: impl Fn(&mut Packet, &mut ReplyHead) + 'static,
) -> Result<fl_sim::Outcome> {
    let (spec, d) = (
        read(&format!("{SCAFFOLD}{policy}")),
        tempfile::tempdir().unwrap(),
    );
    let mut node = spec.node(&d.path().join("node"));
    let carry: Carry = Box::new(move |to, request| {
        let mut packet = node.reply(request).unwrap();
        let mut reply: ReplyHead = packet.read().unwrap();
        if to == 1 && matches!(reply.said, AnswerKind::Answer { .. }) {
            let before = reply.clone();
            bend(&mut packet, &mut reply);
            if reply != before {
                packet = Packet::new(&reply, packet.body).unwrap();
            }
        }
        vec![(to, Ok(packet))]
    });
    spec.run(Some((Engine::new(carry), leader(d.path()))))
}

#[test]
fn replies_that_are_none_are_what_the_spec_says() {
    type Bend = fn(&mut Packet, &mut ReplyHead);
    let cases: [(&str, Bend); 8] = [
        ("damaged on its way", |packet, _| packet.head.truncate(60)),
        ("damaged on its way", |packet, _| packet.head.push(0)),
        ("it may have", |packet, _| packet.head.resize(17 << 20, 0)),
        ("to another run", |_, reply| reply.run.id[0] ^= 1),
        ("client 2 replied in its place", |_, reply| reply.client = 2),
        ("that was not sent yet", |_, reply| reply.number += 1),
        ("a model, which does not answer the request", |_, reply| {
            reply.said = AnswerKind::Model
        }),
        ("damaged on its way", |packet, _| {
            packet.body = packet.body[..packet.body.len() / 2].into()
        }),
    ];
    for (text, bend) in cases {
        let error = format!("{:#}", bent("", bend).unwrap_err());
        assert!(
            error.contains("client 1") && error.contains(text),
            "{text}: {error}"
        );
        // one that cannot be used is left out if the spec says so, and the run goes on
        let outcome = bent("faults: { on-error: drop, on-shape: drop }", bend).unwrap();
        assert_eq!(outcome.rounds, 3, "{text}");
    }
}

#[test]
fn exact_a_client_that_is_too_slow_is_one_that_straggles() {
    let straggle =
        "faults: { on-error: drop, inject: [{ what: straggle, clients: 1, rounds: 1 }] }";
    let here = read(&format!("{SCAFFOLD}{straggle}")).run(None).unwrap();
    let spec = read(&format!("{SCAFFOLD}faults: {{ on-error: drop }}"));
    let d = tempfile::tempdir().unwrap();
    let (mut node, mut late) = (spec.node(&d.path().join("node")), None);
    let carry: Carry = Box::new(move |to, request| {
        let reply = node.reply(request);
        match (to, number(request)) {
            (1, 1) => {
                late = reply.ok();
                let absent = Problem::Absent("it did not reply within 3 s".into());
                vec![(to, Err(absent.into()))]
            }
            // when its request was given up
            (1, 2) => vec![(to, late.take().context("it is late")), (to, reply)],
            _ => vec![(to, reply)],
        }
    });
    let there = spec
        .run(Some((Engine::new(carry), leader(d.path()))))
        .unwrap();
    assert_eq!(there.digest, here.digest);
}

#[test]
fn one_client_lives_at_one_node() {
    let (spec, d) = (read(SCAFFOLD), tempfile::tempdir().unwrap());
    let mut nodes = ["a", "b"].map(|name| spec.node(&d.path().join(name)));
    // whichever is quicker
    let carry: Carry = Box::new(move |to, request| {
        let at = usize::from(to == 1 && number(request) == 1);
        vec![(to, nodes[at].reply(request))]
    });
    let error = spec
        .run(Some((Engine::new(carry), leader(d.path()))))
        .unwrap_err();
    assert!(
        format!("{error:#}").contains("two nodes answer for it"),
        "{error:#}"
    );
}

#[test]
fn exact_a_node_serves_two_leaders_and_neither_disturbs_the_other() {
    let (spec, d) = (read(SCAFFOLD), tempfile::tempdir().unwrap());
    let digest = spec.run(None).unwrap().digest;
    let node = Rc::new(RefCell::new(spec.node(&d.path().join("node"))));
    let asks = |node: &Rc<RefCell<Node>>| -> Carry {
        let node = node.clone();
        Box::new(move |to, request| vec![(to, node.borrow_mut().reply(request))])
    };
    // the second does its whole run between two rounds of the first
    let second = Rc::new(RefCell::new(None));
    let (inner, done, dir) = (node.clone(), second.clone(), d.path().to_path_buf());
    let carry: Carry = Box::new(move |to, request| {
        if number(request) == 2 && done.borrow().is_none() {
            let other = Leader::begin(&dir.join("second")).unwrap();
            let node = inner.clone();
            let asks: Carry =
                Box::new(move |to, request| vec![(to, node.borrow_mut().reply(request))]);
            let outcome = read(SCAFFOLD).run(Some((Engine::new(asks), other)));
            *done.borrow_mut() = Some(outcome.unwrap().digest);
        }
        vec![(to, inner.borrow_mut().reply(request))]
    });
    let first = spec
        .run(Some((Engine::new(carry), leader(d.path()))))
        .unwrap();
    assert_eq!(first.digest, digest);
    assert_eq!(second.borrow().as_ref(), Some(&digest));

    // of one run, only the leader that has gone on with it last
    let (old, new) = (leader(d.path()), leader(d.path()));
    spec.run(Some((Engine::new(asks(&node)), new))).unwrap();
    let error = spec.run(Some((Engine::new(asks(&node)), old))).unwrap_err();
    assert!(
        format!("{error:#}").contains("another leader runs it now"),
        "{error:#}"
    );
}

#[test]
fn exact_a_run_goes_back_to_the_checkpoint_and_no_further() {
    let (spec, d) = (read(SCAFFOLD), tempfile::tempdir().unwrap());
    let digest = spec.run(None).unwrap().digest;
    let home = d.path().join("node");
    // stops in the second round, when two of four have answered
    let mut node = spec.node(&home);
    let carry: Carry = Box::new(move |to, request| {
        if number(request) == 2 && to == 2 {
            return vec![(to, Err(anyhow::anyhow!("the power is gone")))];
        }
        vec![(to, node.reply(request))]
    });
    let error = spec
        .run(Some((Engine::new(carry), leader(d.path()))))
        .unwrap_err();
    assert!(format!("{error:#}").contains("the power is gone"));
    // the server has no checkpoint, so it begins anew, and so does the node, which is another
    // process by now
    let again = Engine::new(honest(spec.node(&home)));
    assert_eq!(
        spec.run(Some((again, leader(d.path())))).unwrap().digest,
        digest
    );
}

#[test]
fn another_spec_says_what_differs() {
    let d = tempfile::tempdir().unwrap();
    let here = read(SCAFFOLD);
    for (from, to, text) in [
        ("seed: 1", "seed: 2", "`seed` is 2 there, and 1 here"),
        (
            "rounds: 3",
            "rounds: 4",
            "`protocol.rounds` is 4 there, and 3 here",
        ),
        (
            "clients: 4",
            "clients: 5",
            "`data.clients` is 5 there, and 4 here",
        ),
    ] {
        let there = read(&SCAFFOLD.replace(from, to));
        let engine = Engine::new(honest(here.node(d.path())));
        let error = there.run(Some((engine, leader(d.path())))).unwrap_err();
        assert!(format!("{error:#}").contains(text), "{error:#}");
    }
    // when a run is written down is the leader's business
    let there = read(&format!(
        "{SCAFFOLD}checkpoint: {{ every: {{ rounds: 2 }} }}"
    ));
    let engine = Engine::new(honest(here.node(d.path())));
    there.run(Some((engine, leader(d.path())))).unwrap();
    // a program with another wire format gets an error
    let request = RequestHead {
        run: RunId {
            id: [0; 16],
            life: 1,
            spec: here.text.digest,
        },
        client: 0,
        number: 0,
        had: 0,
        from: 0,
        kept: 0,
        remembers: false,
        want: RequestKind::Hello,
    };
    let mut packet = Packet::new(&request, Arc::new([])).unwrap();
    let mut node = here.node(d.path());
    assert!(node.reply(&packet).is_ok());
    packet.head[0] += 1;
    let error = node.reply(&packet).unwrap_err();
    assert!(
        error.to_string().contains("install the same version"),
        "{error}"
    );
}

#[test]
fn a_late_reply_is_not_taken_for_that_of_another_request() {
    use fl_sim::ExternalClients;
    let (spec, d) = (read(SCAFFOLD), tempfile::tempdir().unwrap());
    // two scores without a question between them, and the network delivers the first of them again
    let mut late = Vec::new();
    let carry: Carry = Box::new(move |to, request| {
        let asked: RequestHead = request.read().unwrap();
        let said = match &asked.want {
            RequestKind::Score { slot, .. } => AnswerKind::Evaluation(Evaluation {
                rows: 1,
                further: Vec::new(),
                score: Some(f64::from(u8::from(slot == "second"))),
                digest: [0; 32],
                confusion: Vec::new(),
            }),
            _ => AnswerKind::Here { examples: Some(10) },
        };
        let (run, client, number) = (asked.run, asked.client, asked.number);
        let reply = ReplyHead {
            run,
            client,
            number,
            about: request.about(),
            node: [1; 16],
            said,
        };
        late.push((to, Packet::new(&reply, Arc::new([])).unwrap()));
        late.iter().map(|(to, p)| (*to, Ok(p.clone()))).collect()
    });
    let mut remote =
        fl_remote::RemoteClients::new(Engine::new(carry), &leader(d.path()), spec.text);
    remote.begin(&[(0, 10)], None).unwrap();
    let mut scores = Vec::new();
    for slot in ["first", "second"] {
        let score = remote.score(&[0], slot, None, &mut |_, scored| {
            scores.push(scored?.score);
            Ok(())
        });
        score.unwrap();
    }
    assert_eq!(scores, [Some(0.0), Some(1.0)]);
}

#[test]
fn exact_a_new_life_forgets_what_the_last_one_did_beyond_its_checkpoint() {
    let (spec, d) = (read(SCAFFOLD), tempfile::tempdir().unwrap());
    // what client 0 is asked in the three rounds of a run
    let mut node = spec.node(&d.path().join("all"));
    type Asked = Vec<(RequestHead, Arc<[u8]>)>;
    let asked: Rc<RefCell<Asked>> = Rc::default();
    let kept = asked.clone();
    let carry: Carry = Box::new(move |to, request| {
        let read: RequestHead = request.read().unwrap();
        if to == 0 && matches!(read.want, RequestKind::Answer { .. }) {
            kept.borrow_mut().push((read, request.body.clone()));
        }
        vec![(to, node.reply(request))]
    });
    spec.run(Some((Engine::new(carry), leader(d.path()))))
        .unwrap();
    let asked = asked.borrow();
    let says = |node: &mut Node, at: usize, life: u64| {
        let (mut request, body) = asked[at].clone();
        request.run.life = life;
        if life == 2 {
            // the leader goes on from the beginning, and what it asked there did not arrive
            (request.had, request.remembers) = (0, false);
        }
        let packet = Packet::new(&request, body).unwrap();
        let reply = node.reply(&packet).unwrap();
        (reply.read::<ReplyHead>().unwrap().said, reply.body)
    };
    let mut old = spec.node(&d.path().join("old"));
    let mut new = spec.node(&d.path().join("new"));
    // two of three: the node is where question 3 finds it, but in a life that is over
    (0..2).for_each(|at| assert!(matches!(says(&mut old, at, 1).0, AnswerKind::Answer { .. })));
    let (gone_back, fresh) = (says(&mut old, 2, 2), says(&mut new, 2, 2));
    assert!(
        matches!(fresh.0, AnswerKind::Answer { .. }),
        "{:?}",
        fresh.0
    );
    assert!(gone_back == fresh);
    // all three, the last with the same words: it is not the same answer
    let mut whole = spec.node(&d.path().join("whole"));
    (0..3).for_each(|at| {
        assert!(matches!(
            says(&mut whole, at, 1).0,
            AnswerKind::Answer { .. }
        ))
    });
    assert!(says(&mut whole, 2, 2) == fresh);
}
