//! Upstash's own clients work with the REST endpoint that the other tests use.

#![cfg(feature = "rest")]
#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use std::path::Path;

use crate::support::Server;
use crate::support::rest::{Endpoint, TOKEN};
use tokio::process::Command;

#[tokio::test]
async fn upstashs_own_clients_run_against_the_endpoint() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/hosts/upstash-rest");
    let installed = folder.join("node_modules/@upstash/redis").exists();
    assert!(installed, "this test needs Upstash's clients: npm ci --prefix conformance/hosts/upstash-rest");
    let server = Server::start();
    let endpoint = Endpoint::start(&server).await;
    let mut clients = Command::new("node");
    clients.arg("clients.mjs").args([&endpoint.url(), TOKEN]).current_dir(folder).kill_on_drop(true);
    let output = clients.output().await.expect("this test needs node: apt-get install nodejs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
