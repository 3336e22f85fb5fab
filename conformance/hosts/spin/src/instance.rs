//! What one instance of an app has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Bytes;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{TrappableError, WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::WasiHttpCtx;
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;
use wasmtime_wasi_http::p2::types::{HostFutureIncomingResponse, OutgoingRequestConfig};
use wasmtime_wasi_http::p2::{HttpResult, WasiHttpCtxView, WasiHttpHooks, WasiHttpView};
use wasmtime_wasi_http::p3;
use wasmtime_wasi_http::p3::bindings::http::types::ErrorCode as CodeP3;

use crate::key_value::Database;
use crate::overlap::{Overlap, Unread};

/// The state of one instance.
pub(crate) struct Instance {
    pub(crate) wasi: WasiCtx,
    pub(crate) http: WasiHttpCtx,
    pub(crate) hooks: NoOutgoing,
    pub(crate) table: ResourceTable,
    pub(crate) variables: Arc<BTreeMap<String, String>>,
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

impl p3::WasiHttpView for Instance {
    fn http(&mut self) -> p3::WasiHttpCtxView<'_> {
        p3::WasiHttpCtxView { ctx: &mut self.http, table: &mut self.table, hooks: &mut self.hooks }
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

type Later<T> = Box<dyn Future<Output = T> + Send>;

impl p3::WasiHttpHooks for NoOutgoing {
    fn send_request(
        &mut self,
        _: hyper::Request<UnsyncBoxBody<Bytes, CodeP3>>,
        _: Option<p3::RequestOptions>,
        _: Later<Result<(), CodeP3>>,
    ) -> Later<Result<(hyper::Response<UnsyncBoxBody<Bytes, CodeP3>>, Later<Result<(), CodeP3>>), TrappableError<CodeP3>>>
    {
        Box::new(std::future::ready(Err(CodeP3::HttpRequestDenied.into())))
    }
}
