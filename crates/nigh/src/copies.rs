//! Copies of keys and values, whose length somebody else chose.
//!
//! 1. A length that the system gives no memory for is an error, and never ends the process.
//!
//! Any thread.

use crate::error::DbError;

/// Adds bytes to those of `into`; if there is no memory for them, it stays as it is.
#[inline]
pub(crate) fn add_copy(into: &mut Vec<u8>, bytes: &[u8]) -> Result<(), DbError> {
    if bytes.len() > into.capacity() - into.len() {
        grow(into, bytes.len())?;
    }
    into.extend_from_slice(bytes);
    Ok(())
}

/// A copy of bytes.
pub(crate) fn copy_of(bytes: &[u8]) -> Result<Vec<u8>, DbError> {
    let mut copy = Vec::new();
    add_copy(&mut copy, bytes)?;
    Ok(copy)
}

/// Makes room for so many bytes more. Memory that has nothing is given back first: to keep it would
/// take both.
#[cold]
fn grow(into: &mut Vec<u8>, more_bytes: usize) -> Result<(), DbError> {
    if into.is_empty() {
        *into = Vec::new();
    }
    into.try_reserve(more_bytes).map_err(|_| DbError::of_copy(more_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_the_system_refuses_is_an_error() {
        let mut bytes = vec![1, 2];
        let error = grow(&mut bytes, isize::MAX.unsigned_abs()).expect_err("no process has that");
        assert!(matches!(error, DbError::NoMemory { .. }), "{error}");
        assert_eq!(bytes, [1, 2]);
        add_copy(&mut bytes, &[3]).expect("that fits");
        assert_eq!((bytes, copy_of(&[4]).expect("that fits")), (vec![1, 2, 3], vec![4]));
    }
}
