//! `tidegate serve`: the program itself, asked over a socket as Envoy asks.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::Command;

/// A build without the server says how to install one that has it.
#[cfg(not(feature = "serve"))]
#[test]
fn a_build_without_the_server_says_how_to_install_it() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = command.args(["serve", "--rls", "127.0.0.1:0", "--rules", "rules.toml"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("cargo install --path conformance/cli --features serve"), "{said}");
}

#[cfg(feature = "serve")]
#[path = "../../../adapters/envoy/tests/support/mod.rs"]
mod support;

#[cfg(feature = "serve")]
#[path = "../../../adapters/postgres/tests/support/mod.rs"]
mod database;

#[cfg(feature = "serve")]
mod served {
    use std::fs;
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::path::{Path, PathBuf};
    use std::process::{Child, Stdio};
    use std::time::{Duration, Instant};

    use tempfile::TempDir;
    use tidegate_envoy::proto::Code::{Ok as Pass, OverLimit as Over};
    use tidegate_testing::certificates::{authority, certificate};
    use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
    use tonic_health::ServingStatus;
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;

    use super::support::{ask, burst, code, connect, request};
    use super::{Command, database};

    const RULES: &str = r#"
dimensions = ["tenant"]

[limits.burst]
quotas = [{ algorithm = "token_bucket", capacity = 137, refill = 1, per_ms = 86_400_000, by = "tenant" }]
[limits.two]
quotas = [{ algorithm = "sliding_log", limit = 2, window_ms = 86_400_000, by = "tenant" }]
[limits.lent]
quotas = [{ algorithm = "token_bucket", capacity = 137, refill = 1, per_ms = 86_400_000, by = "tenant" }]

[[rules]]
path = "/edge/burst/x/tenant/{tenant}"
limits = ["burst"]
[[rules]]
name = "open"
path = "/edge/open/x/tenant/{tenant}"
limits = ["two"]
on_failure = "open"
[[rules]]
name = "closed"
path = "/edge/closed/x/tenant/{tenant}"
limits = ["two"]
[[rules]]
path = "/edge/lent/x/tenant/{tenant}"
limits = ["lent"]
"#;

    /// A deadline that a busy machine does not reach.
    const PATIENT: &str = "--deadline-ms=60000";

    /// Longer than anything takes on a busy machine.
    const SOON: Duration = Duration::from_secs(60);

    fn free_port() -> u16 {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    struct Redis(Child, u16, TempDir);

    impl Redis {
        fn start() -> Self {
            let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
            Self(Self::spawn(port, dir.path()), port, dir)
        }

        fn spawn(port: u16, dir: &Path) -> Child {
            let mut command = Command::new("redis-server");
            command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(dir);
            let process = command.stdout(Stdio::null()).spawn().unwrap();
            let until = Instant::now() + SOON;
            while TcpStream::connect(("127.0.0.1", port)).is_err() {
                assert!(Instant::now() < until, "redis-server does not come up");
                std::thread::sleep(Duration::from_millis(10));
            }
            process
        }

        fn restart(&mut self) {
            self.0 = Self::spawn(self.1, self.2.path());
        }

        fn store(&self) -> String {
            format!("main=redis://127.0.0.1:{}", self.1)
        }

        /// How many scripts it has run, each of which is a round trip.
        fn scripts(&self) -> u64 {
            let mut stream = TcpStream::connect(("127.0.0.1", self.1)).unwrap();
            stream.write_all(b"INFO commandstats\r\nQUIT\r\n").unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            let scripts = text.lines().filter_map(|line| line.strip_prefix("cmdstat_eval")?.split_once(":calls="));
            scripts.map(|(_, rest)| rest.split(',').next().unwrap().parse::<u64>().unwrap()).sum()
        }

        fn kill(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    impl Drop for Redis {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    struct Server {
        process: Child,
        address: SocketAddr,
        rules: PathBuf,
        dir: TempDir,
    }

    impl Server {
        fn start(rules: &str, arguments: &[&str]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("rules.toml");
            fs::write(&file, rules).unwrap();
            let errors = fs::File::create(dir.path().join("stderr")).unwrap();
            let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
            command.args(["serve", "--rls", "127.0.0.1:0", "--rules"]).arg(&file).args(arguments);
            let mut process = command.stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
            let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
            let address = lines.find_map(|line| line.strip_prefix("rate limits on ").map(|at| at.parse().unwrap()));
            // What is printed later must not fill the pipe.
            std::thread::spawn(move || lines.for_each(drop));
            Self { process, address: address.expect("an address"), rules: file, dir }
        }

        async fn channel(&self) -> Channel {
            connect(self.address).await
        }

        fn signal(&self, name: &str) {
            let id = self.process.id().to_string();
            assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
        }

        /// The exit code, once it has ended.
        fn ended(&mut self) -> Option<i32> {
            let until = Instant::now() + SOON;
            loop {
                if let Some(status) = self.process.try_wait().unwrap() {
                    return status.code();
                }
                assert!(Instant::now() < until, "it does not end");
                std::thread::sleep(Duration::from_millis(10));
            }
        }

        fn said(&self) -> String {
            fs::read_to_string(self.dir.path().join("stderr")).unwrap()
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }

    /// Waits until this is so.
    async fn until<F: Future<Output = bool>>(what: &str, is: impl Fn() -> F) {
        let until = Instant::now() + SOON;
        while !is().await {
            assert!(Instant::now() < until, "{what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn page(port: u16) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn over_tls_only_who_trusts_it_and_is_trusted_is_answered() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["ca", "other"] {
            authority(dir.path(), name);
            certificate(dir.path(), name, &format!("{name}-client"), "envoy");
        }
        certificate(dir.path(), "ca", "host", "localhost");
        let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let (certificate, key) =
            (format!("--tls-cert={}", file("host.crt")), format!("--tls-key={}", file("host.key")));
        let open = Server::start(RULES, &[&certificate, &key]);
        let closed = Server::start(RULES, &[&certificate, &key, &format!("--tls-client-ca={}", file("ca.crt"))]);
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let pem = |name: &str| fs::read(file(name)).unwrap();
        let answered = async |server: &Server, trusted: &str, own: Option<&str>| {
            let mut tls =
                ClientTlsConfig::new().domain_name("localhost").ca_certificate(Certificate::from_pem(pem(trusted)));
            if let Some(own) = own {
                tls = tls.identity(Identity::from_pem(pem(&format!("{own}.crt")), pem(&format!("{own}.key"))));
            }
            let endpoint = Endpoint::try_from(format!("https://{}", server.address)).unwrap().tls_config(tls).unwrap();
            let Ok(channel) = endpoint.connect().await else { return false };
            ask(&channel, request("edge", &[&[("open", "x"), ("tenant", "a")]])).await.is_ok()
        };
        assert!(answered(&open, "ca.crt", None).await);
        assert!(!answered(&open, "other.crt", None).await);
        assert!(answered(&closed, "ca.crt", Some("ca-client")).await);
        assert!(!answered(&closed, "ca.crt", None).await);
        assert!(!answered(&closed, "ca.crt", Some("other-client")).await);
        for server in [&open, &closed] {
            // In the clear.
            let channel = Endpoint::try_from(format!("http://{}", server.address)).unwrap().connect_lazy();
            assert!(ask(&channel, request("edge", &[&[("open", "x"), ("tenant", "a")]])).await.is_err());
        }
    }

    #[test]
    fn what_is_no_certificate_is_told_with_what_to_write() {
        let dir = tempfile::tempdir().unwrap();
        authority(dir.path(), "ca");
        authority(dir.path(), "other");
        fs::write(dir.path().join("rules.toml"), RULES).unwrap();
        fs::write(dir.path().join("empty"), "").unwrap();
        for (certificate, key, authorities, says) in [
            ("empty", "ca.key", "ca.crt", "write certificates and the key of the first one in PEM"),
            ("ca.crt", "empty", "ca.crt", "Error parsing TLS private key"),
            ("ca.crt", "other.key", "ca.crt", "write certificates and the key of the first one in PEM"),
            ("ca.crt", "ca.key", "empty", "write certificates and the key of the first one in PEM"),
            ("missing", "ca.key", "ca.crt", "missing: No such file or directory"),
        ] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
            command.args(["serve", "--rls", "127.0.0.1:0", "--rules", "rules.toml", "--tls-cert", certificate]);
            command.args(["--tls-key", key, "--tls-client-ca", authorities]).current_dir(dir.path());
            let output = command.output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(
                output.status.code() == Some(2) && said.contains(says),
                "{certificate} {key} {authorities}: {said}"
            );
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn five_hundred_at_once_pass_as_often_as_the_limit() {
        let redis = Redis::start();
        let asked = request("edge", &[&[("burst", "x"), ("tenant", "a")]]);
        let memory = Server::start(RULES, &[]);
        assert_eq!(burst(&memory.channel().await, &asked, 500).await, 137);
        // Two servers of one Redis, as two replicas.
        let [one, other] = [(); 2].map(|()| Server::start(RULES, &["--store", &redis.store(), PATIENT]));
        let (one, other) = (one.channel().await, other.channel().await);
        let (first, second) = tokio::join!(burst(&one, &asked, 250), burst(&other, &asked, 250));
        assert_eq!(first + second, 137, "{first} and {second}");
        let (database, _limiter) = database::Server::with_table().await;
        let store = format!("main={}", database.url());
        let postgres = Server::start(RULES, &["--store", &store, PATIENT]);
        let channel = postgres.channel().await;
        assert_eq!(burst(&channel, &asked, 500).await, 137);
        // It decides on one key at a time: two descriptors are decided in order.
        let both = request("edge", &[&[("closed", "x"), ("tenant", "b")], &[("burst", "x"), ("tenant", "a")]]);
        assert_eq!(code(&channel, both).await, Over);
    }

    /// Envoy waits for 20 ms, unless it is told otherwise.
    #[tokio::test(flavor = "multi_thread")]
    async fn an_answer_comes_before_envoy_gives_up() {
        let server = Server::start(RULES, &[]);
        let (channel, asked) = (server.channel().await, request("edge", &[&[("burst", "x"), ("tenant", "a")]]));
        let mut times = Vec::new();
        for _ in 0..51 {
            let start = Instant::now();
            code(&channel, asked.clone()).await;
            times.push(start.elapsed());
        }
        times.sort();
        assert!(times[25] < Duration::from_millis(20), "{:?} in the median", times[25]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn with_leases_most_answers_need_no_store() {
        let redis = Redis::start();
        // Of the two limits of 137, the one that is the last.
        let (before, after) = RULES.rsplit_once("capacity = 137").unwrap();
        let rules = format!("{before}capacity = 1_000{after}");
        let rules = rules.replace("by = \"tenant\" }]\n\n", "by = \"tenant\" }]\nlease = { slice = 40 }\n\n");
        let servers = [(); 2].map(|()| Server::start(&rules, &["--store", &redis.store(), PATIENT]));
        let [one, other] = [servers[0].channel().await, servers[1].channel().await];
        let asked = request("edge", &[&[("lent", "x"), ("tenant", "a")]]);
        let mut passed = 0;
        for count in 0..1_400 {
            let channel = if count % 2 == 0 { &one } else { &other };
            passed += u32::from(code(channel, asked.clone()).await == Pass);
        }
        let scripts = redis.scripts();
        // Never more than the limit, and all of it but what the two may still hold.
        assert!((1_000 - 2 * 2 * 40..=1_000).contains(&passed), "{passed}");
        assert!((2..140).contains(&scripts), "{scripts} scripts for 1,400 requests");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_rule_says_what_passes_while_redis_is_down() {
        let mut redis = Redis::start();
        let port = free_port();
        let metrics = format!("127.0.0.1:{port}");
        let server = Server::start(RULES, &["--store", &redis.store(), "--metrics", &metrics]);
        let channel = server.channel().await;
        let of = |rule| request("edge", &[&[(rule, "x"), ("tenant", "a")]]);
        let burst_of = |rule, count| {
            let (channel, asked) = (channel.clone(), of(rule));
            tokio::spawn(async move { burst(&channel, &asked, count).await })
        };
        assert_eq!(code(&channel, of("open")).await, Pass);
        let (open, closed) = (burst_of("open", 200), burst_of("closed", 200));
        redis.kill();
        // Each request of the bursts has an answer, whatever Redis had said by then.
        let (open, closed) = (open.await.unwrap(), closed.await.unwrap());
        assert!(open <= 200 && closed <= 2, "{open} and {closed}");
        until("open", || async { code(&channel, of("open")).await == Pass }).await;
        for _ in 0..5 {
            assert_eq!(code(&channel, of("open")).await, Pass);
            assert_eq!(code(&channel, of("closed")).await, Over);
            // Together, the closed one decides.
            let both = request("edge", &[&[("open", "x"), ("tenant", "a")], &[("closed", "x"), ("tenant", "b")]]);
            assert_eq!(code(&channel, both).await, Over);
        }
        let page = page(port);
        for line in [
            "tidegate_stores_down{store=\"main\"} 1",
            "tidegate_requests_total{rule=\"open\",outcome=\"failed_open\"",
            "tidegate_requests_total{rule=\"closed\",outcome=\"failed_closed\"",
            "tidegate_envoy_requests_total{code=\"ok\"}",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
        assert!(server.said().contains("the store \"main\" does not answer"), "{}", server.said());
        redis.restart();
        until("back", || async { code(&channel, of("closed")).await == Pass }).await;
        assert!(server.said().contains("the store \"main\" answers again after"), "{}", server.said());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rules_are_read_again_and_wrong_ones_change_nothing() {
        let server = Server::start(RULES, &[]);
        let channel = server.channel().await;
        let asked = request("edge", &[&[("closed", "x"), ("tenant", "a")]]);
        assert_eq!(burst(&channel, &asked, 5).await, 2);
        let more = RULES.replace("limit = 2,", "limit = 3,");
        fs::write(&server.rules, &more).unwrap();
        server.signal("-HUP");
        until("read again", || async { code(&channel, asked.clone()).await == Pass }).await;
        assert_eq!(code(&channel, asked.clone()).await, Over);
        // Without a signal, and with what no server would start with.
        fs::write(
            &server.rules,
            more.replace("limit = 3,", "limit = 4,").replace("by = \"tenant\"", "by = \"tenent\""),
        )
        .unwrap();
        until("a message", || async { server.said().contains("the rules stay as they were") }).await;
        assert!(server.said().contains("tenent"), "{}", server.said());
        assert_eq!(code(&channel, asked.clone()).await, Over);
        fs::write(&server.rules, more.replace("limit = 3,", "limit = 4,")).unwrap();
        until("read again", || async { code(&channel, asked.clone()).await == Pass }).await;
        // A file that is gone is told once, and not each time that it is looked for, which is every five seconds.
        fs::remove_file(&server.rules).unwrap();
        until("a message", || async { server.said().matches("the rules stay as they were").count() == 2 }).await;
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(server.said().matches("the rules stay as they were").count(), 2, "{}", server.said());
        assert_eq!(code(&channel, asked).await, Over);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn health_metrics_and_the_end() {
        let port = free_port();
        let rules = RULES.replace("[limits.two]", "[stores.main]\nshadow = { two = \"burst\" }\n[limits.two]");
        let mut server = Server::start(&rules, &["--metrics", &format!("127.0.0.1:{port}"), "--shadow"]);
        let channel = server.channel().await;
        let mut health = HealthClient::new(channel.clone());
        for service in ["", "envoy.service.ratelimit.v3.RateLimitService"] {
            let status = health.check(HealthCheckRequest { service: service.into() }).await.unwrap().into_inner();
            assert_eq!(status.status, ServingStatus::Serving as i32, "{service}");
        }
        let asked = request("edge", &[&[("closed", "x"), ("tenant", "a")]]);
        assert_eq!(burst(&channel, &asked, 5).await, 5, "in shadow, all pass");
        let mut unknown = request("nowhere", &[&[("a", "b")]]);
        unknown.descriptors[0].limit = Some(());
        assert_eq!(code(&channel, unknown).await, Pass);
        ask(&channel, request("", &[&[("a", "b")]])).await.unwrap_err();
        let page = page(port);
        for line in [
            "tidegate_envoy_requests_total{code=\"ok\"} 3",
            "tidegate_envoy_requests_total{code=\"shadow\"} 3",
            "tidegate_envoy_requests_total{code=\"invalid\"} 1",
            "tidegate_envoy_unmatched_total 1",
            "tidegate_envoy_ignored_limits_total 1",
            "tidegate_requests_total{rule=\"closed\",outcome=\"denied\",origin=\"store\"} 3",
            "tidegate_store_seconds_bucket{rule=\"closed\",le=\"0.25\"}",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
        // A watcher of the health service is told, and does not keep the server.
        let watched = health.watch(HealthCheckRequest { service: String::new() }).await.unwrap();
        let mut told = watched.into_inner();
        assert_eq!(told.message().await.unwrap().unwrap().status, ServingStatus::Serving as i32);
        server.signal("-TERM");
        assert_eq!(told.message().await.unwrap().unwrap().status, ServingStatus::NotServing as i32);
        assert_eq!(server.ended(), Some(0));
        let mut interrupted = Server::start(RULES, &[]);
        interrupted.signal("-INT");
        assert_eq!(interrupted.ended(), Some(130));
    }

    #[test]
    fn what_is_wrong_is_said_before_it_serves() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rules.toml");
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = taken.local_addr().unwrap().to_string();
        let fails = |rules: &str, arguments: &[&str]| {
            fs::write(&file, rules).unwrap();
            run(&file, arguments)
        };
        for (rules, arguments, message) in [
            (
                RULES.replace("by = \"tenant\"", "by = \"tenent\""),
                &[][..],
                "\"tenent\" is not a dimension; did you mean \"tenant\"?",
            ),
            (
                RULES.replace("/tenant/{tenant}", "/tenent/{tenant}"),
                &[],
                "by: \"tenant\" is no key of the path; did you mean \"tenent\"?",
            ),
            (
                RULES.replace("name = \"open\"", "store = \"maine\""),
                &[],
                "there is no store \"maine\"; did you mean \"main\"?",
            ),
            (
                RULES.into(),
                &["--store", "main=mongodb://secret@host"],
                "--store main: no URL of a store; write memory, redis://…",
            ),
            (RULES.into(), &["--store", "redis://:secret@host"], "--store: write NAME=URL, such as main=memory"),
            (
                RULES.into(),
                &["--store", "main=env:TIDEGATE_NO_URL"],
                "--store main: TIDEGATE_NO_URL: environment variable not found",
            ),
            (RULES.into(), &["--store", "main=postgresql://secret@/x y"], "--store main: url:"),
            (RULES.into(), &["--metrics", &taken], &*taken),
            (RULES.into(), &["--rls", &taken], &*taken),
        ] {
            let (code, said) = fails(&rules, arguments);
            assert!(code == Some(2) && said.contains(message), "{arguments:?} {code:?}: {said}");
            assert!(!said.contains("secret"), "{said}");
        }
        let (code, said) = run(&dir.path().join("none.toml"), &[]);
        assert!(code == Some(2) && said.contains("none.toml"), "{said}");
    }

    fn run(rules: &Path, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("serve").arg("--rules").arg(rules).args(arguments);
        if !arguments.contains(&"--rls") {
            command.args(["--rls", "127.0.0.1:0"]);
        }
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
