//! Do columns of two tables become the same numbers?

use anyhow::{Result, bail, ensure};

/// How the column with the classes is read.
pub const CLASS: &str = "the class";
/// How a column is read that says whether one of several labels is present.
pub const LABEL: &str = "a label, 0 or 1";
/// How the column with the number to predict is read.
pub const NUMBER: &str = "the number to predict";
/// How one is read that is left out.
pub const SKIPPED: &str = "not used";

/// Returns whether a model sees a column that is read so.
pub fn is_input(how: &str) -> bool {
    ![CLASS, LABEL, NUMBER, SKIPPED].contains(&how)
}

/// How a text or a list of characters begins that becomes numbers of words or characters.
pub const TEXT: &str = "text: ";

/// Returns whether a column that is read so has numbers of words or characters.
pub fn is_text(how: &str) -> bool {
    how.starts_with(TEXT)
}

/// The words of a list that are shown.
const SHOWN: usize = 6;

/// How a column is read, without most of a long list of categories.
pub fn shortened(how: &str) -> String {
    let (list, end) = match how.strip_suffix(INFERRED) {
        Some(list) => (list, INFERRED),
        None => (how, ""),
    };
    match list.match_indices(", ").nth(SHOWN - 1) {
        Some((at, _)) => format!("{}, ..{end}", &list[..at]),
        None => how.into(),
    }
}

/// How two columns are read: [`shortened`], unless both would then look alike.
pub fn told_apart(a: &str, b: &str) -> [String; 2] {
    let short = [shortened(a), shortened(b)];
    if a != b && short[0] == short[1] {
        [a.into(), b.into()]
    } else {
        short
    }
}

/// Ends the text of a column that the spec says nothing of.
const INFERRED: &str = " (inferred)";

/// A column's name, and how it is read.
type Columns<'a> = &'a [(String, String)];

/// Why rows with the columns `here` cannot stand beside the clients', whose columns are `due`: the
/// same field must become the same number, or a model sees something else than it has learnt from.
/// Only a table's columns have names; of one column each the name does not matter.
///
/// # Errors
/// Says which column differs, and how.
pub fn alike(here: Columns<'_>, due: Columns<'_>) -> Result<()> {
    fn read(of: Columns<'_>) -> (Vec<&str>, Vec<&str>) {
        let used = of.iter().filter(|(_, how)| is_input(how));
        used.map(|(name, how)| (&name[..], &how[..])).unzip()
    }
    let ((names, hows), (due_names, due_hows)) = (read(here), read(due));
    if names.is_empty() || due_names.is_empty() {
        return Ok(());
    }
    if names.len() > 1 || due_names.len() > 1 {
        if let Some(name) = due_names.iter().find(|name| !names.contains(name)) {
            bail!("there is no column `{name}`, which the clients' rows have");
        }
        if let Some(name) = names.iter().find(|name| !due_names.contains(name)) {
            bail!("the clients' rows have no column `{name}`; set it to `skip` in `columns`");
        }
        if let Some((mine, theirs)) = names.iter().zip(&due_names).find(|(a, b)| a != b) {
            bail!(
                "column `{mine}` stands where the clients' rows have `{theirs}` ({}; theirs: {}): put the columns of the file \
                 into that order",
                names.join(", "),
                due_names.join(", ")
            );
        }
    }
    let plain = |how: &str| how.trim_end_matches(INFERRED).to_string();
    for ((name, mine), theirs) in names.iter().zip(hows).zip(due_hows) {
        let [shown, shown_theirs] = told_apart(mine, theirs);
        ensure!(
            plain(mine) == plain(theirs),
            "column `{name}` is {shown}, and the clients' is {shown_theirs}; give both the same kind in `columns`"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(of: &[(&str, &str)]) -> Vec<(String, String)> {
        of.iter()
            .map(|(name, how)| (name.to_string(), how.to_string()))
            .collect()
    }

    #[test]
    fn columns_of_other_rows_are_the_clients_own() {
        let number = "a number, not scaled";
        let due = columns(&[
            ("age", number),
            ("pay", CLASS),
            ("job", "text"),
            ("id", SKIPPED),
        ]);
        let said = |of: &[(&str, &str)]| {
            alike(&columns(of), &due)
                .err()
                .map_or(String::new(), |e| e.to_string())
        };
        assert_eq!(
            said(&[("age", "a number, not scaled (inferred)"), ("job", "text")]),
            ""
        );
        assert_eq!(said(&[]), "", "no table");
        insta::assert_snapshot!([
            said(&[("job", "text"), ("age", number)]),
            said(&[("age", number), ("work", "text")]),
            said(&[("age", number), ("job", "text"), ("id", number)]),
            said(&[("age", "a number from 0 to 9, scaled to 0..1"), ("job", "text")]),
        ].join("\n"), @"
        column `job` stands where the clients' rows have `age` (job, age; theirs: age, job): put the columns of the file into that order
        there is no column `job`, which the clients' rows have
        the clients' rows have no column `id`; set it to `skip` in `columns`
        column `age` is a number from 0 to 9, scaled to 0..1, and the clients' is a number, not scaled; give both the same kind in `columns`
        ");
        // all categories count, and few are shown
        let of = |last: &str| format!("one of 8 categories: a, b, c, d, e, f, g, {last}");
        let (ours, theirs) = (of("h"), of("i"));
        assert_eq!(
            shortened(&ours),
            "one of 8 categories: a, b, c, d, e, f, .."
        );
        let differ = alike(&columns(&[("job", &ours)]), &columns(&[("job", &theirs)]));
        assert!(differ.unwrap_err().to_string().contains("f, g, i;"));
        // one text beside one text
        alike(
            &columns(&[("review", "text")]),
            &columns(&[("news", "text")]),
        )
        .unwrap();
    }
}
