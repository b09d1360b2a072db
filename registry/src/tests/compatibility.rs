//! What the parts cannot do and the protocol needs, found before a run.

use super::{read, wrong};

/// A spec of the picky protocol, with these settings and parts.
fn picky(data: &str, settings: &str, parts: &[&str]) -> String {
    let parts = parts.join("\n  ");
    format!(
        "name: picky\ndata: {{ {data} }}\nprotocol: {{ use: picky{settings} }}\nparts:\n  {parts}\n"
    )
}

const MODEL: &str = "model: { use: able, width: 3 }";

#[test]
fn what_fits_is_no_mistake() {
    let good = [
        picky("", "", &[MODEL]),
        picky(
            "public: { size: 2, labelled: true }",
            ", filter-on-scores: true, pretrain: {}",
            &[
                "model: [{ use: able, width: 3, clients: 0 }, { use: able, width: 3, features: true }]",
                "student: { use: able, scores: true }",
                "filter: { use: sure }",
                "privacy: { use: noisy }",
                "accountant: { use: pure }",
            ],
        ),
        // no part prices it
        picky("", "", &[MODEL, "privacy: { use: noisy, priced: false }"]),
    ];
    for text in good {
        if let Err(mistakes) = read(&text) {
            panic!("{mistakes}");
        }
    }
}

/// Every text is in what is wrong, a line each.
fn told(text: &str, due: &[&str]) {
    let said = wrong(text);
    assert_eq!(said.trim_end().lines().count(), due.len(), "{said}");
    for due in due {
        assert!(said.contains(due), "{due}\n\n{said}");
    }
}

#[test]
fn what_parts_cannot_do_is_told_where_they_stand() {
    let parts = [
        "model: { use: able }",
        "student: { use: able }",
        "teacher: { use: able }",
        "filter: { use: sure }",
        "privacy: { use: noisy, priced: false }",
        "accountant: { use: pure }",
        "pupil: { use: able, classes: false }",
    ];
    told(
        &picky("public: { size: 2 }", "", &parts),
        &[
            "mine.yaml:5:17  parts.model (trainer `able`): it has no parameters to combine, which protocol `picky`",
            "mine.yaml:6:19  parts.student (trainer `able`): it cannot minimise the loss mae",
            "mine.yaml:7:19  parts.teacher (trainer `able`): it has no layer of features",
            "mine.yaml:7:19  parts.teacher (trainer `able`): it cannot be differentiated by its input",
            "mine.yaml:8:18  parts.filter (selector `sure`): it chooses by a model's scores",
            "mine.yaml:9:19  parts.privacy (privacy mechanism `noisy`): its release has no price in accountant `pure`: nothing bounds the scores; set `clip`",
            "mine.yaml:11:17  parts.pupil (trainer `able`): it cannot minimise the loss of the labels, cross-entropy, which protocol `picky` needs with these settings: use another trainer, or name this loss in what it `learns` if its training minimises it",
            "mine.yaml:11:17  parts.pupil (trainer `able`): it learns no class probabilities (it learns classes only), which protocol `picky` needs with these settings: use a neural or linear trainer",
            "mine.yaml:11:17  parts.pupil (trainer `able`): its gradients take no proximal term, no offset and no clipping, which protocol `picky` needs with these settings: use a neural or linear trainer, settings without `mu`, `clip` and their like, or say `takes_gradient_terms` if its training follows them",
            "mine.yaml:11:17  parts.pupil (trainer `able`): it shows no linear last layer",
            "mine.yaml:11:17  parts.pupil (trainer `able`): it has no layers before the last one that a loss on features could train, which protocol `picky` needs with these settings: use `dfdx` with a layer before `outputs`, or a network of PyTorch",
        ],
    );
}

#[test]
fn a_mechanism_that_cannot_release_in_its_slot_is_told_without_an_accountant() {
    told(
        &picky("", "", &[MODEL, "privacy: { use: noisy, drawn: true }"]),
        &["mine.yaml:6:19  parts.privacy (privacy mechanism `noisy`): fill `cohort`"],
    );
}

#[test]
fn models_that_are_averaged_are_the_same_for_all() {
    let models = "model: [{ use: able, width: 3, clients: 0-4 }, { use: able, width: 4 }]";
    told(
        &picky("", "", &[models]),
        &[
            "mine.yaml:5:57  parts.model[1] (trainer `able`): its parameters are combined with those of parts.model[0], and they differ: `w` is 4 here and 3 there",
        ],
    );
}

#[test]
fn a_model_that_gives_no_parameters_is_told_with_its_error() {
    told(
        &picky("", "", &["model: { use: able, width: 0 }"]),
        &[
            "mine.yaml:5:17  parts.model (trainer `able`): it gives no parameters (a fake), which protocol `picky` needs",
        ],
    );
}

#[test]
fn the_server_needs_a_model_too() {
    let models =
        "model: [{ use: able, width: 3, clients: 0-4 }, { use: able, width: 3, clients: 5-9 }]";
    told(
        &picky("", "", &[models]),
        &["mine.yaml:5:10  parts.model: no part here is for the server, which needs a trainer too"],
    );
}

#[test]
fn a_number_with_a_name_of_the_program_is_refused() {
    let of = |name: &str| picky("", &format!(", records: {name}"), &[MODEL]);
    told(
        &of("bytes.up"),
        &[
            "mine.yaml:3:18  protocol `picky`: the program records `bytes.up` itself: call the measure another name, such as `my-bytes-up`",
        ],
    );
    assert!(read(&of("own-share")).is_ok());
}

#[test]
fn conflicts_stand_at_the_setting_that_they_name() {
    let settings = ", filter-on-scores: true, pretrain: { epochs: 3 }";
    told(
        &picky(
            "",
            settings,
            &[MODEL, "student: { use: able, scores: true }"],
        ),
        &[
            "mine.yaml:3:11  protocol: a student needs public data",
            "mine.yaml:3:43  protocol.filter-on-scores: `filter-on-scores` has no effect",
            "mine.yaml:3:69  protocol.pretrain.epochs: `pretrain.epochs` needs labels",
        ],
    );
}
