//! One reply as an owned value, for clients.
//!
//! 1. A frame from [`crate::decode::Replies`] is nested at most [`crate::limits::Limits::nesting`]
//!    deep, so recursion over it is safe.
//! 2. Strings are bytes, which need not be UTF-8. `{:?}` shows them as Rust writes such bytes.

use std::fmt;

/// A reply. RESP2's types are a subset of RESP3's.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Frame {
    /// `+text`.
    Simple(Vec<u8>),
    /// `-CODE message`, without the minus.
    Error(Vec<u8>),
    /// `:1`.
    Integer(i64),
    /// `$3 abc`.
    Bulk(Vec<u8>),
    /// `$-1` in RESP2, `_` in RESP3.
    Null,
    /// `*-1`: RESP2's second null, of commands whose other reply is an array.
    NullArray,
    /// `*2 …`.
    Array(Vec<Frame>),
    /// `%1 …`: pairs in the order in which they came.
    Map(Vec<(Frame, Frame)>),
    /// `~2 …`: elements in the order in which they came.
    Set(Vec<Frame>),
    /// `>2 …`: sent by the server on its own, not a reply to a request.
    Push(Vec<Frame>),
    /// `|1 …` and the value that it describes.
    Attribute {
        /// Pairs that describe `value`.
        attributes: Vec<(Frame, Frame)>,
        /// The reply proper.
        value: Box<Frame>,
    },
    /// `,1.5`; also `inf`, `-inf` and `nan`.
    Double(f64),
    /// `#t` or `#f`.
    Boolean(bool),
    /// `(123…`: a decimal integer of any length, as text.
    BigNumber(Vec<u8>),
    /// `=7 txt:abc`.
    Verbatim {
        /// The format of the text: `txt` or `mkd`.
        format: [u8; 3],
        /// The text without its format.
        text: Vec<u8>,
    },
    /// `!3 …`: an error whose text may hold any byte.
    BlobError(Vec<u8>),
}

impl Frame {
    /// Whether this is one of the two nulls.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null | Self::NullArray)
    }

    /// The text of an error frame, code and message; `None` for all others.
    pub fn error(&self) -> Option<&[u8]> {
        match self {
            Self::Error(text) | Self::BlobError(text) => Some(text),
            Self::Attribute { value, .. } => value.error(),
            _ => None,
        }
    }

    /// The bytes of a string of any kind (simple, bulk, verbatim, big number); `None` for others.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Simple(text) | Self::Bulk(text) | Self::BigNumber(text) => Some(text),
            Self::Verbatim { text, .. } => Some(text),
            Self::Attribute { value, .. } => value.bytes(),
            _ => None,
        }
    }

    /// The number of an integer frame; `None` for others.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Attribute { value, .. } => value.integer(),
            _ => None,
        }
    }

    /// The elements of an array, set or push; `None` for others.
    pub fn elements(&self) -> Option<&[Frame]> {
        match self {
            Self::Array(items) | Self::Set(items) | Self::Push(items) => Some(items),
            Self::Attribute { value, .. } => value.elements(),
            _ => None,
        }
    }

    /// The reply proper: without attributes around it.
    pub fn without_attributes(self) -> Frame {
        let mut frame = self;
        while let Self::Attribute { value, .. } = frame {
            frame = *value;
        }
        frame
    }
}

/// Bytes of a text.
struct Text<'a>(&'a [u8]);

impl fmt::Debug for Text<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut one = |name, value: &dyn fmt::Debug| out.debug_tuple(name).field(value).finish();
        match self {
            Self::Simple(text) => one("Simple", &Text(text)),
            Self::Error(text) => one("Error", &Text(text)),
            Self::Integer(number) => one("Integer", number),
            Self::Bulk(text) => one("Bulk", &Text(text)),
            Self::Null => out.write_str("Null"),
            Self::NullArray => out.write_str("NullArray"),
            Self::Array(items) => one("Array", items),
            Self::Map(pairs) => one("Map", pairs),
            Self::Set(items) => one("Set", items),
            Self::Push(items) => one("Push", items),
            Self::Attribute { attributes, value } => {
                let mut out = out.debug_struct("Attribute");
                out.field("attributes", attributes).field("value", value).finish()
            }
            Self::Double(number) => one("Double", number),
            Self::Boolean(is_true) => one("Boolean", is_true),
            Self::BigNumber(text) => one("BigNumber", &Text(text)),
            Self::Verbatim { format, text } => {
                let mut out = out.debug_struct("Verbatim");
                out.field("format", &Text(format)).field("text", &Text(text)).finish()
            }
            Self::BlobError(text) => one("BlobError", &Text(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes were shown as lists of numbers, which nobody can read.
    #[test]
    fn debug_shows_texts_as_texts() {
        let bulk = |text: &[u8]| Frame::Bulk(text.to_vec());
        let frame = Frame::Array(vec![bulk(b"a\r\n\"\xff"), Frame::Null, Frame::Integer(-1)]);
        assert_eq!(format!("{frame:?}"), r#"Array([Bulk("a\r\n\"\xff"), Null, Integer(-1)])"#);
        let error = Frame::Error(b"ERR unknown command".to_vec());
        assert_eq!(format!("{error:?}"), r#"Error("ERR unknown command")"#);
        let verbatim = Frame::Verbatim { format: *b"txt", text: b"abc".to_vec() };
        assert_eq!(format!("{verbatim:?}"), r#"Verbatim { format: "txt", text: "abc" }"#);
        let attributes = vec![(bulk(b"ttl"), Frame::Double(0.5))];
        let told = Frame::Attribute { attributes, value: Box::new(Frame::Boolean(true)) };
        let wanted =
            r#"Attribute { attributes: [(Bulk("ttl"), Double(0.5))], value: Boolean(true) }"#;
        assert_eq!(format!("{told:?}"), wanted);
    }
}
