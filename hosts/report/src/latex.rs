//! Tables for a paper: LaTeX, and CSV.

use crate::{Section, cell};
use fl_core::Result;
use std::fmt::Write;

/// Returns every table with its notes as LaTeX, for `\input`. It needs the package `booktabs`.
pub fn tables_tex(sections: &[Section]) -> String {
    let mut out = String::from("% made by fl; needs \\usepackage{booktabs}\n");
    for section in sections {
        let row = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
            format!("    {} \\\\\n", cells.join(" & "))
        };
        let columns = "r".repeat(section.head.len().saturating_sub(1));
        let _ = write!(
            out,
            "\n\\begin{{table}}\n  \\caption{{{}}}\n  \\centering\n  \\begin{{tabular}}{{l{columns}}}\n    \\toprule\n",
            escaped(&section.title)
        );
        out += &row(&section.head);
        out += "    \\midrule\n";
        section.rows.iter().for_each(|cells| out += &row(cells));
        out += "    \\bottomrule\n  \\end{tabular}\n";
        for note in &section.notes {
            let _ = writeln!(out, "  \\par\\footnotesize {}", escaped(note));
        }
        out += "\\end{table}\n";
    }
    out
}

/// The file of the notes of tables, beside their CSV.
pub const NOTES: &str = "notes.txt";

/// Returns a table as CSV without its notes.
///
/// # Errors
/// If it cannot be written.
pub fn table_csv(section: &Section) -> Result<Vec<u8>> {
    let mut out = csv::Writer::from_writer(Vec::new());
    for row in [&section.head].into_iter().chain(&section.rows) {
        out.write_record(row.iter().map(|text| cell(text).into_owned()))?;
    }
    Ok(out.into_inner()?)
}

/// Returns the notes of tables as text, each under its table's title; empty if there are none.
pub fn notes_text(sections: &[Section]) -> String {
    let with_notes = sections.iter().filter(|section| !section.notes.is_empty());
    let of = |section: &Section| format!("{}\n{}\n", section.title, section.notes.join("\n"));
    let all: Vec<String> = with_notes.map(of).collect();
    all.join("\n")
}

/// A text as LaTeX prints it.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.replace("+-", "±").chars() {
        match c {
            '\\' => out += "\\textbackslash{}",
            '~' => out += "\\textasciitilde{}",
            '^' => out += "\\textasciicircum{}",
            '±' => out += "$\\pm$",
            '<' | '>' => {
                let _ = write!(out, "${c}$");
            }
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                out.push('\\');
                out.push(c);
            }
            '`' | '\n' | '\r' => out.push(if c == '`' { '\'' } else { ' ' }),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_no_rows_of_a_table() {
        let cells = |of: [&str; 2]| of.map(String::from).to_vec();
        let mut section = Section {
            title: "Results".into(),
            head: cells(["", "a"]),
            rows: vec![cells(["accuracy", "0.9"])],
            notes: vec!["An estimate.".into(), "Of two rows.".into()],
            pictures: Vec::new(),
        };
        let csv = |of: &Section| String::from_utf8(table_csv(of).unwrap()).unwrap();
        assert_eq!(csv(&section), ",a\naccuracy,0.9\n");
        let both = [section.clone(), section.clone()];
        let text = "Results\nAn estimate.\nOf two rows.\n";
        assert_eq!(notes_text(&both), format!("{text}\n{text}"));
        section.notes.clear();
        assert_eq!(csv(&section), ",a\naccuracy,0.9\n");
        assert_eq!(notes_text(&[section]), "");
    }

    #[test]
    fn exact_a_table_is_what_latex_reads() {
        let cells = |of: [&str; 2]| of.map(String::from).to_vec();
        let section = Section {
            title: "MNIST, 50 % of `x_1`".into(),
            head: cells(["", "a & b"]),
            rows: vec![cells(["FedAvg", "98.9 +- 0.1"]), cells(["{~^\\}", "<1"])],
            notes: vec!["2 runs\nare open".into()],
            pictures: Vec::new(),
        };
        let tex = tables_tex(&[section]);
        let due = "% made by fl; needs \\usepackage{booktabs}

\\begin{table}
  \\caption{MNIST, 50 \\% of 'x\\_1'}
  \\centering
  \\begin{tabular}{lr}
    \\toprule
     & a \\& b \\\\
    \\midrule
    FedAvg & 98.9 $\\pm$ 0.1 \\\\
    \\{\\textasciitilde{}\\textasciicircum{}\\textbackslash{}\\} & $<$1 \\\\
    \\bottomrule
  \\end{tabular}
  \\par\\footnotesize 2 runs are open
\\end{table}
";
        assert_eq!(tex, due);
    }
}
