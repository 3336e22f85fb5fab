//! ```text
//! cargo run -p tidegate-host-upstash-rest -- --redis redis://127.0.0.1:6379 --token secret --listen 127.0.0.1:8079
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tidegate_host_upstash_rest::Front;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpSocket;

/// How many connections may wait until they are accepted. Clients open one for each request of a burst, and one that finds no room tries
/// again a second later.
const CONNECTIONS_WAITING_MAX: u32 = 4_096;

/// How long answers are lost on request: long enough for requests that are in flight.
const LOSES_FOR: Duration = Duration::from_millis(200);

/// How often it tries to lose answers.
const LOSES_TRIES: u32 = 25;

/// Upstash's REST protocol over a Redis server, for local use.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Args {
    /// The Redis server.
    #[arg(long, default_value = "redis://127.0.0.1:6379")]
    redis: String,
    /// The token that requests must have.
    #[arg(long)]
    token: String,
    /// The address to listen on. Port 0 selects a free port. The address is printed on standard output.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Exit when standard input closes. Answer a line `count` with the number of requests that ran a script. On a line
    /// `lose`, lose the answers to all requests for a moment, and print how many were lost.
    #[arg(long)]
    test_mode: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate-host-upstash-rest: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let front = Front::new(&args.redis, args.token)?;
    let socket = if args.listen.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.bind(args.listen)?;
    let listener = socket.listen(CONNECTIONS_WAITING_MAX)?;
    println!("http://{}", listener.local_addr()?);
    if args.test_mode {
        tokio::select! {
            () = front.clone().serve(listener) => {}
            () = tell(&front) => {}
        }
    } else {
        front.serve(listener).await;
    }
    Ok(())
}

/// Answers lines until standard input closes. It also closes if the suite is killed.
async fn tell(front: &Front) {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let count = match line.as_str() {
            "lose" => lose(front).await,
            _ => front.script_requests(),
        };
        println!("{count}");
    }
}

/// Loses answers, and returns how many. If none has come in time, because the machine is busy, it tries again.
async fn lose(front: &Front) -> u64 {
    for _ in 0..LOSES_TRIES {
        let lost = front.lose_answers(LOSES_FOR).await;
        if lost > 0 {
            return lost;
        }
    }
    0
}
