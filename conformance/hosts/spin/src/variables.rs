//! The variables of an app's component. Spin resolves templates in them; here each is what it says.

use wasmtime::Result;

use self::bindings::fermyon::spin::variables::{self, Error};
use crate::instance::Instance;

pub(crate) mod bindings {
    wasmtime::component::bindgen!({
        path: "../../../adapters/spin/gate/wit",
        world: "settings",
        imports: { default: async | trappable },
    });
}

impl variables::Host for Instance {
    async fn get(&mut self, name: String) -> Result<std::result::Result<String, Error>> {
        // As in Spin: lower-case letters, digits and single underscores.
        let is_part = |part: &str| {
            part.starts_with(|letter: char| letter.is_ascii_lowercase())
                && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        if !name.split('_').all(is_part) {
            return Ok(Err(Error::InvalidName(name)));
        }
        Ok(self.variables.get(&name).cloned().ok_or_else(|| Error::Undefined(format!("no variable for {name:?}"))))
    }
}
