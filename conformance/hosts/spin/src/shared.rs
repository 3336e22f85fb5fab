//! The state that the instances of an app share.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use wasmtime::component::ResourceTable;
use wasmtime::{Engine, Store};
use wasmtime_wasi::cli::stderr;
use wasmtime_wasi::{DirPerms, FilePerms, WasiCtx};
use wasmtime_wasi_http::WasiHttpCtx;

use crate::arguments::Arguments;
use crate::instance::{Instance, NoOutgoing};
use crate::key_value::Database;
use crate::manifest::Component;
use crate::overlap::{Overlap, Unread};

pub(crate) struct Shared {
    environment: Vec<(String, String)>,
    variables: Arc<BTreeMap<String, String>>,
    allowed: Arc<BTreeSet<String>>,
    outbound: Arc<[String]>,
    /// The component's files, if it has any.
    files: Option<TempDir>,
    database: Arc<Database>,
    overlap: Arc<Overlap>,
}

impl Shared {
    /// That of a component, with what the arguments add.
    pub(crate) fn of(arguments: &Arguments, manifest: Component, database: Arc<Database>) -> Result<Self, String> {
        let (mut environment, mut variables) = (manifest.environment, manifest.variables);
        environment.extend(arguments.env.iter().cloned());
        variables.extend(arguments.variables.iter().cloned());
        Ok(Self {
            environment: environment.into_iter().collect(),
            variables: Arc::new(variables),
            allowed: Arc::new(manifest.key_value_stores.into_iter().collect()),
            outbound: manifest.allowed_outbound_hosts.into(),
            files: copied(&arguments.manifest, &manifest.files)?,
            database,
            overlap: Overlap::new(arguments.pause),
        })
    }

    /// A request arrives, and will need an instance.
    pub(crate) fn arrives(&self) -> Unread {
        self.overlap.arrives()
    }

    /// Returns the store of a new instance, for a request that arrived, or for several.
    pub(crate) fn store(&self, engine: &Engine, unread: Option<Unread>) -> wasmtime::Result<Store<Instance>> {
        let mut wasi = WasiCtx::builder();
        // Standard output is this program's own.
        wasi.envs(&self.environment).stdout(stderr()).inherit_stderr();
        if let Some(files) = &self.files {
            wasi.preopened_dir(files.path(), "/", DirPerms::READ, FilePerms::READ)?;
        }
        let instance = Instance {
            wasi: wasi.build(),
            http: WasiHttpCtx::new(),
            hooks: NoOutgoing,
            table: ResourceTable::new(),
            variables: Arc::clone(&self.variables),
            allowed: Arc::clone(&self.allowed),
            outbound: Arc::clone(&self.outbound),
            database: Arc::clone(&self.database),
            overlap: Arc::clone(&self.overlap),
            unread,
        };
        Ok(Store::new(engine, instance))
    }
}

#[cfg(test)]
impl Shared {
    pub(crate) fn empty(database: Database) -> Self {
        Self {
            environment: Vec::new(),
            variables: Arc::default(),
            allowed: Arc::default(),
            outbound: Arc::default(),
            files: None,
            database: Arc::new(database),
            overlap: Overlap::new(std::time::Duration::ZERO),
        }
    }
}

/// Copies the files of a component, which it finds at the root.
fn copied(manifest: &Path, files: &[String]) -> Result<Option<TempDir>, String> {
    if files.is_empty() {
        return Ok(None);
    }
    let folder = TempDir::with_prefix("tidegate-spin-files-").map_err(|error| format!("files: {error}"))?;
    for file in files {
        let copied = fs::copy(manifest.with_file_name(file), folder.path().join(file));
        copied.map_err(|error| format!("{}: {file}: {error}", manifest.display()))?;
    }
    Ok(Some(folder))
}
