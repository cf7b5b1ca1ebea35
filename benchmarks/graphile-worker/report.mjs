// Puts the figures of a run together: node report.mjs FOLDER SAVE writes SAVE.json and SAVE.md.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";

const [folder, save] = process.argv.slice(2);
const read = (start) =>
  readdirSync(folder)
    .filter((name) => name.startsWith(start))
    .sort()
    .map((name) => JSON.parse(readFileSync(`${folder}/${name}`, "utf8")));

// Every round of both sides; the best of each counts, for both alike.
const ours = (start, wanted) => read(start).flatMap((run) => run.rows.filter((row) => row.case === wanted));
const rates = (rows) => rows.map((row) => row.value ?? row.jobs / row.seconds);
const comparisons = [
  { what: "push, one job per call, 16 connections", ours: ours("windlass-push", "push, 16 connections"), theirs: read("graphile-push"), bound: 1.5 },
  { what: "drain, claim and finish in batches of 500, 4 clients", ours: ours("windlass-drain", "drain in batches"), theirs: read("graphile-drain"), bound: 2 },
].map(({ what, ours, theirs, bound }) => {
  const [windlass, graphile] = [Math.max(...rates(ours)), Math.max(...rates(theirs))];
  const ratio = windlass / graphile;
  const shape = theirs[rates(theirs).indexOf(graphile)].shape;
  const others = Math.max(...ours.map((row) => row.others_percent ?? 0));
  return { what, windlass, graphile, shape, ratio, bound, met: ratio >= bound, rounds: { windlass: rates(ours), graphile: rates(theirs) }, others };
});
const flat = read("windlass-flat").flatMap((run) => run.targets);
// As windlass-bench has it: with so much other work on the machine a ratio may show that work.
const standing = (row) => (row.others > 10 ? `disturbed: ${Math.round(row.others)} % other work` : row.met ? "met" : "missed");
const count = (number) => Math.round(number).toLocaleString("en-US");

const lines = [
  "| what | windlass on PostgreSQL | graphile-worker | its best shape | ratio | target | |",
  "|---|---:|---:|---|---:|---:|---|",
  ...comparisons.map(
    (row) =>
      `| ${row.what} | ${count(row.windlass)} jobs/s | ${count(row.graphile)} jobs/s | ${row.shape} | ${row.ratio.toFixed(2)}x | ≥ ${row.bound}x | ${standing(row)} |`,
  ),
  "",
  "| cost with many waiting jobs or names, as a multiple of that with few | value | target | |",
  "|---|---:|---:|---|",
  ...flat.map((row) => `| ${row.what} | ${row.value.toFixed(2)}x | ≤ ${row.bound}x | ${row.standing} |`),
  "",
  `Every round, in jobs/s: ${comparisons.map((row) => `${row.what}: windlass ${row.rounds.windlass.map(count).join(" / ")}, graphile-worker ${row.rounds.graphile.map(count).join(" / ")}`).join("; ")}.`,
];
writeFileSync(`${save}.json`, `${JSON.stringify({ comparisons, flat, rows: read("windlass-flat").flatMap((run) => run.rows) }, null, 2)}\n`);
writeFileSync(`${save}.md`, `${lines.join("\n")}\n`);
