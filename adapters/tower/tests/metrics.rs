//! What the guide's alerts and its dashboard ask Prometheus for is what a service tells.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

#[path = "../examples/metrics.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program of its own")]
mod example;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use http_body_util::BodyExt as _;
use promql_parser::parser::{Expr, VectorSelector, parse};
use serde_json::Value;
use tidegate_redis::{Config, Redis};
use tidegate_tower::MemoryLimiter;
use tower::ServiceExt as _;

/// The names of the metrics, and the names of the labels of each.
type Exported = BTreeMap<String, BTreeSet<String>>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core/docs/prometheus")
}

fn read(file: &str) -> String {
    fs::read_to_string(folder().join(file)).unwrap()
}

fn yaml(file: &str) -> Value {
    serde_yaml_ng::from_str(&read(file)).unwrap()
}

async fn ask(app: &axum::Router, path: &str) -> (u16, String) {
    let peer = ConnectInfo(SocketAddr::from(([192, 0, 2, 1], 50_000)));
    let request = Request::get(path).extension(peer).body(Body::empty()).unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// The metrics of a service that has admitted, denied, and lost its store.
async fn exported() -> Exported {
    let handle = example::recorder().unwrap();
    let app = example::app(MemoryLimiter::new()).unwrap();
    let mut answers = Vec::new();
    for _ in 0..6 {
        answers.push(ask(&app, "/").await.0);
    }
    assert_eq!(answers, [200, 200, 200, 200, 200, 429]);
    // Nothing listens there.
    let gone = Redis::new(Config::new("redis://127.0.0.1:1")).unwrap().limiter();
    let lost = example::app(gone).unwrap();
    assert_eq!(ask(&lost, "/").await.0, 200, "the rule is open");
    let (status, text) = ask(&example::metrics(handle), "/metrics").await;
    assert_eq!(status, 200);
    for series in [
        r#"tidegate_requests_total{rule="/*",outcome="allowed",origin="store"} 5"#,
        r#"tidegate_requests_total{rule="/*",outcome="denied",origin="store"} 1"#,
        r#"tidegate_requests_total{rule="/*",outcome="failed_open",origin="none"} 1"#,
        r#"tidegate_stores_down{store="default"} 1"#,
        r#"tidegate_store_seconds_count{rule="/*"} 7"#,
    ] {
        assert!(text.lines().any(|line| line == series), "{series} is not in\n{text}");
    }
    let mut found = Exported::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (name, labels) = line.split_once('{').unwrap();
        let names = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0.to_string()));
        found.entry(name.to_string()).or_default().extend(names);
    }
    found
}

/// The selectors of an expression, and the labels by which it groups.
fn walk<'a>(expr: &'a Expr, selectors: &mut Vec<&'a VectorSelector>, groups: &mut Vec<String>) {
    let mut next: Vec<&Expr> = Vec::new();
    match expr {
        Expr::VectorSelector(selector) => selectors.push(selector),
        Expr::MatrixSelector(matrix) => selectors.push(&matrix.vs),
        Expr::Aggregate(aggregate) => {
            groups.extend(aggregate.modifier.iter().flat_map(|modifier| modifier.labels().labels.clone()));
            next.push(&aggregate.expr);
        }
        Expr::Binary(binary) => next.extend([&*binary.lhs, &*binary.rhs]),
        Expr::Paren(paren) => next.push(&paren.expr),
        Expr::Unary(unary) => next.push(&unary.expr),
        Expr::Call(call) => next.extend(call.args.args.iter().map(|argument| &**argument)),
        Expr::Subquery(subquery) => next.push(&subquery.expr),
        _ => {}
    }
    for expr in next {
        walk(expr, selectors, groups);
    }
}

fn check(expression: &str, exported: &Exported) {
    let expr = parse(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
    let (mut selectors, mut groups) = (Vec::new(), Vec::new());
    walk(&expr, &mut selectors, &mut groups);
    assert!(!selectors.is_empty(), "{expression} asks for nothing");
    for selector in selectors {
        let name = selector.name.as_deref().unwrap_or_default();
        let labels = exported.get(name).unwrap_or_else(|| panic!("{expression}: no service tells {name}"));
        let asked = selector.matchers.matchers.iter().map(|matcher| &matcher.name).chain(&groups);
        for label in asked {
            assert!(labels.contains(label), "{expression}: {name} has no label {label}");
        }
    }
}

#[tokio::test]
async fn the_alerts_and_the_dashboard_ask_for_what_a_service_tells() {
    let exported = exported().await;
    let alerts = yaml("alerts.yml");
    let rules = alerts["groups"][0]["rules"].as_array().unwrap();
    for rule in rules {
        check(rule["expr"].as_str().unwrap(), &exported);
        assert!(rule["alert"].is_string() && rule["annotations"]["summary"].is_string(), "{rule}");
    }
    assert_eq!(rules.len(), 4);
    let dashboard: Value = serde_json::from_str(&read("grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets: Vec<_> = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()).collect();
    for target in &targets {
        let expr = target["expr"].as_str().unwrap().replace("$__rate_interval", "5m").replace("$rule", ".*");
        check(&expr, &exported);
    }
    assert!(panels.len() >= 6 && targets.len() >= 6);
    assert_eq!(yaml("prometheus.yml")["rule_files"][0], "alerts.yml");
}

/// Prometheus' own tool also tries the alerts on series. Where it is not installed, the test above has read them.
#[test]
fn promtool_accepts_the_files_where_it_is_installed() {
    for arguments in [["check", "config", "prometheus.yml"], ["test", "rules", "alerts_test.yml"]] {
        match Command::new("promtool").args(arguments).current_dir(folder()).output() {
            Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => println!("promtool is not installed"),
            Err(error) => panic!("promtool: {error}"),
        }
    }
}
