//! HTML reports. Each is one file that needs nothing from the network.

use std::fmt::{Display, Write as _};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde_json::{Error, Value};

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
        let data = format!(r#"<script id="data" type="application/json">{data}</script>"#);
        Ok(self.without_data().replace("<!--data-->", &data))
    }

    /// The page with its data in parts, each compressed and in an element with this id, which `unpacked` of the script reads when it needs
    /// it. `still` is what a reader sees without the script, as HTML that replaces `<!--still-->` in the body.
    ///
    /// # Errors
    /// Fails if the data cannot be serialized.
    pub fn packed(&self, still: &str, parts: &[(&str, Value)]) -> serde_json::Result<String> {
        let mut data = String::new();
        for (id, part) in parts {
            let _ = writeln!(data, r#"<script id="{id}" type="text/plain">{}</script>"#, compressed(part)?);
        }
        // The text of a report comes last, so that nothing in it is replaced.
        Ok(self.without_data().replace("<!--data-->", data.trim_end()).replace("<!--still-->", still))
    }

    fn without_data(&self) -> String {
        let page = SHELL.replace("<!--title-->", self.title).replace("/*style*/", &[STYLE, self.style].concat());
        page.replace("<!--body-->", self.body).replace("/*script*/", &[ELEMENTS, self.script].concat())
    }
}

/// JSON, compressed by gzip (RFC 1952), in base64.
fn compressed(value: &Value) -> serde_json::Result<String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    serde_json::to_writer(&mut encoder, value)?;
    Ok(BASE64_STANDARD.encode(encoder.finish().map_err(Error::io)?))
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
