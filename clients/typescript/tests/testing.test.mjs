// `app.testing()`: no server.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Fail, JobFailed, Snooze, WaitTimeout, Windlass } from "../dist/index.js";

// A port on which nothing listens: a call to a server would fail.
const application = () => new Windlass({ server: "http://127.0.0.1:9", log: () => undefined });

test("collected jobs are asserted by parts of their payloads", async () => {
  const app = application();
  const mail = app.task("mail", async () => "sent");
  const other = app.task("other", async () => undefined);
  const t = app.testing();
  await mail.push({ to: "ann", how: { fast: true, color: "red" } });
  await mail.pushMany([{ to: "bob" }, { to: "eve" }]);
  assert.equal(t.assertPushed(mail, { to: "ann", how: { fast: true } }).state, "ready");
  t.assertPushed("mail", undefined, 3);
  t.assertNotPushed(other);
  t.assertNotPushed(mail, { to: "zoe" });
  assert.throws(() => t.assertPushed(mail, { to: "zoe" }), /zoe.*found 0; pushed:\n {2}\{"to":"ann"/s);
  assert.throws(() => t.assertPushed(mail, { to: "ann" }, 2), /2 job/);
  assert.throws(() => t.assertPushed(other), /none/);
  assert.throws(() => t.assertNotPushed(mail), /expected no job/);
});

test("run runs what is due, also jobs that jobs push", async () => {
  const app = application();
  const seen = [];
  const child = app.task("child", async (n) => void seen.push(n));
  const parent = app.task("parent", async () => void (await child.push(2)));
  const t = app.testing();
  await parent.push();
  assert.deepEqual(seen, []);
  assert.equal(await t.run(), 2);
  assert.deepEqual(seen, [2]);
});

test("inline jobs run before the push returns", async () => {
  const app = application();
  const add = app.task("add", async (p) => p.a + p.b);
  app.testing({ inline: true });
  const job = await add.push({ a: 1, b: 2 });
  assert.equal((await job.get()).state, "completed");
  assert.equal(await job.wait(), 3);
});

test("time travel runs delayed jobs and retries when their time comes", async () => {
  const app = application();
  const times = [];
  const t0 = 1_000_000;
  const late = app.task("late", { retry: { maxAttempts: 3, backoff: { base: "1s" } } }, async () => {
    times.push(t.now.getTime() - t0);
    if (times.length < 3) throw new Error("again");
    return "done";
  });
  const t = app.testing({ now: t0 });
  const job = await late.delay("5m").push();
  assert.equal(await t.run(), 0);
  await t.advance("4m59s");
  assert.deepEqual(times, []);
  await assert.rejects(job.wait(), WaitTimeout);
  await t.advance("1m");
  assert.deepEqual(times, [300_000, 301_000, 303_000]);
  assert.equal(await job.wait(), "done");
  assert.equal(t.now.getTime(), t0 + 359_000);
});

test("a job fails after its attempts, or at once with Fail; Snooze does not count", async () => {
  const app = application();
  const runs = [];
  const task = app.task("task", { retry: { maxAttempts: 2, backoff: "none" } }, async (kind) => {
    runs.push(kind);
    if (kind === "fail") throw new Fail("for good");
    if (kind === "snooze" && runs.length < 5) throw new Snooze("1m");
    if (kind === "error") throw new RangeError("broken");
  });
  const t = app.testing();
  const failed = await task.push("fail");
  await assert.rejects(failed.wait(), (error) => error instanceof JobFailed && error.message === "for good");
  const broken = await task.push("error");
  await assert.rejects(broken.wait(), { failureClass: "RangeError" });
  assert.deepEqual(runs.splice(0), ["fail", "error", "error"]);
  const snoozed = await task.push("snooze");
  await t.advance("10m");
  await snoozed.wait();
  assert.equal(runs.length, 5);
});

test("steps, sleeps, signals and children work without a server", async () => {
  const app = application();
  const effects = [];
  const pack = app.task("pack", async (item) => `packed ${item}`);
  const order = app.task("order", { version: 3 }, async (o, ctx) => {
    const charge = await ctx.step("charge", () => effects.push("charge"));
    await ctx.sleep("3d");
    const approval = await ctx.waitFor("approval", { timeout: "7d" });
    const reminder = await ctx.waitFor("approval", { timeout: "1d" });
    const parts = await ctx.all(o.items.map((item) => pack.call(item)));
    ctx.progress(50, "half");
    ctx.log("packed");
    return { charge, approval, reminder, parts, version: ctx.version };
  });
  const t = app.testing();
  const job = await order.push({ items: ["lamp", "chair"] });
  await t.run();
  assert.equal(t.assertPushed(order).state, "suspended");
  await t.advance("3d");
  assert.deepEqual(t.pushed(order)[0].steps, ["@version", "charge", "sleep"]);
  await job.signal("approval", { by: "ann" });
  await t.run();
  await t.advance("1d");
  assert.deepEqual(await job.wait(), { charge: 1, approval: { by: "ann" }, reminder: null, parts: ["packed lamp", "packed chair"], version: 3 });
  assert.deepEqual(effects, ["charge"]);
  const { progress, log } = t.pushed(order)[0];
  assert.deepEqual([progress, log], [{ percent: 50, note: "half" }, ["packed"]]);
});

test("unique and idempotency keys hold in tests, too", async () => {
  const app = application();
  const mail = app.task("mail", { unique: (p) => p.to }, async () => undefined);
  const t = app.testing();
  const first = await mail.push({ to: "ann" });
  assert.deepEqual([(await mail.push({ to: "ann" })).id, (await mail.push({ to: "ann" })).existing], [first.id, true]);
  await t.run();
  assert.notEqual((await mail.push({ to: "ann" })).id, first.id);
  const keyed = await mail.push({ to: "bob" }, { idempotencyKey: "k" });
  assert.equal((await mail.push({ to: "eve" }, { idempotencyKey: "k" })).id, keyed.id);
});

test("after close the application talks to its server again", async () => {
  const app = application();
  const t = app.testing();
  await app.push("x");
  t.close();
  const { Client } = await import("../dist/client.js");
  assert.ok(app.backend instanceof Client);
  assert.equal(t.pushed("x").length, 1);
});
