//! Do columns of two tables become the same numbers?

use anyhow::{Result, bail, ensure};

/// How the column with the classes is read.
pub const CLASS: &str = "the class";
/// How a column is read that says whether one of several labels is present.
pub const LABEL: &str = "a label, 0 or 1";
/// How one is read that is left out.
pub const SKIPPED: &str = "not used";

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
        let used = of
            .iter()
            .filter(|(_, how)| ![CLASS, LABEL, SKIPPED].contains(&&how[..]));
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
    let plain = |how: &str| how.trim_end_matches(" (inferred)").to_string();
    for ((name, mine), theirs) in names.iter().zip(hows).zip(due_hows) {
        ensure!(
            plain(mine) == plain(theirs),
            "column `{name}` is {mine}, and the clients' is {theirs}; give both the same kind in `columns`"
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
        // one text beside one text
        alike(
            &columns(&[("review", "text")]),
            &columns(&[("news", "text")]),
        )
        .unwrap();
    }
}
