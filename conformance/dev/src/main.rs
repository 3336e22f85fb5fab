//! `tidegate-dev`: see `tidegate-dev --help`.

fn main() -> std::process::ExitCode {
    tidegate_dev::main()
}
