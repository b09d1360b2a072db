//! An audit for people: text, Markdown and a page.

use crate::finding::{Audit, Finding, Verdict};
use crate::judge::Difference;
use anyhow::Result;
use fl_core::privacy::{LowerBound, UpperBound, short};
use fl_report::Section;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The files of a finished audit: JSON, Markdown and a page.
const FILES: [&str; 3] = ["audit.json", "audit.md", "audit.html"];

impl Audit {
    /// Writes `audit.json`, `audit.md` and `audit.html` into a folder, and returns their paths.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<[PathBuf; 3]> {
        let texts = [
            serde_json::to_string_pretty(self)? + "\n",
            self.markdown(),
            self.html(),
        ];
        let paths = FILES.map(|name| folder.join(name));
        for (path, text) in paths.iter().zip(texts) {
            fl_files::write(path, text.as_bytes())?;
        }
        Ok(paths)
    }

    /// The title of the column of bounds.
    fn shown(&self) -> String {
        format!("shown ({} %)", percent(self.confidence))
    }

    /// What was compared, in one line.
    pub fn about(&self) -> String {
        format!("{}; {}", self.method, self.compared.join("; "))
    }

    /// The table: observer, neighbours, claim, bound, largest possible bound, verdict, and what
    /// shows it.
    pub fn table(&self) -> Vec<[String; 7]> {
        let head = [
            "observer",
            "neighbours",
            "claim",
            &self.shown(),
            "at most",
            "verdict",
            "best seen in",
        ];
        let mut table = vec![head.map(String::from)];
        table.extend(self.findings.iter().map(Finding::row));
        table
    }

    /// What differs in every run, a sentence each.
    pub fn differences(&self) -> Vec<String> {
        let mut all = Vec::new();
        for finding in &self.findings {
            let of = &finding.shown;
            let observer = format!("{}, {}", finding.observer, finding.game);
            if finding.verdict == Verdict::Suspect {
                all.push(format!(
                    "{observer}: suspect: noise of the claimed epsilon may look like this too; find out where each fact below gets its noise"
                ));
            }
            for difference in &of.differs {
                all.push(format!("{observer}: {difference}"));
            }
            if of.different > of.differs.len() {
                all.push(format!(
                    "{observer}: {} more differ in every run",
                    of.different - of.differs.len()
                ));
            }
        }
        all
    }

    /// The notes, whose word the claims are, and why observers have none.
    pub fn remarks(&self) -> Vec<String> {
        let by = self.findings.iter().flat_map(|f| &f.claim);
        let by: BTreeSet<&String> = by.flat_map(|claim| &claim.claimed_by).collect();
        let by = by.into_iter().map(|library| {
            format!("the guarantee is as claimed by {library}, whose parts may behave otherwise outside of an audit")
        });
        let none = self.findings.iter().filter(|f| f.claim.is_none());
        let none = none.map(|f| {
            format!(
                "{}, {}: no claim: {}",
                f.observer,
                f.game,
                f.no_claim.join("; ")
            )
        });
        self.notes.iter().cloned().chain(by).chain(none).collect()
    }

    fn markdown(&self) -> String {
        let plain = |text: &str| text.replace('|', "\\|").replace('<', "&lt;");
        let line = |row: &[String; 7]| {
            let cells: Vec<String> = row.iter().map(|cell| plain(cell)).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let table = self.table();
        let mut out = format!(
            "# Audit of {}\n\n{}.\n\n",
            plain(&self.name),
            plain(&self.about())
        );
        out += &line(&table[0]);
        out += &format!("{}|\n", "|---".repeat(table[0].len()));
        out.extend(table[1..].iter().map(line));
        for text in self.differences().iter().chain(&self.remarks()) {
            out += &format!("\n* {}", plain(text));
        }
        out + &format!("\n\nDigest {}, seed {}.\n", self.digest, self.seed)
    }

    fn html(&self) -> String {
        let mut table = self.table();
        let head = table.remove(0);
        let bounds = Section {
            title: "Bounds beside claims".into(),
            head: head.to_vec(),
            rows: table.into_iter().map(Vec::from).collect(),
            notes: self.remarks(),
            pictures: Vec::new(),
        };
        let mut sections = vec![bounds];
        let differs = self.findings.iter().flat_map(|f| {
            let rows = f.shown.differs.iter();
            rows.map(|d| {
                vec![
                    f.observer.to_string(),
                    d.field.clone(),
                    values(&d.values[0]),
                    values(&d.values[1]),
                    d.runs.to_string(),
                ]
            })
        });
        let rows: Vec<Vec<String>> = differs.collect();
        if !rows.is_empty() {
            let head = [
                "observer",
                "field",
                "with the unit",
                "neighbour",
                "runs of each",
            ];
            sections.push(Section {
                title: "Differs in every run".into(),
                head: head.map(String::from).to_vec(),
                rows,
                notes: Vec::new(),
                pictures: Vec::new(),
            });
        }
        sections.push(Section {
            title: "How".into(),
            head: vec!["".into(), "".into()],
            rows: vec![
                vec!["compared".into(), self.about()],
                vec!["seed".into(), self.seed.to_string()],
                vec!["digest".into(), self.digest.clone()],
            ],
            notes: Vec::new(),
            pictures: Vec::new(),
        });
        fl_report::study(&format!("Audit of {}", self.name), &sections, &[])
    }
}

impl Finding {
    fn row(&self) -> [String; 7] {
        let claim = match &self.claim {
            Some(claim) => {
                let (epsilon, delta) = (UpperBound(claim.epsilon), short(claim.delta));
                format!("{epsilon} at delta {delta}")
            }
            None => "nothing".into(),
        };
        let shown = &self.shown;
        let (epsilon, most) = match self.verdict {
            Verdict::NotJudged => ("-".into(), "-".into()),
            _ => (
                LowerBound(shown.epsilon).to_string(),
                UpperBound(shown.most).to_string(),
            ),
        };
        let verdict = match self.verdict {
            Verdict::Broken if shown.different > 0 => "claim broken: differs in every run",
            Verdict::Broken => "claim broken",
            Verdict::Suspect => "suspect",
            Verdict::NotRefuted if shown.different > 0 => "not refuted; differs in every run",
            Verdict::NotRefuted => "not refuted",
            Verdict::NoClaim => "no claim",
            Verdict::NotJudged => "not judged",
        };
        [
            self.observer.to_string(),
            self.game.to_string(),
            claim,
            epsilon,
            most,
            verdict.into(),
            shown.by.clone(),
        ]
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [one, other] = self.values.each_ref().map(|of| values(of));
        write!(
            f,
            "{} differs in {} of {} runs (with the unit {one}; in the neighbour {other})",
            self.field, self.runs, self.runs
        )
    }
}

fn values(of: &[String]) -> String {
    match of {
        [one] => format!("`{one}`"),
        [one, .., last] => format!("`{one}` to `{last}`, {} values", of.len()),
        [] => String::new(),
    }
}

/// A share in percent, without zeros that say nothing.
fn percent(share: f64) -> f64 {
    (1e6 * share).round() / 1e4
}
