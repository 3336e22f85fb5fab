//! One value inline, or several in a vector: most policies have one quota, which needs no allocation.

use alloc::vec::Vec;
use core::ops::Deref;
use core::slice;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Few<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        match <[T; 1]>::try_from(Vec::from_iter(values)) {
            Ok([value]) => Self::One(value),
            Err(values) => Self::Many(values),
        }
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Self::One(value) => slice::from_ref(value),
            Self::Many(values) => values,
        }
    }
}
