// Windlass in Node, as compare.py starts it: `ACTION COUNT RESULT_FILE`.
import { Windlass } from "../../clients/typescript/dist/index.js";
import { action, count, inBatches, measured, PAYLOAD, say } from "./common.mjs";

const app = new Windlass();
const stop = new AbortController();
let [left, from] = [count, 0];
const noop = app.task("noop", { queue: "bench", keep: { completed: 0 } }, async () => {
  from ||= performance.now();
  left -= 1;
  if (left === 0) stop.abort();
});
const job = { data: PAYLOAD };

const actions = {
  "push each": () => measured(() => inBatches(1, () => noop.push(job))),
  "push at once": () => measured(() => inBatches(1_000, (size) => Promise.all(Array.from({ length: size }, () => noop.push(job))))),
  "push many": () => measured(() => inBatches(1_000, (size) => noop.pushMany(Array.from({ length: size }, () => job)))),
  work: async () => {
    await app.work({ concurrency: 100, signal: stop.signal });
    // When every report has arrived.
    say(performance.now() - from);
  },
};
await actions[action]();
app.close();
