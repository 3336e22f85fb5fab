//! A small rate-limited HTTP service that counts in PostgreSQL.
//!
//! ```text
//! tidegate-guest-postgres --rules rules.toml --url postgresql://app:secret@127.0.0.1/app --listen 0.0.0.0:8080
//! ```

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args as Options, Parser};
use tidegate_core::{ErasedLimiter, Error, Millis};
use tidegate_guest_native::Service;
use tidegate_postgres::{Config, Postgres};

/// The shortest lifetime of a row in test mode. The database's clock advances while the virtual time stands still.
const TEST_TTL_MIN: Millis = Millis::from_secs(3_600);

/// The deadline of a call in test mode, in which thousands of calls are in flight on the machine that also runs the
/// clients.
const TEST_DEADLINE: Millis = Millis::from_secs(10);

/// A small HTTP service behind a rate limiter, which counts in PostgreSQL.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Args {
    #[command(flatten)]
    service: Service,
    #[command(flatten)]
    store: Store,
}

/// The options of the store.
#[derive(Debug, Options)]
struct Store {
    /// The database, for example postgresql://app:secret@127.0.0.1:5432/app. The table is created if it is missing.
    #[arg(long)]
    url: String,
    /// Wait with each decision until the database has it on disk.
    #[arg(long)]
    durable: bool,
}

impl Store {
    async fn open(self, test_mode: bool) -> Result<Arc<dyn ErasedLimiter>, Error> {
        let config = Config::new(&self.url)?.durable(self.durable);
        let test = |config: Config| config.min_ttl(TEST_TTL_MIN).deadline(TEST_DEADLINE);
        let postgres = Postgres::new(if test_mode { test(config) } else { config })?;
        postgres.create_table().await?;
        postgres.ping().await?;
        Ok(Arc::new(postgres.limiter()))
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let Args { service, store } = Args::parse();
    let test_mode = service.test_mode;
    service.serve(env!("CARGO_BIN_NAME"), store.open(test_mode)).await
}
