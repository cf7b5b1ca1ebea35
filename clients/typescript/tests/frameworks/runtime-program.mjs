// Program of runtimes.test.mjs: producer, worker and steps in one process, against a server that it starts itself.
import { dev, Fail, Windlass } from "../../dist/index.js";

const server = await dev();
const app = new Windlass({ server: server.url });
const pack = app.task("pack", async (item) => `packed ${item}`);
const order = app.task("order", async (o, ctx) => {
  const charge = await ctx.step("charge", () => ({ total: o.total }));
  await ctx.sleep("50ms");
  const by = await ctx.waitFor("approval", { timeout: "20s" });
  return { ...charge, by, parts: await ctx.all([pack.call("lamp"), pack.call("chair")]) };
});
const broken = app.task("broken", async () => {
  throw new Fail("for good");
});
const hanging = app.task("hanging", { retry: 1, timeout: "100ms" }, async (_, ctx) => {
  await new Promise((_, reject) => ctx.signal.addEventListener("abort", () => reject(ctx.signal.reason)));
});

const stop = new AbortController();
const worker = app.work({ concurrency: 4, signals: false, signal: stop.signal, lease: "2s" });
const job = await order.push({ total: 7 });
await job.signal("approval", "ann");
const failure = async (task) => (await task.push()).wait({ timeout: "20s" }).catch((error) => error.failureClass);
const results = [await job.wait({ timeout: "20s" }), await failure(broken), await failure(hanging)];
const pushed = await Promise.all(Array.from({ length: 300 }, (_, n) => pack.push(n)));
stop.abort();
await worker;
app.close();
await server.stop();
console.log(JSON.stringify([...results, new Set(pushed.map(({ id }) => id)).size]));
