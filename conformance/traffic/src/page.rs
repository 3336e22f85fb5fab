//! HTML reports. Each is one file that needs nothing from the network.

use std::fmt::Display;

use serde::Serialize;

/// The style of all reports.
pub const STYLE: &str = include_str!("page/page.css");

/// What their scripts are built of.
const ELEMENTS: &str = include_str!("page/elements.js");

const SHELL: &str = include_str!("page/page.html");

/// A report, without its data.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The title of the window.
    pub title: &'a str,
    /// Its style, besides [`STYLE`].
    pub style: &'a str,
    /// What the body contains.
    pub body: &'a str,
    /// Its script, which reads the data from the element `data`.
    pub script: &'a str,
}

impl Page<'_> {
    /// The page with its data.
    ///
    /// # Errors
    /// Fails if the data cannot be serialized.
    pub fn with(&self, data: &impl Serialize) -> serde_json::Result<String> {
        // In JSON, `<` occurs only in strings. Escaped, no text can end the element that holds it.
        let data = serde_json::to_string(data)?.replace('<', "\\u003c");
        let page = SHELL.replace("<!--title-->", self.title).replace("/*style*/", &[STYLE, self.style].concat());
        let page = page.replace("<!--body-->", self.body).replace("/*script*/", &[ELEMENTS, self.script].concat());
        Ok(page.replace("/*data*/", &data))
    }
}

/// A whole number with a comma before every three digits.
#[must_use]
pub fn grouped(value: impl Display) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
