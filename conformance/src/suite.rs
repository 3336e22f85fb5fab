use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tidegate_core::Limiter;
use tidegate_guest_protocol::{Reply, Route, serve};
use wildmatch::WildMatch;

use crate::declared::Declared;
use crate::fixture::{self, Case};
use crate::report::TargetReport;
use crate::run::{self, prepare};
use crate::subject::{Place, Subject};

/// Replays fixtures against a limiter from outside this repository.
///
/// ```
/// use tidegate_conformance::Suite;
/// use tidegate_core::MemoryLimiter;
///
/// # fn main() -> Result<(), String> {
/// # let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| error.to_string())?;
/// # runtime.block_on(async {
/// // In a test of your own: #[tokio::test(flavor = "multi_thread")]
/// let report = Suite::shipped()?.filter("token-bucket/*").check("mine", [MemoryLimiter::new()]).await?;
/// report.assert_passed();
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Suite {
    cases: Vec<Case>,
}

impl Suite {
    /// Loads the fixtures that come with this crate.
    ///
    /// # Errors
    /// Fails if the fixtures cannot be read.
    pub fn shipped() -> Result<Self, String> {
        Self::load(fixture::shipped())
    }

    /// Loads the fixtures in a folder.
    ///
    /// # Errors
    /// Lists every problem with the fixtures, one per line.
    pub fn load(folder: &Path) -> Result<Self, String> {
        let cases = fixture::load(folder, None)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
        Ok(Self { cases })
    }

    /// Keeps only the fixtures whose id matches a pattern. `*` matches any text, as in `token-bucket/*`.
    #[must_use]
    pub fn filter(mut self, pattern: &str) -> Self {
        let pattern = WildMatch::new(pattern);
        self.cases.retain(|case| pattern.matches(case.id()));
        self
    }

    /// Replays the fixtures against limiters that share one store, and judges them by the
    /// [`Capabilities`](tidegate_core::Capabilities) that they declare.
    ///
    /// The requests of a burst are tasks on the current runtime, spread over the limiters. On a multi-threaded runtime
    /// they run in parallel. Pass several limiters to detect one that counts only in its own memory.
    ///
    /// Each process uses new keys, but each call uses the same ones. Give every call a new store.
    ///
    /// # Errors
    /// Fails if the fixtures contradict the reference. A limiter that fails is not an error: it sets the report's
    /// [`status`](TargetReport::status). See [`TargetReport::assert_passed`].
    pub async fn check<L: Limiter + 'static>(
        self,
        name: &str,
        limiters: impl IntoIterator<Item = L>,
    ) -> Result<TargetReport, String> {
        let limiters: Vec<Arc<L>> = limiters.into_iter().map(Arc::new).collect();
        let Some(first) = limiters.first() else { return Err(format!("{name}: pass at least one limiter")) };
        let declared = Declared::new(first.capabilities());
        let accuracy = declared.capabilities.accuracy;
        let cases = prepare(self.cases).await.map_err(|wrong| wrong.join("\n"))?;
        let mut report = TargetReport::new(name, &accuracy);
        let began = Instant::now();
        run::fixtures(&declared, &Tasks(limiters), &cases, &mut report, &mut |_| {}).await;
        report.elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(report.concluded(&accuracy, None))
    }
}

/// Limiters in this process. Each request is its own task.
struct Tasks<L>(Vec<Arc<L>>);

impl<L: Limiter + 'static> Subject for Tasks<L> {
    async fn send(&self, route: Route, body: Bytes, place: Place) -> Result<Reply, String> {
        let nth = usize::try_from(place.location.unwrap_or(place.nth)).unwrap_or(0);
        let limiter = Arc::clone(&self.0[nth % self.0.len()]);
        let task = tokio::spawn(async move { serve(&*limiter, route, &body).await });
        task.await.map_err(|error| format!("the limiter did not answer: {error}"))
    }

    fn isolates(&self) -> u64 {
        self.0.len() as u64
    }
}
