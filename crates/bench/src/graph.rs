//! The ego-Facebook graph (SNAP), directed: a line `a b` of the file puts b into the list of a.
//!
//! ```text
//! file  0 1 | 0 2 | …       key "0" ─► value 01 00 00 00 02 00 00 00 …   (little-endian u32)
//! ```
//!
//! Invariants:
//! 1. A list has its nodes in the order of the file.
//! 2. The binary contains the data and the function, so `nigh-bench demo` needs no files.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::io::Read;

/// `a b` lines, from snap.stanford.edu/data/ego-Facebook.html.
const EDGES_GZ: &[u8] = include_bytes!("../../../examples/data/facebook_combined.txt.gz");
/// The nodes at which traversals start, one a line.
const STARTS: &str = include_str!("../../../examples/data/graph_starts.txt");
/// The library with `countFriends`.
pub(crate) const LIBRARY: &str = include_str!("../../../examples/functions/graph.js");
/// Bytes of a node number in a list.
const NODE_BYTES: usize = 4;

/// The lists of friends, and the nodes at which traversals start.
pub(crate) struct Graph {
    pub(crate) lists: BTreeMap<u32, Vec<u32>>,
    pub(crate) starts: Vec<u32>,
}

impl Graph {
    /// Unpacks the graph in the binary.
    pub(crate) fn load() -> Result<Self> {
        let mut text = String::new();
        flate2::read::GzDecoder::new(EDGES_GZ)
            .read_to_string(&mut text)
            .context("the graph in this binary is damaged; build it again")?;
        let mut lists: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for line in text.lines() {
            let (from, to) = line.split_once(' ').context("a line without two nodes")?;
            lists.entry(from.parse()?).or_default().push(to.parse()?);
        }
        let starts = STARTS.lines().map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self { lists, starts })
    }

    /// Number of edges.
    pub(crate) fn edges(&self) -> usize {
        self.lists.values().map(Vec::len).sum()
    }

    /// Look-ups of a mean traversal from `few`, divided by those of a mean traversal from all
    /// starts. A rate measured on few starts, times this, compares with a rate measured on all.
    pub(crate) fn weight(&self, few: &[u32], depth: u32) -> f64 {
        let mean = |starts: &[u32]| {
            let sum: u64 = starts.iter().map(|&start| self.look_ups(start, depth)).sum();
            sum as f64 / starts.len().max(1) as f64
        };
        mean(few) / mean(&self.starts)
    }

    fn look_ups(&self, node: u32, depth: u32) -> u64 {
        let friends = if depth > 1 { self.lists.get(&node) } else { None };
        let below = friends.into_iter().flatten().map(|&friend| self.look_ups(friend, depth - 1));
        1 + below.sum::<u64>()
    }

    /// The SETs that store the graph.
    pub(crate) fn commands(&self) -> Vec<Vec<Vec<u8>>> {
        let set = |(node, friends): (&u32, &Vec<u32>)| {
            let value = friends.iter().flat_map(|friend| friend.to_le_bytes()).collect();
            vec![b"SET".to_vec(), node.to_string().into_bytes(), value]
        };
        self.lists.iter().map(set).collect()
    }
}

/// The nodes in a stored list.
pub(crate) fn unpack(value: &[u8]) -> impl Iterator<Item = u32> {
    value.chunks_exact(NODE_BYTES).map(|bytes| {
        let mut node = [0; NODE_BYTES];
        node.copy_from_slice(bytes);
        u32::from_le_bytes(node)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The graph in the binary is the published one: its node, edge and start counts.
    #[test]
    fn the_graph_is_whole() {
        let graph = Graph::load().expect("it is part of the binary");
        assert_eq!((graph.lists.len(), graph.edges()), (3663, 88_234));
        assert_eq!(graph.starts.len(), 200);
        assert!((graph.weight(&graph.starts, 3) - 1.0).abs() < 1e-9);
        assert!((graph.weight(&graph.starts[..20], 3) - 1949.1 / 993.02).abs() < 1e-3);
        let packed: Vec<u8> = [1u32, 70_000].iter().flat_map(|node| node.to_le_bytes()).collect();
        assert!(unpack(&packed).eq([1, 70_000]));
    }
}
