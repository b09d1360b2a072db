//! Tables in a README, between marks.

use anyhow::{Context, ensure};
use fl_core::Result;

fn marks(name: &str) -> (String, String) {
    (
        format!("<!-- fl study: {name} -->"),
        format!("<!-- end of {name} -->"),
    )
}

/// Returns the position of the table `name` in `text`: the bytes between its marks.
fn span(text: &str, name: &str) -> Result<std::ops::Range<usize>> {
    let (begin, end) = marks(name);
    ensure!(
        text.matches(&begin).count() <= 1,
        "`{begin}` occurs more than once"
    );
    let from = text.find(&begin).with_context(|| {
        format!("the file has no place for the table: put `{begin}` and `{end}` around it")
    })?;
    let from = from + begin.len();
    let length = text[from..]
        .find(&end)
        .with_context(|| format!("`{begin}` is not followed by `{end}`"))?;
    Ok(from..from + length)
}

/// Returns the text between the marks of the table `name`.
///
/// # Errors
/// If a mark is missing, or occurs twice.
pub fn section<'t>(text: &'t str, name: &str) -> Result<&'t str> {
    Ok(text[span(text, name)?].trim_matches(['\r', '\n']))
}

/// Returns the table `name` in `text`.
///
/// # Errors
/// As [`section`], or if there is no text between the marks.
pub fn table<'t>(text: &'t str, name: &str) -> Result<&'t str> {
    let table = section(text, name)?;
    let (begin, end) = marks(name);
    ensure!(
        !table.trim().is_empty(),
        "there is no table between `{begin}` and `{end}`: run the study without --check to write it"
    );
    Ok(table)
}

/// Replaces the table between the marks of `name` in `text`.
///
/// # Errors
/// As [`section`].
pub fn replaced(text: &str, name: &str, table: &str) -> Result<String> {
    let span = span(text, name)?;
    let inner = format!("\n\n{}\n\n", table.trim_matches('\n'));
    // the line ends of the file
    let inner = if text.contains("\r\n") {
        inner.replace('\n', "\r\n")
    } else {
        inner
    };
    Ok([&text[..span.start], &inner, &text[span.end..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_with_nothing_between_them_hold_no_table() {
        for between in ["", "\n", "\r\n \n\t\n"] {
            let text = format!("<!-- fl study: a -->{between}<!-- end of a -->");
            let error = table(&text, "a").unwrap_err().to_string();
            assert!(error.contains("there is no table between"), "{error}");
        }
        let text = "<!-- fl study: a -->\n| x |\n<!-- end of a -->";
        assert_eq!(table(text, "a").unwrap(), "| x |");
        let missing = table("", "a").unwrap_err().to_string();
        assert!(missing.contains("has no place for the table"), "{missing}");
    }

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
        let (text, new) = (text.replace('\n', "\r\n"), new.replace('\n', "\r\n"));
        assert_eq!(replaced(&text, "a", "| x |\n").unwrap(), new);
        assert_eq!(section(&new, "a").unwrap(), "| x |");
        for (wrong, said) in [
            ("nothing", "has no place for the table"),
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
