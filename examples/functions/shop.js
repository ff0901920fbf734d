#!js name=shop
// A corner shop that never sells what it doesn't have. Buying a basket touches many keys: every item's
// stock, the till, the receipt. Either all of them change or none does, and there is not a line of
// rollback in this file: an error drops everything that the call has written.
//
//   redis-cli -x FUNCTION LOAD < examples/functions/shop.js
//   redis-cli FCALL restock 0 apple 5 30
//   redis-cli FCALL restock 0 cake 1 450
//   redis-cli FCALL buy 0 ada apple 3 cake 1
//   redis-cli FCALL buy 0 bob apple 1 cake 1        the cake is gone, so bob keeps his apple money too
//   redis-cli FCALL_RO shelf 0
//   redis-cli FCALL_RO receipt 0 1
//
// Keys: `shop:item:<name>` {"stock", "price"} as JSON, `shop:receipt:<n>` JSON, `shop:till` and
// `shop:receipts` counters. They are ordinary keys: try `GET shop:till`, or MULTI around two purchases.

const ITEM = "shop:item:";
const RECEIPT = "shop:receipt:";
const RECEIPT_DAYS = 30;

/**
 * Puts things on the shelf. A new price may come with them, in cents. Returns the new stock.
 * FCALL restock 0 <item> <count> [price]
 */
export function restock(db, [name, count, price]) {
  const item = db.json(ITEM + name) ?? { stock: 0, price: 0 };
  item.stock += whole(count, "count");
  if (price !== undefined) item.price = whole(price, "price");
  db.set(ITEM + name, JSON.stringify(item));
  return item.stock;
}

/**
 * Buys a whole basket or nothing. Returns the receipt.
 * FCALL buy 0 <customer> <item> <count> [<item> <count> …]
 */
export function buy(db, [customer, ...basket]) {
  if (basket.length === 0 || basket.length % 2 === 1) {
    throw new Error("a basket is: item count item count …");
  }
  const lines = [];
  let total = 0;
  for (let i = 0; i < basket.length; i += 2) {
    const name = basket[i];
    const count = whole(basket[i + 1], "count");
    const item = db.json(ITEM + name);
    if (item === undefined) throw new Error(`NOITEM we have never sold '${name}', sorry`);
    // A call reads its own writes: the same item twice in a basket counts twice.
    if (item.stock < count) {
      throw new Error(`OUTOFSTOCK only ${item.stock} of '${name}' left; your basket is as you left it`);
    }
    item.stock -= count;
    db.set(ITEM + name, JSON.stringify(item));
    lines.push({ name, count, cents: count * item.price });
    total += count * item.price;
  }
  const number = db.incr("shop:receipts");
  db.incr("shop:till", total);
  const receipt = { number, customer, lines, total, thanks: thanks(customer, total) };
  db.set(RECEIPT + number, JSON.stringify(receipt));
  db.expire(RECEIPT + number, RECEIPT_DAYS * 24 * 3600 * 1000);
  // To a log line of the server, with the names of library and function.
  console.log(`receipt ${number}: ${customer} paid ${total}`);
  return receipt;
}

/**
 * What lies on the shelf: a map from item to [stock, price].
 * FCALL_RO shelf 0
 */
export function shelf(db) {
  const items = new Map();
  let cursor = 0;
  // As SCAN does, a page at a time: done when the cursor is 0 again.
  do {
    const page = db.scan(ITEM, cursor);
    for (const key of page.keys) {
      const { stock, price } = db.json(key);
      items.set(key.slice(ITEM.length), [stock, price]);
    }
    cursor = page.cursor;
  } while (cursor !== 0);
  // A scan has no order of its own; a Map becomes a map in the order of its entries.
  return new Map([...items].sort());
}
shelf.flags = ["no-writes"];

/**
 * A receipt, as long as we keep it; else null.
 * FCALL_RO receipt 0 <number>
 */
export function receipt(db, [number]) {
  return db.json(RECEIPT + number);
}
receipt.flags = ["no-writes"];

function whole(text, what) {
  const n = Number(text);
  if (!Number.isSafeInteger(n) || n < 0) throw new Error(`${what} '${text}' is not a whole number`);
  return n;
}

function thanks(customer, cents) {
  if (cents === 0) return `On the house, ${customer}.`;
  return cents >= 1000 ? `${customer}, you made our day!` : `Enjoy it, ${customer}!`;
}
