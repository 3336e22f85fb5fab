//! The app with routes: no request evades a rule, and a store that fails puts no text of its own into the log.

use tidegate_evasion::{ROUTES, http1, routes, rules};
use tidegate_guest_protocol::routed::ROUTED_RULES;

use super::{App, Result};

/// Starts the app with rules for these routes.
async fn start(names: &[&str]) -> Result<App> {
    let rules = rules(&routes(names)).to_string();
    let setting = format!(
        "\n[local_server.config_stores.tidegate_routed]\nformat = \"inline-toml\"\n\
         [local_server.config_stores.tidegate_routed.contents]\n{ROUTED_RULES} = {rules:?}\n"
    );
    App::start_with(|manifest| manifest + &setting, &[]).await
}

#[tokio::test]
async fn whatever_reaches_a_route_was_charged_to_its_rule() -> Result<()> {
    let names = ROUTES.map(|(name, _)| name);
    let app = start(&names).await?;
    http1::attack_guest("fastly", &app.base, &names);
    app.host.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_store_that_fails_is_a_line_of_the_log_for_each_request_without_its_text() -> Result<()> {
    let app = start(&["login"]).await?;
    assert_eq!(app.get("/login").await?, (200, "login".into()));
    let before = app.host.log()?;
    app.host.tell("lose 5").await?;
    for _ in 0..5 {
        assert_eq!(app.get("/login").await?.0, 503);
    }
    assert_eq!(app.get("/login").await?.0, 200);
    let log = app.host.log()?;
    // The guest's store says that the answer is lost.
    let lines: Vec<_> = log[before.len()..].lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(
        lines,
        ["stdout :: tidegate: the store \"default\" does not answer (unavailable), and on_failure of each rule decides";
            5]
    );
    app.host.stop().await;
    Ok(())
}
