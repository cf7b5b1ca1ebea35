// Worker of the scenarios in clients/scenarios: runs the operations in the payload of `flow`.
import { appendFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Fail, Retry, Snooze, Windlass } from "../dist/index.js";

const folder = process.env.SCENARIO_DIR;
const app = new Windlass();

const file = (name) => join(folder, name);
const effect = (line) => appendFileSync(file("effects"), `${line}\n`);

/** True the first time that it is called with this name, in any process. */
function isFirst(name) {
  try {
    writeFileSync(file(name), "", { flag: "wx" });
    return true;
  } catch (error) {
    if (error.code === "EEXIST") return false;
    throw error;
  }
}

function killOnce(id) {
  if (!isFirst(`killed-${id}`)) return;
  process.kill(process.pid, "SIGKILL");
  for (;;); // The signal is on its way; nothing may happen before it comes.
}

async function work(op) {
  const { step, fail_times: failTimes = 0 } = op;
  if (op.kill === "before") killOnce(`${step}-before`);
  if (op.effect !== undefined) effect(op.effect);
  if (op.kill === "after") killOnce(`${step}-after`);
  if (failTimes > 0) {
    const path = file(`failed-${step}`);
    const failed = existsSync(path) ? readFileSync(path).length : 0;
    if (failed < failTimes) {
      appendFileSync(path, ".");
      throw new Error(`step ${step} fails`);
    }
  }
  if (op.sleep_ms !== undefined) await pause(op.sleep_ms);
  return op.returns ?? null;
}

class Flow {
  out = {};
  uses = new Map();

  constructor(ctx) {
    this.ctx = ctx;
  }

  /** Name under which a result is kept in `out`. */
  name(base) {
    const use = (this.uses.get(base) ?? 0) + 1;
    this.uses.set(base, use);
    return use === 1 ? base : `${base}#${use}`;
  }

  async step(op) {
    const name = this.name(op.step);
    const options = op.retry === undefined ? {} : { retry: op.retry, backoff: 10 };
    this.out[name] = await this.ctx.step(op.step, () => work(op), options);
  }

  async untilCancelled(ms) {
    const { signal } = this.ctx;
    try {
      await pause(ms, undefined, { signal });
    } catch {
      effect("cancelled");
    }
    this.ctx.throwIfCancelled();
  }

  /** Runs one operation. Returns `{ value }` if it ends the flow. */
  async run(op) {
    const { ctx, out } = this;
    if ("step" in op) await this.step(op);
    else if ("kill" in op) killOnce(op.kill);
    else if ("sleep_ms" in op) await ctx.sleep(op.sleep_ms);
    else if ("wait_for" in op) {
      const timeout = op.timeout_ms === undefined ? {} : { timeout: op.timeout_ms };
      const name = this.name(`wait:${op.wait_for}`);
      out[name] = await ctx.waitFor(op.wait_for, timeout);
    } else if ("all" in op) {
      const name = this.name("all");
      out[name] = await ctx.all(op.all.map((ops) => flow.call({ ops })));
    } else if ("together" in op) await Promise.all(op.together.map((each) => this.step(each)));
    else if ("effect" in op) effect(op.effect);
    else if ("progress" in op) ctx.progress(op.progress, op.note);
    else if ("log" in op) ctx.log(op.log);
    else if ("raise" in op) throw new Error(op.raise);
    else if ("raise_once" in op) {
      if (isFirst(`raised-${op.id}`)) throw new Error(op.raise_once);
    } else if ("fail" in op) throw new Fail(op.fail);
    else if ("retry_after_ms" in op) {
      if (isFirst(`retried-${op.id}`)) throw new Retry({ after: op.retry_after_ms });
    } else if ("snooze_ms" in op) {
      if (isFirst(`snoozed-${op.id}`)) throw new Snooze({ for: op.snooze_ms });
    } else if ("until_cancelled_ms" in op) await this.untilCancelled(op.until_cancelled_ms);
    else if ("return" in op) return { value: op.return };
    else throw new Fail(`unknown operation ${JSON.stringify(op)}`);
    return undefined;
  }
}

const options = { retry: { maxAttempts: 5, backoff: { fixed: 50 } } };
const flow = app.task("flow", options, async (payload, ctx) => {
  const state = new Flow(ctx);
  for (const op of payload.ops) {
    const end = await state.run(op);
    if (end !== undefined) return end.value;
  }
  return state.out;
});

await app.work({ concurrency: 4, lease: "5s" });
app.close();
