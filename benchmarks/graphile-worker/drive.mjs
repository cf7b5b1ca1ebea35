// Drives graphile-worker: pushes one job at a time, or drains a filled queue with its batching settings. Prints the best
// of the shapes it tried as JSON: {"jobs", "seconds", "shape"}.
//
//   node drive.mjs push  URL JOBS
//   node drive.mjs drain URL JOBS
//
// Modules are found from MODULES, the folder that holds node_modules: the package stays out of the source tree.
import { fork } from "node:child_process";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const require = createRequire(`${process.env.MODULES ?? process.cwd()}/`);
const { Logger, makeWorkerUtils, run, runMigrations } = require("graphile-worker");
const { Pool } = require("pg");

const quiet = new Logger(() => () => {});
const PAYLOAD = { data: "x".repeat(88) }; // 100 bytes of JSON, as the other side
const CONNECTIONS = 16;

// How the drain is divided: processes, jobs at once in each, jobs fetched at once. Which is best differs between machines.
const SHAPES = [
  { processes: 4, concurrency: 24, fetch: 500 },
  { processes: 2, concurrency: 100, fetch: 500 },
  { processes: 1, concurrency: 100, fetch: 500 },
  { processes: 4, concurrency: 500, fetch: 500 },
];
// And the pushes: 16 connections in one process, or shared by two.
const PUSHERS = [1, 2];

const [command, url, count, ...rest] = process.argv.slice(2);
const jobs = Number(count);

switch (command) {
  case "push":
    console.log(JSON.stringify(await best(PUSHERS, pushWith)));
    break;
  case "drain":
    console.log(JSON.stringify(await best(SHAPES, drainWith)));
    break;
  case "pusher":
    await pusher(jobs, Number(rest[0]));
    break;
  case "worker":
    await worker(JSON.parse(count));
    break;
  default:
    console.error("usage: node drive.mjs push|drain URL JOBS");
    process.exit(2);
}

async function best(shapes, measure) {
  await withPool((pool) => runMigrations({ pgPool: pool, logger: quiet }));
  let found;
  for (const shape of shapes) {
    const result = await measure(shape);
    if (!found || result.jobs / result.seconds > found.jobs / found.seconds) found = result;
  }
  return found;
}

async function withPool(work, max = 2) {
  const pool = new Pool({ connectionString: url, max });
  listenForErrors(pool);
  try {
    return await work(pool);
  } finally {
    await pool.end();
  }
}

// The pool's own way of saying that somebody listens; a connection that breaks fails the run by itself.
function listenForErrors(pool) {
  pool.on("error", () => {});
  pool.on("connect", (client) => client.on("error", () => {}));
}

async function empty() {
  await withPool((pool) => pool.query("TRUNCATE graphile_worker._private_jobs"));
}

// Starts helpers, tells all to begin when all are ready, and gives the time until the last has ended.
async function together(argumentLists, onMessage = () => {}) {
  const children = argumentLists.map((list) => fork(fileURLToPath(import.meta.url), list, { env: process.env }));
  await Promise.all(children.map((child) => new Promise((ready) => child.once("message", ready))));
  for (const child of children) child.on("message", (message) => onMessage(message, children));
  const began = process.hrtime.bigint();
  const ended = children.map(
    (child) => new Promise((done, fail) => child.on("exit", (code) => (code === 0 ? done() : fail(new Error("a helper failed"))))),
  );
  for (const child of children) child.send("go");
  await Promise.all(ended);
  return Number(process.hrtime.bigint() - began) / 1e9;
}

function told(word) {
  return new Promise((done) => process.on("message", (message) => message === word && done()));
}

// --- push -----------------------------------------------------------------------------------------------------------

async function pushWith(processes) {
  await empty();
  const each = Math.ceil(jobs / processes);
  const connections = CONNECTIONS / processes;
  const seconds = await together(Array(processes).fill(["pusher", url, String(each), String(connections)]));
  return { jobs: each * processes, seconds, shape: `${processes} x ${connections} connections` };
}

async function pusher(jobs, connections) {
  await withPool(async (pool) => {
    const utils = await makeWorkerUtils({ pgPool: pool, logger: quiet });
    // Connections and statements are there before the clock starts.
    await Promise.all(Array.from({ length: connections }, () => utils.addJob("bench", PAYLOAD)));
    process.send("ready");
    await told("go");
    let left = jobs;
    const push = async () => {
      while (left-- > 0) await utils.addJob("bench", PAYLOAD);
    };
    await Promise.all(Array.from({ length: connections }, push));
    await utils.release();
  }, connections);
  process.disconnect();
}

// --- drain ----------------------------------------------------------------------------------------------------------

async function drainWith(shape) {
  await empty();
  await fill();
  let done = 0;
  const share = { ...shape, report: 100 };
  const seconds = await together(Array(shape.processes).fill(["worker", url, JSON.stringify(share)]), (count, children) => {
    done += count;
    if (done >= jobs) for (const child of children) if (child.connected) child.send("stop");
  });
  const left = await withPool((pool) => pool.query("SELECT count(*)::int AS left FROM graphile_worker._private_jobs"));
  if (left.rows[0].left > 0) throw new Error(`${left.rows[0].left} jobs were left over`);
  const words = `${shape.processes} processes, concurrency ${shape.concurrency}, localQueue ${shape.fetch}, completions batched`;
  return { jobs, seconds, shape: words };
}

async function fill() {
  await withPool(async (pool) => {
    for (let from = 0; from < jobs; from += 10_000) {
      await pool.query(
        `SELECT count(*) FROM graphile_worker.add_jobs((SELECT array_agg(json_populate_record(null::graphile_worker.job_spec,
         json_build_object('identifier', 'bench', 'payload', $1::json, 'max_attempts', 25))) FROM generate_series(1, $2)))`,
        [JSON.stringify(PAYLOAD), Math.min(10_000, jobs - from)],
      );
    }
    await pool.query("ANALYZE graphile_worker._private_jobs");
  });
}

async function worker(shape) {
  const pool = new Pool({ connectionString: url, max: 12 });
  listenForErrors(pool);
  let unreported = 0;
  const report = () => {
    if (unreported > 0 && process.connected) process.send(unreported);
    unreported = 0;
  };
  await pool.query("SELECT 1");
  process.send("ready");
  await told("go");
  const stop = told("stop");
  const runner = await run({
    pgPool: pool,
    logger: quiet,
    noHandleSignals: true,
    taskList: {
      bench: async () => {
        if (++unreported >= shape.report) report();
      },
    },
    preset: {
      worker: {
        concurrentJobs: shape.concurrency,
        maxPoolSize: 12,
        pollInterval: 2000,
        localQueue: { size: shape.fetch, refetchDelay: { durationMs: 10 } },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
  });
  const timer = setInterval(report, 5);
  await stop;
  clearInterval(timer);
  // Returns when every completion is written.
  await runner.stop();
  await pool.end();
  process.exit(0);
}
