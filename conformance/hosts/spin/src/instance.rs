//! What one instance of an app has.

use std::collections::BTreeSet;
use std::sync::Arc;

use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::WasiHttpCtx;
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;
use wasmtime_wasi_http::p2::types::{HostFutureIncomingResponse, OutgoingRequestConfig};
use wasmtime_wasi_http::p2::{HttpResult, WasiHttpCtxView, WasiHttpHooks, WasiHttpView};

use crate::key_value::Database;
use crate::overlap::{Overlap, Unread};

/// The state of one instance.
pub(crate) struct Instance {
    pub(crate) wasi: WasiCtx,
    pub(crate) http: WasiHttpCtx,
    pub(crate) hooks: NoOutgoing,
    pub(crate) table: ResourceTable,
    pub(crate) allowed: Arc<BTreeSet<String>>,
    pub(crate) outbound: Arc<[String]>,
    pub(crate) database: Arc<Database>,
    pub(crate) overlap: Arc<Overlap>,
    /// Until the request has read or written.
    pub(crate) unread: Option<Unread>,
}

impl WasiView for Instance {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for Instance {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { ctx: &mut self.http, table: &mut self.table, hooks: &mut self.hooks }
    }
}

/// Allows no HTTP request, as Spin does if `allowed_outbound_hosts` lists no HTTP server.
pub(crate) struct NoOutgoing;

impl WasiHttpHooks for NoOutgoing {
    fn send_request(
        &mut self,
        _: hyper::Request<HyperOutgoingBody>,
        _: OutgoingRequestConfig,
    ) -> HttpResult<HostFutureIncomingResponse> {
        Err(ErrorCode::HttpRequestDenied.into())
    }
}
