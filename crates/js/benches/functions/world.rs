//! A runtime with one tenant on an arena that nigh-shm wrote.
#![allow(dead_code, reason = "each bench uses a part")]

use std::sync::Arc;
use std::time::Duration;

use nigh_js::{
    Call, CallWrite, FunctionLimits, Host, Level, Library, Mapping, RunTurn, Runtime, Tenant,
};
use nigh_shm::{ArenaSpec, Domain, Participant, Reader, Writer};

#[path = "cpu_time.rs"]
pub(crate) mod cpu_time;

struct Nobody;
impl Host for Nobody {
    fn commit(&mut self, _: &[CallWrite<'_>]) -> Result<(), String> {
        Ok(())
    }
    fn scan(&mut self, _: &[u8], _: u64, _: u32, _: &mut dyn FnMut(&[u8])) -> u64 {
        0
    }
    fn log(&mut self, _: Level, _: &str, function: &str, text: &str) {
        eprintln!("{function}: {text}");
    }
}

pub(crate) struct World {
    pub(crate) runtime: Runtime,
    pub(crate) tenant: Tenant,
    pub(crate) reader: Reader,
    pub(crate) participant: Participant,
    writer: Writer,
    _dir: tempfile::TempDir,
}

impl World {
    pub(crate) fn new(source: &str, fill: impl Fn(&mut dyn FnMut(&[u8], &[u8]))) -> World {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let domain = Domain::new(2);
        let spec = ArenaSpec {
            path: dir.path().join("bench.arena"),
            tenant: "bench".into(),
            partition: 0,
            partitions: 1,
            seed: None,
            capacity_bytes: 1 << 30,
        };
        let mut writer = Writer::create(&spec, &domain).unwrap();
        let mut participant = domain.join();
        let mut puts = 0;
        fill(&mut |key, value| {
            let hash = writer.hash(key);
            writer.put(&participant.pin(), hash, key, &[value], 0).unwrap();
            puts += 1;
            if puts % 64 == 0 {
                participant.quiescent();
                while writer.maintain(nigh_shm::UpkeepBudget::default()).more {}
            }
        });
        let region = Arc::clone(writer.region());
        let (base, len) = (region.base(), region.address_bytes());
        // SAFETY: the region stays mapped as long as the Arc lives, and is an arena.
        let mapping = unsafe { Mapping::new(base, len, region) };
        let mut runtime =
            Runtime::new(FunctionLimits { call_ms: 60_000, ..FunctionLimits::default() }).unwrap();
        let tenant = runtime.open_tenant(mapping);
        let library = runtime.load(tenant, source.as_bytes()).unwrap();
        runtime.install(tenant, &library, source.as_bytes()).unwrap();
        let reader = writer.reader();
        World { runtime, tenant, reader, participant, writer, _dir: dir }
    }

    /// A tenant more, with the library installed, whose partitions are all the same arena: it has
    /// every key.
    pub(crate) fn another(&mut self, library: &Library, source: &str, partitions: usize) -> Tenant {
        let mapping = |_| {
            let region = Arc::clone(self.writer.region());
            let (base, len) = (region.base(), region.address_bytes());
            // SAFETY: as in `new`.
            unsafe { Mapping::new(base, len, region) }
        };
        let mappings: Vec<Mapping> = (0..partitions).map(mapping).collect();
        let tenant = self.runtime.open_tenant(mappings);
        self.runtime.install(tenant, library, source.as_bytes()).unwrap();
        tenant
    }

    pub(crate) fn run(&mut self, calls: &[Call<'_>]) -> usize {
        let turn = RunTurn {
            now_ms: 1_700_000_000_000,
            random_seed: 1,
            reply_bytes: usize::MAX,
            time: Duration::MAX,
            still: 0,
        };
        let mut bytes = 0;
        self.runtime.run(self.tenant, calls, turn, &mut Nobody, &mut |_, reply| {
            assert_ne!(reply[0], b'-', "{}", String::from_utf8_lossy(reply));
            bytes += reply.len();
        });
        bytes
    }

    /// Enters V8 `times` times for `calls`, and nothing else.
    #[cfg(feature = "bench-callback")]
    pub(crate) fn enter(&mut self, calls: &[Call<'_>], times: u64) {
        let turn = RunTurn {
            now_ms: 1_700_000_000_000,
            random_seed: 1,
            reply_bytes: usize::MAX,
            time: Duration::MAX,
            still: 0,
        };
        self.runtime.enter_only(self.tenant, calls, turn, times);
    }

    pub(crate) fn reply(&mut self, function: &str, args: &[&[u8]]) -> Vec<u8> {
        let turn = RunTurn {
            now_ms: 1_700_000_000_000,
            random_seed: 1,
            reply_bytes: usize::MAX,
            time: Duration::MAX,
            still: 0,
        };
        let call = Call { function: function.as_bytes(), args, ..Call::default() };
        let mut out = Vec::new();
        self.runtime.run(self.tenant, &[call], turn, &mut Nobody, &mut |_, reply| {
            assert_ne!(reply[0], b'-', "{}", String::from_utf8_lossy(reply));
            out = reply.to_vec();
        });
        out
    }

    /// 1,000 keys that are numbers and 1,000 of 16 bytes, each with its number as a value of 4
    /// bytes.
    pub(crate) fn small(source: &str) -> World {
        World::new(source, |put| {
            for n in 0u32..1000 {
                put(n.to_string().as_bytes(), &n.to_le_bytes());
                put(format!("key:{n:012}").as_bytes(), &n.to_le_bytes());
            }
        })
    }
}
