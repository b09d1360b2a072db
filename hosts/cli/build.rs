//! Sets `published` in a build from a package: `fl new` then writes versions instead of paths.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(published)");
    // every package has the manifest that its author wrote
    if std::path::Path::new("Cargo.toml.orig").exists() {
        println!("cargo::rustc-cfg=published");
    }
}
