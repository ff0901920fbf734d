//! Replies as objects of Python, shaped as in redis-py.
//!
//! 1. The name of a command decides what its reply means, by whichever call it was sent.
//! 2. A reply is nested as deep at most as the decoder allows, so recursion over it is safe.
//!
//! Any thread that has the interpreter's lock.

use crate::copies::copy_of;
use crate::errors;
use nigh_client::Frame;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyList};

/// Longer than any command's name.
const NAME_MOST: usize = 40;

/// What a reply means.
#[derive(Clone, Copy)]
enum Shape {
    AsItIs,
    /// `OK` is true.
    Done,
    /// `PONG` is true.
    Pong,
    /// 1 is true, 0 false.
    Whether,
    /// Text is a number.
    Float,
}

/// The name of a command, as it is written in tables and errors.
pub(crate) fn name_of(command: &[u8]) -> String {
    let command = &command[..command.len().min(NAME_MOST)];
    String::from_utf8_lossy(command).to_ascii_uppercase()
}

fn shape_of(command: &str) -> Shape {
    match command {
        "SET" | "MSET" | "SETEX" | "PSETEX" | "RENAME" | "FLUSHALL" | "FLUSHDB" => Shape::Done,
        "EXPIRE" | "PEXPIRE" | "EXPIREAT" | "PEXPIREAT" | "PERSIST" | "SETNX" | "MSETNX"
        | "RENAMENX" | "COPY" => Shape::Whether,
        "INCRBYFLOAT" => Shape::Float,
        "PING" => Shape::Pong,
        _ => Shape::AsItIs,
    }
}

/// The reply to a command; an error reply is an exception.
pub(crate) fn of_command<'py>(
    py: Python<'py>,
    address: &str,
    command: &[u8],
    reply: &Frame,
) -> PyResult<Bound<'py, PyAny>> {
    let command = name_of(command);
    if let Some(text) = reply.error() {
        return Err(errors::refused(address, &command, text));
    }
    match (shape_of(&command), reply) {
        (Shape::Done, Frame::Simple(text)) if text == b"OK" => true.into_bound_py_any(py),
        (Shape::Pong, Frame::Simple(text)) if text == b"PONG" => true.into_bound_py_any(py),
        (Shape::Whether, Frame::Integer(number)) => (*number != 0).into_bound_py_any(py),
        (Shape::Float, reply) => match reply.bytes() {
            Some(text) => py.get_type::<PyFloat>().call1((PyBytes::new(py, text),)),
            None => as_it_is(py, address, reply),
        },
        (_, reply) => as_it_is(py, address, reply),
    }
}

fn as_it_is<'py>(py: Python<'py>, address: &str, reply: &Frame) -> PyResult<Bound<'py, PyAny>> {
    if let Some(bytes) = reply.bytes() {
        return copy_of(py, bytes)?.into_bound_py_any(py);
    }
    if let Some(items) = reply.elements() {
        let list = PyList::empty(py);
        for item in items {
            list.append(as_it_is(py, address, item)?)?;
        }
        return Ok(list.into_any());
    }
    if let Some(text) = reply.error() {
        // One of several results: an object, as in redis-py.
        return errors::refused(address, "a part", text).into_bound_py_any(py);
    }
    match reply {
        Frame::Integer(number) => number.into_bound_py_any(py),
        Frame::Double(number) => number.into_bound_py_any(py),
        Frame::Boolean(it) => Ok(PyBool::new(py, *it).to_owned().into_any()),
        Frame::Map(pairs) => {
            let dict = PyDict::new(py);
            for (key, value) in pairs {
                dict.set_item(as_it_is(py, address, key)?, as_it_is(py, address, value)?)?;
            }
            Ok(dict.into_any())
        }
        Frame::Attribute { value, .. } => as_it_is(py, address, value),
        _ => Ok(py.None().into_bound(py)),
    }
}
