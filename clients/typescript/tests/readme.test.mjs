// README.md: its examples compile with `strict`, and run with the worker program against a real server.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import ts from "typescript";
import { application, server, until } from "./helpers.mjs";

const at = server();
const root = dirname(dirname(fileURLToPath(import.meta.url)));
// Inside the package, so that `windlass` is this package.
const folder = join(root, "tests", ".readme");

before(async () => {
  const readme = await readFile(join(root, "README.md"), "utf8");
  const examples = [...readme.matchAll(/```ts\n\/\/ (\S+)\n(.*?)```/gs)];
  assert.equal(examples.length, 4);
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder);
  for (const [, name, code] of examples) await writeFile(join(folder, name), code);
  const files = examples.map(([, name]) => join(folder, name));
  const program = ts.createProgram(files, {
    strict: true,
    target: ts.ScriptTarget.ES2022,
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    types: ["node"],
    typeRoots: [join(root, "node_modules", "@types")],
  });
  const problems = ts.getPreEmitDiagnostics(program).map((problem) => ts.flattenDiagnosticMessageText(problem.messageText, "\n"));
  assert.deepEqual(problems, []);
  assert.equal(program.emit().emitSkipped, false);
});

after(() => rm(folder, { recursive: true, force: true }));

const run = (name) => promisify(execFile)(process.execPath, [join(folder, name)], { env: { ...process.env, WINDLASS_SERVER: at.url }, timeout: 60_000 });

/** Starts `windlass-worker` and ends it with the test. */
function worker(t, ...modules) {
  const paths = modules.map((module) => join(folder, module));
  const args = [join(root, "dist", "bin.js"), ...paths, "--concurrency", "20", "--worker", "readme"];
  const child = spawn(process.execPath, args, { env: { ...process.env, WINDLASS_SERVER: at.url }, stdio: ["ignore", "inherit", "inherit"] });
  const ended = once(child, "exit");
  t.after(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  return { child, ended };
}

test("the application and the producer of the README work with windlass-worker", async (t) => {
  const { child, ended } = worker(t, "app.js");
  const { stdout } = await run("producer.js");
  assert.equal(stdout, "sent: true\n");
  child.kill("SIGTERM");
  assert.deepEqual(await ended, [0, null]);
});

test("the order of the README goes through its steps", async (t) => {
  worker(t, "app.js", "order.js");
  const { app } = application(t, at.url);
  const job = await app.push("order", { total: 7, items: ["lamp", "chair"] });
  await until(async () => (await job.get()).wait?.signal === "approval", "the wait for the approval");
  await job.signal("approval", { by: "ann" });
  assert.deepEqual(await job.wait({ timeout: "30s" }), { charged: 7, by: "ann", parts: ["packed lamp", "packed chair"] });
});

test("the test of the README passes without a server", async () => {
  await promisify(execFile)(process.execPath, [join(folder, "order.test.js")], { env: { ...process.env, WINDLASS_SERVER: "http://127.0.0.1:9" }, timeout: 60_000 });
});
