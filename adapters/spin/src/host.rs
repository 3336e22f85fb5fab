//! Bindings to Spin's two key-value interfaces. They do not depend on an SDK, so an app can use any.

use tidegate_core::Error;
use tidegate_core::store::Swap;

use self::bindings::fermyon::spin::key_value::{self, Store};
use self::bindings::wasi::keyvalue::atomics::{self, Cas, CasError};
use self::bindings::wasi::keyvalue::store as wasi;
use crate::atomics::SpinAtomics;
use crate::bucket::{Atomics, Bucket};
use crate::error;
use crate::kv::SpinKv;
use crate::window::SpinWindow;

mod bindings {
    wit_bindgen::generate!({ world: "store", path: "wit", generate_all });
}

/// A store of `fermyon:spin/key-value`, which has get and put.
#[derive(Debug)]
pub struct SpinStore(Store);

impl SpinStore {
    /// Opens the store with this label. The component must list it in spin.toml: `key_value_stores = ["default"]`.
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) if spin.toml does not list the store, or the host does not have it.
    pub fn open(label: &str) -> Result<Self, Error> {
        Store::open(label).map(Self).map_err(|error| match error {
            key_value::Error::AccessDenied => error::no_store(label, "this component may not open it"),
            key_value::Error::NoSuchStore => error::no_store(label, "the host has no store with this label"),
            error => failed("open", error),
        })
    }
}

impl Bucket for SpinStore {
    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        self.0.get(key).map_err(|error| failed("get", error))
    }

    async fn set(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        self.0.set(key, value).map_err(|error| failed("set", error))
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        self.0.delete(key).map_err(|error| failed("delete", error))
    }
}

/// A store of `wasi:keyvalue`, which has the same rows and atomics.
#[derive(Debug)]
pub struct WasiBucket(wasi::Bucket);

impl WasiBucket {
    /// Opens the store with this label. The component must list it in spin.toml: `key_value_stores = ["default"]`.
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) if spin.toml does not list the store, or the host does not have it.
    pub fn open(label: &str) -> Result<Self, Error> {
        wasi::open(label).map(Self).map_err(|error| match error {
            wasi::Error::AccessDenied => error::no_store(label, "this component may not open it"),
            wasi::Error::NoSuchStore => error::no_store(label, "the host has no store with this label"),
            wasi::Error::Other(why) => error::failed("open", &why),
        })
    }
}

impl Bucket for WasiBucket {
    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        self.0.get(key).map_err(|error| wasi_failed("get", error))
    }

    async fn set(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        self.0.set(key, value).map_err(|error| wasi_failed("set", error))
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        self.0.delete(key).map_err(|error| wasi_failed("delete", error))
    }
}

impl Atomics for WasiBucket {
    type Cas = Cas;

    async fn increment(&self, key: &str, delta: i64) -> Result<i64, Error> {
        atomics::increment(&self.0, key, delta).map_err(|error| wasi_failed("increment", error))
    }

    async fn compare(&self, key: &str) -> Result<(Cas, Option<Vec<u8>>), Error> {
        let cas = Cas::new(&self.0, key).map_err(|error| wasi_failed("cas.new", error))?;
        let current = cas.current().map_err(|error| wasi_failed("cas.current", error))?;
        Ok((cas, current))
    }

    async fn swap(&self, cas: Cas, value: &[u8]) -> Result<Swap, Error> {
        match atomics::swap(cas, value) {
            Ok(()) => Ok(Swap::Done),
            Err(CasError::CasFailed(_)) => Ok(Swap::Conflict),
            Err(CasError::StoreError(error)) => Err(wasi_failed("swap", error)),
        }
    }
}

impl SpinKv<SpinStore> {
    /// Opens the store with this label; see [`SpinStore::open`].
    ///
    /// # Errors
    /// See [`SpinStore::open`].
    pub fn open(label: &str) -> Result<Self, Error> {
        SpinStore::open(label).map(Self::new)
    }
}

impl SpinAtomics<WasiBucket> {
    /// Opens the store with this label; see [`WasiBucket::open`].
    ///
    /// # Errors
    /// See [`WasiBucket::open`].
    pub fn open(label: &str) -> Result<Self, Error> {
        WasiBucket::open(label).map(Self::new)
    }
}

impl SpinWindow<WasiBucket> {
    /// Opens the store with this label; see [`WasiBucket::open`].
    ///
    /// # Errors
    /// See [`WasiBucket::open`].
    pub fn open(label: &str) -> Result<Self, Error> {
        WasiBucket::open(label).map(Self::new)
    }
}

fn failed(what: &str, error: key_value::Error) -> Error {
    match error {
        key_value::Error::StoreTableFull => error::failed(what, "too many stores are open"),
        key_value::Error::NoSuchStore => error::failed(what, "no such store"),
        key_value::Error::AccessDenied => error::failed(what, "access denied"),
        key_value::Error::Other(why) => error::failed(what, &why),
    }
}

fn wasi_failed(what: &str, error: wasi::Error) -> Error {
    match error {
        wasi::Error::NoSuchStore => error::failed(what, "no such store"),
        wasi::Error::AccessDenied => error::failed(what, "access denied"),
        wasi::Error::Other(why) => error::failed(what, &why),
    }
}
