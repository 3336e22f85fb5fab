//! The key-value store that an instance imports, under both its names.

use wasmtime::component::{HasSelf, Linker, Resource};
use wasmtime::{Error, Result};

use self::bindings::fermyon::spin::key_value::{self, Error as SpinError};
use self::bindings::wasi::keyvalue::atomics::{self, CasError};
use self::bindings::wasi::keyvalue::store::{self, Error as WasiError, KeyResponse};
use crate::instance::Instance;
use crate::key_value::{Database, Failure};
use crate::redis::bindings::OutboundRedis;
use crate::variables::bindings::Settings;

mod bindings {
    wasmtime::component::bindgen!({
        path: "../../../adapters/spin/wit",
        world: "store",
        imports: { default: async | trappable },
        with: {
            "fermyon:spin/key-value.store": super::Open,
            "wasi:keyvalue/store.bucket": super::Open,
            "wasi:keyvalue/atomics.cas": super::Compared,
        },
    });
}

/// An open store.
#[allow(unreachable_pub, reason = "the bindings export it again")]
pub struct Open {
    label: String,
}

/// A handle for a swap: the key, and the value to compare with.
#[allow(unreachable_pub, reason = "the bindings export it again")]
pub struct Compared {
    label: String,
    key: String,
    value: Option<Vec<u8>>,
}

impl Instance {
    pub(crate) fn link(linker: &mut Linker<Self>) -> Result<()> {
        wasmtime_wasi::p2::add_to_linker_async(linker)?;
        wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
        wasmtime_wasi::p3::add_to_linker(linker)?;
        wasmtime_wasi_http::p3::add_to_linker(linker)?;
        Settings::add_to_linker::<_, HasSelf<_>>(linker, |instance| instance)?;
        OutboundRedis::add_to_linker::<_, HasSelf<_>>(linker, |instance| instance)?;
        bindings::Store::add_to_linker::<_, HasSelf<_>>(linker, |instance| instance)
    }

    fn open(&mut self, label: String) -> Result<Option<Resource<Open>>> {
        if !self.allowed.contains(&label) {
            return Ok(None);
        }
        Ok(Some(self.table.push(Open { label })?))
    }

    /// Reads from the store of a handle.
    async fn read<T, E>(
        &mut self,
        open: &Resource<Open>,
        work: impl FnOnce(&Database, &str) -> Result<T, Failure>,
        describe: fn(String) -> E,
    ) -> Result<Result<T, E>> {
        self.overlap.before_read().await;
        let Open { label } = self.table.get(open)?;
        let done = work(&self.database, label);
        self.unread = None;
        answered(done, describe)
    }

    /// Writes to the store of a handle.
    async fn write<T, E>(
        &mut self,
        open: &Resource<Open>,
        work: impl FnOnce(&Database, &str) -> Result<T, Failure>,
        describe: fn(String) -> E,
    ) -> Result<Result<T, E>> {
        self.unread = None;
        self.overlap.before_write().await;
        let Open { label } = self.table.get(open)?;
        answered(work(&self.database, label), describe)
    }

    /// Adds a handle for a swap.
    fn compare(&mut self, compared: Compared) -> Result<Resource<Compared>> {
        Ok(self.table.push(compared)?)
    }
}

/// Passes a store's error to the guest. If the store is broken, the guest ends, as in Spin, where taking the lock
/// panics.
fn answered<T, E>(done: Result<T, Failure>, describe: fn(String) -> E) -> Result<Result<T, E>> {
    match done {
        Ok(done) => Ok(Ok(done)),
        Err(Failure::Told(why)) => Ok(Err(describe(why))),
        Err(Failure::Broken) => Err(Error::msg("the key-value store's lock is poisoned")),
    }
}

/// What both interfaces do with an open store.
macro_rules! operations {
    ($error:ident) => {
        async fn get(&mut self, open: Resource<Open>, key: String) -> Result<Result<Option<Vec<u8>>, $error>> {
            self.read(&open, |database, store| database.get(store, &key), $error::Other).await
        }

        async fn set(&mut self, open: Resource<Open>, key: String, value: Vec<u8>) -> Result<Result<(), $error>> {
            self.write(&open, |database, store| database.set(store, &key, &value), $error::Other).await
        }

        async fn delete(&mut self, open: Resource<Open>, key: String) -> Result<Result<(), $error>> {
            self.write(&open, |database, store| database.delete(store, &key), $error::Other).await
        }

        async fn exists(&mut self, open: Resource<Open>, key: String) -> Result<Result<bool, $error>> {
            let found = self.read(&open, |database, store| database.get(store, &key), $error::Other).await?;
            Ok(found.map(|value| value.is_some()))
        }

        async fn drop(&mut self, open: Resource<Open>) -> Result<()> {
            self.table.delete(open)?;
            Ok(())
        }
    };
}

impl key_value::Host for Instance {}

impl key_value::HostStore for Instance {
    async fn open(&mut self, label: String) -> Result<Result<Resource<Open>, SpinError>> {
        Ok(Instance::open(self, label)?.ok_or(SpinError::AccessDenied))
    }

    operations!(SpinError);

    async fn get_keys(&mut self, open: Resource<Open>) -> Result<Result<Vec<String>, SpinError>> {
        self.read(&open, Database::keys, SpinError::Other).await
    }
}

impl store::Host for Instance {
    async fn open(&mut self, label: String) -> Result<Result<Resource<Open>, WasiError>> {
        Ok(Instance::open(self, label)?.ok_or(WasiError::AccessDenied))
    }
}

impl store::HostBucket for Instance {
    operations!(WasiError);

    async fn list_keys(
        &mut self,
        open: Resource<Open>,
        from: Option<String>,
    ) -> Result<Result<KeyResponse, WasiError>> {
        if from.is_some() {
            return Ok(Err(WasiError::Other("list_keys: cursor not supported".into())));
        }
        let keys = self.read(&open, Database::keys, WasiError::Other).await?;
        Ok(keys.map(|keys| KeyResponse { keys, cursor: None }))
    }
}

impl atomics::HostCas for Instance {
    async fn new(&mut self, open: Resource<Open>, key: String) -> Result<Result<Resource<Compared>, WasiError>> {
        let label = self.table.get(&open)?.label.clone();
        Ok(Ok(self.compare(Compared { label, key, value: None })?))
    }

    async fn current(&mut self, cas: Resource<Compared>) -> Result<Result<Option<Vec<u8>>, WasiError>> {
        self.overlap.before_read().await;
        let Compared { label, key, value } = self.table.get_mut(&cas)?;
        let found = self.database.get(label, key);
        self.unread = None;
        let found = answered(found, WasiError::Other)?;
        if let Ok(found) = &found {
            value.clone_from(found);
        }
        Ok(found)
    }

    async fn drop(&mut self, cas: Resource<Compared>) -> Result<()> {
        self.table.delete(cas)?;
        Ok(())
    }
}

impl atomics::Host for Instance {
    async fn increment(&mut self, open: Resource<Open>, key: String, delta: i64) -> Result<Result<i64, WasiError>> {
        self.write(&open, |database, store| database.increment(store, &key, delta), WasiError::Other).await
    }

    async fn swap(&mut self, cas: Resource<Compared>, new: Vec<u8>) -> Result<Result<(), CasError>> {
        self.unread = None;
        self.overlap.before_write().await;
        let Compared { label, key, value } = self.table.delete(cas)?;
        let swapped = self.database.swap(&label, &key, value.as_deref(), &new);
        match answered(swapped, WasiError::Other)? {
            Ok(true) => Ok(Ok(())),
            Err(error) => Ok(Err(CasError::StoreError(error))),
            Ok(false) => match answered(self.database.get(&label, &key), WasiError::Other)? {
                Ok(value) => Ok(Err(CasError::CasFailed(self.compare(Compared { label, key, value })?))),
                Err(error) => Ok(Err(CasError::StoreError(error))),
            },
        }
    }
}
