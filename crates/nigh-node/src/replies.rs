//! Replies of a server, as JavaScript gets them, with the types of RESP2.
//!
//! 1. A reply, or an element of one, that is an error, of the server's or of the call, is an
//!    object: `{ reply }`, or `{ code, message }`. `requests.js` makes an error of it. No other
//!    reply is an object but for arrays and Buffers.
//!
//! Made in a thread of the pool, told in that of the JavaScript.

use crate::fault::{Fault, made};
use crate::pairs::buffer;
use crate::pool_work::Told;
use napi::bindgen_prelude::{Array, Object, Unknown};
use napi::{Env, JsValue};
use nigh_client::{Frame, says_too_long};

/// The largest integer up to which numbers have no gaps.
const SAFE_MOST: u64 = (1 << 53) - 1;

/// `None` is null.
type Value<'env> = Option<Unknown<'env>>;

/// What came of a request.
pub(crate) enum NodeReply {
    /// A reply, and whether its texts are wanted as bytes.
    Came(Frame, bool),
    /// There is none.
    Lost(Fault),
}

/// What came of some requests, in their order.
pub struct Replies(pub(crate) Vec<NodeReply>);

impl Told for Replies {
    type Js<'env> = Unknown<'env>;

    fn told(env: &Env, ended: Result<Replies, Fault>) -> napi::Result<Unknown<'_>> {
        match ended {
            Ok(replies) => replies.list(env),
            Err(fault) => of_fault(env, &fault),
        }
    }
}

impl Replies {
    /// The list of them.
    pub(crate) fn list(self, env: &Env) -> napi::Result<Unknown<'_>> {
        let told = self.0.into_iter().map(|reply| match reply {
            NodeReply::Came(frame, as_bytes) => of_frame(env, frame, as_bytes),
            NodeReply::Lost(fault) => of_fault(env, &fault).map(Some),
        });
        list(env, told)
    }
}

fn list<'env>(
    env: &'env Env,
    items: impl Iterator<Item = napi::Result<Value<'env>>>,
) -> napi::Result<Unknown<'env>> {
    let items = items.collect::<napi::Result<Vec<_>>>()?;
    Ok(Array::from_vec(env, items)?.to_unknown())
}

fn of_frame(env: &Env, frame: Frame, as_bytes: bool) -> napi::Result<Value<'_>> {
    let all =
        |items: Vec<Frame>| list(env, items.into_iter().map(|it| of_frame(env, it, as_bytes)));
    let value = match frame {
        Frame::Null | Frame::NullArray => return Ok(None),
        Frame::Attribute { value, .. } => return of_frame(env, *value, as_bytes),
        Frame::Simple(text) | Frame::Bulk(text) | Frame::BigNumber(text) => {
            of_text(env, &text, as_bytes)
        }
        Frame::Verbatim { text, .. } => of_text(env, &text, as_bytes),
        Frame::Error(text) if says_too_long(&text) => of_fault(env, &Fault::too_large(&text)),
        Frame::Error(text) | Frame::BlobError(text) => {
            let mut error = Object::new(env)?;
            error.set("reply", String::from_utf8_lossy(&text).into_owned())?;
            Ok(error.to_unknown())
        }
        Frame::Integer(number) if number.unsigned_abs() > SAFE_MOST => {
            of_fault(env, &Fault::unsafe_integer(number))
        }
        Frame::Integer(number) => Ok(env.create_int64(number)?.to_unknown()),
        Frame::Boolean(it) => Ok(env.create_int32(i32::from(it))?.to_unknown()),
        Frame::Double(number) => of_text(env, number.to_string().as_bytes(), as_bytes),
        Frame::Array(items) | Frame::Set(items) | Frame::Push(items) => all(items),
        Frame::Map(pairs) => all(pairs.into_iter().flat_map(|(key, value)| [key, value]).collect()),
        other => of_fault(env, &Fault::own(&format!("the reply {other:?} isn't known"))),
    };
    value.map(Some)
}

/// One that Node.js takes, or why it doesn't.
fn of_text<'env>(env: &'env Env, text: &[u8], as_bytes: bool) -> napi::Result<Unknown<'env>> {
    let given = if as_bytes {
        buffer(env, text).map(|it| it.to_unknown())
    } else {
        made(env.create_string(String::from_utf8_lossy(text))).map(|it| it.to_unknown())
    };
    given.or_else(|fault| of_fault(env, &fault))
}

fn of_fault<'env>(env: &'env Env, fault: &Fault) -> napi::Result<Unknown<'env>> {
    let mut error = Object::new(env)?;
    error.set("code", fault.code.as_ref())?;
    error.set("message", fault.message.as_str())?;
    Ok(error.to_unknown())
}
