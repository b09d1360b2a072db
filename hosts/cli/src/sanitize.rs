//! Text that is safe to show: nothing in it moves a cursor, changes a colour or hides what follows.

use std::fmt::Write;

/// Is this what a terminal obeys instead of showing it, or what makes letters stand in another
/// order than they are read?
fn obeyed(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}')
}

/// The same text with such characters as `\u001b`, which is what they are in JSON too. Ends of
/// lines and tabs stay.
pub fn plain(text: &str) -> String {
    escaped(text, |c| obeyed(c) && c != '\n' && c != '\t')
}

/// As [`plain`], on one line.
pub fn line(text: &str) -> String {
    escaped(text, obeyed)
}

fn escaped(text: &str, bad: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if bad(c) {
            // none of them is beyond 16 bits
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c)
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_what_a_terminal_obeys_is_shown() {
        assert_eq!(
            plain("a\u{1b}[2Jb\r\u{9b}1m\u{202e}\tc\nd"),
            "a\\u001b[2Jb\\u000d\\u009b1m\\u202e\tc\nd"
        );
        assert_eq!(line("good\nerror: forged"), "good\\u000aerror: forged");
        let json = serde_json::json!({ "text": "\u{7f}\u{9b}\u{1b}" }).to_string();
        let again: serde_json::Value = serde_json::from_str(&plain(&json)).unwrap();
        assert_eq!(again["text"], "\u{7f}\u{9b}\u{1b}");
        assert_eq!(plain("Grüße, 学習"), "Grüße, 学習");
    }
}
