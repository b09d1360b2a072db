use super::borrowed_inbox::{BorrowedInbox, InboxBuffer};
use super::{Host, Input, OpenCall};
use crate::caller::Means;
use crate::host::Call;
use crate::marshal::{OutgoingMessage, content, with_messages};
use crate::raw::*;
use crate::tests::{params, raw};
use fl_roles::message::{Logits, Message, MessageType, NamedTensors, Params};
use ndarray::{Array2, ArrayD, IxDyn};

/// Lends `all` to a part, and says which of the tensors called `name` are still the host's.
fn lent<M: Message>(all: &[M], numbers: impl Fn(&M) -> *const f32) -> Vec<bool> {
    lent_on(&mut InboxBuffer::new(MessageType::of::<M>()), all, numbers)
}

fn lent_on<M: Message>(
    shelf: &mut InboxBuffer,
    all: &[M],
    numbers: impl Fn(&M) -> *const f32,
) -> Vec<bool> {
    let contents: Vec<NamedTensors<'_>> = all.iter().map(|m| content(m)).collect();
    let letters: Vec<_> = contents.iter().map(OutgoingMessage::new).collect();
    with_messages(&letters, |messages| {
        // SAFETY: the messages live and stay as they are through the call.
        let lent = unsafe { BorrowedInbox::new(shelf, messages) }.unwrap();
        let bodies = lent.inbox().get::<M>().unwrap().iter();
        let bodies = bodies.map(|mail| &mail.body);
        bodies
            .zip(all)
            .map(|(body, own)| {
                assert_eq!(
                    fl_roles::message::digest(body),
                    fl_roles::message::digest(own)
                );
                // what a part copies is its own
                drop(body.clone());
                numbers(body) == numbers(own)
            })
            .collect()
    })
}

#[test]
fn numbers_stay_where_the_host_has_them() {
    let plain = ArrayD::from_shape_fn(IxDyn(&[2, 3]), |i| (i[0] + i[1]) as f32);
    let turned = plain.clone().reversed_axes();
    let all = [params(plain.clone()), params(turned), params(plain)];
    assert_eq!(lent(&all, |p| p.0["w"].as_ptr()), [true, false, true]);
    let scores = Logits::new(vec![3, 5], Array2::ones((2, 4)));
    let none = Logits::new(Vec::new(), Array2::ones((0, 4)));
    let at = |l: &Logits| l.values.as_ptr();
    assert!(lent(&[scores.clone(), none], at)[0]);
    // packed scores are rebuilt from their levels
    let mut packed = scores;
    packed.pack(fl_roles::message::Grid {
        levels: 5,
        lowest: 0.0,
        step: 0.5,
    });
    assert!(!lent(&[packed], at)[0]);
}

#[test]
fn a_shelf_takes_whatever_comes_next() {
    let of = |names: &[&str], shape: &[usize]| {
        let tensor = |n: &&str| (n.to_string(), ArrayD::from_elem(IxDyn(shape), 2.0));
        Params(names.iter().map(tensor).collect())
    };
    let mut turned = of(&["a", "w"], &[2, 3]);
    for array in turned.0.values_mut() {
        *array = array.clone().reversed_axes();
    }
    let plain = of(&["a", "w"], &[2, 3]);
    let mut shelf = InboxBuffer::new(MessageType::of::<Params>());
    for all in [
        vec![plain.clone(); 3],
        vec![of(&["a", "w"], &[4])],
        vec![plain.clone(), turned, plain.clone()],
        vec![of(&["a"], &[1, 2, 1]); 4],
        vec![of(&["b", "c", "w"], &[]); 2],
        vec![of(&[], &[]), of(&["x"], &[0, 3])],
        vec![plain.clone(); 2],
    ] {
        let lent = lent_on(&mut shelf, &all, |p| {
            p.0.values().last().map_or(std::ptr::null(), |a| a.as_ptr())
        });
        let whole = |p: &Params| p.count() == 0 || p.0.values().all(|a| a.is_standard_layout());
        let empty = |p: &Params| p.count() == 0;
        for (lent, p) in lent.into_iter().zip(&all).filter(|(_, p)| !empty(p)) {
            assert_eq!(lent, whole(p));
        }
    }
    // what was lent before a mistake is given back, and names may come in any order, or twice
    let (numbers, shape, strides) = ([1.0, 2.0, 3.0], [1], [1]);
    let one = |name: &'static str, at: usize| FlTensor {
        name: FlText::of(name),
        ..raw(&raw const numbers[at], &shape, &strides)
    };
    let mut bad = [one("a", 0), one("w", 1)];
    bad[1].shape = std::ptr::null();
    let mixed = [one("w", 0), one("a", 1), one("w", 2)];
    for (tensors, fine) in [(&bad[..], false), (&mixed[..], true), (&bad[..], false)] {
        let message = FlMessage {
            from: 3,
            classes: 0,
            weight: 1.0,
            class_counts: std::ptr::null(),
            tensors: tensors.as_ptr(),
            count: tensors.len(),
            training_loss: f64::NAN,
        };
        // SAFETY: all that the message points to lives through the loop.
        let lent = unsafe { BorrowedInbox::new(&mut shelf, &[message]) };
        assert_eq!(lent.is_ok(), fine);
        let Ok(lent) = lent else { continue };
        let body: &Params = lent.inbox().at(0).body.get().unwrap();
        let found: Vec<_> = body.iter().copied().collect();
        assert_eq!(found, [2.0, 1.0]);
    }
}

#[test]
fn a_call_is_open_on_its_thread_until_it_ends() {
    let input = FlInput {
        size: size_of::<FlInput>(),
        text: FlText::of("[1]"),
        messages: std::ptr::null(),
        count: 0,
    };
    let mut later = None;
    Call::new("a part", Means::default()).run_back(|host| {
        OpenCall::lend(&Host(host), &Input(&input), |now| {
            let text = now.with(|_, input| input.text().map(String::from));
            assert_eq!(text.unwrap(), "[1]");
            let elsewhere = || now.with(|_, _| Ok(())).unwrap_err().to_string();
            let error = std::thread::scope(|scope| scope.spawn(elsewhere).join().unwrap());
            assert!(error.contains("only on the thread of its call"), "{error}");
            later = Some(now.clone());
        });
        FL_OK
    });
    let error = later.unwrap().with(|_, _| Ok(())).unwrap_err().to_string();
    assert!(error.contains("after its call"), "{error}");
}
