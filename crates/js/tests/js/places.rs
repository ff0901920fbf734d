//! Tenants of several partitions: in which arena a key is found.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{NOW_MS, World, call, partition, patient};
use nigh_js::{FunctionLimits, Mapping, RunTurn, Runtime, TenantArenas};
use nigh_shm::{ArenaSpec, Domain, Participant, Region, Writer};
use xxhash_rust::xxh32::xxh32;

/// The arenas of a tenant, by nigh-shm, with one seed.
struct Arenas {
    writers: Vec<Writer>,
    participant: Participant,
    seed: u32,
    _dir: tempfile::TempDir,
}

impl Arenas {
    fn new(partitions: u32, seed: u32) -> Arenas {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let domain = Domain::new(2);
        let writer = |partition| {
            let spec = ArenaSpec {
                path: dir.path().join(format!("{partition}.arena")),
                tenant: "t".into(),
                partition,
                partitions,
                // Their slots differ in size.
                capacity_bytes: (16 << 20) << (partition % 3 * 2),
                seed: Some(seed),
            };
            Writer::create(&spec, &domain).unwrap()
        };
        let writers: Vec<Writer> = (0..partitions).map(writer).collect();
        assert!(writers.iter().all(|writer| writer.hash(b"k") == xxh32(b"k", seed)));
        Arenas { writers, participant: domain.join(), seed, _dir: dir }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        let at = partition(self.seed, key, self.writers.len());
        let writer = &mut self.writers[at];
        let hash = writer.hash(key);
        writer.put(&self.participant.pin(), hash, key, &[value], 0).unwrap();
        self.participant.quiescent();
        writer.maintain(nigh_shm::UpkeepBudget::default());
    }

    fn mapped(&self) -> TenantArenas {
        let mapping = |writer: &Writer| {
            let region = Arc::<Region>::clone(writer.region());
            let (base, len) = (region.base(), region.address_bytes());
            // SAFETY: the region stays mapped as long as the Arc lives, and is an arena.
            unsafe { Mapping::new(base, len, region as Arc<dyn Any + Send + Sync>) }
        };
        self.writers.iter().map(mapping).collect::<Vec<_>>().into()
    }
}

/// A generator of test data, the same each time.
struct Dice(u64);
impl Dice {
    fn next(&mut self, below: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }

    /// A key as a function gives it (JavaScript), and its bytes.
    fn key(&mut self) -> (String, Vec<u8>) {
        const PIECES: [&str; 12] = [
            "{",
            "}",
            "{}",
            "a",
            "user",
            "7",
            "é",
            "€",
            "{tag}",
            "{é}",
            "longer than eight",
            "x{y",
        ];
        match self.next(8) {
            0 => {
                let number = [self.next(10), self.next(1000), self.next(200_000_000)][self.next(3)];
                (number.to_string(), number.to_string().into_bytes())
            }
            1 => (format!("-{}", self.next(99) + 1), Vec::new()),
            2 => {
                let bytes: Vec<u8> =
                    (0..self.next(20)).map(|_| b"{}ab\xff\0\xc3\xa9"[self.next(8)]).collect();
                (format!("new Uint8Array({bytes:?})"), bytes)
            }
            _ => {
                let text: String = (0..self.next(5)).map(|_| PIECES[self.next(12)]).collect();
                (format!("{text:?}"), text.into_bytes())
            }
        }
    }
}

#[test]
fn each_key_is_found_in_the_partition_of_its_tag() {
    // Keys of all kinds, with and without tags, two thirds of them stored, against a rule written
    // anew in Rust. get, exists and ttl find a stored key with its own value, and miss the others.
    // With one partition and with several, whose arenas have slots of different sizes.
    for partitions in [1u32, 2, 3, 7] {
        let mut arenas = Arenas::new(partitions, 0x0bad_5eed + partitions);
        let mut dice = Dice(u64::from(partitions));
        let mut cases: Vec<(String, Vec<u8>)> = (0..3000).map(|_| dice.key()).collect();
        for (code, bytes) in &mut cases {
            if code.starts_with('-') {
                *bytes = code.clone().into_bytes();
            }
        }
        cases.extend(edges(arenas.seed, u64::from(partitions)));
        cases.push(("'x'.repeat(40) + '{tag}' + 'y'.repeat(40)".into(), long_key()));
        let stored = |bytes: &[u8]| !xxh32(bytes, 1).is_multiple_of(3);
        let mut used = vec![false; partitions as usize];
        for (_, bytes) in cases.iter().filter(|(_, bytes)| stored(bytes)) {
            used[partition(arenas.seed, bytes, partitions as usize)] = true;
            arenas.put(bytes, bytes);
        }
        assert!(used.iter().all(|&used| used), "{partitions} partitions");
        let list: String = cases
            .iter()
            .map(|(code, bytes)| format!("[{code}, {}, {bytes:?}],\n", stored(bytes)))
            .collect();
        let source = format!(
            "#!js name=t\nconst cases = [\n{list}];\n\
             export function check(db) {{\n\
               const held = [];\n\
               for (const [key, stored, bytes] of cases) {{\n\
                 const record = db.get(key);\n\
                 if ((record !== undefined) !== stored || db.exists(key) !== stored || (db.ttl(key) === Infinity) !== stored)\n\
                   throw new Error(`${{key}} (${{bytes}}): ${{record}}`);\n\
                 if (stored) held.push([key, record, bytes]);\n\
               }}\n\
               for (const [key, record, bytes] of held) {{\n\
                 if (record.byteLength !== bytes.length) throw new Error(`length of ${{key}}`);\n\
                 for (let i = 0; i < bytes.length; i++) if (record.u8(i) !== bytes[i]) throw new Error(`byte of ${{key}}`);\n\
                 if (record.bytes().join() !== bytes.join()) throw new Error(`copy of ${{key}}`);\n\
                 if (typeof key === 'string' && record.text() !== key) throw new Error(`text of ${{key}}`);\n\
               }}\n\
               return held.length;\n\
             }}"
        );
        let mut runtime = Runtime::new(FunctionLimits { call_ms: 20_000, ..patient() }).unwrap();
        let tenant = runtime.open_tenant(arenas.mapped());
        let library = runtime.load(tenant, source.as_bytes()).unwrap();
        runtime.install(tenant, &library, source.as_bytes()).unwrap();
        let count = cases.iter().filter(|(_, bytes)| stored(bytes)).count();
        let turn = RunTurn {
            now_ms: NOW_MS,
            random_seed: 1,
            reply_bytes: usize::MAX,
            time: Duration::MAX,
            still: 0,
        };
        let mut world = World::default();
        for _ in 0..20 {
            // Interpreted first, then compiled.
            runtime.run(tenant, &[call("check")], turn, &mut world, &mut |_, reply| {
                assert_eq!(
                    String::from_utf8_lossy(reply),
                    format!(":{count}\r\n"),
                    "{partitions} partitions"
                );
            });
        }
    }
}

/// Numbers that all bits of their hash place: the upper 16 alone would place them elsewhere.
fn edges(seed: u32, partitions: u64) -> Vec<(String, Vec<u8>)> {
    let placed_by_all = |n: &u32| {
        let hash = u64::from(xxh32(n.to_string().as_bytes(), seed));
        (hash * partitions) >> 32 != ((hash >> 16) * partitions) >> 16
    };
    let found: Vec<u32> = (0..1_000_000).filter(placed_by_all).take(20).collect();
    assert_eq!(found.is_empty(), partitions.is_power_of_two());
    found.iter().map(|n| (n.to_string(), n.to_string().into_bytes())).collect()
}

fn long_key() -> Vec<u8> {
    [vec![b'x'; 40], b"{tag}".to_vec(), vec![b'y'; 40]].concat()
}
