'use strict';

// A process that has a database open, and does what its parent says: [name, ...arguments].

const nigh = require('nigh');

let db;

const buffers = (pairs) => pairs.map(([key, value]) => [Buffer.from(key), Buffer.from(value)]);

const calls = {
  open(folder, options) {
    db = nigh.open(folder, options);
  },
  // Writes that happen together; null deletes.
  write(name, writes, options) {
    const batch = db.batch();
    for (const [key, value] of writes) {
      if (value === null) batch.delete(key);
      else batch.put(key, value);
    }
    return batch[name](options);
  },
  items: (prefix) => buffers([...db.scan(prefix)]),
  snapshot: (prefix) => buffers([...db.snapshot(prefix)]),
  keys: () => db.stats().keys,
};

process.on('message', async ([name, ...given]) => {
  let answer;
  try {
    answer = { result: await (calls[name] ? calls[name](...given) : db[name](...given)) };
  } catch (error) {
    answer = { code: error.code, message: error.message };
  }
  process.send(answer);
});
