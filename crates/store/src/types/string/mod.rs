//! Strings.

mod numbers;
mod ranges;
mod several;
mod whole;
