//! The names of the stores in a rules file.

use super::{Rule, Rules};
use crate::Error;
use crate::gate::stores::{StoreRules, unknown_store};
use crate::quoted_text::Quoted;
use crate::suggestion::Suggestion;

impl Rules {
    /// The names of all stores in the file, each once. First come those of the table `stores` that no rule names and no other store
    /// asks: one of them is probably the gate's first.
    #[must_use]
    pub fn store_names(&self) -> Vec<&str> {
        let mut found = Vec::new();
        for name in self.unnamed().chain(self.counting()).chain(self.entries()).chain(self.asked()) {
            if !found.contains(&name) {
                found.push(name);
            }
        }
        found
    }

    /// Checks all names of stores in the file, as a gate with these stores does. The first is the one of the rules without a store.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) with the nearest name.
    pub fn check_stores(&self, known: &[&str]) -> Result<(), Error> {
        let check = |field: &str, name: &str| {
            if known.contains(&name) { Ok(()) } else { Err(unknown_store(field, name, known)) }
        };
        for rule in &self.rules {
            rule.store().map_or(Ok(()), |name| check(&format!("rule {}", Quoted(rule.name())), name))?;
        }
        for store in &self.stores {
            check("stores", &store.name)?;
            for (field, name) in [("fallback", store.fallback()), ("near", store.near().map(|(name, _)| name))] {
                name.map_or(Ok(()), |name| check(&format!("stores.{}.{field}", store.name), name))?;
            }
        }
        Ok(())
    }

    /// Checks the names in the table `stores` as far as the file itself tells: no rule names a misspelt one, which can be that of the
    /// gate's first store only if it is not near a name that rules have, and if it is the only one.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) with the nearest name that rules have.
    pub fn check_own_stores(&self) -> Result<(), Error> {
        let counting: Vec<&str> = self.counting().collect();
        let uses_first = self.rules.iter().any(|rule| rule.store.is_none());
        let mut first = None;
        for name in self.unnamed().filter(|_| !self.rules.is_empty()) {
            let suggestion = Suggestion::of(name, &counting);
            let field = format!("stores.{name}: no rule counts in this store");
            match first {
                None if uses_first && suggestion.nearest().is_none() => first = Some(name),
                Some(first) if counting.is_empty() => {
                    let message =
                        format!("{field}: the gate's first store can be {}; write one of them", Quoted(first));
                    return Err(Error::invalid(message));
                }
                _ => return Err(Error::invalid(format!("{field}; {suggestion}"))),
            }
        }
        Ok(())
    }

    /// The stores that rules name.
    fn counting(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().filter_map(Rule::store)
    }

    /// The stores of the table `stores`.
    fn entries(&self) -> impl Iterator<Item = &str> {
        self.stores.iter().map(|store| &*store.name)
    }

    /// The stores that others ask.
    fn asked(&self) -> impl Iterator<Item = &str> {
        let near = self.stores.iter().filter_map(StoreRules::near).map(|(name, _)| name);
        near.chain(self.stores.iter().filter_map(StoreRules::fallback))
    }

    /// The stores of the table that nothing else names.
    fn unnamed(&self) -> impl Iterator<Item = &str> {
        self.entries().filter(|name| !self.counting().chain(self.asked()).any(|known| known == *name))
    }
}
