// The fixture that starts the real server.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { test } from "node:test";
import { dev } from "../dist/index.js";
import { until } from "./helpers.mjs";

const library = new URL("../dist/index.js", import.meta.url).href;
const isUp = (url) => fetch(`${url}/healthz`).then((answer) => answer.ok, () => false);
const folders = () => readdirSync(tmpdir()).filter((name) => name.startsWith("windlass-dev-"));

test("the server keeps its address and its jobs over a kill, and leaves nothing behind", async () => {
  const before = new Set(folders());
  const server = await dev();
  const made = folders().filter((name) => !before.has(name));
  const { url } = server;
  const push = () => fetch(`${url}/api/v1/jobs`, { method: "POST", headers: { "content-type": "application/json" }, body: '{"name":"x"}' });
  assert.equal((await (await push()).json()).id, 1);
  await server.kill();
  assert.equal(await isUp(url), false);
  await server.start();
  assert.equal(server.url, url);
  assert.equal((await (await push()).json()).id, 2);
  await server.stop();
  assert.equal(await isUp(url), false);
  assert.ok(made.length >= 1 && made.some((name) => !existsSync(`${tmpdir()}/${name}`)));
});

for (const signal of ["SIGTERM", "SIGKILL"]) {
  test(`the server ends with the process that started it, by ${signal}`, async (t) => {
    const code = `import { dev } from ${JSON.stringify(library)}; console.log((await dev()).url); setInterval(() => 1, 1000);`;
    const child = spawn(process.execPath, ["--input-type=module", "-e", code], { stdio: ["ignore", "pipe", "inherit"] });
    t.after(() => child.kill("SIGKILL"));
    let said = "";
    child.stdout.on("data", (chunk) => (said += chunk));
    const url = await until(() => said.endsWith("\n") && said.trim(), "the server");
    assert.equal(await isUp(url), true);
    child.kill(signal);
    await until(async () => !(await isUp(url)), "the end of the server");
  });
}

test("a server that does not start is an error that says why", async () => {
  await assert.rejects(dev({ binary: "no-such-program" }), /no-such-program did not start: .*ENOENT/);
  await assert.rejects(dev({ args: ["--no-such-flag"] }), /did not start: .*no-such-flag/s);
});
