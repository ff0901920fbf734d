// What a key's bytes decide: its hash, xxHash32 with the arena's seed, and its partition
// (docs/formats/arena.md).

// --- xxHash32 ---
const P1 = 0x9e3779b1 | 0;
const P2 = 0x85ebca77 | 0;
const P3 = 0xc2b2ae3d | 0;
const P4 = 0x27d4eb2f | 0;
const P5 = 0x165667b1 | 0;
const SHORT_START = (SEED + P5) | 0;

function hashWord(h, word) {
  h = (h + imul(word, P3)) | 0;
  return imul((h << 17) | (h >>> 15), P4);
}

function hashTail(h, word, bytes) {
  for (; bytes > 0; bytes--) {
    h = (h + imul(word & 255, P5)) | 0;
    h = imul((h << 11) | (h >>> 21), P1);
    word >>>= 8;
  }
  return avalanche(h);
}

function avalanche(h) {
  h = imul(h ^ (h >>> 15), P2);
  h = imul(h ^ (h >>> 13), P3);
  return h ^ (h >>> 16);
}

// The hash of 1 to 8 bytes in two little-endian words.
function hashShort(low, high, length) {
  let h = (SHORT_START + length) | 0;
  if (length < 4) return hashTail(h, low, length);
  h = hashWord(h, low);
  if (length === 8) return avalanche(hashWord(h, high));
  return hashTail(h, high, length & 3);
}

const LANE_A = (SEED + P1 + P2) | 0;
const LANE_B = (SEED + P2) | 0;
const LANE_C = SEED;
const LANE_D = (SEED - P1) | 0;

function mergeLanes(a, b, c, d) {
  return (((a << 1) | (a >>> 31)) + ((b << 7) | (b >>> 25)) + ((c << 12) | (c >>> 20)) +
    ((d << 18) | (d >>> 14))) | 0;
}

function hashLane(v, word) {
  v = (v + imul(word, P2)) | 0;
  return imul((v << 13) | (v >>> 19), P1);
}

// The hash of the bytes at KEY_AT.
function hashLong(length) {
  let at = KEY_AT >> 2;
  let left = length;
  let h = SHORT_START;
  if (length >= 16) {
    let a = LANE_A;
    let b = LANE_B;
    let c = LANE_C;
    let d = LANE_D;
    for (; left >= 16; left -= 16) {
      a = hashLane(a, I[at]);
      b = hashLane(b, I[at + 1]);
      c = hashLane(c, I[at + 2]);
      d = hashLane(d, I[at + 3]);
      at += 4;
    }
    h = mergeLanes(a, b, c, d);
  }
  h = (h + length) | 0;
  for (; left >= 4; left -= 4) h = hashWord(h, I[at++]);
  return hashTail(h, I[at], left);
}

// --- the partition of a key ---

// The first window of the arena of all keys with this hash: (hash as u64 * PARTITIONS) >> 32, in
// two halves.
function placeOf(hash) {
  const low = imul(hash & 0xffff, PARTITIONS) >>> 16;
  return (imul(hash >>> 16, PARTITIONS) + low) >>> 16 << WINDOWS_SHIFT;
}

// Whether one of the eight bytes, all below 128, is '{'.
function hasBrace(low, high) {
  return (((low ^ 0x7b7b7b7b) - 0x01010101 | (high ^ 0x7b7b7b7b) - 0x01010101) & 0x80808080) !== 0;
}
