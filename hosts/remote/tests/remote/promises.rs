//! What a node with data of its own promises, whatever a leader says.

use crate::common::{Engine, PRIVATE, Read, read};
use fl_core::RequiredInputs;
use fl_core::message::{Params, decode, encode};
use fl_remote::wire::{AnswerKind, Packet, ReplyHead, RequestHead, RequestKind};
use fl_remote::{Leader, Node, NodeData, Policy};
use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

fn own(epsilon: f64) -> NodeData {
    let policy: Policy = fl_core::settings::read_yaml(&format!("epsilon: {epsilon}")).unwrap();
    NodeData {
        policy,
        unfit: None,
        tell: Box::new(|_| ()),
    }
}

/// The first question of a run to client 1.
fn first(spec: &Read) -> (RequestHead, Arc<[u8]>) {
    let d = tempfile::tempdir().unwrap();
    let mut node = spec.node(&d.path().join("node"));
    let asked = Rc::new(RefCell::new(None));
    let kept = asked.clone();
    let carry: crate::common::Carry = Box::new(move |to, request| {
        let read: RequestHead = request.read().unwrap();
        if to == 1 && matches!(read.want, RequestKind::Answer { .. }) && kept.borrow().is_none() {
            *kept.borrow_mut() = Some((read, request.body.clone()));
        }
        vec![(to, node.reply(request))]
    });
    let leader = Leader::begin(&d.path().join("leader")).unwrap();
    spec.run(Some((Engine::new(carry), leader))).unwrap();
    asked.take().unwrap()
}

fn ask(node: &mut Node, request: &RequestHead, body: &Arc<[u8]>) -> (AnswerKind, Arc<[u8]>) {
    let packet = Packet::new(request, body.clone()).unwrap();
    let reply = node.reply(&packet).unwrap();
    (reply.read::<ReplyHead>().unwrap().said, reply.body)
}

/// Why it does not answer.
fn refused(node: &mut Node, request: &RequestHead, body: &Arc<[u8]>) -> String {
    match ask(node, request, body).0 {
        AnswerKind::Refused(why) | AnswerKind::Failed { why, .. } => {
            format!("{:#}", anyhow::Error::from(why))
        }
        said => panic!("it says {said:?}"),
    }
}

/// How far apart two answers are.
fn apart(a: &(AnswerKind, Arc<[u8]>), b: &(AnswerKind, Arc<[u8]>)) -> f32 {
    let of = |says: &(AnswerKind, Arc<[u8]>)| -> Vec<f32> {
        assert!(matches!(says.0, AnswerKind::Answer { .. }), "{:?}", says.0);
        let params: Params = decode(&says.1).unwrap();
        params.flat()
    };
    let squares = of(a).into_iter().zip(of(b)).map(|(x, y)| (x - y).powi(2));
    squares.sum::<f32>().sqrt()
}

#[test]
fn noise_is_of_one_spec_and_of_one_set_of_rows() {
    let (spec, d) = (read(PRIVATE), tempfile::tempdir().unwrap());
    let home = d.path().join("node");
    let (request, body) = first(&spec);
    let told = ask(&mut spec.own_node(&home, own(1000.0), 0), &request, &body);
    fs::remove_dir_all(home.join("runs")).unwrap();
    // the same question, of a node that has forgotten that it answered: the same bits, and paid
    // once
    let ledger = fs::read(home.join("ledger")).unwrap();
    let again = ask(&mut spec.own_node(&home, own(1000.0), 0), &request, &body);
    assert!(again == told && fs::read(home.join("ledger")).unwrap() == ledger);
    fs::remove_dir_all(home.join("runs")).unwrap();
    // a spec that differs in what no answer depends on, under the name of the same run
    let other = read(&PRIVATE.replace("name: private", "name: other"));
    let mut as_other = request.clone();
    as_other.run.spec = other.text.digest;
    let elsewhere = ask(&mut other.own_node(&home, own(1000.0), 0), &as_other, &body);
    // what clients have learnt is clipped to 0.5, so without noise two answers are 1 apart at most;
    // with it, 84 numbers are about 6.5
    assert!(
        apart(&told, &elsewhere) > 3.0,
        "{}",
        apart(&told, &elsewhere)
    );
    fs::remove_dir_all(home.join("runs")).unwrap();
    let fewer = ask(&mut spec.own_node(&home, own(1000.0), 1), &request, &body);
    assert!(apart(&told, &fewer) > 3.0, "{}", apart(&told, &fewer));
    let more = fs::read(home.join("ledger")).unwrap();
    assert!(more.starts_with(&ledger) && more.len() == 3 * ledger.len());
    // an answer may depend on how many rounds there are: with more of them it has noise of its own,
    // and is paid
    let longer = read(&PRIVATE.replace("rounds: 3", "rounds: 9"));
    let mut as_longer = request.clone();
    as_longer.run.spec = longer.text.digest;
    fs::remove_dir_all(home.join("runs")).unwrap();
    let mut node = longer.own_node(&home, own(1000.0), 0);
    let longer = ask(&mut node, &as_longer, &body);
    assert!(apart(&told, &longer) > 3.0, "{}", apart(&told, &longer));
    let paid = fs::read(home.join("ledger")).unwrap();
    assert!(paid.starts_with(&more) && paid.len() == 4 * ledger.len());
}

#[test]
fn a_node_signs_only_receipts_of_answers_that_it_gave() {
    let (spec, d) = (read(PRIVATE), tempfile::tempdir().unwrap());
    let home = d.path().join("node");
    let (request, body) = first(&spec);
    let (_, message) = ask(&mut spec.own_node(&home, own(1000.0), 0), &request, &body);
    let message: Params = decode(&message).unwrap();
    let gave = fl_core::hex(&fl_core::message::digest(&message));
    // a process that was started since knows the answer too
    let mut node = spec.own_node(&home, own(1000.0), 0);
    let mut sign = |answers: &[&str]| {
        let want = RequestKind::Countersign {
            hash: [7; 32],
            answers: answers.iter().map(ToString::to_string).collect(),
        };
        let request = RequestHead {
            want,
            had: request.number,
            ..request.clone()
        };
        match ask(&mut node, &request, &Arc::from([])).0 {
            AnswerKind::Countersigned { key, .. } => Ok(key),
            AnswerKind::Refused(why) => Err(format!("{:#}", anyhow::Error::from(why))),
            said => panic!("it says {said:?}"),
        }
    };
    let key = sign(&[&gave]).unwrap();
    assert_eq!(sign(&[]).unwrap(), key, "the leader used no answer");
    let other = "00".repeat(32);
    for answers in [&[&*other][..], &[&gave, &gave], &[&other, &gave]] {
        let why = sign(answers).unwrap_err();
        assert!(why.contains("gave no such answer"), "{why}");
    }
    // without data of its own there is nothing to testify to
    let mut node = spec.node(&d.path().join("other"));
    let want = RequestKind::Countersign {
        hash: [7; 32],
        answers: Vec::new(),
    };
    let request = RequestHead { want, ..request };
    assert!(refused(&mut node, &request, &Arc::from([])).contains("not its own"));
}

/// Under a guarantee for an example that is added or removed, how many there are has no price.
#[test]
fn a_greeting_tells_no_number_of_rows_where_an_accountant_works() {
    for (yaml, told) in [(PRIVATE, false), (crate::common::SCAFFOLD, true)] {
        let (spec, d) = (read(yaml), tempfile::tempdir().unwrap());
        let (request, _) = first(&spec);
        let hello = RequestHead {
            want: RequestKind::Hello,
            ..request
        };
        let body: Arc<[u8]> = spec.text.packed().unwrap().into();
        let say = |left: usize| {
            let policy = || NodeData {
                policy: fl_core::settings::read_yaml("{}").unwrap(),
                ..own(1.0)
            };
            let mut node = spec.own_node(&d.path().join("node"), policy(), left);
            ask(&mut node, &hello, &body).0
        };
        assert!(matches!(say(0), AnswerKind::Here { .. }), "{:?}", say(0));
        assert_eq!(say(0) != say(1), told);
    }
}

#[test]
fn data_that_change_within_a_run_are_noticed() {
    let (spec, d) = (read(PRIVATE), tempfile::tempdir().unwrap());
    let home = d.path().join("node");
    let (request, body) = first(&spec);
    let told = ask(&mut spec.own_node(&home, own(1000.0), 0), &request, &body);
    let ledger = fs::read(home.join("ledger")).unwrap();
    let mut changed = spec.own_node(&home, own(1000.0), 1);
    let mut next = request.clone();
    (next.number, next.had, next.remembers) = (2, 1, true);
    let hello = RequestHead {
        want: RequestKind::Hello,
        ..request.clone()
    };
    let yaml: Arc<[u8]> = spec.text.packed().unwrap().into();
    for (request, body) in [(&request, &body), (&next, &body), (&hello, &yaml)] {
        let why = refused(&mut changed, request, body);
        assert!(
            why.contains("its own data have changed") && why.contains("start a new run"),
            "{why}"
        );
    }
    assert!(fs::read(home.join("ledger")).unwrap() == ledger);
    // a new run takes them as they are, and pays beside what was paid
    let mut new = request.clone();
    new.run.id = [7; 16];
    assert!(matches!(
        ask(&mut changed, &new, &body).0,
        AnswerKind::Answer { .. }
    ));
    assert!(fs::read(home.join("ledger")).unwrap().len() > ledger.len());
    // and the old one goes on where they are as they were
    assert!(ask(&mut spec.own_node(&home, own(1000.0), 0), &request, &body) == told);
}

#[test]
fn a_node_with_a_budget_answers_what_the_spec_asks_and_nothing_else() {
    let (spec, d) = (read(PRIVATE), tempfile::tempdir().unwrap());
    let (request, body) = first(&spec);
    let mut node = spec.own_node(&d.path().join("node"), own(1000.0), 0);
    let RequestKind::Answer {
        label,
        round,
        needs,
        stream,
    } = request.want.clone()
    else {
        panic!("{:?}", request.want)
    };
    assert!(!needs.samples && !needs.class_counts);
    let with = |label: &str, samples, class_counts| {
        let needs = RequiredInputs {
            samples,
            class_counts,
            ..needs
        };
        let (label, mut request) = (label.to_string(), request.clone());
        request.want = RequestKind::Answer {
            label,
            round,
            needs,
            stream,
        };
        request
    };
    let mut loss = request.clone();
    loss.want = RequestKind::Answer {
        label: label.clone(),
        round,
        needs: RequiredInputs {
            training_loss: true,
            ..needs
        },
        stream,
    };
    let counts = "sends only counts that the spec's parts use";
    let questions = "answers only exchanges of the spec";
    for (request, text) in [
        (with(&label, true, false), counts),
        (with(&label, false, true), counts),
        (loss.clone(), "no mechanism gives its training loss a price"),
        (with("number of examples", true, false), questions),
        // one of the protocol, which takes place only if a selector needs losses
        (with("loss of the global model", false, false), questions),
        (with("your data, please", false, false), questions),
    ] {
        let why = refused(&mut node, &request, &body);
        assert!(why.contains(text), "{:?}: {why}", request.want);
    }
    let ledger = d.path().join("node/ledger").metadata().unwrap();
    assert_eq!(ledger.len(), 0, "nothing was released");
    assert!(matches!(
        ask(&mut node, &request, &body).0,
        AnswerKind::Answer { .. }
    ));
    // one without a budget says what it is asked
    for (at, request) in [with(&label, false, true), loss].iter().enumerate() {
        let open = NodeData {
            policy: fl_core::settings::defaults(),
            ..own(1.0)
        };
        let home = d.path().join(format!("open-{at}"));
        let mut open = spec.own_node(&home, open, 0);
        let (said, _) = ask(&mut open, request, &body);
        let AnswerKind::Answer { envelope, .. } = said else {
            panic!("it says {said:?}")
        };
        let told = (envelope.class_counts, envelope.training_loss);
        assert_eq!((told.0.is_some(), told.1.is_some()), (at == 0, at == 1));
    }
}

#[test]
fn no_new_life_and_no_new_run_sets_back_what_was_paid() {
    let (spec, d) = (read(PRIVATE), tempfile::tempdir().unwrap());
    let (request, body) = first(&spec);
    let home = d.path().join("node");
    let params: Params = decode(&body).unwrap();
    let mut answered = 0;
    let mut ledger = 0;
    // every life begins anew, and asks about another model
    let why = (1..50).find_map(|life| {
        let mut node = spec.own_node(&home, own(30.0), 0);
        let mut request = request.clone();
        request.run.life = life;
        let other: Vec<f32> = params.flat().iter().map(|v| v + life as f32).collect();
        let params = Params::from_flat(&params, &other).unwrap();
        match ask(&mut node, &request, &encode(&params).into()).0 {
            AnswerKind::Answer { .. } => {
                answered += 1;
                let now = fs::read(home.join("ledger")).unwrap().len();
                assert!(now > ledger);
                ledger = now;
                None
            }
            AnswerKind::Failed { why, .. } => Some(format!("{:#}", anyhow::Error::from(why))),
            said => panic!("{said:?}"),
        }
    });
    assert!(why.is_some_and(|why| why.contains("budget allows no more")));
    assert!((2..20).contains(&answered), "{answered}");
    let mut other = request.clone();
    other.run.id = [9; 16];
    let why = refused(&mut spec.own_node(&home, own(30.0), 0), &other, &body);
    assert!(why.contains("budget allows no more"), "{why}");
}

#[test]
fn a_run_that_is_over_is_forgotten_and_what_it_cost_is_not() {
    let (spec, d) = (read(PRIVATE), tempfile::tempdir().unwrap());
    let (mut request, body) = first(&spec);
    let home = d.path().join("node");
    let mut node = spec.own_node(&home, own(1000.0), 0);
    request.run.life = 2;
    ask(&mut node, &request, &body);
    let kept = |home: &Path| {
        let runs = fs::read_dir(home.join("runs")).unwrap();
        runs.filter(|e| e.as_ref().unwrap().path().is_dir()).count()
    };
    assert_eq!(kept(&home), 1);
    let mut over = request.clone();
    over.want = RequestKind::Over;
    // one that was late, of a leader that has gone on since
    over.run.life = 1;
    let nothing: Arc<[u8]> = Arc::new([]);
    assert!(refused(&mut node, &over, &nothing).contains("another leader runs it now"));
    assert_eq!(kept(&home), 1);
    over.run.life = 2;
    assert_eq!(ask(&mut node, &over, &nothing).0, AnswerKind::Forgotten);
    assert_eq!(kept(&home), 0);
    assert!(home.join("ledger").metadata().unwrap().len() > 0);
}

#[test]
fn what_does_not_fit_is_told_to_the_owner_alone() {
    let (spec, d) = (read(PRIVATE), tempfile::tempdir().unwrap());
    let (request, body) = first(&spec);
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    let unfit = NodeData {
        unfit: Some("line 3, column `salary`: `12,5` is not a number".into()),
        tell: Box::new(move |text| heard.lock().unwrap().push(text.to_string())),
        ..own(1.0)
    };
    let mut node = spec.own_node(&d.path().join("node"), unfit, 0);
    let why = refused(&mut node, &request, &body);
    assert!(
        why.contains("its own data do not fit the spec") && why.contains("its node's log"),
        "{why}"
    );
    assert!(!why.contains("salary") && !why.contains("12,5"), "{why}");
    let told = told.lock().unwrap();
    assert!(
        told.len() == 1 && told[0].contains("column `salary`: `12,5`"),
        "{told:?}"
    );
}

#[test]
#[cfg(unix)]
fn a_secret_or_key_that_others_could_read_is_none() {
    use std::os::unix::fs::PermissionsExt;
    let d = tempfile::tempdir().unwrap();
    let home = d.path().join("node");
    fl_remote::NodeState::open(&home).unwrap();
    fl_receipts::SigningKey::make(&home.join("signing-key")).unwrap();
    for (name, lost) in [("secret", "noise"), ("signing-key", "sign receipts")] {
        fl_remote::NodeState::open(&home).unwrap();
        let file = home.join(name);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let error = format!("{:#}", fl_remote::NodeState::open(&home).unwrap_err());
        assert!(
            error.contains("mode 640") && error.contains("chmod 600") && error.contains(lost),
            "{error}"
        );
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    // in a folder that is open to all, what lasts is still its owner's
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
    let spec = read(PRIVATE);
    let (request, body) = first(&spec);
    ask(&mut spec.own_node(&home, own(1000.0), 0), &request, &body);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let run = fs::read_dir(home.join("runs")).unwrap();
    let run = run.map(|e| e.unwrap().path()).find(|p| p.is_dir()).unwrap();
    for file in [
        run.join("client-1"),
        home.join("ledger"),
        home.join("ledger-head"),
    ] {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[test]
#[cfg(unix)]
fn a_home_that_another_user_could_have_changed_is_refused() {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    let d = tempfile::tempdir().unwrap();
    let spec = read(PRIVATE);
    let (request, body) = first(&spec);
    let home = d.path().join("node");
    ask(&mut spec.own_node(&home, own(1000.0), 0), &request, &body);
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let refused = |text: &str| {
        let error = format!("{:#}", fl_remote::NodeState::open(&home).unwrap_err());
        assert!(error.contains(text), "{error}");
    };
    for open in [0o770, 0o702, 0o777] {
        mode(&home, open);
        refused("chmod ");
    }
    mode(&home, 0o700);
    // a folder on the way to it
    mode(d.path(), 0o777);
    refused("every user may write to its folder");
    mode(d.path(), 0o700);
    for name in ["lock", "secret", "node-id", "ledger", "ledger-head"] {
        let file = home.join(name);
        let whole = fs::read(&file).unwrap();
        mode(&file, 0o622);
        refused("mode 622");
        mode(&file, 0o600);
        if fs::metadata(&home).is_ok_and(|about| std::os::unix::fs::MetadataExt::uid(&about) == 0) {
            chown(&file, Some(4321), None).unwrap();
            refused("belongs to user 4321");
            chown(&file, Some(0), None).unwrap();
        }
        // a link is not followed, and nothing happens to its target
        let target = d.path().join("target");
        fs::rename(&file, &target).unwrap();
        symlink(&target, &file).unwrap();
        refused("it is a link");
        assert_eq!(fs::read(&target).unwrap(), whole);
        fs::remove_file(&file).unwrap();
        if name != "lock" {
            refused(name);
        }
        fs::rename(&target, &file).unwrap();
    }
    fl_remote::NodeState::open(&home).unwrap();
}

#[test]
fn a_home_without_its_ledger_never_begins_a_new_one() {
    let d = tempfile::tempdir().unwrap();
    let home = d.path().join("node");
    fl_remote::NodeState::open(&home).unwrap();
    // it has released nothing, and says so
    for name in ["ledger", "ledger-head", "secret", "node-id"] {
        let (file, away) = (home.join(name), d.path().join("away"));
        assert!(file.is_file(), "{name}");
        fs::rename(&file, &away).unwrap();
        // one that was ended while it was made has no secret yet
        if name != "secret" {
            let error = format!("{:#}", fl_remote::NodeState::open(&home).unwrap_err());
            assert!(error.contains(name), "{error}");
        }
        fs::rename(&away, &file).unwrap();
    }
    // the head of another home is not signed by this one
    let other = d.path().join("other");
    fl_remote::NodeState::open(&other).unwrap();
    fs::copy(other.join("ledger-head"), home.join("ledger-head")).unwrap();
    let error = format!("{:#}", fl_remote::NodeState::open(&home).unwrap_err());
    assert!(error.contains("The ledger of releases is lost"), "{error}");
    // one that has answered, and whose secret is gone
    fs::create_dir(other.join("runs")).unwrap();
    fs::remove_file(other.join("secret")).unwrap();
    let error = format!("{:#}", fl_remote::NodeState::open(&other).unwrap_err());
    assert!(error.contains("`secret` is gone"), "{error}");
}

#[test]
fn an_answer_is_kept_with_its_message_and_no_damaged_one_is_said_again() {
    let d = tempfile::tempdir().unwrap();
    let spec = read(PRIVATE);
    let (request, body) = first(&spec);
    let node = || spec.node(&d.path().join("node"));
    let said = ask(&mut node(), &request, &body);
    // an unknown request moves the mark, and the last answer stays with it
    let score = RequestHead {
        number: 1,
        had: 1,
        kept: 1,
        want: RequestKind::Score {
            slot: "model".into(),
            of_server: false,
        },
        ..request.clone()
    };
    ask(&mut node(), &score, &Arc::from([]));
    assert_eq!(ask(&mut node(), &request, &body), said);
    let run = fs::read_dir(d.path().join("node/runs")).unwrap();
    let file = run.map(|e| e.unwrap().path().join("client-1"));
    let file = file.into_iter().find(|file| file.is_file()).unwrap();
    let whole = fs::read(&file).unwrap();
    assert!(whole.ends_with(&said.1), "the message is what comes last");
    let damage = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&file, bytes).unwrap();
    };
    for at in [0, 36, 50, whole.len() - said.1.len(), whole.len() - 1] {
        damage(at);
        let why = refused(&mut node(), &request, &body);
        assert!(why.contains("client-1 is damaged"), "{at}: {why}");
    }
    for cut in [0, 20, 39, 60, whole.len() - 1] {
        fs::write(&file, &whole[..cut]).unwrap();
        let why = refused(&mut node(), &request, &body);
        assert!(why.contains("client-1 is damaged"), "{cut}: {why}");
    }
    // of a node with data of its own the leader learns only that it failed
    let home = d.path().join("own");
    ask(&mut spec.own_node(&home, own(1000.0), 0), &request, &body);
    let run = fs::read_dir(home.join("runs")).unwrap();
    let file = run.map(|e| e.unwrap().path().join("client-1"));
    let file = file.into_iter().find(|file| file.is_file()).unwrap();
    fs::write(&file, "secret").unwrap();
    let told = Arc::new(std::sync::Mutex::new(String::new()));
    let log = told.clone();
    let tell = NodeData {
        tell: Box::new(move |text| log.lock().unwrap().push_str(text)),
        ..own(1000.0)
    };
    let why = refused(&mut spec.own_node(&home, tell, 0), &request, &body);
    assert!(why.contains("its node's log says why"), "{why}");
    assert!(!why.contains("client-1"), "{why}");
    assert!(told.lock().unwrap().contains("client-1 is damaged"));
}
