//! The operations of the interface, as data. What their texts and messages hold stands in `raw.rs`.

use super::raw::*;
use fl_roles::Role;

/// An operation of the C interface.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Operation {
    /// As in the constant of its number, without `FL_`.
    pub name: &'static str,
    /// What [`FlLibrary.call`](super::raw::FlLibrary) gets.
    pub number: u32,
    /// The roles whose parts have it; none: the library itself, a server or a client.
    pub of: &'static [Role],
    /// The roles of parts of the program with which a loaded protocol may do it.
    pub lent: &'static [Role],
    /// Whether a part may be without it.
    pub optional: bool,
}

/// May a loaded protocol do this operation with a part of the program of this role?
pub(super) fn is_lent(operation: u32, role: Role) -> bool {
    let known = OPERATIONS.iter().find(|known| known.number == operation);
    known.is_some_and(|known| known.lent.contains(&role))
}

const AGGREGATORS: &[Role] = &[Role::Aggregator, Role::Attack];
const SELECTOR: &[Role] = &[Role::Selector];
const MECHANISM: &[Role] = &[Role::Privacy];
const ACCOUNTANT: &[Role] = &[Role::Accountant];
const GENERATOR: &[Role] = &[Role::Generator];
const TRAINER: &[Role] = &[Role::Trainer];
const PROTOCOL: &[Role] = &[Role::Protocol];
const MODELS: &[Role] = &[Role::Trainer, Role::Generator];
const DESCRIBED: &[Role] = &[
    Role::Aggregator,
    Role::Attack,
    Role::Selector,
    Role::Trainer,
];
const KEEP_STATE: &[Role] = &[
    Role::Aggregator,
    Role::Attack,
    Role::Selector,
    Role::Privacy,
    Role::Generator,
    Role::Trainer,
];
const NONE: &[Role] = &[];

/// An operation that a part must have.
const fn must(
    name: &'static str,
    number: u32,
    of: &'static [Role],
    lent: &'static [Role],
) -> Operation {
    Operation {
        name,
        number,
        of,
        lent,
        optional: false,
    }
}

/// An operation that a part may be without.
const fn may(
    name: &'static str,
    number: u32,
    of: &'static [Role],
    lent: &'static [Role],
) -> Operation {
    Operation {
        optional: true,
        ..must(name, number, of, lent)
    }
}

/// The operations of parts, and after them those of what is no part: of the side that called, in
/// the middle of its call, and of a server and a client.
macro_rules! operations {
    ($($of_parts:expr,)* ; $($asked:ident)*) => {
        &[$($of_parts,)* $(must(stringify!($asked).split_at(3).1, $asked, NONE, NONE),)*]
    };
}

/// All operations of the C interface, by number.
pub const OPERATIONS: &[Operation] = operations! {
    may("CHECK", FL_CHECK, NONE, NONE),
    may(
        "DESCRIBE",
        FL_DESCRIBE,
        DESCRIBED,
        &[Role::Selector, Role::Trainer],
    ),
    may("SAVE", FL_SAVE, KEEP_STATE, MODELS),
    must("LOAD", FL_LOAD, KEEP_STATE, MODELS),
    may("BYTES", FL_BYTES, NONE, NONE),
    must("AGGREGATE", FL_AGGREGATE, AGGREGATORS, NONE),
    may("FOLD", FL_FOLD, AGGREGATORS, NONE),
    must("FOLD_ADD", FL_FOLD_ADD, AGGREGATORS, NONE),
    must("FOLD_FINISH", FL_FOLD_FINISH, AGGREGATORS, NONE),
    must("SENT", FL_SENT, AGGREGATORS, NONE),
    may("UPDATE", FL_UPDATE, AGGREGATORS, NONE),
    may("FIT", FL_FIT, SELECTOR, SELECTOR),
    must("SELECT", FL_SELECT, SELECTOR, SELECTOR),
    may("POLL", FL_POLL, SELECTOR, NONE),
    may("RANK", FL_RANK, SELECTOR, SELECTOR),
    must("CLIP", FL_CLIP, MECHANISM, MECHANISM),
    may("RANGE", FL_RANGE, MECHANISM, NONE),
    may("AGREE", FL_AGREE, MECHANISM, NONE),
    must("PRICE", FL_PRICE, MECHANISM, NONE),
    must("PERTURB", FL_PERTURB, MECHANISM, NONE),
    may("QUERIES", FL_QUERIES, MECHANISM, NONE),
    may("TRUNCATE", FL_TRUNCATE, MECHANISM, NONE),
    may("ACTUAL_COST", FL_ACTUAL_COST, MECHANISM, NONE),
    may("NORM_BOUND", FL_NORM_BOUND, MECHANISM, MECHANISM),
    must("CHARGE", FL_CHARGE, ACCOUNTANT, NONE),
    must("GUARANTEE", FL_GUARANTEE, ACCOUNTANT, NONE),
    must("MERGE", FL_MERGE, ACCOUNTANT, NONE),
    must("SAMPLE", FL_SAMPLE, GENERATOR, GENERATOR),
    must("LEARN", FL_LEARN, GENERATOR, GENERATOR),
    must("TRAIN", FL_TRAIN, TRAINER, TRAINER),
    must("PREDICT", FL_PREDICT, TRAINER, TRAINER),
    may("FEATURES", FL_FEATURES, TRAINER, TRAINER),
    may("SAVE_STATE", FL_SAVE_STATE, TRAINER, TRAINER),
    must("LOAD_STATE", FL_LOAD_STATE, TRAINER, TRAINER),
    must("PARAMS", FL_PARAMS, TRAINER, TRAINER),
    must("SET_PARAMS", FL_SET_PARAMS, TRAINER, TRAINER),
    must("VJP", FL_VJP, TRAINER, TRAINER),
    may("GRADIENT", FL_GRADIENT, TRAINER, TRAINER),
    may("STEP_SIZE", FL_STEP_SIZE, TRAINER, TRAINER),
    may("SAVE_MEMORY", FL_SAVE_MEMORY, TRAINER, TRAINER),
    must("LOAD_MEMORY", FL_LOAD_MEMORY, TRAINER, TRAINER),
    may("DESCEND", FL_DESCEND, TRAINER, TRAINER),
    may("HEAD", FL_HEAD, TRAINER, TRAINER),
    may("CLIPPED_GRADIENTS", FL_CLIPPED_GRADIENTS, TRAINER, TRAINER),
    must("DECLARE", FL_DECLARE, PROTOCOL, NONE),
    must("LEAD", FL_LEAD, PROTOCOL, NONE),
    must("ANSWER", FL_ANSWER, PROTOCOL, NONE),
    may("CONFLICTS", FL_CONFLICTS, PROTOCOL, NONE),
    may("SUITS", FL_SUITS, PROTOCOL, NONE),
    must("TASK", FL_TASK, PROTOCOL, NONE),
    ;
    FL_FORM FL_AUXILIARY_LOSS FL_FEATURE_LOSS
    FL_MODEL FL_GENERATOR FL_PUBLIC FL_INPUTS FL_LABELS FL_VALUES FL_TARGETS FL_DROP FL_RELEASE
    FL_WHO FL_WITH_EXAMPLES FL_COHORT FL_COLLECT FL_RUN FL_AFFORDS FL_WANTS_RANGE FL_BEGIN_STEP
    FL_JUDGE_STEP FL_FINISH_STEP FL_EVALUATE FL_EVALUATE_CLIENTS FL_EVALUATE_FOR_CLIENTS
    FL_RECORD FL_RECORD_EACH FL_KEEP_MODEL FL_KEEP_GENERATOR FL_KEEP_IMAGES FL_KEEP_CLIENTS
    FL_WARN FL_READER FL_READ FL_OWN FL_PRIVATE FL_DRAW_PRIVATE FL_NOTE FL_MEASURE FL_NEW_MODEL
    FL_SET_MODEL FL_FITTED FL_TAKE_SELECTOR FL_PUT_SELECTOR FL_STASH FL_STASHED FL_UNSTASH
    FL_CACHE FL_CACHED FL_BEGIN_STEPS FL_DRAW_LOT FL_RELEASE_STEP FL_END_STEPS
    FL_HELD_OUT
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The operations of `raw.rs`: name, number, and whether its lines call it optional.
    fn documented() -> Vec<(String, u32, bool)> {
        let source = include_str!("raw.rs");
        let from = source.find("/// Optional, of a library").unwrap();
        let to = source.find("/// UTF-8, not ended by a zero").unwrap();
        let (mut found, mut doc) = (Vec::new(), String::new());
        for line in source[from..to].lines() {
            if let Some(text) = line.strip_prefix("///") {
                doc.push_str(text);
            } else if let Some(rest) = line.strip_prefix("pub const FL_") {
                let (name, rest) = rest.split_once(": u32 = ").unwrap();
                let number = rest.trim_end_matches(';').parse().unwrap();
                // the first sentence says it
                let first = doc.split('.').next().unwrap().to_lowercase();
                found.push((name.to_string(), number, first.contains("optional")));
                doc.clear();
            }
        }
        found
    }

    #[test]
    fn the_table_has_every_operation_as_it_is_documented() {
        let table = OPERATIONS.iter();
        let table = table.map(|of| (of.name.to_string(), of.number, of.optional));
        assert_eq!(table.collect::<Vec<_>>(), documented());
        assert!(OPERATIONS.is_sorted_by(|a, b| a.number < b.number));
    }

    #[test]
    fn a_protocol_may_do_no_more_with_a_part_than_its_role_can() {
        for of in OPERATIONS {
            assert!(
                of.lent.iter().all(|role| of.of.contains(role)),
                "{}",
                of.name
            );
        }
        // what a mechanism keeps and draws is the program's alone
        let lent = |role: Role| {
            let lent = OPERATIONS.iter().filter(move |of| is_lent(of.number, role));
            lent.map(|of| of.name).collect::<Vec<_>>()
        };
        assert_eq!(lent(Role::Privacy), ["CLIP", "NORM_BOUND"]);
        assert_eq!(lent(Role::Selector), ["DESCRIBE", "FIT", "SELECT", "RANK"]);
    }
}
