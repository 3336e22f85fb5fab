//! The Worker with routes: no request evades a rule, and an object that fails puts no text of its own into the log.

use std::time::{Duration, Instant};

use tidegate_evasion::requests::escaped;
use tidegate_evasion::{ROUTES, http1, routes, rules};
use tidegate_guest_protocol::routed::ROUTED_RULES;
use tidegate_harness::target::cloudflare::Host;

use super::{Result, bases, page, start};

/// Starts the Worker with rules for these routes.
async fn start_routed(names: &[&str], more: &[&str]) -> Result<Host> {
    // The router decodes nothing, so that its routes have the escapes that browsers send. The rules are written as they are.
    let routes: Vec<_> = routes(names).iter().map(|(name, path)| (*name, escaped(path))).collect();
    let rules = format!("--var={ROUTED_RULES}={}", rules(&routes));
    start(&[&[rules.as_str()], more].concat()).await
}

#[tokio::test]
async fn whatever_reaches_a_route_was_charged_to_its_rule() -> Result<()> {
    // The router takes no star beside longer paths.
    let names: Vec<_> = ROUTES.iter().map(|(name, _)| *name).filter(|name| *name != "below").collect();
    let host = start_routed(&names, &[]).await?;
    http1::attack_guest("workerd", &bases(&host)[0], &names);
    host.stop().await;
    Ok(())
}

/// What was logged from this place on, with this text in it. The log passes through a pipe, in its order.
async fn log_until(host: &Host, from: usize, text: &str) -> Result<String> {
    let mut log = String::new();
    for _ in 0..3_000 {
        log = host.log()?.split_off(from);
        if log.contains(text) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(log)
}

#[tokio::test]
async fn a_missing_binding_is_one_line_of_the_log_and_not_one_for_each_request() -> Result<()> {
    let host = start_routed(&["login"], &["--without=TIDEGATE"]).await?;
    let (before, base) = (host.log()?.len(), &bases(&host)[0]);
    let began = Instant::now();
    for _ in 0..100 {
        assert_eq!(page(base, "/login", "192.0.2.1").await?.0, 503);
    }
    let log = log_until(&host, before, "TIDEGATE").await?;
    let lines = log.lines().filter(|line| line.starts_with("tidegate: ") && line.contains("TIDEGATE")).count();
    assert!((1..=1 + began.elapsed().as_secs()).contains(&(lines as u64)), "{log}");
    host.stop().await;
    Ok(())
}

#[tokio::test]
async fn an_object_that_fails_is_a_line_of_the_log_and_so_is_its_return() -> Result<()> {
    let host = start_routed(&["login"], &["--class=Telling"]).await?;
    let (before, base) = (host.log()?.len(), &bases(&host)[0]);
    for status in [503, 503, 503, 503, 503, 200, 200] {
        assert_eq!(page(base, "/login", "192.0.2.1").await?.0, status);
    }
    let log = log_until(&host, before, "answers again").await?;
    let lines: Vec<_> = log.lines().filter(|line| line.starts_with("tidegate")).collect();
    let [elsewhere, down, up] = lines[..] else { panic!("{log}") };
    assert_eq!(elsewhere, "tidegate: workerd has no jurisdictions, so objects are not in \"eu\" here");
    assert_eq!(down, "tidegate: the store \"default\" does not answer (timeout), and on_failure of each rule decides");
    assert!(up.starts_with("tidegate: the store \"default\" answers again after "), "{up}");
    assert!(up.ends_with(", in which 5 of its calls failed"), "{up}");
    host.stop().await;
    Ok(())
}
