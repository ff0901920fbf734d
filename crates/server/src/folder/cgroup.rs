//! The memory that the process's control group allows it, of version 2 and of version 1.
//!
//! ```text
//! /proc/self/cgroup ── 0::/a/b ────────> /sys/fs/cgroup{,/unified}/a/b/memory.max
//!                   └─ 9:memory:/a/b ──> /sys/fs/cgroup/memory/a/b/memory.limit_in_bytes
//! ```
//!
//! 1. A group is bounded by all groups above it: the least limit counts.
//! 2. A container may see its own group as the root, or a path that isn't there: what can be read
//!    counts. What can't is no limit.
//!
//! Pages of a tmpfs are charged to the group that touched them first. So arenas and journals count,
//! beside the process's own memory. Called by the thread that starts the server.

use std::path::{Component, Path, PathBuf};

/// The controller of memory, of which version 2 names none; where it is mounted, and how it names
/// its limit.
const PLACES: [(&str, &str, &str); 3] = [
    ("", "sys/fs/cgroup", "memory.max"),
    ("", "sys/fs/cgroup/unified", "memory.max"),
    ("memory", "sys/fs/cgroup/memory", "memory.limit_in_bytes"),
];
/// From here on version 1 means that there is no limit: it writes the largest count of pages.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// A limit, and the file that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemoryLimit {
    pub(crate) bytes: u64,
    pub(crate) file: PathBuf,
}

/// The least limit of this process's groups; the system's files are below `root`, which is `/`.
pub(crate) fn memory_limit(root: &Path) -> Option<MemoryLimit> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let limits = PLACES.iter().flat_map(|&(controller, mount, name)| {
        let group = groups.lines().find_map(|line| group_of(line, controller)).unwrap_or("/");
        let mount = root.join(mount);
        folders(group).into_iter().filter_map(move |folder| {
            let file = mount.join(folder).join(name);
            // Version 2 writes `max` for none.
            let bytes = std::fs::read_to_string(&file).ok()?.trim().parse().ok()?;
            (bytes < NO_LIMIT_BYTES).then_some(MemoryLimit { bytes, file })
        })
    });
    limits.min_by_key(|limit| limit.bytes)
}

/// The path of a group, if this line of `/proc/self/cgroup` is of that controller.
fn group_of<'a>(line: &'a str, controller: &str) -> Option<&'a str> {
    let (_number, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    controllers.split(',').any(|other| other == controller).then_some(path)
}

/// A group's folder below the mount, and those of all groups above it, the mount's too. A path that
/// leads out of it, as a namespace shows groups of others, has the mount alone.
fn folders(group: &str) -> Vec<PathBuf> {
    let relative = Path::new(group.trim_start_matches('/'));
    let is_plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
    let deepest = if is_plain { relative } else { Path::new("") };
    deepest.ancestors().map(Path::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        root
    }

    fn limit(files: &[(&str, &str)]) -> Option<(u64, String)> {
        let root = tree(files);
        let limit = memory_limit(root.path())?;
        let file = limit.file.strip_prefix(root.path()).expect("it is below");
        Some((limit.bytes, file.display().to_string()))
    }

    /// A unit of systemd: its own limit, or that of its slice if that is less.
    #[test]
    fn the_least_limit_of_version_2_counts() {
        let own = "sys/fs/cgroup/system.slice/nigh.service/memory.max";
        let slice = "sys/fs/cgroup/system.slice/memory.max";
        let group = ("proc/self/cgroup", "0::/system.slice/nigh.service\n");
        let found = limit(&[group, (own, "1073741824\n"), (slice, "max\n")]);
        assert_eq!(found, Some((1 << 30, own.to_owned())));
        let found = limit(&[group, (own, "1073741824\n"), (slice, "536870912\n")]);
        assert_eq!(found, Some((512 << 20, slice.to_owned())));
        assert_eq!(limit(&[group, (own, "max\n"), (slice, "max\n")]), None);
    }

    /// A container: the group is the root of what it sees, or has a path of the host.
    #[test]
    fn a_container_finds_its_limit_at_the_mount() {
        let file = "sys/fs/cgroup/memory.max";
        for group in ["0::/\n", "0::/docker/0123abcd\n", "0::/../../other\n"] {
            let found = limit(&[("proc/self/cgroup", group), (file, "67108864\n")]);
            assert_eq!(found, Some((64 << 20, file.to_owned())), "{group}");
        }
        let file = "sys/fs/cgroup/memory/memory.limit_in_bytes";
        let groups = "5:devices:/docker/0123\n4:cpu,memory:/docker/0123\n0::/\n";
        let found = limit(&[("proc/self/cgroup", groups), (file, "67108864\n")]);
        assert_eq!(found, Some((64 << 20, file.to_owned())));
    }

    /// Version 1, with version 2 beside it: both are looked at, and the largest count of pages is
    /// no limit.
    #[test]
    fn version_1_counts_beside_version_2() {
        let groups = ("proc/self/cgroup", "9:memory:/a/b\n1:name=systemd:/a\n0::/x\n");
        let own = "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes";
        let root = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        let unified = "sys/fs/cgroup/unified/x/memory.max";
        let found = limit(&[groups, root, (own, "2147483648\n")]);
        assert_eq!(found, Some((2 << 30, own.to_owned())));
        let found = limit(&[groups, root, (own, "2147483648\n"), (unified, "1048576\n")]);
        assert_eq!(found, Some((1 << 20, unified.to_owned())));
        assert_eq!(limit(&[groups, root]), None);
        assert_eq!(limit(&[]), None, "a system without groups");
    }
}
