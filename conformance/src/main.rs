//! `tollgate`: see `tollgate --help`.

fn main() -> std::process::ExitCode {
    tollgate_conformance::cli::main()
}
