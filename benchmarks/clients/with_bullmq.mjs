// BullMQ on Redis, as compare.py starts it: `ACTION COUNT RESULT_FILE`. `REDIS_PORT` is the server, `MODULES` the folder of the packages.
import { createRequire } from "node:module";
import { join } from "node:path";
import { action, count, inBatches, measured, PAYLOAD, say } from "./common.mjs";

const { Queue, Worker } = createRequire(join(process.env.MODULES, "package.json"))("bullmq");
const connection = { host: "127.0.0.1", port: Number(process.env.REDIS_PORT), maxRetriesPerRequest: null };
const options = { removeOnComplete: true };
const job = { data: PAYLOAD };

/** Runs `use` with a queue that is ready. */
async function withQueue(use) {
  const queue = new Queue("bench", { connection });
  await queue.waitUntilReady();
  await use(queue);
  await queue.close();
}

async function work() {
  let [done, from] = [0, 0];
  const noop = async () => {
    from ||= performance.now();
  };
  const worker = new Worker("bench", noop, { connection, concurrency: 100 });
  await new Promise((resolve) => {
    worker.on("completed", () => {
      done += 1;
      if (done === count) resolve();
    });
  });
  say(performance.now() - from);
  await worker.close();
}

const add = (queue) => queue.add("noop", job, options);
const bulk = (size) => Array.from({ length: size }, () => ({ name: "noop", data: job, opts: options }));
const actions = {
  "push each": () => withQueue((queue) => measured(() => inBatches(1, () => add(queue)))),
  "push at once": () => withQueue((queue) => measured(() => inBatches(1_000, (size) => Promise.all(Array.from({ length: size }, () => add(queue)))))),
  "push many": () => withQueue((queue) => measured(() => inBatches(1_000, (size) => queue.addBulk(bulk(size))))),
  work,
};
await actions[action]();
