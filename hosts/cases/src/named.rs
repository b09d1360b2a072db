//! Roles and parts as people name them.

use fl_core::{PartDecl, Role};
use fl_registry::Catalogue;

/// The word for a role on a command line: the first of its name.
pub fn word(role: Role) -> &'static str {
    role.name().split(' ').next().unwrap_or_default()
}

/// The role of this name, or of its first word, in the plural too.
///
/// # Errors
/// If there is none: names the nearest and all.
pub fn role(name: &str) -> Result<Role, String> {
    let one = match name.strip_suffix('s').unwrap_or(name) {
        // the word of papers and pages
        "mechanism" => "privacy",
        one => one,
    };
    Role::ALL
        .iter()
        .copied()
        .find(|r| word(*r) == one || r.name() == one)
        .ok_or_else(|| {
            if let "data-set" | "data set" | "dataset" | "set" = name {
                return String::from(
                    "a data set is no part: `fl data list` shows the sets, and the book's page `A data set` how to write one",
                );
            }
            let known: Vec<&str> = Role::ALL.iter().map(|role| word(*role)).collect();
            let near = match name {
                "method" => Some("protocol"),
                _ => fl_core::settings::nearest(name, known.iter().copied()),
            };
            let near = near.map_or(";".into(), |n| format!("; did you mean `{n}`?"));
            format!(
                "no role is called `{name}`{near} known: {}",
                known.join(", ")
            )
        })
}

/// The part that `aggregator mean` or, where no other role has one of that name, `mean` stands for.
///
/// # Errors
/// If there is none, or several.
pub fn part(name: &str, catalogue: &Catalogue) -> Result<&'static PartDecl, String> {
    if let Some((of, name)) = name.split_once(' ') {
        let role = role(of)?;
        return catalogue.find(role, name.trim());
    }
    match catalogue.named(name)[..] {
        [decl] => Ok(decl),
        [] => Err(catalogue.unknown(name)),
        ref several => {
            let all = several.iter().map(|d| format!("`{} {name}`", d.role));
            let all = all.collect::<Vec<_>>().join(" or ");
            Err(format!("several parts are called `{name}`: say {all}"))
        }
    }
}
