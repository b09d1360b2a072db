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
const SHOWN: &[Role] = &[Role::Selector, Role::Trainer];
const KEEP_STATE: &[Role] = &[
    Role::Aggregator,
    Role::Attack,
    Role::Selector,
    Role::Privacy,
    Role::Generator,
    Role::Trainer,
];
const NONE: &[Role] = &[];

/// Whether a part may be without an operation.
const MAY: bool = true;
const MUST: bool = false;

/// A row for each operation of parts, and after them those of what is no part: of the side that
/// called, in the middle of its call, and of a server and a client.
macro_rules! operations {
    ($($number:ident $optional:ident $of:ident $lent:ident,)* ; $($asked:ident)*) => {
        operations!($($number $optional $of $lent,)* $($asked MUST NONE NONE,)*)
    };
    ($($number:ident $optional:ident $of:ident $lent:ident,)*) => {
        &[$(Operation {
            name: stringify!($number).split_at(3).1,
            number: $number,
            of: $of,
            lent: $lent,
            optional: $optional,
        },)*]
    };
}

/// All operations of the C interface, by number.
pub const OPERATIONS: &[Operation] = operations! {
    FL_CHECK MAY NONE NONE,
    FL_DESCRIBE MAY DESCRIBED SHOWN,
    FL_SAVE MAY KEEP_STATE MODELS,
    FL_LOAD MUST KEEP_STATE MODELS,
    FL_BYTES MAY NONE NONE,
    FL_AGGREGATE MUST AGGREGATORS NONE,
    FL_FOLD MAY AGGREGATORS NONE,
    FL_FOLD_ADD MUST AGGREGATORS NONE,
    FL_FOLD_FINISH MUST AGGREGATORS NONE,
    FL_SENT MUST AGGREGATORS NONE,
    FL_UPDATE MAY AGGREGATORS NONE,
    FL_FIT MAY SELECTOR SELECTOR,
    FL_SELECT MUST SELECTOR SELECTOR,
    FL_POLL MAY SELECTOR NONE,
    FL_RANK MAY SELECTOR SELECTOR,
    FL_CLIP MUST MECHANISM MECHANISM,
    FL_RANGE MAY MECHANISM NONE,
    FL_AGREE MAY MECHANISM NONE,
    FL_PRICE MUST MECHANISM NONE,
    FL_PERTURB MUST MECHANISM NONE,
    FL_QUERIES MAY MECHANISM NONE,
    FL_TRUNCATE MAY MECHANISM NONE,
    FL_ACTUAL_COST MAY MECHANISM NONE,
    FL_NORM_BOUND MAY MECHANISM MECHANISM,
    FL_CHARGE MUST ACCOUNTANT NONE,
    FL_GUARANTEE MUST ACCOUNTANT NONE,
    FL_MERGE MUST ACCOUNTANT NONE,
    FL_SAMPLE MUST GENERATOR GENERATOR,
    FL_LEARN MUST GENERATOR GENERATOR,
    FL_TRAIN MUST TRAINER TRAINER,
    FL_PREDICT MUST TRAINER TRAINER,
    FL_FEATURES MAY TRAINER TRAINER,
    FL_SAVE_STATE MAY TRAINER TRAINER,
    FL_LOAD_STATE MUST TRAINER TRAINER,
    FL_PARAMS MUST TRAINER TRAINER,
    FL_SET_PARAMS MUST TRAINER TRAINER,
    FL_VJP MUST TRAINER TRAINER,
    FL_GRADIENT MAY TRAINER TRAINER,
    FL_STEP_SIZE MAY TRAINER TRAINER,
    FL_SAVE_MEMORY MAY TRAINER TRAINER,
    FL_LOAD_MEMORY MUST TRAINER TRAINER,
    FL_DESCEND MAY TRAINER TRAINER,
    FL_HEAD MAY TRAINER TRAINER,
    FL_CLIPPED_GRADIENTS MAY TRAINER TRAINER,
    FL_DECLARE MUST PROTOCOL NONE,
    FL_LEAD MUST PROTOCOL NONE,
    FL_ANSWER MUST PROTOCOL NONE,
    FL_CONFLICTS MAY PROTOCOL NONE,
    FL_SUITS MAY PROTOCOL NONE,
    FL_TASK MUST PROTOCOL NONE,
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
