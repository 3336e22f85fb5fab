//! The config stores.

use fastly::ConfigStore;

pub(crate) fn switched_on(store: &str, name: &str) -> bool {
    setting(store, name).is_some_and(|value| value == "on")
}

pub(crate) fn setting(store: &str, name: &str) -> Option<String> {
    ConfigStore::try_open(store).ok()?.try_get(name).ok()?
}

/// The setting that opens the suite's routes.
#[cfg(feature = "suite")]
pub(crate) fn test_mode() -> String {
    setting("tidegate_test", "mode").unwrap_or_default()
}
