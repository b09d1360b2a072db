//! Counts of public samples that are above what there is, as far as a set's size is known before it
//! is loaded.

use crate::partition::fedkt_tabular_split;
use crate::public::{Public, PublicFrom};
use fl_core::settings::Step;
use fl_data_kit::dataset::Problem;

fn path(keys: &[&str]) -> Vec<Step> {
    keys.iter().map(|key| Step::Key((*key).into())).collect()
}

/// The most public samples that there can be, if that is known; `own` as in [`too_many`].
pub(crate) fn most(public: &Public, own: Option<(usize, usize)>) -> Option<usize> {
    let most = match &public.from {
        PublicFrom::Count(count) => Some(*count),
        PublicFrom::HalfOfTest => own.map(|(_, test)| test / 2),
        PublicFrom::Share(_) | PublicFrom::Tabular => own.map(|(train, _)| train),
        PublicFrom::Set(other) => other.facts().rows.map(|(train, _)| train),
    };
    // `mix` takes some from another set
    let most = most.filter(|_| public.mix.is_none());
    most.into_iter().chain(public.size).min()
}

/// Says what public samples are taken from; `own` as in [`too_many`].
pub(crate) fn taken(public: &Public, own: Option<(usize, usize)>) -> String {
    let rows = |n: Option<usize>, of: &str| match n {
        Some(n) => format!("takes {n} {of} rows away"),
        None => format!("takes {of} rows away"),
    };
    let (train, test) = (own.map(|(train, _)| train), own.map(|(_, test)| test));
    match &public.from {
        PublicFrom::Share(share) => {
            let taken = train.map(|train| (share * train as f64).round() as usize);
            rows(taken, "training")
        }
        PublicFrom::Count(count) => rows(Some(*count), "training"),
        PublicFrom::Tabular => {
            let taken = train.map(|train| fedkt_tabular_split(train).public);
            rows(taken, "training")
        }
        PublicFrom::HalfOfTest => rows(test.map(|test| test / 2), "test"),
        PublicFrom::Set(other) => format!("loads rows of `{}`", other.name()),
    }
}

/// Counts that no loaded set could fulfil; `own` are the clients' training and test rows, if known.
pub(crate) fn too_many(public: &Public, own: Option<(usize, usize)>) -> Option<Problem> {
    let (most, of) = match &public.from {
        PublicFrom::Count(count) => {
            if let Some((train, _)) = own.filter(|(train, _)| count > train) {
                let text = format!("{count} of {train} training rows; it must be at most {train}");
                return Some((path(&["public", "from", "count"]), text));
            }
            (*count, "`from` takes")
        }
        PublicFrom::HalfOfTest => (own?.1 / 2, "half of the test rows are"),
        PublicFrom::Share(_) | PublicFrom::Tabular => (own?.0, "the training rows are"),
        PublicFrom::Set(other) => (other.facts().rows?.0, "that set's training rows are"),
    };
    // fewer are there with `classes`, and fewer are needed with `mix`: the loaded rows tell
    let size = public
        .size
        .filter(|size| *size > most && public.mix.is_none())?;
    let text = format!("must be at most {most}, got {size}: {of} {most}");
    Some((path(&["public", "size"]), text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::settings::{read_yaml, show_path};

    fn found(public: &str) -> Option<String> {
        let (path, text) = too_many(&read_yaml(public).unwrap(), Some((80, 41)))?;
        Some(format!("{}: {text}", show_path(&path)))
    }

    #[test]
    fn more_than_there_is_has_its_path() {
        assert_eq!(found("{from: {count: 80}}"), None);
        assert_eq!(
            found("{from: {count: 81}}").unwrap(),
            "public.from.count: 81 of 80 training rows; it must be at most 80"
        );
        assert_eq!(found("{from: half-of-test, size: 20}"), None);
        assert_eq!(
            found("{from: half-of-test, size: 21}").unwrap(),
            "public.size: must be at most 20, got 21: half of the test rows are 20"
        );
        assert_eq!(
            found("{from: {count: 10}, size: 11}").unwrap(),
            "public.size: must be at most 10, got 11: `from` takes 10"
        );
    }
}
