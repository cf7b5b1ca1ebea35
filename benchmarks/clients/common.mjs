// Payload and reports of the programs that compare.py starts.
import { renameSync, writeFileSync } from "node:fs";

export const [action, counted, path] = process.argv.slice(2);
export const count = Number(counted);
export const PAYLOAD = "x".repeat(100);

/** Writes the measurement to the file that the last argument names. */
export function say(milliseconds) {
  writeFileSync(`${path}.new`, JSON.stringify({ jobs: count, seconds: milliseconds / 1_000 }));
  renameSync(`${path}.new`, path);
}

export async function measured(run) {
  const from = performance.now();
  await run();
  say(performance.now() - from);
}

/** Calls `push` with the length of each batch. */
export async function inBatches(size, push) {
  for (let from = 0; from < count; from += size) await push(Math.min(size, count - from));
}
