//! Whether the system gives an arena's file huge pages.
//!
//! A tmpfs has them if it was mounted so (`mount -o remount,huge=always /dev/shm`), or if the
//! system forces them on all. The mount decides; why Nigh doesn't ask for them by itself is design
//! 10.
//!
//! Any thread.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Mutex, PoisonError};

/// The huge page of most systems: what one entry of the level above the last page table maps.
pub(crate) const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// Whether files on a device are given huge pages. It is looked up once, when the first of them is
/// mapped.
pub(crate) fn are_given(device: u64) -> bool {
    static KNOWN: Mutex<BTreeMap<u64, bool>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    *known.entry(device).or_insert_with(|| {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let for_all = read("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
        gives(&for_all, &read("/proc/self/mountinfo"), device)
    })
}

/// The same, from what the system says for all files in memory and of its mounts.
fn gives(for_all: &str, mounts: &str, device: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let number = format!("{major}:{minor}");
    let is_mounted_so = |line: &str| {
        let options = line.rsplit(' ').next().unwrap_or_default();
        line.split(' ').nth(2) == Some(&number)
            && options.split(',').any(|option| matches!(option, "huge=always" | "huge=within_size"))
    };
    let is_forced = for_all.contains("[force]");
    is_forced || !for_all.contains("[deny]") && mounts.lines().any(is_mounted_so)
}

#[cfg(test)]
mod tests {
    use super::gives;

    #[test]
    fn a_mount_says_whether_its_files_have_huge_pages() {
        let mount = |options: &str| {
            format!(
                "22 1 254:0 / / rw - ext4 /dev/root rw\n\
                 31 22 0:26 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=1024k{options}\n\
                 32 22 0:27 / /other rw - tmpfs tmpfs rw,huge=always\n"
            )
        };
        let device = rustix::fs::makedev(0, 26);
        let never = "always within_size advise [never] deny force";
        for (options, given) in
            [("", false), (",huge=never", false), (",huge=advise", false), (",huge=always", true)]
        {
            assert_eq!(gives(never, &mount(options), device), given, "{options}");
        }
        let chosen =
            |word: &str| never.replace("[never]", "never").replace(word, &format!("[{word}]"));
        assert!(gives(&chosen("force"), &mount(""), device));
        assert!(!gives(&chosen("deny"), &mount(",huge=always"), device));
        assert!(!gives("", "", device));
    }
}
