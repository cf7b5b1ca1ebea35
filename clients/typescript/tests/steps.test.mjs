// Durable steps against a real server.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { Client } from "../dist/client.js";
import { ChildFailed, Fail, Retry, Snooze } from "../dist/index.js";
import { api, application, deferred, server, until, working } from "./helpers.mjs";

const at = server();
const view = async (id) => (await api(at.url, "GET", `/jobs/${id}`)).body;
const retry = { maxAttempts: 5, backoff: { fixed: 10 } };

/** Counts the calls that keep steps. */
function countingKeeps(t) {
  const original = Client.prototype.keepSteps;
  const calls = [];
  calls.answered = 0;
  Client.prototype.keepSteps = function (id, token, steps) {
    calls.push(steps.map((step) => JSON.parse(step).name));
    return original.call(this, id, token, steps).finally(() => {
      calls.answered += 1;
    });
  };
  t.after(() => {
    Client.prototype.keepSteps = original;
  });
  return calls;
}

test("a kept step is not run again by a later attempt", async (t) => {
  const { app } = application(t, at.url);
  const effects = [];
  const order = app.task("order", { retry }, async (o, ctx) => {
    const charge = await ctx.step("charge", () => {
      effects.push("charge");
      return { sum: o.sum };
    });
    const sent = await ctx.step("send", async () => {
      effects.push("send");
      if (ctx.attempt < 3) throw new Error("post office closed");
      return "sent";
    });
    return [charge, sent];
  });
  working(t, app);
  assert.deepEqual(await (await order.push({ sum: 7 })).wait({ timeout: "20s" }), [{ sum: 7 }, "sent"]);
  assert.deepEqual(effects, ["charge", "send", "send", "send"]);
});

test("the first run sees the result of a step as JSON makes it, like all others", async (t) => {
  const { app } = application(t, at.url);
  const seen = [];
  const dates = app.task("dates", async (_, ctx) => {
    seen.push(await ctx.step("when", () => ({ at: new Date(0), gone: undefined })), await ctx.step("nothing", () => undefined));
    await ctx.sleep(1);
  });
  working(t, app);
  await (await dates.push()).wait({ timeout: "20s" });
  const expected = [{ at: "1970-01-01T00:00:00.000Z" }, null];
  assert.deepEqual(seen, [...expected, ...expected]);
});

test("a name used twice gets a number, by the order of the calls", async (t) => {
  const { app } = application(t, at.url);
  const twice = app.task("twice", async (_, ctx) => {
    const values = [await ctx.step("n", () => 1), await ctx.step("n", () => 2), await ctx.step("n#2", () => 3)];
    await ctx.sleep(1);
    await ctx.sleep(1);
    return values;
  });
  working(t, app);
  const job = await twice.push();
  assert.deepEqual(await job.wait({ timeout: "20s" }), [1, 2, 3]);
  assert.deepEqual((await view(job.id)).steps.map(({ name, kind }) => `${name} ${kind}`), ["n run", "n#2 run", "n#2#2 run", "sleep sleep", "sleep#2 sleep"]);
});

test("steps that finish at the same time are kept with one call", async (t) => {
  const { app } = application(t, at.url);
  const calls = countingKeeps(t);
  const together = app.task("together", async (_, ctx) => Promise.all(["a", "b", "c"].map((name) => ctx.step(name, async () => name.toUpperCase()))));
  working(t, app);
  assert.deepEqual(await (await together.push()).wait({ timeout: "20s" }), ["A", "B", "C"]);
  assert.deepEqual([...calls], [["a", "b", "c"]]);
});

test("a job that sleeps holds no worker", async (t) => {
  const { app } = application(t, at.url);
  const nap = app.task("nap", async (time, ctx) => {
    await ctx.sleep(time);
    return "awake";
  });
  working(t, app, { concurrency: 1 });
  const long = await nap.pushMany(["1h", "2h", "3h"]);
  await until(async () => (await Promise.all(long.map(({ id }) => view(id)))).every(({ state }) => state === "suspended"), "all three suspended");
  const from = Date.now();
  assert.equal(await (await nap.push("100ms")).wait({ timeout: "20s" }), "awake");
  assert.ok(Date.now() - from >= 100);
  assert.ok((await view(long[1].id)).wait.until > Date.now() + 7_000_000);
});

test("a signal wakes the job and brings its payload, also when it came early", async (t) => {
  const { app } = application(t, at.url);
  const begun = deferred();
  const go = deferred();
  const approve = app.task("approve", async (early, ctx) => {
    if (early) {
      begun.resolve();
      await go.promise;
    }
    const first = await ctx.waitFor("approval", { timeout: "1h" });
    const second = await ctx.waitFor("approval", { timeout: "1ms" });
    return { first, second };
  });
  working(t, app);
  const late = await approve.push(false);
  await until(async () => (await view(late.id)).wait?.signal === "approval");
  await late.signal("approval", { by: "ann" });
  assert.deepEqual(await late.wait({ timeout: "20s" }), { first: { by: "ann" }, second: null });
  const early = await approve.push(true);
  await begun.promise;
  await early.signal("approval", { by: "bob" });
  go.resolve();
  assert.deepEqual(await early.wait({ timeout: "20s" }), { first: { by: "bob" }, second: null });
  const steps = (await view(early.id)).steps.map(({ name, kind, timed_out: late }) => [name, kind, late ?? false]);
  assert.deepEqual(steps, [["wait:approval", "signal", false], ["wait:approval#2", "signal", true]]);
});

test("children are waited for without a worker, and their results are in order", async (t) => {
  const { app } = application(t, at.url);
  const pack = app.task("pack", async (item) => `packed ${item}`);
  const box = app.task("box", { retry }, async (items, ctx) => {
    const first = await ctx.all(items.map((item) => pack.call(item)));
    const second = await ctx.all([pack.call("ribbon")]);
    const none = await ctx.all([]);
    return { first, second, none };
  });
  working(t, app, { concurrency: 1 });
  const job = await box.push(["lamp", "chair", "table"]);
  assert.deepEqual(await job.wait({ timeout: "20s" }), { first: ["packed lamp", "packed chair", "packed table"], second: ["packed ribbon"], none: [] });
  assert.equal((await api(at.url, "GET", `/jobs/${job.id}/children`)).body.jobs.length, 4);
});

test("children of a task with a unique key are jobs of their own", async (t) => {
  const { app } = application(t, at.url);
  const pack = app.task("pack-once", { unique: (item) => item }, async (item) => `packed ${item}`);
  const box = app.task("box-once", { retry: 1 }, (items, ctx) => ctx.all(items.map((item) => pack.call(item))));
  const other = await pack.delay("1h").push("lamp");
  working(t, app);
  const job = await box.push(["lamp", "lamp"]);
  assert.deepEqual(await job.wait({ timeout: "20s" }), ["packed lamp", "packed lamp"]);
  await other.cancel();
});

test("more than a thousand children have their results in order, too", async (t) => {
  const { app } = application(t, at.url);
  const square = app.task("square", async (n) => n * n);
  const many = app.task("many", async (count, ctx) => {
    const few = await ctx.all([square.call(7)]);
    const all = await ctx.all(Array.from({ length: count }, (_, n) => square.call(n)));
    return [few, all.length, all.every((value, n) => value === n * n)];
  });
  working(t, app, { concurrency: 200 });
  assert.deepEqual(await (await many.push(1_100)).wait({ timeout: "50s" }), [[49], 1_100, true]);
});

test("a child that fails is an error of all, and an outcome of allSettled", async (t) => {
  const { app } = application(t, at.url);
  const child = app.task("child", async (bad) => {
    if (bad) throw new Fail("no such thing");
    return "fine";
  });
  const strict = app.task("strict", { retry }, (_, ctx) => ctx.all([child.call(false), child.call(true)]));
  const lenient = app.task("lenient", async (_, ctx) => (await ctx.allSettled([child.call(false), child.call(true)])).map((one) => one.value ?? one.reason.message));
  const caught = app.task("caught", async (_, ctx) => {
    try {
      await ctx.all([child.call(true)]);
    } catch (error) {
      return error instanceof ChildFailed && error.childId > 0;
    }
  });
  working(t, app);
  await assert.rejects((await strict.push()).wait({ timeout: "20s" }), { failureClass: "ChildFailed", message: /child \d+ \(child\): no such thing/ });
  assert.deepEqual(await (await lenient.push()).wait({ timeout: "20s" }), ["fine", "no such thing"]);
  assert.equal(await (await caught.push()).wait({ timeout: "20s" }), true);
});

test("a step with its own retries does not cost the job an attempt", async (t) => {
  const { app } = application(t, at.url);
  let tries = 0;
  const shaky = app.task("shaky", { retry: 1 }, (_, ctx) =>
    ctx.step(
      "try",
      () => {
        tries += 1;
        if (tries < 4) throw new Error("shaky");
        return tries;
      },
      { retry: 3, backoff: "1ms" },
    ),
  );
  working(t, app);
  assert.equal(await (await shaky.push()).wait({ timeout: "20s" }), 4);
  tries = -10;
  await assert.rejects((await shaky.push()).wait({ timeout: "20s" }), { message: "shaky" });
  assert.equal(tries, -6);
});

test("Fail, Retry and Snooze in a step with its own retries end the run", async (t) => {
  const { app } = application(t, at.url);
  const outcomes = { fail: () => new Fail("for good"), retry: () => new Retry({ after: "1h" }), snooze: () => new Snooze({ for: "1h" }) };
  const tries = { fail: 0, retry: 0, snooze: 0 };
  const ends = app.task("ends", { retry }, (how, ctx) =>
    ctx.step(
      "end",
      () => {
        tries[how] += 1;
        throw outcomes[how]();
      },
      { retry: 3, backoff: "1ms" },
    ),
  );
  working(t, app);
  const [failed, retried, snoozed] = await ends.pushMany(["fail", "retry", "snooze"]);
  await assert.rejects(failed.wait({ timeout: "20s" }), { message: "for good" });
  await until(async () => (await view(retried.id)).state === "retrying", "the failed attempt");
  await until(async () => (await view(snoozed.id)).state === "delayed", "the snooze");
  assert.deepEqual(tries, { fail: 1, retry: 1, snooze: 1 });
});

/** Runs a job with one version of the code until it is suspended, then with another one. */
async function changed(t, name, options, before, after) {
  const { app: old } = application(t, at.url);
  const first = old.task(name, { retry, ...options }, before);
  const worker = working(t, old);
  const job = await first.push();
  await until(async () => (await view(job.id)).state === "suspended");
  await worker.stop();
  const { app, lines } = application(t, at.url);
  app.task(name, { retry, ...options }, after);
  working(t, app);
  await job.signal("go");
  return { job, lines };
}

test("a kept step that is gone from the code is a warning in the log of the job and of the worker", async (t) => {
  const before = async (_, ctx) => {
    await ctx.step("old", () => 1);
    await ctx.waitFor("go");
  };
  const after = async (_, ctx) => {
    await ctx.waitFor("go");
    return ctx.step("new", () => 2);
  };
  const { job, lines } = await changed(t, "renamed", {}, before, after);
  assert.equal(await job.wait({ timeout: "20s" }), 2);
  assert.ok(lines.some((line) => /steps changed.* old /.test(line)), lines.join("\n"));
  const logged = JSON.stringify((await view(job.id)).log);
  assert.equal(logged.match(/steps changed/g)?.length, 1, logged);
});

test("with onChange refuse, a job whose steps have changed fails before a new step runs", async (t) => {
  let ran = false;
  const before = async (_, ctx) => {
    await ctx.step("old", () => 1);
    await ctx.waitFor("go");
  };
  const after = async (_, ctx) => {
    await ctx.waitFor("go");
    await ctx.step("new", () => {
      ran = true;
    });
  };
  const { job } = await changed(t, "refused", { onChange: "refuse" }, before, after);
  await assert.rejects(job.wait({ timeout: "20s" }), { failureClass: "StepsChanged", message: /old/ });
  assert.equal(ran, false);
  assert.equal((await view(job.id)).attempts, 1);
});

test("steps of a Promise.all of which some are kept are no change", async (t) => {
  const { app, lines } = application(t, at.url);
  const fan = app.task("fan", { retry, onChange: "refuse" }, async (_, ctx) => {
    const names = ["a", "b", "c"];
    return Promise.all(
      names.map(async (name) => {
        const first = await ctx.step(name, async () => {
          if (name === "a" && ctx.attempt === 1) {
            await pause(50);
            throw new Error("not yet");
          }
          return name;
        });
        return first + (await ctx.step(`${name}2`, () => "2"));
      }),
    );
  });
  working(t, app);
  assert.deepEqual(await (await fan.push()).wait({ timeout: "20s" }), ["a2", "b2", "c2"]);
  assert.deepEqual(lines, []);
});

test("steps behind kept children are no change while the children are read", async (t) => {
  const { app } = application(t, at.url);
  const child = app.task("read.child", async (n) => n);
  let fails = 1;
  const chains = app.task("chains", { retry, onChange: "refuse" }, async (_, ctx) => {
    const [first] = await ctx.all([child.call(1)]);
    const packed = deferred();
    const reading = async () => {
      const [second] = await ctx.all([child.call(2)]);
      packed.resolve(await ctx.step("packed", () => second));
      return packed.promise;
    };
    const failing = async () => {
      if (fails > 0) await packed.promise;
      return ctx.step("failing", () => {
        fails -= 1;
        if (fails === 0) throw new Error("not yet");
        return "went on";
      });
    };
    return Promise.all([first, reading(), failing()]);
  });
  working(t, app);
  const job = await chains.push();
  assert.deepEqual(await job.wait({ timeout: "20s" }), [1, 2, "went on"]);
});

test("a job keeps the version with which it began", async (t) => {
  const version = async (_, ctx) => {
    await ctx.waitFor("go");
    return ctx.version;
  };
  const { app: old } = application(t, at.url);
  const first = old.task("versioned", { version: 1 }, version);
  const worker = working(t, old);
  const job = await first.push();
  await until(async () => (await view(job.id)).state === "suspended");
  await worker.stop();
  const { app } = application(t, at.url);
  const second = app.task("versioned", { version: 2 }, version);
  working(t, app);
  await job.signal("go");
  assert.equal(await job.wait({ timeout: "20s" }), 1);
  const young = await second.push();
  await young.signal("go");
  assert.equal(await young.wait({ timeout: "20s" }), 2);
  assert.equal((await view(young.id)).steps[0].name, "@version");
});

test("a wait suspends only after the steps beside it are kept", async (t) => {
  const { app } = application(t, at.url);
  let runs = 0;
  const beside = app.task("beside", async (_, ctx) => {
    const chain = async () => {
      const one = await ctx.step("one", () => pause(30, 1));
      return one + (await ctx.step("two", () => pause(30, (runs += 1))));
    };
    const [sum] = await Promise.all([chain(), ctx.sleep("1ms")]);
    return sum;
  });
  working(t, app);
  assert.equal(await (await beside.push()).wait({ timeout: "20s" }), 2);
  assert.equal(runs, 1);
});

test("a result that the server does not keep fails the job for good", async (t) => {
  const { app } = application(t, at.url);
  let runs = 0;
  const huge = app.task("huge", { retry }, async (_, ctx) =>
    ctx.step("huge", () => {
      runs += 1;
      return "x".repeat(5 << 20);
    }),
  );
  working(t, app);
  await assert.rejects((await huge.push()).wait({ timeout: "20s" }), { failureClass: "StepNotKept" });
  assert.equal(runs, 1);
});

test("a run that has lost its lease does not go on after its step", async (t) => {
  const { app } = application(t, at.url);
  const calls = countingKeeps(t);
  const begun = deferred();
  const go = deferred();
  const seen = [];
  let runs = 0;
  const zombie = app.task("zombie", async (_, ctx) => {
    runs += 1;
    const run = runs;
    try {
      await ctx.step("slow", async () => {
        if (run > 1) return run;
        begun.resolve();
        await go.promise;
        return run;
      });
      seen.push(`run ${run} went on`);
    } catch (error) {
      seen.push(`run ${run} caught ${error}`);
    }
  });
  working(t, app, { lease: "60s" });
  const job = await zombie.push();
  await begun.promise;
  await api(at.url, "POST", `/jobs/${job.id}/cancel`, { now: true });
  await api(at.url, "POST", `/jobs/${job.id}/retry`);
  await job.wait({ timeout: "20s" });
  go.resolve();
  await until(() => calls.length === 2 && calls.answered === 2, "the answer to the first run");
  await pause(0);
  assert.deepEqual(seen, ["run 2 went on"]);
});

test("a job with 1,000 kept steps goes on", async (t) => {
  const { app } = application(t, at.url);
  let runs = 0;
  const long = app.task("long", async (_, ctx) => {
    let sum = 0;
    for (let n = 0; n < 100; n += 1) {
      const tens = await Promise.all(Array.from({ length: 10 }, (_, k) => ctx.step(`s${n}.${k}`, () => ((runs += 1), 1))));
      sum += tens.length;
    }
    await ctx.waitFor("go");
    return sum;
  });
  working(t, app);
  const job = await long.push();
  await until(async () => (await view(job.id)).state === "suspended");
  await job.signal("go");
  assert.equal(await job.wait({ timeout: "20s" }), 1_000);
  assert.equal(runs, 1_000);
  assert.equal((await view(job.id)).steps.length, 1_001);
});

test("retry from a step runs that step and the later ones again", async (t) => {
  const { app } = application(t, at.url);
  const effects = [];
  const redo = app.task("redo", { retry: 1 }, async (_, ctx) => {
    await ctx.step("a", () => effects.push("a"));
    await ctx.step("b", () => effects.push("b"));
    await ctx.step("c", () => effects.push("c"));
    if (effects.length === 3) throw new Fail("look at it");
  });
  working(t, app);
  const job = await redo.push();
  await assert.rejects(job.wait({ timeout: "20s" }));
  await job.retry({ fromStep: "b" });
  await job.wait({ timeout: "20s" });
  assert.deepEqual(effects, ["a", "b", "c", "b", "c"]);
});
