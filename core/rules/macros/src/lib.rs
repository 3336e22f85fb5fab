//! The procedural macro of `tidegate-rules`, which needs the reader of rules files while an
//! application is compiled, and not in it.

use std::path::{Path, PathBuf};
use std::{env, fs};

use proc_macro2::{Literal, TokenTree};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Error, LitStr, Token, parse_macro_input};
use tidegate_core::gate::Rules;

/// A path to the crate `tidegate-rules`, and the name of a file.
struct Input {
    library: TokenTree,
    file: LitStr,
}

impl Parse for Input {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let library = input.parse()?;
        input.parse::<Token![,]>()?;
        Ok(Self { library, file: input.parse()? })
    }
}

/// See `tidegate_rules::rules!`.
#[proc_macro]
pub fn read(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let Input { library, file } = parse_macro_input!(input as Input);
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let rules = match read_file(&package, &file.value()) {
        Ok(rules) => rules,
        Err(message) => return Error::new(file.span(), message).into_compile_error().into(),
    };
    for warning in rules.warnings() {
        eprintln!("warning: {warning}");
    }
    let path = package.join(file.value()).to_string_lossy().into_owned();
    let bytes = rules.to_bytes();
    // Rules that put nothing around their stores need none of the code for it.
    let is_plain = Rules::from_plain_bytes(&bytes).is_ok();
    let constructor = if is_plain { quote!(from_plain_bytes) } else { quote!(from_bytes) };
    let bytes = Literal::byte_string(&bytes);
    quote! {{
        // The compiler reads the file again when it changes.
        const _: &[u8] = ::core::include_bytes!(#path);
        #library::tidegate_core::gate::Rules::#constructor(#bytes)
    }}
    .into()
}

/// The rules of a file in a package's folder, or why there are none.
fn read_file(package: &Path, file: &str) -> Result<Rules, String> {
    let text = fs::read_to_string(package.join(file))
        .map_err(|error| format!("{file}: {error}; the path is relative to {}", package.display()))?;
    Rules::parse(file, &text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::{error, fs};

    use super::read_file;

    #[test]
    fn a_mistake_has_its_position() -> Result<(), Box<dyn error::Error>> {
        let package = tempfile::tempdir()?;
        fs::write(package.path().join("rules.toml"), "[[rules]]\npath = \"/api/*\"\nlimits = [\"apo\"]\n")?;
        let error = read_file(package.path(), "rules.toml").err();
        assert_eq!(error.as_deref(), Some(r#"rules.toml:3:11: "apo" is not a limit; the file has none"#));
        Ok(())
    }

    #[test]
    fn a_missing_file_is_named_with_the_folder() -> Result<(), Box<dyn error::Error>> {
        let package = tempfile::tempdir()?;
        let error = read_file(package.path(), "rule.json").err().ok_or("it was read")?;
        assert!(error.starts_with("rule.json: ") && error.ends_with(&package.path().display().to_string()), "{error}");
        Ok(())
    }
}
