#![doc = include_str!("../README.md")]

#[doc(hidden)]
pub use tidegate_core;
#[doc(hidden)]
pub use tidegate_rules_macros::read;

/// The rules of a file in TOML or JSON, as a `Result` of [`Rules`](tidegate_core::gate::Rules).
///
/// The path is relative to the folder of the package's `Cargo.toml`. The file is read and checked when the application is compiled, and
/// again when it changes. A mistake in it is an error of the compiler, with its line and column. What is
/// [probably a mistake](tidegate_core::gate::Rules::warnings) is printed, if the compiler's output is shown.
///
/// ```
/// use tidegate_rules::rules;
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let rules = rules!("examples/rules.toml")?;
/// assert_eq!(rules.rules()[0].name(), "login");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Invalid`](tidegate_core::ErrorKind::Invalid) if the version of `tidegate-core` that compiled the file is not the one that runs.
#[macro_export]
macro_rules! rules {
    ($file:literal) => {
        $crate::read!($crate, $file)
    };
}
