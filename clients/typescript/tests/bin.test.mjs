// windlass-worker: signals, exit codes, usage.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { api, application, server, until } from "./helpers.mjs";

const at = server();
const bin = fileURLToPath(new URL("../dist/bin.js", import.meta.url));
const library = new URL("../dist/index.js", import.meta.url).href;
const view = async (id) => (await api(at.url, "GET", `/jobs/${id}`)).body;

async function start(t, code, args = []) {
  const folder = await mkdtemp(join(tmpdir(), "windlass-bin-"));
  await writeFile(join(folder, "jobs.mjs"), `import { Windlass } from ${JSON.stringify(library)};\n${code}`);
  const child = spawn(process.execPath, [bin, join(folder, "jobs.mjs"), ...args], { env: { ...process.env, WINDLASS_SERVER: at.url }, stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (said += chunk));
  const ended = once(child, "close");
  t.after(async () => {
    child.kill("SIGKILL");
    await ended;
    await rm(folder, { recursive: true });
  });
  return { child, ended, said: () => said };
}

test("an idle worker ends with exit code 0 on SIGTERM", async (t) => {
  const { child, ended } = await start(t, `export const app = new Windlass(); app.task("idle", async () => 1);`);
  const { app } = application(t, at.url);
  assert.equal(await (await app.push("idle")).wait({ timeout: "30s" }), 1);
  child.kill("SIGTERM");
  assert.deepEqual(await ended, [0, null]);
});

test("a running job ends within the grace after SIGTERM", async (t) => {
  const code = `const app = new Windlass(); export default app;
    app.task("graceful", (_, ctx) => new Promise((done) => { ctx.progress(1, "begun"); process.on("SIGTERM", () => setTimeout(done, 100, "ended")); }));`;
  const { child, ended } = await start(t, code);
  const { app } = application(t, at.url);
  const job = await app.push("graceful");
  await until(async () => (await view(job.id)).progress?.note === "begun");
  child.kill("SIGTERM");
  assert.deepEqual(await ended, [0, null]);
  assert.deepEqual([(await view(job.id)).state, (await view(job.id)).result], ["completed", "ended"]);
});

test("a second signal releases running jobs at once", async (t) => {
  const code = `export const app = new Windlass(); app.task("hanging", (_, ctx) => { ctx.progress(1, "begun"); return new Promise(() => setInterval(() => 1, 1000)); });`;
  const { child, ended } = await start(t, code, ["--grace", "1h"]);
  const { app } = application(t, at.url);
  const job = await app.push("hanging");
  await until(async () => (await view(job.id)).progress?.note === "begun");
  child.kill("SIGTERM");
  child.kill("SIGINT");
  assert.deepEqual(await ended, [0, null]);
  assert.deepEqual([(await view(job.id)).state, (await view(job.id)).attempts], ["ready", 0]);
});

test("the job of a worker that is killed runs again", async (t) => {
  const code = `export const app = new Windlass();
    app.task("killed", async (_, ctx) => { if (ctx.attempt === 1) process.kill(process.pid, "SIGKILL"); return ctx.attempt; });`;
  const first = await start(t, code, ["--lease", "500ms"]);
  const { app } = application(t, at.url);
  const job = await app.push("killed");
  assert.deepEqual(await first.ended, [null, "SIGKILL"]);
  await start(t, code, ["--lease", "500ms"]);
  assert.equal(await job.wait({ timeout: "30s" }), 2);
});

test("a job that kills each of its workers fails in the end", async (t) => {
  const code = `export const app = new Windlass(); app.task("poison", () => process.kill(process.pid, "SIGKILL"));`;
  const { app } = application(t, at.url);
  const job = await app.push("poison", null, { retry: 2 });
  for (let n = 0; n < 2; n += 1) {
    const { ended } = await start(t, code, ["--lease", "300ms"]);
    assert.deepEqual(await ended, [null, "SIGKILL"]);
  }
  await assert.rejects(job.wait({ timeout: "30s" }), { failureClass: "LeaseExpired" });
});

test("usage errors end with exit code 2 and say what is wrong", async (t) => {
  const none = await start(t, `export const other = 1;`);
  assert.deepEqual(await none.ended, [2, null]);
  assert.match(none.said(), /does not export an application as app or default/);
  const odd = await start(t, `export const app = new Windlass();`, ["--colour", "red"]);
  assert.deepEqual(await odd.ended, [2, null]);
  assert.match(odd.said(), /colour/);
  const empty = await start(t, `export const app = new Windlass();`);
  assert.deepEqual(await empty.ended, [1, null]);
  assert.match(empty.said(), /register a task/);
});
