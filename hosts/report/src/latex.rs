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

/// Returns a table as CSV, with its notes in rows of their own.
///
/// # Errors
/// If it cannot be written.
pub fn table_csv(section: &Section) -> Result<Vec<u8>> {
    let mut out = csv::Writer::from_writer(Vec::new());
    let note = |note: &String| {
        let mut row = vec![String::new(); section.head.len().max(1)];
        row[0].clone_from(note);
        row
    };
    let notes: Vec<Vec<String>> = section.notes.iter().map(note).collect();
    let rows = [&section.head].into_iter().chain(&section.rows);
    for row in rows.chain(&notes) {
        out.write_record(row.iter().map(|text| cell(text).into_owned()))?;
    }
    Ok(out.into_inner()?)
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
