//! `netlify-blobs`: the npm package in Deno over Netlify Blobs, three guests on one site's store.

use futures_util::FutureExt as _;
use futures_util::future::{LocalBoxFuture, try_join_all};
use tidegate_core::{Accuracy, Capabilities, Dimensions, Drift};

use super::redis::GUESTS;
use super::{Emulator, Running, Store, Target, edge, process};
use crate::operation::{Operation, Operations};
use crate::setup::Group;
use crate::subject::{Http, Version};

/// The package over the local server of `@netlify/blobs`, as `blobs-server.mjs` extends it.
#[derive(Debug)]
pub(super) struct NetlifyBlobs;

impl Target for NetlifyBlobs {
    fn name(&self) -> &'static str {
        "netlify-blobs"
    }

    fn about(&self) -> &'static str {
        "the npm package in Deno over Netlify's local BlobsServer with ETags added, three guests"
    }

    fn has_gate(&self) -> bool {
        false
    }

    fn capabilities(&self) -> Capabilities {
        let accuracy = Accuracy::Approximate(Drift::WITHIN_LIMIT);
        Capabilities::EXACT
            .accuracy(accuracy)
            .algorithms(Capabilities::COUNTING)
            .dimensions(Dimensions::One)
            .idempotency(false)
            .round_trips(2)
    }

    fn runtime(&self) -> Option<&'static str> {
        Some("netlify")
    }

    fn needs(&self) -> &'static [Group] {
        &[Group::Npm]
    }

    fn emulator(&self) -> Result<Emulator, String> {
        let (server, deno) = (edge::version("@netlify/blobs")?, edge::version("deno")?);
        Ok(Emulator {
            name: "BlobsServer of @netlify/blobs with ETags added, one request at a time, under deno".into(),
            version: format!("{server}, {deno}"),
        })
    }

    fn start(&self) -> LocalBoxFuture<'_, Result<Running, String>> {
        async {
            let hosts = edge::package().await?;
            let script = |name: &str| hosts.join(name).to_string_lossy().into_owned();
            let (server, url) = process::guest("node".as_ref(), &[script("blobs-server.mjs")]).await?;
            let args = [script("netlify.mjs"), "--blobs".into(), url];
            let guests = try_join_all((0..GUESTS).map(|_| process::guest("node".as_ref(), &args))).await?;
            let (guests, addresses): (Vec<_>, Vec<_>) = guests.into_iter().unzip();
            let store = Some(Box::new(Blobs(server)) as Box<dyn Store>);
            Ok(Running::new(Http::new(&addresses, Version::Http1), guests, store))
        }
        .boxed_local()
    }
}

struct Blobs(process::Process);

impl Store for Blobs {
    /// Counts all requests: one for a denial, and two for an admission without conflicts.
    fn operations(&self) -> LocalBoxFuture<'_, Result<Operations, String>> {
        async {
            let said = self.0.tell("count").await?;
            let count = said.parse().map_err(|_| format!("the server answered {said:?}, expected a count"))?;
            Ok([(Operation::BlobRequest, count)].into())
        }
        .boxed_local()
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        self.0.stop().boxed_local()
    }
}
