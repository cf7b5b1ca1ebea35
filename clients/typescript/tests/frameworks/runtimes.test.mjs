// The library in Bun and Deno. They are installed apart from the library:
//   npm install --prefix target/node-frameworks @oven/bun-linux-x64 @deno/linux-x64-glibc          (x86-64)
//   npm install --prefix target/node-frameworks @oven/bun-linux-aarch64 @deno/linux-arm64-glibc    (ARM64)
// in the folder of the repository, or in another one that WINDLASS_FRAMEWORKS names.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmodSync, existsSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const here = dirname(fileURLToPath(import.meta.url));
const installed = process.env.WINDLASS_FRAMEWORKS ?? resolve(here, "../../../../target/node-frameworks");
const program = join(here, "runtime-program.mjs");
const isArm = process.arch === "arm64";
const bun = `@oven/bun-linux-${isArm ? "aarch64" : "x64"}`;
const deno = `@deno/linux-${isArm ? "arm64" : "x64"}-glibc`;
const expected = [{ total: 7, by: "ann", parts: ["packed lamp", "packed chair"] }, "Fail", "Timeout", 300];

const runtimes = [
  ["Node", process.execPath, []],
  ["Bun", join(installed, "node_modules", bun, "bin/bun"), []],
  ["Deno", join(installed, "node_modules", deno, "deno"), ["run", "-A", "--no-remote"]],
];

for (const [name, path, args] of runtimes) {
  test(`producer, worker and steps work in ${name}`, { timeout: 90_000 }, async () => {
    assert.ok(existsSync(path), `missing: npm install --prefix ${installed} ${bun} ${deno}`);
    if (name !== "Node") chmodSync(path, 0o755);
    const { stdout } = await promisify(execFile)(path, [...args, program], { timeout: 80_000 });
    assert.deepEqual(JSON.parse(stdout), expected);
  });
}
