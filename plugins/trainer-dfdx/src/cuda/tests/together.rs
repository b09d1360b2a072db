//! Many models on one card: shared launches, data that stay there, and a bound on memory.

use super::differ;
use super::nets::{classes, flat, images};
use crate::Dfdx;
use crate::cuda::driver::{Card, Queue};
use crate::cuda::{Device, Seat, modules};
use fl_core::settings::read_yaml;
use fl_core::{
    BuildContext, FitOptions, Length, Loss, Samples, Stream, Target, Task, TaskKind, Trainer,
};
use std::sync::Arc;

/// Returns a card of its own, so that tests beside this one meet nobody and fill nothing.
fn card() -> Arc<Card> {
    Arc::new(Card::with_kernels(0, &modules().unwrap()).unwrap())
}

const NET: &str = "[{conv: {out: 3, kernel: 3}}, batch-norm, relu, {pool: 2}, layer-norm, \
    {dropout: 0.2}, {linear: 7}, relu, outputs]";

fn model(seed: u64, card: Option<&Arc<Card>>, memory: Option<u64>) -> Dfdx {
    let task = Task {
        input: vec![1, 8, 8],
        kind: TaskKind::Classes(3),
    };
    let stream = Stream::root(seed);
    let text = format!("{{net: {NET}, optimiser: {{adam: {{lr: 0.01}}}}}}");
    let mut model = Dfdx::new(read_yaml(&text).unwrap(), &BuildContext { task, stream }).unwrap();
    if let Some(card) = card {
        let queue = Queue::new(card.clone(), memory).unwrap();
        model.put_on(Device::Cuda { index: 0, memory }, queue);
    }
    model
}

/// Trains a model on `n` samples, clipped, and returns its loss and its state.
fn train(model: &mut Dfdx, x: &Samples, seed: u64) -> (u64, Vec<u8>) {
    let labels = classes(x.len(), 3);
    let mut pass = FitOptions::new(Length::Epochs(2), 4, Loss::CrossEntropy);
    pass.clip = Some(0.7);
    let target = Target::Classes(&labels);
    let report = model.fit(x, target, &pass, &Stream::root(seed)).unwrap();
    (report.loss.to_bits(), model.save_state().unwrap())
}

#[test]
fn exact_models_that_train_at_once_share_launches() {
    // the last batch of some is smaller, and some have fewer steps
    let sizes = [13, 12, 17, 9, 13, 13, 14, 13, 13, 10];
    let wanted = (0..)
        .zip(sizes)
        .map(|(i, n)| train(&mut model(i, None, None), &images(n, &[1, 8, 8]), i));
    let wanted: Vec<_> = wanted.collect();
    let card = card();
    let launches = || card.launches();
    let alone = {
        train(&mut model(2, Some(&card), None), &images(17, &[1, 8, 8]), 2);
        launches()
    };
    // until it leaves, this place keeps the others waiting at the end of their first part
    let queue = Queue::new(card.clone(), None).unwrap();
    let kind = format!("{:?} 4", model(0, None, None).net().ops());
    let seat = Seat::take(&queue, kind.clone());
    let second = Seat::take(&Queue::new(card.clone(), None).unwrap(), kind);
    seat.begin_step().unwrap();
    drop(second);
    let found: Vec<_> = std::thread::scope(|s| {
        let mut all = Vec::new();
        for (i, n) in (0..).zip(sizes) {
            let card = &card;
            all.push(
                s.spawn(move || train(&mut model(i, Some(card), None), &images(n, &[1, 8, 8]), i)),
            );
        }
        card.meetings.wait_for(sizes.len());
        drop(seat);
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(found, wanted);
    // ten models: one launch for eight, and one for two, in most steps
    let together = launches() - alone;
    assert!(
        together < 6 * alone,
        "{together} launches for ten models, {alone} for the one with most steps"
    );
}

#[test]
fn exact_a_model_whose_loss_is_not_finite_leaves_the_others() {
    let card = card();
    let x = images(12, &[1, 8, 8]);
    let wanted = train(&mut model(1, None, None), &x, 1);
    let bad = Samples::fresh(
        ndarray::Array2::from_elem((12, 64), f32::NAN),
        vec![1, 8, 8],
    );
    let bad = bad.unwrap();
    std::thread::scope(|s| {
        let good = s.spawn(|| {
            (0..3)
                .map(|_| train(&mut model(1, Some(&card), None), &x, 1))
                .collect::<Vec<_>>()
        });
        for _ in 0..6 {
            let labels = classes(12, 3);
            let pass = FitOptions::new(Length::Epochs(2), 4, Loss::CrossEntropy);
            let target = Target::Classes(&labels);
            let why = model(2, Some(&card), None).fit(&bad, target, &pass, &Stream::root(2));
            assert!(format!("{:#}", why.unwrap_err()).contains("step 0"));
        }
        good.join()
            .unwrap()
            .iter()
            .for_each(|found| assert_eq!(*found, wanted));
    });
}

#[test]
fn exact_data_stay_on_the_card_from_the_second_call_on() {
    let card = card();
    let x = images(21, &[1, 8, 8]);
    let half = x.pick(&[20, 3, 4, 5, 6, 7, 1]);
    let (mut cpu, mut there) = (model(4, None, None), model(4, Some(&card), None));
    for (call, x) in [&x, &half, &x, &half].into_iter().enumerate() {
        assert_eq!(card.sets.count(), usize::from(call > 0));
        assert_eq!(
            train(&mut cpu, x, 4),
            train(&mut there, x, 4),
            "call {call}"
        );
        let [a, b] = [&mut cpu, &mut there].map(|m| flat(&m.predict(x).unwrap()));
        assert_eq!(differ(&a, &b), None);
        assert_eq!(card.sets.count(), 1);
    }
    // they leave it with the last owner of the data
    drop((x, half));
    train(&mut there, &images(8, &[1, 8, 8]), 4);
    assert_eq!(card.sets.count(), 0);
}

#[test]
fn a_bound_on_memory_is_kept_and_said() {
    let card = card();
    let x = images(40, &[1, 8, 8]);
    // the set takes 10 KiB, and leaves when the models need its room
    let most = Some(40 << 10);
    let (mut cpu, mut there) = (model(5, None, None), model(5, Some(&card), most));
    for call in 0..3 {
        assert_eq!(
            train(&mut cpu, &x, 5),
            train(&mut there, &x, 5),
            "call {call}"
        );
        assert!(card.held() <= 40 << 10);
    }
    assert_eq!(card.held(), if card.sets.count() == 1 { 10_240 } else { 0 });
    let labels = classes(40, 3);
    let pass = FitOptions::new(Length::Epochs(1), 40, Loss::CrossEntropy);
    let target = Target::Classes(&labels);
    let why = there.fit(&x, target, &pass, &Stream::root(1)).unwrap_err();
    let why = format!("{why:#}");
    let wanted = "device: memory: all models on PTX interpreter hold ";
    assert!(
        why.contains(wanted) && why.contains("train fewer clients at once"),
        "{why}"
    );
    // nothing is lost: smaller batches still fit
    assert_eq!(train(&mut cpu, &x, 6), train(&mut there, &x, 6));
}

#[test]
fn a_bound_on_memory_is_a_setting_of_the_device() {
    let device = |text: &str| {
        let text = format!("{{net: logistic, device: {text}}}");
        read_yaml::<crate::DfdxSettings>(&text).map(|s| s.device)
    };
    let memory = Some(3 << 29);
    assert_eq!(
        device("{cuda: 1, memory: 1.5}").unwrap(),
        Device::Cuda { index: 1, memory }
    );
    for (text, wanted) in [
        ("{memory: 0}", "memory"),
        ("{cuda: 1}", "memory"),
        ("{card: 1, memory: 2}", "card"),
    ] {
        let why = format!("{:#}", device(text).unwrap_err());
        assert!(why.contains(wanted), "{text}: {why}");
    }
}

/// The numbers of the crate's README.
#[test]
fn launches_of_a_step_are_few() {
    for (net, input, most) in [
        ("lenet", vec![1, 28, 28], 28),
        ("resnet-8", vec![3, 16, 16], 125),
    ] {
        let card = card();
        let task = Task {
            input: input.clone(),
            kind: TaskKind::Classes(10),
        };
        let stream = Stream::root(1);
        let text = format!("{{net: {net}}}");
        let settings = read_yaml(&text).unwrap();
        let mut model = Dfdx::new(settings, &BuildContext { task, stream }).unwrap();
        let queue = Queue::new(card.clone(), None).unwrap();
        model.put_on(
            Device::Cuda {
                index: 0,
                memory: None,
            },
            queue,
        );
        let (x, labels) = (images(2, &input), classes(2, 10));
        let mut steps = |n| {
            let pass = FitOptions::new(Length::Steps(n), 2, Loss::CrossEntropy);
            let before = card.launches();
            let target = Target::Classes(&labels);
            model.fit(&x, target, &pass, &Stream::root(1)).unwrap();
            card.launches() - before
        };
        let (one, two) = (steps(1), steps(2));
        assert!(two - one <= most, "{net}: {} launches a step", two - one);
    }
}

/// Runs the step that `FL_STEP` names, such as `lenet 1x28x28 32`, while the interpreter counts.
#[test]
#[ignore = "for tests/bench/cuda_kernels.py"]
fn exact_a_step_that_is_counted() {
    let text = std::env::var("FL_STEP").unwrap_or_else(|_| "lenet 1x28x28 2".into());
    let words: Vec<&str> = text.split(' ').collect();
    let [net, shape, batch] = words[..] else {
        panic!("FL_STEP is `{text}`, not a network, a shape and a batch");
    };
    let input: Vec<usize> = shape.split('x').map(|n| n.parse().unwrap()).collect();
    let batch: usize = batch.parse().unwrap();
    let (x, labels) = (images(batch, &input), classes(batch, 10));
    let card = card();
    let step = |card: Option<&Arc<Card>>| {
        let task = Task {
            input: input.clone(),
            kind: TaskKind::Classes(10),
        };
        let make = BuildContext {
            task,
            stream: Stream::root(1),
        };
        let settings = read_yaml(&format!("{{net: {net}}}")).unwrap();
        let mut model = Dfdx::new(settings, &make).unwrap();
        if let Some(card) = card {
            let (index, memory) = (0, None);
            let queue = Queue::new(card.clone(), memory).unwrap();
            model.put_on(Device::Cuda { index, memory }, queue);
        }
        let pass = FitOptions::new(Length::Steps(1), batch, Loss::CrossEntropy);
        let target = Target::Classes(&labels);
        model.fit(&x, target, &pass, &Stream::root(1)).unwrap();
        model.save_state().unwrap()
    };
    assert!(step(Some(&card)) == step(None));
}
