// Worker against a real server.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { Cancelled, Fail, LeaseLost, Retry, Snooze, Timeout, Unreachable } from "../dist/index.js";
import { api, application, deferred, proxy, server, until, working } from "./helpers.mjs";

const at = server();
const view = async (id) => (await api(at.url, "GET", `/jobs/${id}`)).body;

test("no more jobs run at once than the concurrency, and all slots are used", async (t) => {
  const { app } = application(t, at.url);
  let running = 0;
  let most = 0;
  const busy = app.task("busy", async () => {
    running += 1;
    most = Math.max(most, running);
    await pause(5);
    running -= 1;
  });
  const jobs = await busy.pushMany(Array.from({ length: 60 }, (_, n) => n));
  working(t, app, { concurrency: 7 });
  await Promise.all(jobs.map((job) => job.wait({ timeout: "20s" })));
  assert.equal(most, 7);
});

test("ended runs are reported in the same call as the next claim", async (t) => {
  const calls = [];
  const proxy = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    calls.push({ path: request.url, body: JSON.parse(body || "null") });
    const init = { method: request.method, headers: { "content-type": "application/json" }, ...(body === "" ? {} : { body }) };
    const stop = new AbortController();
    response.on("close", () => stop.abort());
    const answer = await fetch(at.url + request.url, { ...init, signal: stop.signal }).catch(() => undefined);
    if (answer !== undefined) response.writeHead(answer.status).end(await answer.text());
  });
  await new Promise((ready) => proxy.listen(0, "127.0.0.1", ready));
  t.after(() => proxy.closeAllConnections() ?? proxy.close());
  const { app } = application(t, `http://127.0.0.1:${proxy.address().port}`);
  const quick = app.task("quick", async (n) => n);
  const jobs = await quick.pushMany(Array.from({ length: 200 }, (_, n) => n));
  const worker = working(t, app, { concurrency: 50 });
  await until(async () => (await view(jobs[199].id)).state === "completed");
  await worker.stop();
  const both = calls.filter(({ path, body }) => path === "/api/v1/settle" && body.claim !== undefined && body.settle.length === 50);
  assert.equal(both.length, 4, JSON.stringify(calls.map(({ path, body }) => [path, body?.settle?.length, body?.claim?.limit])));
  assert.ok(calls.length <= 8, `${calls.length} calls`);
});

test("a run that ends while a claim waits is reported at once", async (t) => {
  const { app } = application(t, at.url);
  const go = deferred();
  const slow = app.task("slow", async () => go.promise);
  working(t, app, { concurrency: 4 });
  const job = await slow.push();
  await until(async () => (await view(job.id)).state === "running");
  const from = Date.now();
  go.resolve("done");
  assert.equal(await job.wait({ timeout: "20s" }), "done");
  assert.ok(Date.now() - from < 5_000, "the report waited for the end of the long poll");
});

test("heartbeats keep a job that runs longer than its lease", async (t) => {
  const { app } = application(t, at.url);
  let runs = 0;
  const long = app.task("long", async () => {
    runs += 1;
    await pause(1_500);
    return "kept";
  });
  working(t, app, { lease: "400ms" });
  const job = await long.push();
  assert.equal(await job.wait({ timeout: "20s" }), "kept");
  assert.equal(runs, 1);
  assert.equal((await view(job.id)).attempts, 1);
});

test("a heartbeat without an answer does not delay the next one", async (t) => {
  const times = [];
  const url = await proxy(t, at.url, (path) => {
    if (!path.endsWith("/extend")) return undefined;
    times.push(performance.now());
    return times.length === 1 ? null : undefined;
  });
  const { app } = application(t, url);
  let runs = 0;
  const long = app.task("long-silence", async () => {
    runs += 1;
    await until(() => times.length >= 3, "three heartbeats");
    return "kept";
  });
  working(t, app, { lease: "1500ms" });
  assert.equal(await (await long.push()).wait({ timeout: "20s" }), "kept");
  assert.equal(runs, 1);
  assert.ok(times[1] - times[0] < 800, `${times[1] - times[0]} ms`);
});

test("heartbeats keep the lease of an ended run until its report is accepted", async (t) => {
  const beats = new Set();
  let isRefusing = true;
  const url = await proxy(t, at.url, (path, body) => {
    if (path.endsWith("/extend")) for (const { id } of JSON.parse(body).extend) beats.add(id);
    return path.endsWith("/settle") && isRefusing ? [503, ""] : undefined;
  });
  const { app } = application(t, url);
  let runs = 0;
  const short = app.task("short", async () => {
    runs += 1;
    return "reported";
  });
  working(t, app, { lease: "600ms" });
  const job = await short.push();
  const first = await until(async () => (await view(job.id)).lease?.until, "the lease");
  await until(async () => (await view(job.id)).lease.until > first + 600, "heartbeats beyond the first lease");
  isRefusing = false;
  assert.equal(await job.wait({ timeout: "20s" }), "reported");
  assert.equal(runs, 1);
  assert.ok(beats.has(job.id));
});

test("a heartbeat renews the lease to the length that the worker has chosen", async (t) => {
  const { app } = application(t, at.url);
  const begun = deferred();
  const go = deferred();
  const held = app.task("held", async (_, ctx) => {
    begun.resolve();
    await go.promise;
    ctx.progress(50);
    await until(async () => (await view(ctx.id)).progress?.percent === 50);
    return (await view(ctx.id)).lease.until - Date.now();
  });
  working(t, app, { lease: "900ms" });
  const job = await held.push();
  await begun.promise;
  const first = (await view(job.id)).lease.until;
  const second = await until(async () => {
    const { lease } = await view(job.id);
    return lease.until > first ? lease.until : undefined;
  }, "a heartbeat");
  assert.ok(second - first <= 900, `${second - first} ms`);
  go.resolve();
  assert.ok((await job.wait({ timeout: "20s" })) <= 900);
});

test("cancellation reaches the handler as an abort signal", async (t) => {
  const { app } = application(t, at.url);
  const begun = deferred();
  const seen = deferred();
  const forever = app.task("forever", async (_, ctx) => {
    begun.resolve();
    await new Promise((_, reject) => ctx.signal.addEventListener("abort", () => reject(ctx.signal.reason)));
  });
  app.use({ error: (ctx, error) => seen.resolve({ error, cancelled: ctx.cancelled }) });
  working(t, app, { lease: "600ms" });
  const job = await forever.push();
  await begun.promise;
  await job.cancel();
  const { error, cancelled } = await seen.promise;
  assert.ok(error instanceof Cancelled && cancelled);
  await until(async () => (await view(job.id)).state === "cancelled");
});

test("a handler that finishes although it was cancelled completes the job", async (t) => {
  const { app } = application(t, at.url);
  const begun = deferred();
  const stubborn = app.task("stubborn", async (_, ctx) => {
    begun.resolve();
    await until(() => ctx.cancelled);
    return "finished anyway";
  });
  working(t, app, { lease: "600ms" });
  const job = await stubborn.push();
  await begun.promise;
  await job.cancel();
  assert.equal(await job.wait({ timeout: "20s" }), "finished anyway");
});

test("a run that exceeds the timeout of its task is stopped and fails with the class Timeout", async (t) => {
  const { app } = application(t, at.url);
  const reason = deferred();
  const hang = app.task("hang", { timeout: "100ms", retry: 1 }, async (_, ctx) => {
    ctx.signal.addEventListener("abort", () => reason.resolve(ctx.signal.reason));
    await new Promise(() => undefined);
  });
  working(t, app);
  const job = await hang.push();
  await assert.rejects(job.wait({ timeout: "20s" }), { name: "JobFailed", failureClass: "Timeout" });
  assert.ok((await reason.promise) instanceof Timeout);
});

test("a lost lease aborts the run, and its report is dropped", async (t) => {
  const { app, lines } = application(t, at.url);
  const begun = deferred();
  const reason = deferred();
  let runs = 0;
  const taken = app.task("taken", async (_, ctx) => {
    runs += 1;
    if (runs > 1) return "second";
    begun.resolve();
    ctx.signal.addEventListener("abort", () => reason.resolve(ctx.signal.reason));
    await reason.promise;
    return "first";
  });
  working(t, app, { lease: "600ms" });
  const job = await taken.push();
  await begun.promise;
  await api(at.url, "POST", `/jobs/${job.id}/cancel`, { now: true });
  assert.ok((await reason.promise) instanceof LeaseLost);
  await until(() => lines.some((line) => line.includes(`job ${job.id}`)));
  await api(at.url, "POST", `/jobs/${job.id}/retry`);
  assert.equal(await job.wait({ timeout: "20s" }), "second");
});

test("a job that the worker claims again stops its first run", async (t) => {
  const { app, lines } = application(t, at.url);
  const begun = deferred();
  const reason = deferred();
  let runs = 0;
  const again = app.task("claimed.again", async (_, ctx) => {
    runs += 1;
    if (runs > 1) return "second";
    ctx.signal.addEventListener("abort", () => reason.resolve(ctx.signal.reason));
    begun.resolve();
    await reason.promise;
    return "first";
  });
  working(t, app, { lease: "1h" });
  const job = await again.push();
  await begun.promise;
  await api(at.url, "POST", `/jobs/${job.id}/cancel`, { now: true });
  await api(at.url, "POST", `/jobs/${job.id}/retry`);
  assert.ok((await reason.promise) instanceof LeaseLost);
  assert.equal(await job.wait({ timeout: "20s" }), "second");
  assert.ok(lines.some((line) => line.includes("claimed again")), lines.join("\n"));
});

test("Retry, Fail and Snooze end a run as they say", async (t) => {
  const { app } = application(t, at.url);
  const seen = new Set();
  const outcome = app.task("outcome", { retry: 2 }, async (kind, ctx) => {
    const first = !seen.has(kind);
    seen.add(kind);
    if (kind === "retry" && ctx.attempt === 1) throw new Retry({ after: "1ms" });
    if (kind === "fail") throw new Fail("for good");
    if (kind === "snooze" && first) throw new Snooze({ for: "1ms" });
    return ctx.attempt;
  });
  working(t, app);
  assert.equal(await (await outcome.push("retry")).wait({ timeout: "20s" }), 2);
  const failed = await outcome.push("fail");
  await assert.rejects(failed.wait({ timeout: "20s" }), { message: "for good", failureClass: "Fail" });
  assert.equal((await view(failed.id)).attempts, 1);
  assert.equal(await (await outcome.push("snooze")).wait({ timeout: "20s" }), 1);
});

test("an error keeps class, message and backtrace with the job", async (t) => {
  const { app } = application(t, at.url);
  class CardDeclined extends Error {}
  const charge = app.task("charge.card", { retry: 1 }, async () => {
    throw new CardDeclined("insufficient funds");
  });
  working(t, app);
  const job = await charge.push();
  await assert.rejects(job.wait({ timeout: "20s" }));
  const { errors } = await view(job.id);
  assert.deepEqual([errors[0].class, errors[0].message], ["CardDeclined", "insufficient funds"]);
  assert.match(JSON.stringify(errors[0].backtrace), /worker\.test\.mjs/);
});

test("an outage that leaves the handler releases the job instead of failing it", async (t) => {
  const { app } = application(t, at.url);
  let runs = 0;
  const far = app.task("far", { retry: 1 }, async (_, ctx) => {
    runs += 1;
    if (runs === 1) throw new Error("not sent", { cause: new Unreachable("other server") });
    return ctx.attempt;
  });
  working(t, app);
  assert.equal(await (await far.push()).wait({ timeout: "20s" }), 1);
  assert.equal(runs, 2);
});

test("progress and log lines are kept with the job", async (t) => {
  const { app } = application(t, at.url);
  const noted = app.task("noted", async (_, ctx) => {
    ctx.progress(10, "begun");
    ctx.progress(99.6, "almost");
    ctx.log("first line\nsecond line");
    ctx.log("third line");
  });
  working(t, app);
  const job = await noted.push();
  await job.wait({ timeout: "20s" });
  const { progress, log } = await view(job.id);
  assert.deepEqual([progress.percent, progress.note], [100, "almost"]);
  assert.match(JSON.stringify(log), /first line.*second line.*third line/);
});

test("middleware runs around the handler, and sees results and errors", async (t) => {
  const { app } = application(t, at.url);
  const seen = [];
  app.use({ before: () => seen.push("before 1"), after: (_, result) => seen.push(`after 1 ${result}`) });
  app.use({ before: async (ctx) => seen.push(`before 2 ${ctx.name}`), after: () => seen.push("after 2"), error: (_, error) => seen.push(`error ${error.message}`) });
  const wrapped = app.task("wrapped", { retry: 1 }, async (fail) => {
    if (fail) throw new Error("broken");
    return "fine";
  });
  working(t, app);
  await (await wrapped.push(false)).wait({ timeout: "20s" });
  assert.deepEqual(seen.splice(0), ["before 1", "before 2 wrapped", "after 2", "after 1 fine"]);
  await assert.rejects((await wrapped.push(true)).wait({ timeout: "20s" }));
  assert.deepEqual(seen, ["before 1", "before 2 wrapped", "error broken"]);
});

test("a result that is not JSON, or is too large, fails the run and says so", async (t) => {
  const { app } = application(t, at.url);
  const odd = app.task("odd", { retry: 1 }, async (kind) => (kind === "bigint" ? 1n : "x".repeat(17 << 20)));
  const fine = app.task("fine.beside", async () => "fine");
  working(t, app, { concurrency: 4 });
  const from = Date.now();
  const [bigint, large, beside] = await Promise.all([odd.push("bigint"), odd.push("large"), fine.push()]);
  assert.equal(await beside.wait({ timeout: "20s" }), "fine");
  await assert.rejects(bigint.wait({ timeout: "20s" }), { failureClass: "TypeError" });
  await assert.rejects(large.wait({ timeout: "20s" }), { failureClass: "ReportRefused" });
  assert.ok(Date.now() - from < 10_000, "the refusal waited for the end of a long poll");
});

test("after stop the worker claims no more, and running jobs end within the grace", async (t) => {
  const { app } = application(t, at.url);
  const begun = deferred();
  const go = deferred();
  const ending = app.task("ending", async (n) => {
    begun.resolve();
    await go.promise;
    return n;
  });
  const worker = working(t, app, { concurrency: 1 });
  const [first, second] = await ending.pushMany([1, 2]);
  await begun.promise;
  const ended = worker.stop();
  go.resolve();
  await ended;
  assert.equal((await view(first.id)).state, "completed");
  assert.equal((await view(second.id)).state, "ready");
});

test("jobs that run after the grace are released, and their attempt does not count", async (t) => {
  const { app } = application(t, at.url);
  const begun = deferred();
  const aborted = deferred();
  const endless = app.task("endless", async (_, ctx) => {
    ctx.signal.addEventListener("abort", () => aborted.resolve(ctx.signal.reason));
    begun.resolve();
    await new Promise(() => undefined);
  });
  const worker = working(t, app, { grace: "50ms" });
  const job = await endless.push();
  await begun.promise;
  await worker.stop();
  const { state, attempts } = await view(job.id);
  assert.deepEqual([state, attempts], ["ready", 0]);
  assert.ok((await aborted.promise) instanceof Cancelled);
});

test("a second stop does not wait for the grace", async (t) => {
  const { app } = application(t, at.url);
  const begun = deferred();
  app.task("impatient", async () => {
    begun.resolve();
    await new Promise(() => undefined);
  });
  const worker = working(t, app, { grace: "1h" });
  const job = await app.push("impatient");
  await begun.promise;
  app.stop();
  app.stop();
  await worker.ended;
  assert.equal((await view(job.id)).state, "ready");
});

test("a schedule is created once, and follows a changed rule", async (t) => {
  const schedules = async () => (await api(at.url, "GET", "/schedules")).body.jobs.filter(({ name }) => name === "report");
  const deploy = async (rule, options) => {
    const { app } = application(t, at.url);
    app.cron("report", rule, options, async () => undefined);
    await app.deploy();
  };
  await deploy("0 9 * * MON-FRI", { tz: "Europe/Berlin" });
  await deploy("0 9 * * MON-FRI", { tz: "Europe/Berlin" });
  const [first, ...more] = await schedules();
  assert.deepEqual([first.repeat, more.length], ["TZ=Europe/Berlin 0 9 * * MON-FRI", 0]);
  await deploy("30 8 * * *", {});
  const [second] = await schedules();
  assert.deepEqual([second.id, second.repeat], [first.id, "30 8 * * *"]);
  assert.equal(new Date(second.run_at).getUTCMinutes(), 30);
});

test("a worker creates its schedules and runs them", async (t) => {
  const { app } = application(t, at.url);
  const ran = deferred();
  app.cron("tick", "every 1h", { payload: { kind: "tick" } }, async (payload) => ran.resolve(payload));
  working(t, app);
  assert.deepEqual(await ran.promise, { kind: "tick" });
});

test("a task cannot be registered twice, and a worker needs a task", async (t) => {
  const { app } = application(t, at.url);
  await assert.rejects(app.work(), TypeError);
  app.task("twice", async () => undefined);
  assert.throws(() => app.task("twice", async () => undefined), /twice/);
  await assert.rejects(app.work({ concurrency: 0 }), /concurrency/);
});
