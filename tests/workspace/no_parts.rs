//! A program that uses only its own parts links none of ours.

use std::process::Command;

/// The packages that `fl-cli` depends on with these features.
fn packages(features: &[&str]) -> Vec<String> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--package", "fl-cli"])
        .args(["--edges", "normal", "--prefix", "none"])
        .args(features)
        .output()
        .expect("cargo runs");
    assert!(
        tree.status.success(),
        "{}",
        String::from_utf8_lossy(&tree.stderr)
    );
    let lines = String::from_utf8(tree.stdout).expect("cargo prints UTF-8");
    let name = |line: &str| line.split(' ').next().map(str::to_string);
    lines.lines().filter_map(name).collect()
}

fn parts(packages: &[String]) -> Vec<&String> {
    let part = |name: &&String| name.starts_with("fl-plugin");
    packages.iter().filter(part).collect()
}

#[test]
fn the_program_without_default_features_links_no_part() {
    let none = packages(&["--no-default-features"]);
    assert_eq!(parts(&none), Vec::<&String>::new());
    assert!(none.contains(&"fl-engine".to_string()));
    // what is looked for is there with them
    let all = packages(&[]);
    assert!(parts(&all).len() > 20);
    for group in ["files", "images", "synthetic", "tables", "texts"] {
        let package = format!("fl-plugin-data-{group}");
        assert!(all.contains(&package), "{package}");
    }
}
