// Packed artefact: its files, and its use in a fresh folder.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));

test("the packed library has the compiled files only, and works after its installation", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "windlass-pack-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const run = (program, args, cwd = folder) => execFileSync(program, args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  // Without scripts: the build would replace the files that other tests use.
  const [packed] = JSON.parse(run("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", folder], root));
  const odd = packed.files.map(({ path }) => path).filter((path) => !/^(dist\/[a-z0-9-]+\.(js|d\.ts)|README\.md|LICENSE-(MIT|APACHE)|package\.json)$/.test(path));
  assert.deepEqual(odd, []);
  assert.deepEqual(packed.bundled, []);
  writeFileSync(join(folder, "package.json"), '{"type":"module","private":true}');
  run("npm", ["install", "--offline", "--no-audit", "--no-fund", join(folder, packed.filename)]);
  writeFileSync(
    join(folder, "try.js"),
    `import { Windlass, Fail } from "windlass";
     const app = new Windlass();
     const add = app.task("add", async (p) => p.a + p.b);
     app.testing({ inline: true });
     console.log(await (await add.push({ a: 1, b: 2 })).wait(), new Fail("x").name);`,
  );
  assert.equal(run(process.execPath, ["try.js"]), "3 Fail\n");
  assert.match(run(join(folder, "node_modules", ".bin", "windlass-worker"), ["--help"]), /^Usage: windlass-worker/);
});
