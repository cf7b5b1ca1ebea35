// Pushes against a real server.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { BadRequest, Conflict, JobFailed, NotFound, Refused, Unreachable, WaitTimeout } from "../dist/index.js";
import { api, application, server, working } from "./helpers.mjs";

const at = server();
const job = async (id) => (await api(at.url, "GET", `/jobs/${id}`)).body;

for (const transport of ["node", "fetch"]) {
  test(`a job is pushed, worked on and its result returned (${transport})`, async (t) => {
    const { app } = application(t, at.url, { transport });
    const add = app.task(`add.${transport}`, async (p) => p.a + p.b);
    working(t, app);
    const pushed = await add.push({ a: 1, b: 2 });
    assert.equal(await pushed.wait({ timeout: "20s" }), 3);
    assert.equal(pushed.existing, false);
  });
}

test("the options of a task and of a push reach the server", async (t) => {
  const { app } = application(t, at.url);
  const options = { queue: "letters", retry: { maxAttempts: 3, backoff: { fixed: "1s" } }, priority: 4, tags: ["a"], keep: { completed: "1h", failed: "ever" } };
  const mail = app.task("opt.mail", options, async () => undefined);
  const first = await job((await mail.push({ to: "ann" })).id);
  assert.deepEqual([first.queue, first.priority, first.max_attempts, first.tags, first.payload], ["letters", 4, 3, ["a"], { to: "ann" }]);
  const second = await job((await mail.with({ queue: "fast", priority: -1, alias: "opt-2", tags: ["b"] }).push({ to: "bob" })).id);
  assert.deepEqual([second.queue, second.priority, second.alias, second.tags], ["fast", -1, "opt-2", ["b"]]);
});

test("delay and at set the time of the first run", async (t) => {
  const { app } = application(t, at.url);
  const late = app.task("late", async () => undefined);
  const delayed = await job((await late.delay("5m").push()).id);
  assert.equal(delayed.state, "delayed");
  assert.ok(Math.abs(delayed.run_at - delayed.created_at - 300_000) < 5_000);
  const date = new Date(Date.now() + 3_600_000);
  assert.equal((await job((await late.at(date).push()).id)).run_at, date.getTime());
});

test("many jobs are pushed in one call, in their order", async (t) => {
  const { app } = application(t, at.url);
  const many = app.task("many", async () => undefined);
  const jobs = await many.pushMany(Array.from({ length: 2_500 }, (_, n) => ({ n })));
  assert.equal(new Set(jobs.map(({ id }) => id)).size, 2_500);
  assert.deepEqual((await job(jobs[2_499].id)).payload, { n: 2_499 });
});

test("pushes made at the same time share calls", async (t) => {
  const calls = [];
  const proxy = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    calls.push(JSON.parse(body).jobs.length);
    const answer = await fetch(at.url + request.url, { method: "POST", headers: { "content-type": "application/json" }, body });
    response.writeHead(answer.status).end(await answer.text());
  });
  await new Promise((ready) => proxy.listen(0, "127.0.0.1", ready));
  t.after(() => proxy.close());
  const { app } = application(t, `http://127.0.0.1:${proxy.address().port}`);
  const each = app.task("each", async () => undefined);
  const jobs = await Promise.all(Array.from({ length: 500 }, (_, n) => each.push({ n })));
  assert.equal(new Set(jobs.map(({ id }) => id)).size, 500);
  assert.deepEqual((await job(jobs[321].id)).payload, { n: 321 });
  assert.ok(calls.length <= 4, `${calls.length} calls`);
});

test("a bad push fails alone among pushes made at the same time", async (t) => {
  const { app } = application(t, at.url);
  const fine = app.task("fine", async () => undefined);
  const bad = app.remote("x".repeat(300));
  const [first, second, third] = await Promise.allSettled([fine.push(1), bad.push(2), fine.push(3)]);
  assert.equal(first.status, "fulfilled");
  assert.ok(second.reason instanceof BadRequest, String(second.reason));
  assert.equal(second.reason.retryable, false);
  assert.equal(third.status, "fulfilled");
});

test("an idempotency key makes a push safe to repeat", async (t) => {
  const { app } = application(t, at.url);
  const pay = app.task("pay", async () => undefined);
  const first = await pay.push({ sum: 1 }, { idempotencyKey: "order-1" });
  const second = await pay.push({ sum: 1 }, { idempotencyKey: "order-1" });
  assert.deepEqual([second.id, second.existing], [first.id, true]);
  const [third] = await pay.pushMany([{ sum: 1 }], { idempotencyKey: "order-1" });
  assert.notEqual(third.id, first.id);
});

test("jobs pushed together with one idempotency key are all created, once", async (t) => {
  const { app } = application(t, at.url);
  const pay = app.remote("pay-many");
  const pushes = [
    ["many-1", (key) => pay.pushMany([1, 2, 3], { idempotencyKey: key })],
    ["many-2", (key) => pay.with({ idempotencyKey: key }).pushMany([1, 2, 3])],
    ["many-3", (key) => pay.with({ idempotencyKey: key }).delay("1h").pushMany([1, 2, 3], { priority: 1 })],
  ];
  for (const [key, push] of pushes) {
    const ids = (await push(key)).map(({ id }) => id);
    assert.equal(new Set(ids).size, 3, key);
    assert.deepEqual((await push(key)).map(({ id }) => id), ids, key);
  }
});

test("a push whose answer is lost creates one job", async (t) => {
  let calls = 0;
  const proxy = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const answer = await fetch(at.url + request.url, { method: "POST", headers: { "content-type": "application/json" }, body });
    const text = await answer.text();
    calls += 1;
    if (calls === 1) return response.destroy();
    response.writeHead(answer.status).end(text);
  });
  await new Promise((ready) => proxy.listen(0, "127.0.0.1", ready));
  t.after(() => proxy.close());
  const { app } = application(t, `http://127.0.0.1:${proxy.address().port}`);
  await app.task("lost.answer", async () => undefined).push({ n: 1 });
  assert.equal(calls, 2);
  const { body } = await api(at.url, "GET", "/jobs/count?search=name:lost.answer");
  assert.equal(body.count, 1);
});

test("a unique key holds for one task while its job is not settled", async (t) => {
  const { app } = application(t, at.url);
  const unique = (p) => p.to;
  const mail = app.task("unique.mail", { unique }, async () => undefined);
  const post = app.task("unique.post", { unique }, async () => undefined);
  const first = await mail.push({ to: "ann" });
  const again = await mail.push({ to: "ann" });
  assert.deepEqual([again.id, again.existing], [first.id, true]);
  assert.notEqual((await mail.push({ to: "bob" })).id, first.id);
  assert.notEqual((await post.push({ to: "ann" })).id, first.id);
});

test("errors of calls have classes, codes and say whether to retry", async (t) => {
  const { app } = application(t, at.url);
  await assert.rejects(app.job(999_999_999).get(), (error) => error instanceof NotFound && error.code === "not_found" && !error.retryable);
  const done = await app.task("done", async () => 1).push();
  await done.cancel();
  await assert.rejects(done.cancel(), (error) => error instanceof Conflict && error.status === 409);
  await assert.rejects(app.remote("cyclic").push(1n), TypeError);
  assert.throws(() => application(t, "ftp://127.0.0.1"), TypeError);
});

test("a wait ends with the failure of the job, or after its timeout", async (t) => {
  const { app } = application(t, at.url);
  const broken = app.task("broken", { retry: 1 }, async () => {
    throw new RangeError("out of range");
  });
  const never = app.remote("never.worked.on");
  working(t, app);
  await assert.rejects((await broken.push()).wait({ timeout: "20s" }), (error) => {
    assert.ok(error instanceof JobFailed);
    assert.deepEqual([error.state, error.message, error.failureClass], ["failed", "out of range", "RangeError"]);
    return true;
  });
  await assert.rejects((await never.push()).wait({ timeout: "50ms" }), WaitTimeout);
});

test("an unreachable server is an error that may be retried", { timeout: 60_000 }, async (t) => {
  const { app } = application(t, "http://127.0.0.1:9");
  const { Client } = await import("../dist/client.js");
  const client = new Client("http://127.0.0.1:9", undefined);
  const call = client.call("GET", "/api/v1/jobs", undefined, { repeatForMs: 300 });
  await assert.rejects(call, (error) => error instanceof Unreachable && error.retryable && error.status === 0 && /ECONNREFUSED/.test(error.message));
  assert.equal(app.server, "http://127.0.0.1:9");
});

test("a call with the wrong token is refused", async (t) => {
  const made = await api(at.url, "POST", "/tokens", { role: "admin" });
  assert.equal(made.status, 201);
  t.after(() => fetch(`${at.url}/api/v1/tokens/${made.body.prefix}`, { method: "DELETE", headers: { authorization: `Bearer ${made.body.token}` } }));
  const { app } = application(t, at.url, { token: "wrong" });
  await assert.rejects(app.push("x"), (error) => error instanceof Refused && error.status === 401);
  await assert.rejects(app.remote("y") && workOnce(app), (error) => error instanceof Refused);
  const { app: right } = application(t, at.url, { token: made.body.token });
  assert.ok((await right.push("x")).id);
});

/** Work of an application whose claims are refused: ends with the error. */
function workOnce(app) {
  app.task("refused", async () => undefined);
  return app.work({ signals: false });
}
