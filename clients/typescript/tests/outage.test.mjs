// A server that goes away: no job fails because of it.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { createServer } from "node:net";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { dev } from "../dist/index.js";
import { api, application, deferred, until, working } from "./helpers.mjs";

async function fixture(t) {
  const server = await dev();
  t.after(() => server.stop());
  return { server, ...application(t, server.url) };
}

test("a job that ends while the server is down is reported when it is back", async (t) => {
  const { server, app, lines } = await fixture(t);
  const begun = deferred();
  const go = deferred();
  let runs = 0;
  const patient = app.task("patient", { retry: 1 }, async () => {
    runs += 1;
    begun.resolve();
    await go.promise;
    return "survived";
  });
  working(t, app);
  const job = await patient.push();
  await begun.promise;
  await server.kill();
  go.resolve();
  await until(() => lines.some((line) => line.includes("retrying")), "the outage");
  await server.start();
  assert.equal(await job.wait({ timeout: "30s" }), "survived");
  assert.equal(runs, 1);
  const { body } = await api(server.url, "GET", `/jobs/${job.id}`);
  assert.deepEqual([body.state, body.attempts, body.errors], ["completed", 1, undefined]);
});

test("a step that ends while the server is down is kept when it is back", async (t) => {
  const { server, app } = await fixture(t);
  const begun = deferred();
  const go = deferred();
  let charges = 0;
  const order = app.task("order", { retry: 1 }, async (_, ctx) => {
    const charge = await ctx.step("charge", async () => {
      charges += 1;
      begun.resolve();
      await go.promise;
      return "charged";
    });
    await ctx.sleep("1ms");
    return charge;
  });
  working(t, app);
  const job = await order.push();
  await begun.promise;
  await server.kill();
  go.resolve();
  await server.start();
  assert.equal(await job.wait({ timeout: "30s" }), "charged");
  assert.equal(charges, 1);
});

test("a push made while the server is down is made when it is back, once", async (t) => {
  const { server, app } = await fixture(t);
  await server.kill();
  const tried = deferred();
  // In the place of the server: every connection ends without an answer.
  const hole = createServer((socket) => {
    socket.destroy();
    tried.resolve();
  });
  hole.listen(Number(new URL(server.url).port), "127.0.0.1");
  await once(hole, "listening");
  const pushing = app.push("later", { n: 1 });
  await tried.promise;
  hole.close();
  await once(hole, "close");
  await server.start();
  const job = await pushing;
  assert.deepEqual((await job.get()).payload, { n: 1 });
  const { body } = await api(server.url, "GET", "/jobs/count?search=name:later");
  assert.equal(body.count, 1);
});

test("a worker that starts before the server works when it is there", async (t) => {
  const { server, app } = await fixture(t);
  app.cron("early", "every 1h", async () => "ran");
  await server.kill();
  working(t, app);
  await server.start();
  const job = await until(async () => (await api(server.url, "GET", "/schedules")).body.jobs[0], "the schedule");
  await until(async () => (await api(server.url, "GET", `/schedules/${job.id}/turns`)).body.turns[0]?.outcome === "completed", "its turn");
});

test("a server that answers waiting claims at once is not asked without a pause", async (t) => {
  let claims = 0;
  const hasty = createHttpServer((request, response) => {
    request.resume();
    if (request.url === "/api/v1/claim") claims += 1;
    response.end('{"jobs":[]}');
  });
  hasty.listen(0, "127.0.0.1");
  await once(hasty, "listening");
  t.after(() => hasty.closeAllConnections() ?? hasty.close());
  const { app } = application(t, `http://127.0.0.1:${hasty.address().port}`);
  app.task("idle", async () => undefined);
  working(t, app);
  await until(() => claims >= 3, "three claims");
  const from = claims;
  await pause(500);
  assert.ok(claims - from <= 4, `${claims - from} claims in half a second`);
});

test("a run whose notes do not reach the server ends all the same", async (t) => {
  const { server } = await fixture(t);
  // Everything but progress and log reaches the server.
  const proxy = createHttpServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    if (/extend|log/.test(request.url)) return;
    const stop = new AbortController();
    response.on("close", () => stop.abort());
    const init = { method: request.method, headers: { "content-type": "application/json" }, ...(body === "" ? {} : { body }) };
    const answer = await fetch(server.url + request.url, { ...init, signal: stop.signal }).catch(() => undefined);
    if (answer !== undefined) response.writeHead(answer.status).end(await answer.text());
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  t.after(() => proxy.closeAllConnections() ?? proxy.close());
  const { app } = application(t, `http://127.0.0.1:${proxy.address().port}`);
  const noted = app.task("noted", async (_, ctx) => {
    ctx.progress(50);
    ctx.log("line");
    return "ended";
  });
  working(t, app);
  const before = process.cpuUsage();
  assert.equal(await (await noted.push()).wait({ timeout: "20s" }), "ended");
  const { user } = process.cpuUsage(before);
  assert.ok(user < 1_500_000, `${user} us of CPU while waiting`);
});
