// Answers that say nothing about a job: a server or a proxy that refuses calls for a while.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "../dist/client.js";
import { NotFound, Refused, Unreachable } from "../dist/index.js";
import { api, application, proxy, server, until, working } from "./helpers.mjs";

const at = server();
const view = async (id) => (await api(at.url, "GET", `/jobs/${id}`)).body;
const PAGE = "<html>sign in</html>";
const error = (code) => JSON.stringify({ error: { code, message: code } });

for (const [status, text] of [
  [401, error("unauthorized")],
  [403, error("forbidden")],
  [404, PAGE],
  [500, error("internal")],
  [302, PAGE],
  [200, PAGE],
  [200, "{}"],
]) {
  test(`a completed job stays completed after its report was answered with ${status} ${text}`, async (t) => {
    let refusals = 2;
    const url = await proxy(t, at.url, (path) => (path === "/api/v1/settle" && refusals-- > 0 ? [status, text] : undefined));
    const { app } = application(t, url);
    let runs = 0;
    const paid = app.task("paid", { retry: 1 }, async () => {
      runs += 1;
      return "paid";
    });
    working(t, app);
    const job = await paid.push();
    assert.equal(await job.wait({ timeout: "10s" }), "paid");
    assert.ok(refusals <= 0);
    assert.equal(runs, 1);
    assert.equal((await view(job.id)).errors, undefined);
  });
}

for (const status of [401, 404, 500]) {
  test(`a claim that is answered with ${status} does not end a worker that was connected`, async (t) => {
    let isRefusing = false;
    let refused = 0;
    const url = await proxy(t, at.url, (path) => {
      if (!isRefusing || !/claim|settle/.test(path)) return undefined;
      refused += 1;
      return [status, PAGE];
    });
    const { app } = application(t, url);
    const one = app.task("one", async () => "done");
    working(t, app);
    await (await one.push()).wait({ timeout: "10s" });
    isRefusing = true;
    const next = await one.push();
    await until(() => refused > 1, "two refusals");
    isRefusing = false;
    assert.equal(await next.wait({ timeout: "10s" }), "done");
  });
}

for (const [status, kind] of [
  [401, Refused],
  [404, NotFound],
]) {
  test(`a worker whose first claim is answered with ${status} ends with the error`, async (t) => {
    const url = await proxy(t, at.url, () => [status, PAGE]);
    const { app } = application(t, url);
    app.task("one", async () => "done");
    await assert.rejects(working(t, app).ended, kind);
  });
}

test("an answer that is not JSON is an outage, and the call is repeated", async (t) => {
  let pages = 1;
  const url = await proxy(t, at.url, () => (pages-- > 0 ? [200, PAGE] : undefined));
  const { app } = application(t, url);
  const job = await app.push("page", 1);
  assert.equal((await view(job.id)).payload, 1);
  pages = 1;
  const client = new Client(url);
  t.after(() => client.close());
  await assert.rejects(client.call("GET", `/api/v1/jobs/${job.id}`, undefined, { repeatForMs: 0 }), Unreachable);
});

for (const [status, text] of [
  [429, error("too_many_requests")],
  [507, error("store_full")],
  [500, error("outcome_unknown")],
  [500, error("internal")],
  [401, error("unauthorized")],
  [403, error("forbidden")],
  [404, PAGE],
  [200, PAGE],
  [200, "{}"],
]) {
  test(`the effect of a step is not executed again after keeping it was answered with ${status} ${text}`, async (t) => {
    let refusals = 2;
    const url = await proxy(t, at.url, (path) => (path.endsWith("/steps") && refusals-- > 0 ? [status, text] : undefined));
    const { app } = application(t, url);
    let charges = 0;
    const order = app.task("order", { retry: { maxAttempts: 5, backoff: { fixed: 10 } } }, async (_, ctx) => {
      const charge = await ctx.step("charge", () => {
        charges += 1;
        return "charged";
      });
      await ctx.sleep("1ms");
      return charge;
    });
    working(t, app);
    const job = await order.push();
    assert.equal(await job.wait({ timeout: "10s" }), "charged");
    assert.ok(refusals <= 0);
    assert.equal(charges, 1);
    assert.equal((await view(job.id)).errors, undefined);
  });
}

test("the push and the read of children are repeated for longer than other calls while the server is away", async (t) => {
  const { app } = application(t, at.url);
  const failures = { push: 2, children: 2 };
  for (const name of ["push", "children"]) {
    const original = Client.prototype[name];
    Client.prototype[name] = async function (...given) {
      // As after thirty seconds without an answer.
      if (isArmed && failures[name]-- > 0) throw new Unreachable("away");
      return original.apply(this, given);
    };
    t.after(() => {
      Client.prototype[name] = original;
    });
  }
  let isArmed = false;
  const caught = [];
  const part = app.task("part", async (n) => n * 2);
  const whole = app.task("whole", async (_, ctx) => {
    isArmed = true;
    try {
      return await ctx.all([part.call(1), part.call(2)]);
    } catch (error) {
      caught.push(error);
      throw error;
    }
  });
  working(t, app);
  const job = await whole.push();
  assert.deepEqual(await job.wait({ timeout: "10s" }), [2, 4]);
  assert.deepEqual(caught, []);
  assert.ok(failures.push <= 0 && failures.children <= 0);
});
