//! A Compute app behind a gate: `rules.json` says which limits apply to which requests, and KV Store counts.

#[cfg(target_os = "wasi")]
mod app {
    use fastly::{Error, Request, Response};
    use tidegate_fastly::{ClientIpSource, Gate, Kv, Platform, check, with_fields};
    use tidegate_rules::rules;

    pub(crate) fn answer(request: &Request) -> Result<Response, Error> {
        let rules = rules!("../rules.json")?;
        let gate = Gate::new(rules, Kv::open("tidegate")?.limiter(), ClientIpSource::new(Platform::Fastly))?;
        Ok(match check(&gate, request) {
            Ok(pass) => with_fields(Response::from_body("hello\n"), &pass.fields()),
            Err(refused) => refused,
        })
    }
}

#[cfg(target_os = "wasi")]
#[fastly::main]
fn main(request: fastly::Request) -> Result<fastly::Response, fastly::Error> {
    app::answer(&request)
}

#[cfg(not(target_os = "wasi"))]
fn main() {
    eprintln!("this program runs on Fastly Compute: build it with --target wasm32-wasip1");
    std::process::exit(2);
}
