//! Text in columns for a terminal.

use std::fmt::Write;
use textwrap::{Options, WordSplitter, wrap};

/// Between two columns, and before the first.
const GAP: usize = 2;

/// Rows in columns, at most `width` characters wide where that leaves a column eight. Cells wrap at
/// spaces; a column without text is left out.
pub fn columns<const N: usize>(rows: &[[String; N]], width: usize) -> String {
    let used: Vec<usize> = (0..N)
        .filter(|c| rows.iter().any(|row| !row[*c].is_empty()))
        .collect();
    let longest = |c: usize, pieces: fn(&str) -> std::str::Split<'_, char>| {
        let pieces = rows.iter().flat_map(|row| pieces(&row[c]));
        pieces.map(|piece| piece.chars().count()).max().unwrap_or(0)
    };
    let whole: Vec<usize> = used
        .iter()
        .map(|c| longest(*c, |t| t.split('\n')))
        .collect();
    let words = used.iter().map(|c| longest(*c, |t| t.split(' ')));
    let words: Vec<usize> = words.zip(&whole).map(|(w, all)| w.min(*all)).collect();
    let room = width.saturating_sub(GAP * used.len());
    let widths = shares(&words, &whole, room);
    let mut out = String::new();
    for row in rows {
        let cells: Vec<Vec<_>> = used
            .iter()
            .zip(&widths)
            .map(|(c, width)| {
                let options = Options::new(*width).word_splitter(WordSplitter::NoHyphenation);
                row[*c]
                    .split('\n')
                    .flat_map(|line| wrap(line, &options))
                    .collect()
            })
            .collect();
        for at in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
            let mut line = String::new();
            for (cell, width) in cells.iter().zip(&widths) {
                let text = cell.get(at).map_or("", |text| text);
                let _ = write!(line, "{:GAP$}{text:width$}", "");
            }
            out += line.trim_end();
            out.push('\n');
        }
    }
    out
}

/// Text in lines of at most `width` characters.
pub fn fill(text: &str, width: usize) -> String {
    let options = Options::new(width).word_splitter(WordSplitter::NoHyphenation);
    // a path stays whole, so that it can be copied
    textwrap::fill(text, options.break_words(false))
}

/// Widths of columns that share `room`: each gets its longest word, and what is left goes to the
/// narrowest first, up to its whole text.
fn shares(words: &[usize], whole: &[usize], room: usize) -> Vec<usize> {
    let at = |level: usize| -> Vec<usize> {
        let both = words.iter().zip(whole);
        both.map(|(least, most)| level.clamp(*least, *most))
            .collect()
    };
    let fits = |widths: &Vec<usize>| widths.iter().sum::<usize>() <= room;
    let most = whole.iter().copied().max().unwrap_or(0);
    let level = (0..=most.min(room)).rev().map(at).find(fits);
    // not even the longest words fit: then the widest column breaks its own
    level.unwrap_or_else(|| {
        let mut widths = words.to_vec();
        let over = widths.iter().sum::<usize>() - room;
        if let Some(widest) = widths.iter_mut().max() {
            *widest = widest.saturating_sub(over).max(8);
        }
        widths
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_columns_keep_to_the_width() {
        let rows = [
            [
                "mean, fedavg",
                "params -> params",
                "",
                "Averages what all clients send.",
            ],
            [
                "median",
                "params -> params",
                "",
                "The median.\nSorts first.",
            ],
        ];
        let rows = rows.map(|row| row.map(String::from));
        let narrow = columns(&rows, 44);
        insta::assert_snapshot!(narrow, @"
          mean, fedavg  params ->      Averages what
                        params         all clients
                                       send.
          median        params ->      The median.
                        params         Sorts first.
        ");
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 44),
            "{narrow}"
        );
        // what fits stands on one line
        assert_eq!(columns(&rows, 80).lines().count(), 3);
        // a word that cannot fit is broken
        let long = [["x".repeat(60), "y".to_string()]];
        assert!(columns(&long, 40).lines().all(|line| line.len() <= 40));
    }
}
