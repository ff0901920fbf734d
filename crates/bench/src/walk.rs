//! Counts the paths of length 1..depth from a node, in three ways.
//!
//! ```text
//! GET per node    one round trip for each node of each path
//! MGET per level  one round trip for each level; it names a node once for each path to the node
//! FCALL           one round trip in all; the loop runs in the store
//! ```
//!
//! Invariant: all three give the same count, and look up the same records equally often.

use super::graph::unpack;
use anyhow::{Result, bail};
use nigh_client::Connection;
use nigh_client::Frame;

/// The name of the function.
pub(crate) const FUNCTION: &str = "countFriends";
/// Calls in one pipeline: their bytes fit in the sockets' buffers.
const CALLS_IN_FLIGHT: usize = 64;

/// Counts with one GET for each node of each path.
pub(crate) fn by_get(connection: &mut Connection, node: u32, depth: u32) -> Result<u64> {
    let mut count = 0;
    let mut waiting = vec![(node, depth)];
    while let Some((node, depth)) = waiting.pop() {
        let reply = connection.call(&["GET", &node.to_string()])?;
        let Some(value) = value(&reply)? else { continue };
        for friend in unpack(value) {
            count += 1;
            if depth > 1 {
                waiting.push((friend, depth - 1));
            }
        }
    }
    Ok(count)
}

/// Counts with one MGET for each level.
pub(crate) fn by_mget(connection: &mut Connection, node: u32, depth: u32) -> Result<u64> {
    let mut count = 0;
    let mut level = vec![node];
    for _ in 0..depth {
        let keys = level.iter().map(|node| node.to_string().into_bytes());
        let command: Vec<_> = std::iter::once(b"MGET".to_vec()).chain(keys).collect();
        let reply = connection.call(&command)?;
        let Some(values) = reply.elements() else {
            bail!("MGET answered {reply:?}, not an array");
        };
        level.clear();
        for reply in values {
            level.extend(value(reply)?.into_iter().flat_map(unpack));
        }
        count += level.len() as u64;
        if level.is_empty() {
            break;
        }
    }
    Ok(count)
}

/// Counts with one function call for each of `nodes`, in pipelines.
pub(crate) fn by_call(connection: &mut Connection, nodes: &[u32], depth: u32) -> Result<Vec<u64>> {
    let mut counts = Vec::with_capacity(nodes.len());
    for nodes in nodes.chunks(CALLS_IN_FLIGHT) {
        for node in nodes {
            let (node, depth) = (node.to_string(), depth.to_string());
            connection.send(&["FCALL", FUNCTION, "0", &node, &depth])?;
        }
        for _ in nodes {
            match connection.receive()? {
                Frame::Integer(count) => counts.push(u64::try_from(count)?),
                other => bail!("{FUNCTION} answered {}", describe(&other)),
            }
        }
    }
    Ok(counts)
}

fn value(reply: &Frame) -> Result<Option<&[u8]>> {
    match reply {
        Frame::Bulk(value) => Ok(Some(value)),
        reply if reply.is_null() => Ok(None),
        other => bail!("the server answered {}", describe(other)),
    }
}

/// A reply in words, for a message.
fn describe(reply: &Frame) -> String {
    match reply.error() {
        Some(text) => format!("with the error {}", String::from_utf8_lossy(text)),
        None => format!("{reply:?}"),
    }
}
