//! Citations in the docs of parts.

/// The papers that a text cites, as `Authors year`: `McMahan et al. 2017`, `Sun and Lyu 2020`, `Chen, Guestrin 2016`.
pub(super) fn citations(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut found: Vec<String> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let year = word.trim_end_matches(|c: char| !c.is_ascii_digit());
        let is_year = matches!(year.parse::<u16>(), Ok(1900..=2099)) && year.len() == 4;
        let Some(authors) = is_year.then(|| authors(&words[..at])).flatten() else {
            continue;
        };
        let paper = format!("{authors} {year}");
        if !found.contains(&paper) {
            found.push(paper);
        }
    }
    found
}

/// The authors that these words end with.
fn authors(words: &[&str]) -> Option<String> {
    let surname =
        |word: &str| word.starts_with(char::is_uppercase) && word.chars().all(char::is_alphabetic);
    if let [.., name, "et", "al."] = words {
        return Some(format!("{} et al.", name.trim_start_matches('(')));
    }
    let mut authors: Vec<&str> = Vec::new();
    for word in words.iter().rev() {
        let (name, opens) = (word.trim_start_matches('('), word.starts_with('('));
        let last = authors.is_empty();
        let fits = match name {
            "and" => !last,
            name => {
                surname(if last {
                    name
                } else {
                    name.trim_end_matches(',')
                }) && (last || name.ends_with(',') || authors[0] == "and")
            }
        };
        if !fits {
            break;
        }
        authors.insert(0, name);
        if opens {
            break;
        }
    }
    (!authors.is_empty()).then(|| authors.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_papers_are_found_however_they_are_cited() {
        let cited = |text| citations(text).join("; ");
        assert_eq!(
            cited("A mean (FedAvg; McMahan et al. 2017), and (Selective-FD, Shao et al. 2024)."),
            "McMahan et al. 2017; Shao et al. 2024"
        );
        assert_eq!(
            cited(
                "Boosting (Chen, Guestrin 2016), as in Dwork, Rothblum and Vadhan 2010, (FedMD-NFDP, Sun and Lyu 2020)"
            ),
            "Chen, Guestrin 2016; Dwork, Rothblum and Vadhan 2010; Sun and Lyu 2020"
        );
        assert_eq!(
            cited("Renyi accounting (Mironov 2017), of 2048 values in 2020; twice (Mironov 2017)"),
            "Mironov 2017"
        );
    }
}
