// Speed of no-op jobs with one worker process: `node tests/speed.mjs [JOBS] [CONCURRENCY]`. Starts a server of its own, or uses WINDLASS_SERVER.
import { dev, Windlass } from "../dist/index.js";

const jobs = Number(process.argv[2] ?? 20_000);
const concurrency = Number(process.argv[3] ?? 200);
const server = process.env.WINDLASS_SERVER === undefined ? await dev() : undefined;
const app = new Windlass(server === undefined ? {} : { server: server.url });

let left = 0;
let over;
const noop = app.task("speed.noop", async () => {
  left -= 1;
  if (left === 0) over();
});

async function measured(what, run) {
  const [from, cpu] = [performance.now(), process.cpuUsage()];
  await run();
  const seconds = (performance.now() - from) / 1_000;
  const { user, system } = process.cpuUsage(cpu);
  console.log(`${what}: ${Math.round(jobs / seconds)} jobs/s, ${((user + system) / jobs).toFixed(1)} us of CPU per job in this process`);
}

for (let round = 1; round <= 3; round += 1) {
  await measured(`push ${jobs}`, () => Promise.all(Array.from({ length: jobs }, (_, n) => noop.push({ n }))));
  await measured(`work ${jobs}, concurrency ${concurrency}`, async () => {
    left = jobs;
    const stop = new AbortController();
    const worker = app.work({ concurrency, signal: stop.signal });
    await new Promise((resolve) => {
      over = resolve;
    });
    stop.abort();
    await worker;
  });
}
app.close();
await server?.stop();
