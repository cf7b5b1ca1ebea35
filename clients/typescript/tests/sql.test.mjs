// Pushes inside a transaction of the caller, with `pg` and a real PostgreSQL.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, rmSync, chownSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import pg from "pg";
import { dev } from "../dist/index.js";
import { application, until, working } from "./helpers.mjs";

const folder = join(tmpdir(), `windlass-pg-${process.pid}`);
let postgres;
let server;
let url;

/** Folder of the newest PostgreSQL. */
function binaries() {
  const versions = existsSync("/usr/lib/postgresql") ? readdirSync("/usr/lib/postgresql").sort((a, b) => Number(b) - Number(a)) : [];
  const folders = [...versions.map((version) => `/usr/lib/postgresql/${version}/bin`), ...(process.env.PATH ?? "").split(":")];
  const found = folders.find((path) => existsSync(join(path, "initdb")) && existsSync(join(path, "postgres")));
  assert.ok(found, "PostgreSQL is needed (Debian: postgresql)");
  return found;
}

/** Command line of a program that refuses to run as root. */
function unprivileged(program, ...args) {
  return process.getuid() === 0 ? ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", program, ...args] : [program, ...args];
}

async function freePort() {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address();
  listener.close();
  return port;
}

before(async () => {
  mkdirSync(folder);
  if (process.getuid() === 0) {
    const id = (flag) => Number(execFileSync("id", [flag, "postgres"]));
    chownSync(folder, id("-u"), id("-g"));
  }
  const [bin, port, data] = [binaries(), await freePort(), join(folder, "data")];
  const [program, ...args] = unprivileged(join(bin, "initdb"), "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "-D", data);
  execFileSync(program, args, { stdio: "pipe", cwd: "/" });
  const [run, ...flags] = unprivileged(join(bin, "postgres"), "-D", data, "-p", String(port), "-k", folder, "-c", "listen_addresses=127.0.0.1");
  postgres = spawn(run, flags, { stdio: "ignore", cwd: "/" });
  url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  await until(async () => {
    const client = new pg.Client({ connectionString: url });
    client.on("error", () => undefined);
    return client.connect().then(
      () => client.end().then(() => true),
      () => false,
    );
  }, "PostgreSQL");
  server = await dev({ args: ["--store", url] });
});

after(async () => {
  await server?.stop();
  if (postgres !== undefined) {
    const ended = once(postgres, "exit");
    postgres.kill("SIGINT");
    await ended;
  }
  rmSync(folder, { recursive: true, force: true });
});

test("a job pushed in a transaction exists if and only if the transaction commits", async (t) => {
  const { app } = application(t, server.url);
  const options = { queue: "mail", retry: { maxAttempts: 3, backoff: { fixed: "1s" } }, unique: (p) => p.item, tags: ["shop"] };
  const confirm = app.task("order.confirm", options, async (p) => `confirmed ${p.item}`);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  t.after(() => client.end());
  await client.query("CREATE TABLE orders (item text NOT NULL)");
  await client.query("BEGIN");
  await client.query("INSERT INTO orders VALUES ('never')");
  const never = await confirm.pushIn(client, { item: "never" });
  await client.query("ROLLBACK");
  await client.query("BEGIN");
  await client.query("INSERT INTO orders VALUES ('lamp')");
  const id = await confirm.pushIn(client, { item: "lamp" }, { priority: -2 });
  assert.equal(await confirm.pushIn(client, { item: "lamp" }), id, "the unique key holds");
  await client.query("COMMIT");
  const late = await confirm.delay("1h").pushIn(client, { item: "chair" });
  working(t, app);
  assert.equal(await app.job(id).wait({ timeout: "30s" }), "confirmed lamp");
  const job = await app.job(id).get();
  assert.deepEqual([job.queue, job.priority, job.max_attempts, job.tags], ["mail", -2, 3, ["shop"]]);
  assert.equal((await app.job(late).get()).state, "delayed");
  await assert.rejects(app.job(never).get(), { name: "NotFound" });
});

test("a payload that is a list or a text arrives as it is", async (t) => {
  const { app } = application(t, server.url);
  const echo = app.task("echo", async (p) => p);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  t.after(() => client.end());
  working(t, app);
  for (const payload of [[1, "two"], "text", 7, null]) {
    const id = await echo.pushIn(client, payload);
    assert.deepEqual(await app.job(id).wait({ timeout: "30s" }), payload);
  }
});
