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
        // nobody asks what it costs
        picky("", "", &[MODEL, "privacy: { use: noisy, priced: false }"]),
    ];
    for text in good {
        if let Err(mistakes) = read(&text) {
            panic!("{mistakes}");
        }
    }
}

#[test]
fn what_parts_cannot_do_is_told_where_they_stand() {
    insta::assert_snapshot!(wrong(&picky("public: { size: 2 }", "", &[
        "model: { use: able }",
        "student: { use: able }",
        "teacher: { use: able }",
        "filter: { use: sure }",
        "privacy: { use: noisy, priced: false }",
        "accountant: { use: pure }",
    ])), @"");
}

#[test]
fn models_that_are_averaged_are_the_same_for_all() {
    insta::assert_snapshot!(wrong(&picky("", "", &[
        "model: [{ use: able, width: 3, clients: 0-4 }, { use: able, width: 4 }]",
    ])), @"");
}

#[test]
fn the_server_needs_a_model_too() {
    insta::assert_snapshot!(wrong(&picky("", "", &[
        "model: [{ use: able, width: 3, clients: 0-4 }, { use: able, width: 3, clients: 5-9 }]",
    ])), @"");
}

#[test]
fn conflicts_stand_at_the_setting_that_they_name() {
    insta::assert_snapshot!(wrong(&picky(
        "",
        ", filter-on-scores: true, pretrain: { epochs: 3 }",
        &[MODEL, "student: { use: able, scores: true }"],
    )), @"");
}
