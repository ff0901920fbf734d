#!js name=projection
// Reads one field of many records. A client that wants 4 bytes of each value must fetch the whole values;
// a function reads the 4 bytes where they lie, and sends only those.
//
// The records are rows of fixed width. Here: `reading:<n>`, little-endian
//
//   offset  0  uint32   sensor
//           4  float32  temperature, °C
//           8  float64  time, Unix ms
//          16  …        a payload that these functions never touch
//
//   redis-cli -x FUNCTION LOAD < examples/functions/projection.js
//   redis-cli FCALL_RO column 2 reading:1 reading:2 4
//   redis-cli FCALL_RO mean 0 reading: 1000

/**
 * The uint32 at byte `offset` of each key's value; null where a key is missing.
 * FCALL_RO column <numkeys> <key> … <offset>
 */
export function column(db, [offset], keys) {
  const index = wordOf(offset);
  // undefined becomes null. A read past the end of a value is a RangeError, thus an error reply.
  return keys.map((key) => db.get(key)?.u32(index));
}
column.flags = ["no-writes"];

/**
 * Sum of the uint32 at byte `offset` of the values of `<prefix>0` … `<prefix><count - 1>`.
 * FCALL_RO sum 0 <prefix> <count> <offset>
 */
export function sum(db, [prefix, count, offset]) {
  const index = wordOf(offset);
  let total = 0;
  for (let n = 0; n < Number(count); n++) {
    const row = db.get(prefix + n);
    if (row !== undefined) total += row.u32(index);
  }
  return total;
}
sum.flags = ["no-writes"];

/**
 * Mean temperature of readings 0 … count - 1, as a double, with how many there are: {mean, rows}.
 * FCALL_RO mean 0 <prefix> <count>
 */
export function mean(db, [prefix, count]) {
  let total = 0;
  let rows = 0;
  for (let n = 0; n < Number(count); n++) {
    const row = db.get(prefix + n);
    if (row === undefined) continue;
    total += row.f32(1); // indices count elements: the second float32 lies at byte 4
    rows++;
  }
  // A plain object is a map in RESP3 and a flat array in RESP2.
  return { mean: rows === 0 ? null : total / rows, rows };
}
mean.flags = ["no-writes"];

/**
 * Writes one reading. A value that is made of numbers is built in an ArrayBuffer.
 * FCALL record 1 <key> <sensor> <temperature>
 */
export function record(db, [sensor, temperature], [key]) {
  const row = new DataView(new ArrayBuffer(256)); // 16 bytes of fields, 240 of payload
  row.setUint32(0, Number(sensor), true);
  row.setFloat32(4, Number(temperature), true);
  row.setFloat64(8, db.now(), true);
  db.set(key, row);
}

function wordOf(offset) {
  const index = Number(offset) / 4;
  if (!Number.isInteger(index)) throw new Error(`offset ${offset} is not a multiple of 4`);
  return index;
}
