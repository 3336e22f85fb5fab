//! An app that is ready to be instantiated.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::sync::Arc;

use wasmtime::component::{Component, Linker, ResourceTable};
use wasmtime::{Cache, CacheConfig, Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store};
use wasmtime_wasi::WasiCtx;
use wasmtime_wasi_http::WasiHttpCtx;
use wasmtime_wasi_http::p2::bindings::ProxyPre;

use crate::arguments::Arguments;
use crate::instance::{Instance, NoOutgoing};
use crate::key_value::Database;
use crate::overlap::{Overlap, Unread};
use crate::{component, manifest};

/// The most concurrent instances, as in Spin. Further requests wait, where Spin answers with a 500: the suite sends more at once.
pub(crate) const INSTANCES_MAX: u32 = 1_000;

/// The most modules and tables of one component: the app's, and those that wit-component adds.
const PARTS_MAX: u32 = 8;

/// A compiled and linked component, and the state that its instances share.
pub(crate) struct App {
    pub(crate) pre: ProxyPre<Instance>,
    environment: Vec<(String, String)>,
    allowed: Arc<BTreeSet<String>>,
    outbound: Arc<[String]>,
    database: Arc<Database>,
    overlap: Arc<Overlap>,
}

impl App {
    /// Compiles and links the component. If it imports an interface that this host lacks, the error names the
    /// interface.
    pub(crate) fn load(arguments: &Arguments, database: Arc<Database>) -> Result<Self, String> {
        let manifest = manifest::component(&arguments.manifest)?;
        let bytes = component::read(&arguments.component)?;
        let pre = link(&bytes).map_err(|error| format!("{}: {error:#}", arguments.component.display()))?;
        let mut environment: BTreeMap<_, _> = manifest.environment;
        environment.extend(arguments.env.iter().cloned());
        Ok(Self {
            pre,
            environment: environment.into_iter().collect(),
            allowed: Arc::new(manifest.key_value_stores.into_iter().collect()),
            outbound: manifest.allowed_outbound_hosts.into(),
            database,
            overlap: Overlap::new(arguments.pause),
        })
    }

    /// A request arrives, and will need an instance.
    pub(crate) fn arrives(&self) -> Unread {
        self.overlap.arrives()
    }

    /// Returns the store of a new instance, for a request that arrived.
    pub(crate) fn store(&self, unread: Unread) -> Store<Instance> {
        let instance = Instance {
            wasi: WasiCtx::builder().envs(&self.environment).inherit_stderr().build(),
            http: WasiHttpCtx::new(),
            hooks: NoOutgoing,
            table: ResourceTable::new(),
            allowed: Arc::clone(&self.allowed),
            outbound: Arc::clone(&self.outbound),
            database: Arc::clone(&self.database),
            overlap: Arc::clone(&self.overlap),
            unread: Some(unread),
        };
        Store::new(self.pre.engine(), instance)
    }
}

fn link(bytes: &[u8]) -> wasmtime::Result<ProxyPre<Instance>> {
    let engine = engine()?;
    let component = Component::new(&engine, bytes)?;
    let mut linker = Linker::new(&engine);
    Instance::link(&mut linker)?;
    ProxyPre::new(linker.instantiate_pre(&component)?)
}

/// Instances come from a pool, so starting one takes microseconds. Compiling a component takes seconds, so the result is kept beside
/// this program.
fn engine() -> wasmtime::Result<Engine> {
    let mut pool = PoolingAllocationConfig::default();
    pool.total_component_instances(INSTANCES_MAX)
        .total_stacks(INSTANCES_MAX)
        .total_memories(INSTANCES_MAX)
        .total_tables(INSTANCES_MAX * PARTS_MAX)
        .total_core_instances(INSTANCES_MAX * PARTS_MAX);
    let mut config = Config::new();
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
        let error = link(&bytes).err().map(|error| format!("{error:#}")).unwrap_or_default();
        assert!(error.contains("fermyon:spin/mqtt@2.0.0"), "{error}");
    }
}
