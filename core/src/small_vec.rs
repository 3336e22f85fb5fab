//! One or two values inline, or more in a vector: most policies have one quota or two, which need no allocation. The crate `smallvec`
//! would take 3.0 KiB more of a Worker with one limit, gzipped.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};
use core::slice;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SmallVec<T>(Inner<T>);

/// The variant follows from the number of values.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Inner<T> {
    One(T),
    /// WebAssembly does without, because the code would weigh more than an allocation takes.
    #[cfg(not(target_arch = "wasm32"))]
    Two([T; 2]),
    Many(Vec<T>),
}

impl<T> SmallVec<T> {
    #[inline]
    pub(crate) const fn one(value: T) -> Self {
        Self(Inner::One(value))
    }
}

impl<T: Copy> SmallVec<T> {
    /// So many of the same value.
    #[inline]
    pub(crate) fn filled(value: T, count: usize) -> Self {
        Self(match count {
            1 => Inner::One(value),
            #[cfg(not(target_arch = "wasm32"))]
            2 => Inner::Two([value; 2]),
            count => Inner::Many(vec![value; count]),
        })
    }
}

impl<T> FromIterator<T> for SmallVec<T> {
    #[cfg(not(target_arch = "wasm32"))]
    #[inline]
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut values = values.into_iter();
        let Some(first) = values.next() else { return Self(Inner::Many(Vec::new())) };
        let Some(second) = values.next() else { return Self::one(first) };
        Self(match values.next() {
            None => Inner::Two([first, second]),
            Some(third) => Inner::Many([first, second, third].into_iter().chain(values).collect()),
        })
    }

    #[cfg(target_arch = "wasm32")]
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self(match <[T; 1]>::try_from(Vec::from_iter(values)) {
            Ok([value]) => Inner::One(value),
            Err(values) => Inner::Many(values),
        })
    }
}

impl<T> Deref for SmallVec<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.0 {
            Inner::One(value) => slice::from_ref(value),
            #[cfg(not(target_arch = "wasm32"))]
            Inner::Two(values) => values,
            Inner::Many(values) => values,
        }
    }
}

impl<T> DerefMut for SmallVec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.0 {
            Inner::One(value) => slice::from_mut(value),
            #[cfg(not(target_arch = "wasm32"))]
            Inner::Two(values) => values,
            Inner::Many(values) => values,
        }
    }
}
