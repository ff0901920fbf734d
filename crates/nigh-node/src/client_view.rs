//! Several keys of a server's memory as of one moment for each partition.
//!
//! 1. It keeps the memory that it reads; when the client has another, the attempt is over.
//!
//! The thread of the JavaScript.

use crate::fault::{Code, answer, guarded};
use crate::scratch::{Scratch, UNSURE};
use napi::bindgen_prelude::BufferSlice;
use napi::{Env, Result};
use napi_derive::napi;
use nigh_client::{ClientMemory, ViewSteps};
use std::cell::RefCell;
use std::rc::Rc;

/// Attempts to read keys of one moment.
#[napi]
pub struct ClientView {
    pub(crate) memory: RefCell<Rc<ClientMemory>>,
    pub(crate) steps: RefCell<ViewSteps>,
    scratch: Rc<Scratch>,
}

impl ClientView {
    pub(crate) fn begin(memory: Rc<ClientMemory>, scratch: &Rc<Scratch>) -> ClientView {
        let steps = RefCell::new(memory.begin_view());
        ClientView { memory: RefCell::new(memory), steps, scratch: Rc::clone(scratch) }
    }
}

#[napi]
impl ClientView {
    /// Reads a key. Length of its value, or that there is none, or that the attempt is over.
    #[napi]
    pub fn get(&self, key_bytes: u32) -> i32 {
        let (memory, mut steps) = (self.memory.borrow(), self.steps.borrow_mut());
        let read = || {
            Ok(self.scratch.read(key_bytes, |key, found| {
                memory.step_view(&mut steps, |view| view.get_into(key, found)).ok()
            }))
        };
        guarded(read).unwrap_or(UNSURE)
    }

    /// The last value that found no room in the scratch.
    #[napi]
    pub fn long<'env>(&self, env: &'env Env) -> Result<BufferSlice<'env>, Code> {
        answer(|| self.scratch.long(env))
    }

    /// Whether a key is there, or that the attempt is over.
    #[napi]
    pub fn exists(&self, key_bytes: u32) -> i32 {
        let (memory, mut steps) = (self.memory.borrow(), self.steps.borrow_mut());
        let key = self.scratch.key(key_bytes);
        let found = guarded(|| Ok(memory.step_view(&mut steps, |view| view.exists(key))));
        found.ok().and_then(|it| it.ok()).map_or(UNSURE, i32::from)
    }
}
