//! `fl` with every part of this workspace.
use fl_plugins as _;

fn main() -> std::process::ExitCode {
    fl_cli::main()
}
