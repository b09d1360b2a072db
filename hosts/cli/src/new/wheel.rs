//! `fl new --wheel`: what makes a wheel of a project, with the entry point that specs name.

use super::template::{Files, fill, template};
use super::{Language, NewArgs};
use crate::Failure;
use fl_core::Role;

const PROJECT: &str = template!("pyproject.toml");
const SETUP: &str = template!("setup.py");
/// At the end of the project's README.
pub const README: &str = "
## Share it

```sh
pip wheel . --no-deps -w dist      # a wheel of the package fl-{{name}}, which others install with pip
```

A spec then names it: `plugins: [{ package: fl-{{name}} }]`.
";
const INIT: &str =
    "\"\"\"The plugin is `plugin.so` beside this file. fl loads it; nothing imports this.\"\"\"\n";

/// The files that a project has besides.
pub fn files(role: Option<Role>, args: &NewArgs) -> Result<Files, Failure> {
    let Some(role) = role else {
        return Err(Failure::usage(
            "--wheel is for parts; an app of Flower has its own format",
        ));
    };
    let file = args.name.replace('-', "_");
    let module = match args.lang {
        Language::Python => file.clone(),
        _ => format!("fl_{file}"),
    };
    let linux = match args.lang {
        Language::C => format!("{file}.so"),
        _ => format!("target/release/lib{file}.so"),
    };
    let files = match args.lang {
        Language::C => "{}".into(),
        _ => format!(
            "{{\"darwin\": \"target/release/lib{file}.dylib\", \"win32\": \"target/release/{file}.dll\"}}"
        ),
    };
    let build = match args.lang {
        Language::C => "[\"make\"]",
        // without the program that a protocol's crate also is
        _ => {
            "[\"cargo\", \"build\", \"--release\", \"--lib\", \"--no-default-features\", \"--target-dir\", \"target\"]"
        }
    };
    let (plugin, packages) = match args.lang {
        Language::Python => (module.clone(), format!("py-modules = [\"{module}\"]")),
        _ => (
            format!("{module}:plugin.so"),
            format!("packages = [\"{module}\"]"),
        ),
    };
    let needs = match args.lang {
        Language::Python => "dependencies = [\"numpy\"] # and fl itself\n",
        _ => "",
    };
    let values = [
        ("name", args.name.clone()),
        ("needs", needs.into()),
        ("Article", role.with_article().replacen('a', "A", 1)),
        ("plugin", plugin),
        ("packages", packages),
        ("files", files),
        ("linux", linux),
        ("build", build.into()),
        ("module", module.clone()),
    ];
    let mut all = vec![("pyproject.toml".into(), fill(PROJECT, &values))];
    if args.lang != Language::Python {
        all.push(("setup.py".into(), fill(SETUP, &values)));
        all.push((format!("{module}/__init__.py"), INIT.into()));
    }
    Ok(all)
}
