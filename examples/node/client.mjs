import { connect } from 'nigh';

const client = await connect(process.argv[2] ?? 'unix:/run/nigh.sock');
await client.set('greeting', 'hello');                    // by a ring in shared memory
console.log(await client.get('greeting'));                // from the server's memory
await client.mset({ 'session:9': 'user:7', 'user:7': 'Ada' });
console.log(client.getSync('user:7'), client.isLocal);    // the same, without a Promise
console.log(client.view((view) => view.get(view.get('session:9'))));  // keys of one moment
console.log(await client.multi().incr('visits').expire('visits', 60).exec());
await client.quit();
