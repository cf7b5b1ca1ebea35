#!/usr/bin/env node
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import type { Windlass, WorkOptions } from "./app.js";

const USAGE = `Usage: windlass-worker MODULE[:EXPORT] [MODULE]… [options]

Works on the tasks of an application. The first module exports it as \`app\`, as the default, or as EXPORT; further modules
register tasks.

  --concurrency N   jobs that run at the same time (10)
  --lease TIME      lease without a heartbeat, such as 30s
  --grace TIME      time for running jobs after SIGTERM, such as 30s
  --queue NAME      queue to claim from, instead of the queues of the tasks; may be repeated
  --worker NAME     name of this worker, shown with its jobs
  --help            this text

WINDLASS_SERVER and WINDLASS_TOKEN name the server and the access token.`;

/** Error in the arguments. */
class UsageError extends Error {}

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      concurrency: { type: "string" },
      lease: { type: "string" },
      grace: { type: "string" },
      queue: { type: "string", multiple: true },
      worker: { type: "string" },
      help: { type: "boolean" },
    },
  });
  if (values.help === true) return console.log(USAGE);
  const [target, ...more] = positionals;
  if (target === undefined) throw new UsageError("give a module");
  const options: WorkOptions = {};
  if (values.concurrency !== undefined) options.concurrency = Number(values.concurrency);
  if (values.lease !== undefined) options.lease = values.lease;
  if (values.grace !== undefined) options.grace = values.grace;
  if (values.queue !== undefined) options.queues = values.queue;
  if (values.worker !== undefined) options.worker = values.worker;
  const app = await load(target);
  for (const path of more) await import(pathToFileURL(resolve(path)).href);
  await app.work(options);
}

async function load(target: string): Promise<Windlass> {
  const colon = target.lastIndexOf(":");
  const [path, name] = colon > 1 ? [target.slice(0, colon), target.slice(colon + 1)] : [target, undefined];
  const module = (await import(pathToFileURL(resolve(path)).href)) as Record<string, unknown>;
  const names = name === undefined ? ["app", "default"] : [name];
  for (const candidate of names.map((each) => module[each])) {
    // Another copy of the library has another class, so `instanceof` would refuse it.
    if (typeof (candidate as Windlass | undefined)?.work === "function") return candidate as Windlass;
  }
  throw new UsageError(`${path} does not export an application as ${names.join(" or ")}`);
}

main().then(
  // Handlers that ignore their signal must not keep the process.
  () => process.exit(0),
  (error: unknown) => {
    const isUsage = error instanceof UsageError || (error as { code?: string }).code?.startsWith("ERR_PARSE_ARGS");
    console.error(isUsage ? `error: ${(error as Error).message}\n\n${USAGE}` : error);
    process.exit(isUsage ? 2 : 1);
  },
);
