//! `MESSAGES.md` is what the messages of the core say.

#[test]
fn exact_messages_md_is_current() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("MESSAGES.md");
    let now = fl_core::message::table();
    if std::env::var_os("FL_UPDATE").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == now,
        "MESSAGES.md is not what the messages say; update it with: FL_UPDATE=1 cargo test -p fl-core messages_md"
    );
}
