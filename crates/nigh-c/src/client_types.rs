//! The plain data of `nigh_client.h`. Its rules are those of `c_types`.
//!
//! Any thread: plain data.
#![expect(non_camel_case_types, reason = "the names in C")]

use crate::c_types::nigh_bytes;
use std::ffi::c_char;

/// A client of a server: a number, so that a handle of a closed one is told from others. All zeros
/// is none.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct nigh_client {
    /// Not for use.
    pub id: u64,
}

/// Keys as of one moment, for the callback of nigh_client_view. All zeros is none.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct nigh_view {
    /// Not for use.
    pub id: u64,
}

/// Whether a client reads the server's memory.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub enum nigh_local_use {
    /// If it can: over the server's Unix socket. Else everything goes by requests.
    NIGH_LOCAL_AUTO = 0,
    /// Yes: without it there is an error, NIGH_NOT_LOCAL.
    NIGH_LOCAL_REQUIRED = 1,
    /// No.
    NIGH_LOCAL_NEVER = 2,
}

/// How a client connects, reads and waits. All zeros are the defaults.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct nigh_client_options {
    /// The user; NULL: the address's, or the default user. Without a password it has an empty one.
    pub user: *const c_char,
    /// The password; NULL: the address's, or none.
    pub password: *const c_char,
    /// The name in CLIENT LIST; NULL: none.
    pub client_name: *const c_char,
    /// Longest wait to connect, and for each reply, in milliseconds; 0: ten seconds; below 0: no
    /// limit.
    pub timeout_ms: i64,
    /// How long a call waits for a server that is away, in milliseconds; 0: it says so at once.
    pub wait_ms: u64,
    /// How long a call looks for its reply before it sleeps, in microseconds, up to a second; 0: 50
    /// on a machine with several cores, else not at all; below 0: not at all.
    pub spin_us: i32,
    /// A nigh_local_use.
    pub local: i32,
    /// Not 0, with `appendfsync always`: reads show from memory also what isn't on disk yet. By
    /// default such a read asks the server, whose reply waits for the disk.
    pub reads_unsynced: i32,
    /// The protocol's version, 2 or 3; 0: 2. It decides of which kinds replies are.
    pub protocol: i32,
    /// Not 0: attach once. When the attachment is over, each call says NIGH_CLOSED. By default a
    /// client attaches again by itself, also between a WATCH and its EXEC, which then changes what
    /// nobody watches.
    pub attach_once: i32,
}

/// On which condition a key is set.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub enum nigh_condition {
    /// On none.
    NIGH_ALWAYS = 0,
    /// If the key isn't there.
    NIGH_IF_ABSENT = 1,
    /// If the key is there.
    NIGH_IF_PRESENT = 2,
}

/// How a key is set. NULL, or all zeros: on no condition, without an expiry.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct nigh_set_options {
    /// If not 0: the key is gone after so many milliseconds.
    pub expires_in_ms: u64,
    /// If not 0: the key is gone from this time on, in Unix milliseconds. Not together with
    /// `expires_in_ms`.
    pub expires_at_ms: u64,
    /// A nigh_condition.
    pub condition: i32,
    /// Not 0: the expiry that the key has stays. Not together with a new one.
    pub keeps_expiry: i32,
}

/// A request: its words, the command's name first.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct nigh_request {
    /// The words.
    pub words: *const nigh_bytes,
    /// Their number.
    pub words_len: usize,
}

/// What a reply is.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum nigh_reply_kind {
    /// Nothing.
    NIGH_REPLY_NULL = 0,
    /// A number, in `integer`.
    NIGH_REPLY_INTEGER = 1,
    /// Bytes, such as a value.
    NIGH_REPLY_BYTES = 2,
    /// A text of the server's own in `bytes`, such as OK.
    NIGH_REPLY_TEXT = 3,
    /// The server's refusal: a text in `bytes`, which begins with a code, such as ERR.
    NIGH_REPLY_ERROR = 4,
    /// Replies, in `elements`.
    NIGH_REPLY_ARRAY = 5,
    /// Keys and values in turn, in `elements`. With protocol 3 alone, as all that follow.
    NIGH_REPLY_MAP = 6,
    /// Replies without an order, in `elements`.
    NIGH_REPLY_SET = 7,
    /// A number, in `number`.
    NIGH_REPLY_DOUBLE = 8,
    /// 0 or 1, in `integer`.
    NIGH_REPLY_BOOLEAN = 9,
}

/// A reply of a server.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct nigh_reply {
    /// A nigh_reply_kind: it says which of the others is set. All others are 0 and NULL.
    pub kind: i32,
    /// A number.
    pub integer: i64,
    /// A number.
    pub number: f64,
    /// Bytes, with a NUL behind that doesn't count.
    pub bytes: nigh_bytes,
    /// Replies.
    pub elements: *const nigh_reply,
    /// Their number.
    pub elements_len: usize,
}
