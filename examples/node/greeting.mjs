import { openAsync } from 'nigh';

const db = await openAsync('data');
db.put('greeting', 'hello');                            // survives this process
await db.putAsync('order', 'paid', { strong: true });   // on disk when it resolves
db.batch().put('user:1', 'Ada').put('user:2', 'Alan').write();  // all of it or nothing
console.log(String(db.get('greeting')), db.get('other'));
for (const [key, value] of db.scan('user:')) console.log(`${key} is ${value}`);
await db.closeAsync();
