//! Which core a shard runs on.
//!
//! Called by the shard's thread, as it begins.

use crate::config::Config;
use crate::error::ServeError;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Pins shard `number`: from the core that is set on, or if there are several, one core each.
pub(crate) fn pin_to_core(config: &Config, number: usize, shards: usize) -> Result<(), ServeError> {
    let core = match usize::try_from(config.number("pin-core")) {
        Ok(first) => first + number,
        Err(_) => {
            let Ok(allowed) = sched_getaffinity(None) else { return Ok(()) };
            let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
            match cores.nth(number) {
                Some(core) if shards > 1 && shards <= allowed.count() as usize => core,
                _ => return Ok(()),
            }
        }
    };
    let mut one = CpuSet::new();
    if core < CpuSet::MAX_CPU {
        one.set(core); // a set of none, which is refused, if the core's number is too high
    }
    sched_setaffinity(None, &one).map_err(|_| {
        ServeError::Setting(format!("setting `pin-core`: there is no core {core} to pin to"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pins a thread of its own as a shard's; the core that it may run on then, if that is one, or
    /// why not.
    fn pinned(first: &str, number: usize, shards: usize) -> Result<Option<usize>, String> {
        let mut config = Config::default();
        config.set("pin-core", first).expect("the setting takes it");
        let pin = move || {
            pin_to_core(&config, number, shards).map_err(|error| error.to_string())?;
            let cores = sched_getaffinity(None).expect("a thread may ask");
            let core = (0..CpuSet::MAX_CPU).find(|core| cores.is_set(*core));
            Ok(core.filter(|_| cores.count() == 1))
        };
        std::thread::spawn(pin).join().expect("it doesn't panic")
    }

    /// A shard runs on the core that is set for it; without a setting on one of its own, if there
    /// are as many; and a core that isn't there is named in the error.
    #[test]
    fn a_shard_is_pinned_to_its_core_or_the_missing_core_is_named() {
        let allowed = sched_getaffinity(None).expect("a thread may ask");
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|it| allowed.is_set(*it)).collect();
        let last = cores[cores.len() - 1];
        assert_eq!(pinned(&last.to_string(), 0, 1), Ok(Some(last)));
        if last > 0 {
            assert_eq!(pinned(&(last - 1).to_string(), 1, 2), Ok(Some(last)));
        }
        if let [first, second, ..] = cores[..] {
            assert_eq!(pinned("-1", 0, 2), Ok(Some(first)));
            assert_eq!(pinned("-1", 1, 2), Ok(Some(second)));
            assert_eq!(pinned("-1", 0, 1), Ok(None), "one shard runs where it likes");
            assert_eq!(pinned("-1", 0, cores.len() + 1), Ok(None), "there are too few");
        }
        for (first, number) in [("1023", 0), ("1023", 1)] {
            if last < 1023 {
                let core = 1023 + number;
                let error = format!("setting `pin-core`: there is no core {core} to pin to");
                assert_eq!(pinned(first, number, 2), Err(error));
            }
        }
    }
}
