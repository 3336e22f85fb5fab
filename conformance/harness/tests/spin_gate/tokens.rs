//! Signed tokens, and the secret of the keys in events.

use bytes::Bytes;
use hyper::Request;

use super::{App, RULES, Result};

const TOKENS: &str = r#"
    [tokens]
    algorithms = ["HS256"]

    [limits.api]
    quotas = [{ algorithm = "fixed_window", limit = 2, window_ms = 86_400_000 }]

    [[rules]]
    limits = ["api"]
    on_failure = "closed"

    [[rules]]
    path = "/strict"
    limits = ["api"]
    on_failure = "closed"
    invalid_token = "refuse"
"#;

/// The key of [`ALICE`].
const JWKS: &str = r#"{"keys":[{"kty":"oct","k":"YSBzZWNyZXQgb2YgbW9yZSB0aGFuIHRoaXJ0eS10d28gYnl0ZXM"}]}"#;

/// Of the subject alice, until 2100.
const ALICE: &str =
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSIsImV4cCI6NDEwMjQ0NDgwMH0.5IEr7NbpxkLpV0hwsACOMgPtGjr_NdwZgWt7QqHCX10";

/// Of bob, signed with another key, and of alice, without a signature.
const FORGED: [&str; 3] = [
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJib2IiLCJleHAiOjQxMDI0NDQ4MDB9.wboV473ec8Kt_M2PBd-705RhZSV4DTIc-e-SsITPOCY",
    "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImV4cCI6NDEwMjQ0NDgwMH0.",
    "no token",
];

async fn status(app: &App, path: &str, token: &str) -> Result<u16> {
    let request = Request::get(format!("{}{path}", app.host.base())).header("authorization", format!("Bearer {token}"));
    Ok(app.send(request, Bytes::new()).await?.status)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_token_is_a_sender_and_a_forged_one_is_nobody() -> Result<()> {
    let app = App::start(Some(TOKENS), &[("tidegate_jwks", JWKS)]).await?;
    let mut statuses = Vec::new();
    for token in [ALICE, ALICE, ALICE, FORGED[0], FORGED[1], FORGED[2]] {
        statuses.push(status(&app, "/", token).await?);
    }
    // Alice has a count of her own. All forged tokens count as the address that sends them.
    assert_eq!(statuses, [201, 201, 429, 201, 201, 429]);
    for token in FORGED {
        assert_eq!(status(&app, "/strict", token).await?, 401, "{token}");
    }
    assert_eq!(app.runs()?, 4);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_without_good_keys_lets_nobody_pass_and_logs_no_key() -> Result<()> {
    let secret = "YSBzZWNyZXQ";
    let short = format!(r#"{{"keys":[{{"kty":"oct","k":"{secret}"}}]}}"#);
    let broken = format!(r#"{{"keys":[{{"kty":"oct","k":"{secret}"#);
    let no_key = format!(r#"{{"k":"{secret}"}}"#);
    let cases: [(&[(&str, &str)], &str); 5] = [
        (&[], "tidegate_jwks is missing"),
        (&[("tidegate_jwks", "jwks.json")], r#"files = ["jwks.json"]"#),
        (&[("tidegate_jwks", &short)], "tidegate_jwks: "),
        (&[("tidegate_jwks", &broken)], "tidegate_jwks: "),
        (&[("tidegate_jwks", &no_key)], "tidegate_jwks: "),
    ];
    for (variables, told) in cases {
        let app = App::start(Some(TOKENS), variables).await?;
        for token in [ALICE, FORGED[1]] {
            assert_eq!(status(&app, "/", token).await?, 500, "{told}");
        }
        let log = app.host.log()?;
        assert!(log.contains(told) && !log.contains(secret), "{told}: {log}");
        assert_eq!(app.runs()?, 0);
    }
    Ok(())
}

/// The key in the first event of an app with this secret.
async fn key_of(secret: &str) -> Result<String> {
    let app = App::start(Some(RULES), &[("tidegate_events", "on"), ("tidegate_key_secret", secret)]).await?;
    assert_eq!(app.get("/").await?.status, 201);
    let log = app.host.log()?;
    let key = log.split(r#""key":""#).nth(1).and_then(|rest| rest.split('"').next());
    Ok(key.ok_or(format!("no key: {log}"))?.into())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_secret_of_keys_in_events_is_a_variable() -> Result<()> {
    let (one, other) = ("00112233445566778899aabbccddeeff", "00112233445566778899aabbccddeef0");
    let key = key_of(one).await?;
    assert_eq!(key, key_of(one).await?);
    assert_ne!(key, key_of(other).await?);
    // A wrong one is told, whether there are events or not, and is not repeated.
    for wrong in ["secret-word", "+0112233445566778899aabbccddeeff", ""] {
        let app = App::start(Some(RULES), &[("tidegate_key_secret", wrong)]).await?;
        assert_eq!(app.get("/health").await?.status, 500, "{wrong}");
        let log = app.host.log()?;
        assert!(log.contains("tidegate_key_secret: write 32 hexadecimal digits") && !log.contains("secret-word"));
    }
    Ok(())
}
