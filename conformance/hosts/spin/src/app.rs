//! An app that is ready to be instantiated.

use std::env;
use std::sync::Arc;

use wasmtime::component::{Component, Linker};
use wasmtime::{Cache, CacheConfig, Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store};
use wasmtime_wasi_http::p2::bindings::ProxyPre;
use wasmtime_wasi_http::p3::bindings::ServicePre;

use crate::arguments::Arguments;
use crate::instance::Instance;
use crate::key_value::Database;
use crate::middleware::{self, Handler};
use crate::overlap::Unread;
use crate::shared::Shared;
use crate::{component, manifest};

/// The most concurrent instances, as in Spin. Further requests wait, where Spin answers with a 500: the suite sends more at once.
pub(crate) const INSTANCES_MAX: u32 = 1_000;

/// The most modules and tables of one component: the app's, a middleware's, and those that wit-component adds.
const PARTS_MAX: u32 = 16;

/// The most memories of one component: the app's, and a middleware's.
const MEMORIES_MAX: u32 = 2;

/// A compiled and linked component.
pub(crate) struct App {
    kind: Kind,
    shared: Arc<Shared>,
}

/// Which `wasi:http` the component exports.
pub(crate) enum Kind {
    /// 0.2: an instance answers one request.
    Once(ProxyPre<Instance>),
    /// 0.3: see [`middleware`].
    Again(Handler),
}

impl App {
    /// Composes, compiles and links the component. If it imports an interface that this host lacks, the error names the
    /// interface.
    pub(crate) fn load(arguments: &Arguments, database: Arc<Database>) -> Result<Self, String> {
        let manifest = manifest::component(&arguments.manifest, arguments.middleware.is_some())?;
        let mut bytes = component::read(&arguments.component)?;
        if let Some(middleware) = &arguments.middleware {
            bytes = component::compose(component::read(middleware)?, bytes)?;
        }
        let shared = Arc::new(Shared::of(arguments, manifest, database)?);
        let kind = link(&bytes, &shared).map_err(|error| format!("{}: {error:#}", arguments.component.display()))?;
        Ok(Self { kind, shared })
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// A request arrives, and will need an instance.
    pub(crate) fn arrives(&self) -> Unread {
        self.shared.arrives()
    }

    /// Returns the store of a new instance, for a request that arrived.
    pub(crate) fn store(&self, engine: &Engine, unread: Unread) -> wasmtime::Result<Store<Instance>> {
        self.shared.store(engine, Some(unread))
    }
}

fn link(bytes: &[u8], shared: &Arc<Shared>) -> wasmtime::Result<Kind> {
    let engine = engine()?;
    let component = Component::new(&engine, bytes)?;
    let mut linker = Linker::new(&engine);
    Instance::link(&mut linker)?;
    let pre = linker.instantiate_pre(&component)?;
    Ok(match ServicePre::new(pre.clone()) {
        Ok(pre) => Kind::Again(middleware::handler(pre, Arc::clone(shared))),
        Err(_) => Kind::Once(ProxyPre::new(pre)?),
    })
}

/// Instances come from a pool, so starting one takes microseconds. Compiling a component takes seconds, so the result is kept beside
/// this program.
fn engine() -> wasmtime::Result<Engine> {
    let mut pool = PoolingAllocationConfig::default();
    pool.total_component_instances(INSTANCES_MAX)
        .total_stacks(INSTANCES_MAX * PARTS_MAX)
        .total_memories(INSTANCES_MAX * MEMORIES_MAX)
        .total_tables(INSTANCES_MAX * PARTS_MAX)
        .total_core_instances(INSTANCES_MAX * PARTS_MAX);
    let mut config = Config::new();
    config.wasm_component_model_async(true);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    let mut cache = CacheConfig::new();
    cache.with_directory(env::current_exe()?.with_file_name("compiled"));
    config.cache(Some(Cache::new(cache)?));
    Engine::new(&config)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A component that imports an instance with one function.
    fn importing_a_function_of(name: &[u8]) -> Vec<u8> {
        let len = u8::try_from(name.len()).unwrap();
        let function = [&[1, 0x40, 0, 1, 0, 4, 0, 7][..], b"publish", &[1, 0]].concat();
        let types = [&[7, 20, 1, 0x42, 2][..], &function].concat();
        let imports = [&[10, len + 5, 1, 0, len][..], name, &[5, 0]].concat();
        [&b"\0asm\x0d\0\x01\0"[..], &types, &imports].concat()
    }

    #[test]
    fn the_error_names_an_import_that_the_host_lacks() {
        let bytes = importing_a_function_of(b"fermyon:spin/mqtt@2.0.0");
        let shared = Arc::new(Shared::empty(Database::open(None).unwrap()));
        let error = link(&bytes, &shared).err().map(|error| format!("{error:#}")).unwrap_or_default();
        assert!(error.contains("fermyon:spin/mqtt@2.0.0"), "{error}");
    }
}
