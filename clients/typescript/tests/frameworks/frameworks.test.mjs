// frameworks.md: its examples, run with the real frameworks. They are installed apart from the library:
//   npm install --prefix target/node-frameworks express next react react-dom
// in the folder of the repository, or in another one that WINDLASS_FRAMEWORKS names.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, join, resolve } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { application, server, until } from "../helpers.mjs";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const named = process.env.WINDLASS_FRAMEWORKS ?? resolve(root, "../../target/node-frameworks");
// Next.js compares paths.
const installed = existsSync(named) ? realpathSync(named) : named;
const at = server();
let folder;

before(() => {
  const isThere = ["express", "next"].every((name) => existsSync(join(installed, "node_modules", name)));
  assert.ok(isThere, `missing: npm install --prefix ${installed} express next react react-dom`);
  folder = mkdtempSync(join(installed, "run-"));
  const page = readFileSync(join(root, "frameworks.md"), "utf8");
  const examples = [...page.matchAll(/```js\n\/\/ (\S+)\n(.*?)```/gs)];
  assert.deepEqual(examples.map(([, name]) => name), ["jobs.js", "server.js", "app/api/mail/route.js"]);
  for (const [, name, code] of examples) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), code);
  }
  const library = join(folder, "node_modules", "windlass");
  for (const part of ["dist", "package.json"]) cpSync(join(root, part), join(library, part), { recursive: true });
  writeFileSync(join(folder, "package.json"), '{"type":"module","private":true}');
  writeFileSync(join(folder, "next.config.js"), `export default { turbopack: { root: ${JSON.stringify(installed)} } };`);
  writeFileSync(join(folder, "app/layout.js"), "export default function Layout({ children }) {\n  return <html><body>{children}</body></html>;\n}\n");
});

after(() => folder !== undefined && rmSync(folder, { recursive: true, force: true }));

const environment = (more) => ({ ...process.env, WINDLASS_SERVER: at.url, NEXT_TELEMETRY_DISABLED: "1", ...more });

function start(t, args, more = {}) {
  const child = spawn(process.execPath, args, { cwd: folder, env: environment(more), stdio: ["ignore", "ignore", "inherit"] });
  const ended = once(child, "exit");
  t.after(async () => {
    child.kill("SIGKILL");
    await ended;
  });
}

async function freePort() {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address();
  listener.close();
  return String(port);
}

const post = (url, to, headers = {}) =>
  fetch(url, { method: "POST", headers: { "content-type": "application/json", ...headers }, body: JSON.stringify({ to }) });

test("Express pushes jobs and returns their results", async (t) => {
  const PORT = await freePort();
  const url = `http://127.0.0.1:${PORT}/mail`;
  start(t, ["server.js"], { PORT });
  await until(() => fetch(url).then(() => true, () => false), "Express", 60);
  const pushed = await post(url, "ann", { "Idempotency-Key": "order-1" });
  const { id } = await pushed.json();
  assert.equal(pushed.status, 202);
  assert.equal((await (await post(url, "ann", { "Idempotency-Key": "order-1" })).json()).id, id);
  start(t, ["node_modules/windlass/dist/bin.js", "jobs.js"]);
  await application(t, at.url).app.job(id).wait({ timeout: "60s" });
  assert.deepEqual(await (await fetch(`${url}/${id}`)).json(), { sent: "ann" });
  const missing = await fetch(`${url}/999999`);
  assert.deepEqual([missing.status, await missing.json()], [500, { code: "not_found" }]);
});

test("a route of Next.js pushes jobs", { timeout: 400_000 }, async (t) => {
  const next = join(installed, "node_modules/next/dist/bin/next");
  execFileSync(process.execPath, [next, "build"], { cwd: folder, env: environment({}), stdio: "pipe", timeout: 240_000 });
  const PORT = await freePort();
  start(t, [next, "start", "-p", PORT, "-H", "127.0.0.1"]);
  const url = `http://127.0.0.1:${PORT}/api/mail`;
  await until(() => fetch(url).then(() => true, () => false), "Next.js", 60);
  const pushed = await post(url, "bob");
  assert.equal(pushed.status, 202);
  const { id } = await pushed.json();
  start(t, ["node_modules/windlass/dist/bin.js", "jobs.js"]);
  assert.deepEqual(await application(t, at.url).app.job(id).wait({ timeout: "60s" }), { sent: "bob" });
});
