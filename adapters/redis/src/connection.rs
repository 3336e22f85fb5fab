//! Multiplexed connections, opened when they are first needed and reopened after they are lost.
//!
//! No command is sent twice: if its connection is lost, the call fails. While the server is down, all callers fail at once:
//! one of them tries to connect, and the others get the error of the last attempt.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use redis::{Cmd, RedisError, ServerErrorKind, Value};
use tidegate_core::{Error, Millis};
use tidegate_remote::{Deadline, Missed, Progress, Start};
use tokio::time::Instant;

use crate::batch::InFlight;
use crate::config::Config;
use crate::dial::{Client, Connection};
use crate::error;
use crate::eviction::EvictionCheck;

/// The largest number of calls in flight. Without a bound, a flood of requests would wait for its deadline in memory, and
/// its calls would look like those to a server that is down.
const MAX_IN_FLIGHT: usize = 4_096;

/// The pause between a failed attempt to connect and the next one.
const PAUSE: Duration = Duration::from_millis(10);

/// The same while another connection is open.
const PAUSE_AHEAD: Duration = Duration::from_secs(1);

/// Several connections to the server. While it works on the requests of one, the answers of another are read and its next
/// requests are written.
///
/// While one is open, no call waits for another to open or fails because of it: the server may accept no more connections,
/// or a flood may leave no time for it.
pub(crate) struct Links {
    links: Box<[Arc<Link>]>,
    progress: Progress,
}

impl Links {
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let dialing = Arc::default();
        let links: Result<_, _> =
            (0..config.connections_checked()?).map(|_| Link::new(config, &dialing).map(Arc::new)).collect();
        Ok(Self { links: links?, progress: Progress::default() })
    }

    /// Begins a call once a connection is open. To open one has a deadline of its own, so that a distant server has as much time for
    /// the first call as for others.
    pub(crate) async fn begin(&self) -> Result<Start, Error> {
        let link = &self.links[0];
        if !self.links.iter().any(|link| link.is_open()) {
            self.has_room()?;
            let _request = link.in_flight.request();
            link.dial(Deadline::after(link.deadline)).await?;
        }
        Ok(self.progress.start())
    }

    fn has_room(&self) -> Result<(), Error> {
        let in_flight = self.links.iter().map(|link| link.in_flight.count()).sum::<usize>();
        if in_flight < MAX_IN_FLIGHT { Ok(()) } else { Err(error::too_many_in_flight(MAX_IN_FLIGHT)) }
    }

    /// Sends one command of a call, once. An error that the server returned is a [`Value::ServerError`]. If the server has answered the
    /// call or another one since the start, it is not down.
    pub(crate) async fn send(&self, command: &Cmd, start: Start, deadline: Deadline) -> Result<Value, Error> {
        self.has_room()?;
        match self.link().send(command, deadline).await {
            Ok(value) => {
                self.progress.answered();
                Ok(value)
            }
            Err(error) => Err(self.progress.failed(start, error)),
        }
    }

    /// The open link with the fewest requests in flight, or the first if none is open. If it is in use, one more is opened
    /// in the background.
    fn link(&self) -> &Link {
        let open = self.links.iter().filter(|link| link.is_open()).min_by_key(|link| link.in_flight.count());
        let Some(open) = open else { return &self.links[0] };
        if open.in_flight.count() > 0
            && let Some(closed) = self.links.iter().find(|link| !link.is_open())
        {
            closed.dial_ahead();
        }
        open
    }

    /// Drops the connections after an answer that does not fit its request: the next answers may not fit either.
    pub(crate) fn distrust(&self) {
        for link in &self.links {
            *link.live.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

/// One connection to the server.
struct Link {
    client: Client,
    in_flight: InFlight,
    deadline: Millis,
    live: RwLock<Option<Live>>,
    dialing: Arc<Dialing>,
}

/// State shared by the links, because the outcome of an attempt to connect concerns the server and not one link.
#[derive(Default)]
struct Dialing {
    /// Held by the caller that is connecting.
    turn: Arc<tokio::sync::Mutex<()>>,
    failure: Mutex<Option<Failure>>,
    eviction: Arc<EvictionCheck>,
}

#[derive(Clone)]
struct Live {
    connection: Connection,
    opened: Instant,
    /// How long after that the last answer came, in milliseconds. Its address also identifies this connection.
    answered_ms: Arc<AtomicU64>,
    /// Whether the connection was dropped because it stayed silent.
    dropped: Arc<AtomicBool>,
}

impl Live {
    fn answered(&self) {
        let ms = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.answered_ms.fetch_max(ms, Ordering::Relaxed);
    }

    fn is_silent_since(&self, instant: Instant) -> bool {
        self.opened + Duration::from_millis(self.answered_ms.load(Ordering::Relaxed)) <= instant
    }
}

/// The last failed attempt to connect.
struct Failure {
    at: Instant,
    /// `None` if the deadline passed.
    error: Option<RedisError>,
}

impl Link {
    fn new(config: &Config, dialing: &Arc<Dialing>) -> Result<Self, Error> {
        Ok(Self {
            client: Client::new(config)?,
            in_flight: InFlight::default(),
            deadline: config.deadline,
            live: RwLock::default(),
            dialing: Arc::clone(dialing),
        })
    }

    async fn send(&self, command: &Cmd, deadline: Deadline) -> Result<Value, Error> {
        let _request = self.in_flight.request();
        let mut live = match self.live() {
            Some(live) => live,
            None => self.dial(deadline).await?,
        };
        let missed = match deadline.until(live.connection.send(command)).await {
            Ok(Ok(value)) => {
                live.answered();
                if let Value::ServerError(error) = &value
                    && error.kind() == Some(ServerErrorKind::ReadOnly)
                {
                    // The primary has become a replica. Its name may resolve to another server by now.
                    self.discard(&live);
                }
                return Ok(value);
            }
            // A cluster's client has a deadline of its own.
            Ok(Err(error)) if error.is_timeout() && deadline.has_passed() => deadline.missed(),
            Ok(Err(error)) => {
                if live.connection.is_lost_by(&error) {
                    self.discard(&live);
                }
                if live.dropped.load(Ordering::Relaxed) {
                    return Err(error::timeout(self.deadline));
                }
                return Err(error::lost(error));
            }
            Err(missed) => missed,
        };
        // A connection that stayed silent for a whole deadline may be dead. The second command of a call has a part of it.
        if missed == Missed::Deadline && live.is_silent_since(deadline.began()) {
            live.dropped.store(true, Ordering::Relaxed);
            self.discard(&live);
        }
        Err(missed.error(error::timeout(self.deadline)))
    }

    fn is_open(&self) -> bool {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.as_ref().is_some_and(|live| !live.connection.is_over())
    }

    fn live(&self) -> Option<Live> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.as_ref().filter(|live| !live.connection.is_over()).cloned()
    }

    fn discard(&self, lost: &Live) {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        if live.as_ref().is_some_and(|live| Arc::ptr_eq(&live.answered_ms, &lost.answered_ms)) {
            *live = None;
        }
    }

    #[cold]
    async fn dial(&self, deadline: Deadline) -> Result<Live, Error> {
        let began = Instant::now();
        let _turn = match self.dialing.turn.try_lock() {
            Ok(turn) => turn,
            // Another caller is connecting. If the server was down a moment ago, do not wait for it.
            Err(_) => match self.failed_since(None) {
                Some(error) => return Err(error),
                None => deadline
                    .until(self.dialing.turn.lock())
                    .await
                    .map_err(|missed| missed.error(error::connect_timeout(self.deadline)))?,
            },
        };
        if let Some(live) = self.live() {
            return Ok(live);
        }
        if let Some(error) = self.failed_since(Some(began.checked_sub(PAUSE).unwrap_or(began))) {
            return Err(error);
        }
        self.connect(deadline).await
    }

    /// Connects in the background, unless another is connecting or an attempt has failed lately.
    #[cold]
    fn dial_ahead(self: &Arc<Self>) {
        let Ok(turn) = Arc::clone(&self.dialing.turn).try_lock_owned() else { return };
        if self.failed_since(Instant::now().checked_sub(PAUSE_AHEAD)).is_some() || self.is_open() {
            return;
        }
        let link = Arc::clone(self);
        tokio::spawn(async move {
            let _turn = turn;
            // The outcome is kept for the next caller.
            let _ = link.connect(Deadline::after(link.deadline)).await;
        });
    }

    /// Makes an attempt to connect, in this caller's turn.
    async fn connect(&self, deadline: Deadline) -> Result<Live, Error> {
        let attempt = match deadline.until(self.client.connect(&self.in_flight)).await {
            Ok(attempt) => attempt.map_err(Some),
            Err(Missed::Deadline) => Err(None),
            // The next caller may have more time.
            Err(missed) => return Err(missed.error(error::connect_timeout(self.deadline))),
        };
        let mut failure = self.dialing.failure.lock().unwrap_or_else(PoisonError::into_inner);
        match attempt {
            Ok(connection) => {
                *failure = None;
                self.dialing.eviction.ask(connection.clone(), Duration::from_millis(self.deadline.get()));
                let live =
                    Live { connection, opened: Instant::now(), answered_ms: Arc::default(), dropped: Arc::default() };
                *self.live.write().unwrap_or_else(PoisonError::into_inner) = Some(live.clone());
                Ok(live)
            }
            Err(error) => {
                *failure = Some(Failure { at: Instant::now(), error: error.clone() });
                Err(self.not_connected(error))
            }
        }
    }

    /// The error of the last attempt to connect, if it failed at or after `since`.
    fn failed_since(&self, since: Option<Instant>) -> Option<Error> {
        let failure = self.dialing.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = failure.as_ref().filter(|failure| since.is_none_or(|since| failure.at >= since))?;
        Some(self.not_connected(failure.error.clone()))
    }

    fn not_connected(&self, error: Option<RedisError>) -> Error {
        error.map_or_else(|| error::connect_timeout(self.deadline), error::not_connected)
    }
}
