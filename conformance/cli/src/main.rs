//! `tidegate`: see `tidegate --help`.

fn main() -> std::process::ExitCode {
    tidegate::main()
}
