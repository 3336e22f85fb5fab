//! The scripts on a server, over any transport: what each store is made of.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_core::lending::can_lend;
use tidegate_core::store::Applied;
use tidegate_core::{Error, MaybeSend, MaybeSync, Millis, Operation};

use crate::call::Call;
use crate::script::Script;
use crate::settings::Clock;

/// Carries commands to a server.
pub(crate) trait Carrier: MaybeSend + MaybeSync {
    /// What the commands of one operation share: when it began, and its deadline.
    type Begun: MaybeSend + MaybeSync;

    /// Begins an operation.
    ///
    /// # Errors
    /// The reason why nothing can be sent.
    fn begin(&self) -> impl Future<Output = Result<Self::Begun, Error>> + MaybeSend;

    /// Sends a command once, and returns the script's answer. `None` if the server does not have the script.
    ///
    /// # Errors
    /// The reason why there is no answer, or the server's error.
    fn send(
        &self,
        begun: &Self::Begun,
        call: &Call<'_>,
        command: Command<'_>,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, Error>> + MaybeSend;

    /// Whether the server probably has a script, so that its SHA-1 suffices.
    fn has(&self, _: Script, _: &Call<'_>) -> bool {
        true
    }

    /// The server has run a script, and so has it.
    fn ran(&self, _: Script, _: &Call<'_>) {}
}

/// A command that runs a script on the words of a call.
#[derive(Clone, Copy)]
pub(crate) struct Command<'a> {
    /// `EVALSHA` or `EVAL`.
    pub(crate) name: &'static str,
    /// The script's SHA-1, or the script itself.
    pub(crate) text: &'a str,
    pub(crate) script: Script,
}

/// The scripts on a server.
#[derive(Debug)]
pub(crate) struct Scripts {
    clock: Clock,
    /// The least time that the server keeps a state.
    min_ttl: Millis,
    /// Whether the scripts have Upstash's flag.
    key_locking: bool,
    /// Whether borrowers ask: then plain checks probably find loans.
    lends: AtomicBool,
}

impl Scripts {
    pub(crate) const fn new(clock: Clock, min_ttl: Millis, key_locking: bool) -> Self {
        Self { clock, min_ttl, key_locking, lends: AtomicBool::new(false) }
    }

    pub(crate) async fn apply<C: Carrier>(&self, carrier: &C, operation: Operation<'_>) -> Result<Applied, Error> {
        let operation = match operation {
            Operation::Lend(check, _) if !can_lend(check.policy) => Operation::Check(check),
            operation => operation,
        };
        if let Operation::Lend(..) = operation {
            self.lends.store(true, Ordering::Relaxed);
        }
        let call = Call::new(operation, self.clock, self.min_ttl)?;
        let script = call.script_where(self.lends.load(Ordering::Relaxed));
        self.run(carrier, &call, script).await
    }

    /// Sends one `EVALSHA`. If the server does not have the script, or [probably](Carrier::has) not, sends one `EVAL`, which also loads
    /// it. If the script has no answer to read, does the same with the one that takes every call.
    async fn run<C: Carrier>(&self, carrier: &C, call: &Call<'_>, mut script: Script) -> Result<Applied, Error> {
        let begun = carrier.begin().await?;
        loop {
            let is_known = carrier.has(script, call);
            let mut answer = None;
            if is_known {
                let command = Command { name: "EVALSHA", text: script.sha1(self.key_locking), script };
                answer = carrier.send(&begun, call, command).await?;
            }
            if answer.is_none() {
                let command = Command { name: "EVAL", text: &script.text(self.key_locking), script };
                answer = carrier.send(&begun, call, command).await?;
            }
            let Some(bytes) = answer else { return Err(no_script()) };
            if !is_known {
                carrier.ran(script, call);
            }
            match call.answer(script, &bytes)? {
                Some(answer) => return Ok(answer),
                None => script = Script::Lending,
            }
        }
    }
}

/// `EVAL` needs no script of the server's.
fn no_script() -> Error {
    crate::answered::answered("NOSCRIPT", "the server does not run the script that was sent", "")
}
