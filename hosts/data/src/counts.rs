//! Counts of public samples that are above what there is, as far as a set's size is known before it is loaded.

use crate::spec::{DataSpec, PublicFrom};
use fl_core::settings::Step;

/// Where below `data`, and the mistake.
type Problem = (Vec<Step>, String);

fn path(keys: &[&str]) -> Vec<Step> {
    keys.iter().map(|key| Step::Key((*key).into())).collect()
}

/// Counts that no loaded set could fulfil.
pub(crate) fn too_many(spec: &DataSpec) -> Option<Problem> {
    let public = spec.public.as_ref()?;
    let own = |rows: (usize, usize)| {
        let of = |rows: usize, limit: Option<usize>| limit.map_or(rows, |limit| limit.min(rows));
        (of(rows.0, spec.limit.train), of(rows.1, spec.limit.test))
    };
    let own = spec.set.facts().rows.map(own);
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
    let size = public.size.filter(|size| *size > most)?;
    let text = format!("must be at most {most}, got {size}: {of} {most}");
    Some((path(&["public", "size"]), text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::settings::{read_yaml, show_path};

    fn told(public: &str) -> Option<String> {
        let text = format!(
            "{{set: {{blobs: {{train: 100, test: 41}}}}, limit: {{train: 80}}, public: {public}}}"
        );
        let (path, text) = too_many(&read_yaml(&text).unwrap())?;
        Some(format!("{}: {text}", show_path(&path)))
    }

    #[test]
    fn more_than_there_is_is_told_with_its_place() {
        assert_eq!(told("{from: {count: 80}}"), None);
        assert_eq!(
            told("{from: {count: 81}}").unwrap(),
            "public.from.count: 81 of 80 training rows; it must be at most 80"
        );
        assert_eq!(told("{from: half-of-test, size: 20}"), None);
        assert_eq!(
            told("{from: half-of-test, size: 21}").unwrap(),
            "public.size: must be at most 20, got 21: half of the test rows are 20"
        );
        assert_eq!(
            told("{from: {count: 10}, size: 11}").unwrap(),
            "public.size: must be at most 10, got 11: `from` takes 10"
        );
        assert_eq!(told("{from: {set: {blobs: {train: 5}}}, size: 5}"), None);
    }
}
