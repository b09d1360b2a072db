//! Do columns of two tables become the same numbers?

/// How the column with the classes is read.
pub(crate) const CLASS: &str = "the class";
/// How one is read that is left out.
pub(crate) const SKIPPED: &str = "not used";

/// A column's name, and how it is read.
type Columns<'a> = &'a [(String, String)];

/// Why rows with the columns `here` cannot stand beside the clients', whose columns are `due`: the same field must become the
/// same number, or a model sees something else than it has learnt from. Only a table's columns have names; of one column each
/// the name does not matter.
///
/// # Errors
/// Says which column differs, and how.
pub fn alike(here: Columns<'_>, due: Columns<'_>) -> Result<(), String> {
    let read = |of: Columns<'_>| -> Vec<(String, String)> {
        let used = of.iter().filter(|(_, how)| how != CLASS && how != SKIPPED);
        used.cloned().collect()
    };
    let (here, due) = (read(here), read(due));
    if here.is_empty() || due.is_empty() {
        return Ok(());
    }
    let lacks = |of: &[(String, String)], name: &str| of.iter().all(|(other, _)| other != name);
    if here.len() > 1 || due.len() > 1 {
        if let Some((name, _)) = due.iter().find(|(name, _)| lacks(&here, name)) {
            return Err(format!(
                "there is no column `{name}`, which the clients' rows have"
            ));
        }
        if let Some((name, _)) = here.iter().find(|(name, _)| lacks(&due, name)) {
            return Err(format!(
                "column `{name}` is not among the clients'; say `skip` of it in `columns`"
            ));
        }
        let order = |of: &[(String, String)]| {
            let names: Vec<&str> = of.iter().map(|(name, _)| &name[..]).collect();
            names.join(", ")
        };
        if let Some(((mine, _), (theirs, _))) = here.iter().zip(&due).find(|(a, b)| a.0 != b.0) {
            return Err(format!(
                "column `{mine}` stands where the clients' rows have `{theirs}` ({}; theirs: {}): put the columns of the file \
                 into their order",
                order(&here),
                order(&due)
            ));
        }
    }
    let plain = |how: &str| how.trim_end_matches(" (inferred)").to_string();
    for ((name, mine), (_, theirs)) in here.iter().zip(&due) {
        if plain(mine) != plain(theirs) {
            return Err(format!(
                "column `{name}` is {mine}, and the clients' {theirs}; say the same of it in the `columns` of both"
            ));
        }
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
        let said = |of: &[(&str, &str)]| alike(&columns(of), &due).err().unwrap_or_default();
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
        column `job` stands where the clients' rows have `age` (job, age; theirs: age, job): put the columns of the file into their order
        there is no column `job`, which the clients' rows have
        column `id` is not among the clients'; say `skip` of it in `columns`
        column `age` is a number from 0 to 9, scaled to 0..1, and the clients' a number, not scaled; say the same of it in the `columns` of both
        ");
        // one text beside one text
        assert_eq!(
            alike(
                &columns(&[("review", "text")]),
                &columns(&[("news", "text")])
            ),
            Ok(())
        );
    }
}
