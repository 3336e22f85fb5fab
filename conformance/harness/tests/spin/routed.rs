//! The app with routes: no request evades a rule, and a store that fails puts no text of its own into the log.

use tidegate_evasion::requests::escaped;
use tidegate_evasion::{ROUTES, http1, routes, rules};
use tidegate_guest_protocol::routed::ROUTED_RULES;

use super::{App, Result};

/// Starts the app with rules for these routes.
async fn start(names: &[&str]) -> Result<App> {
    // The router loses a slash after text outside ASCII: its `/ü/:id` is `/ü:id`. Write escapes in both there.
    let written = |path: &str| match path.rsplit_once('/') {
        Some((start, _)) if !start.is_ascii() => escaped(path),
        _ => path.to_string(),
    };
    let routes: Vec<_> = routes(names).iter().map(|(name, path)| (*name, written(path))).collect();
    App::start(&[&format!("--env={ROUTED_RULES}={}", rules(&routes))]).await
}

#[tokio::test]
async fn whatever_reaches_a_route_was_charged_to_its_rule() -> Result<()> {
    let names = ROUTES.map(|(name, _)| name);
    let app = start(&names).await?;
    http1::attack_guest("spin", app.base(), &names);
    Ok(())
}

#[tokio::test]
async fn a_store_that_fails_is_a_line_of_the_log_for_each_request_without_its_text() -> Result<()> {
    let app = start(&["login"]).await?;
    assert_eq!(app.get("/login", &[]).await?, (200, "login".into()));
    let before = app.0.log()?;
    app.0.tell("lose 5").await?;
    for _ in 0..5 {
        assert_eq!(app.get("/login", &[]).await?.0, 503);
    }
    assert_eq!(app.get("/login", &[]).await?.0, 200);
    let log = app.0.log()?;
    let lines: Vec<_> = log[before.len()..].lines().filter(|line| !line.is_empty()).collect();
    // The host says that the connection ended before the answer.
    assert_eq!(
        lines,
        ["tidegate: the store \"default\" does not answer (unavailable), and on_failure of each rule decides"; 5]
    );
    Ok(())
}
