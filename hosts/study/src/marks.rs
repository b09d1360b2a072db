//! Tables in a README, between marks.

use anyhow::{Context, ensure};
use fl_core::Result;

fn marks(name: &str) -> (String, String) {
    (
        format!("<!-- fl study: {name} -->"),
        format!("<!-- end of {name} -->"),
    )
}

/// Where the table `name` stands in `text`: the bytes between its marks.
fn span(text: &str, name: &str) -> Result<std::ops::Range<usize>> {
    let (begin, end) = marks(name);
    ensure!(
        text.matches(&begin).count() <= 1,
        "`{begin}` stands there more than once"
    );
    let from = text.find(&begin).with_context(|| {
        format!("the table has no place there: put `{begin}` and `{end}` around it")
    })?;
    let from = from + begin.len();
    let length = text[from..]
        .find(&end)
        .with_context(|| format!("`{begin}` is not followed by `{end}`"))?;
    Ok(from..from + length)
}

/// What stands between the marks of the table `name`.
///
/// # Errors
/// When a mark is missing, or is there twice.
pub fn section<'t>(text: &'t str, name: &str) -> Result<&'t str> {
    Ok(text[span(text, name)?].trim_matches('\n'))
}

/// `text` with another table between the marks of `name`.
///
/// # Errors
/// As [`section`].
pub fn replaced(text: &str, name: &str, table: &str) -> Result<String> {
    let span = span(text, name)?;
    let table = table.trim_matches('\n');
    Ok(format!(
        "{}\n\n{table}\n\n{}",
        &text[..span.start],
        &text[span.end..]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_replaces_what_stood_between_its_marks_and_nothing_else() {
        let text = "before\n<!-- fl study: a -->\nold\n<!-- end of a -->\nafter\n";
        let new = replaced(text, "a", "| x |\n").unwrap();
        assert_eq!(
            new,
            "before\n<!-- fl study: a -->\n\n| x |\n\n<!-- end of a -->\nafter\n"
        );
        assert_eq!(section(&new, "a").unwrap(), "| x |");
        assert_eq!(replaced(&new, "a", "| x |").unwrap(), new);
        for (wrong, said) in [
            ("nothing", "has no place there"),
            ("<!-- fl study: a -->", "is not followed by"),
            (
                "<!-- fl study: a --><!-- fl study: a --><!-- end of a -->",
                "more than once",
            ),
        ] {
            let error = replaced(wrong, "a", "").unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
