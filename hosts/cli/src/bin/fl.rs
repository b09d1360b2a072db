//! `fl` with every part of this workspace.
use fl_plugins as _;

#[global_allocator]
static MEMORY: fl_core::HugePages = fl_core::HugePages;

fn main() -> std::process::ExitCode {
    fl_cli::main()
}
