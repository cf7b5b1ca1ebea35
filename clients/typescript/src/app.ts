import { backoffMs, pause } from "./backoff.js";
import { BATCH_MAX, Batcher, type Pushed } from "./batcher.js";
import { Client, type Backend, type CallOptions } from "./client.js";
import type { Context } from "./context.js";
import { milliseconds, type Duration } from "./duration.js";
import { isOutage } from "./errors.js";
import { JobHandle } from "./handle.js";
import * as otel from "./otel.js";
import type { Middleware } from "./run.js";
import { Task, type Definition, type Handler, type PushOptions, type TaskOptions } from "./task.js";
import { Testing, type TestingOptions } from "./testing.js";
import type { JobId } from "./wire.js";
import { Worker } from "./worker.js";

/** Options of an application. */
export interface WindlassOptions {
  /** URL of the server; `WINDLASS_SERVER`, else `http://127.0.0.1:7373`. */
  server?: string;
  /** Access token; `WINDLASS_TOKEN`. */
  token?: string;
  /** HTTP client: `node` (`node:http`, the default in Node) or `fetch` (the default in Bun and Deno). */
  transport?: "node" | "fetch";
  /** Schema of the PostgreSQL store, for `pushIn`; `windlass`. */
  schema?: string;
  /** Receives lines about the worker; standard error if omitted. */
  log?: (text: string) => void;
}

/** Options of a worker. */
export interface WorkOptions {
  /** Jobs that run at the same time; 10. */
  concurrency?: number;
  /** Lease: without a heartbeat for this long, the server gives the job to another worker; 30 s. */
  lease?: Duration;
  /** Time that running jobs have to end after SIGTERM; 30 s. Then they are released. */
  grace?: Duration;
  /** Queues to claim from, instead of the queues of the tasks. */
  queues?: string[];
  /** Name of the worker, shown with its jobs; host and process id. */
  worker?: string;
  /** False: SIGTERM and SIGINT are left to the caller, who calls `app.stop()`. */
  signals?: boolean;
  /** Ends the worker like SIGTERM. */
  signal?: AbortSignal;
}

/** Options of a schedule. */
export interface CronOptions extends Omit<TaskOptions, "unique"> {
  /** Time zone of the rule, such as `Europe/Berlin`; UTC. */
  tz?: string;
  /** Payload of each run. */
  payload?: unknown;
  /** Handling of turns that no worker was there for: one of them runs late, or none. */
  catchUp?: "one" | "none";
}

interface Schedule {
  name: string;
  rule: string;
  job: Record<string, unknown>;
}

const DEFAULT_SERVER = "http://127.0.0.1:7373";
const DEFAULT_QUEUE = "default";

/** Application: its tasks and schedules, and the server where their jobs are. */
export class Windlass {
  /** URL of the server. */
  readonly server: string;
  /**
   * Schema of the PostgreSQL store.
   * @internal
   */
  readonly schema: string;
  /** @internal */
  readonly batcher: Batcher;
  readonly #client: Client;
  readonly #log: (text: string) => void;
  readonly #definitions = new Map<string, Definition>();
  readonly #schedules: Schedule[] = [];
  readonly #middleware: Middleware[] = [];
  readonly #workers = new Set<Worker>();
  #testing: Testing | undefined;

  /** Creates an application. No connection is made before the first call. */
  constructor(options: WindlassOptions = {}) {
    this.server = options.server ?? (process.env["WINDLASS_SERVER"] || DEFAULT_SERVER);
    this.schema = options.schema ?? "windlass";
    const token = options.token ?? process.env["WINDLASS_TOKEN"];
    this.#client = new Client(this.server, token, options.transport);
    this.#log = options.log ?? ((text) => console.error(`windlass: ${text}`));
    this.batcher = new Batcher(() => this.backend);
  }

  /**
   * Registers a task. The types of its payload and its result are those of the handler.
   * Both travel as JSON: a `Date` becomes a string, so declare it as one.
   */
  task<P, R>(name: string, handler: Handler<P, R>): Task<P, Awaited<R>>;
  task<P, R>(name: string, options: TaskOptions, handler: Handler<P, R>): Task<P, Awaited<R>>;
  task<P, R>(name: string, ...rest: [Handler<P, R>] | [TaskOptions, Handler<P, R>]): Task<P, Awaited<R>> {
    const [options, handler] = rest.length === 1 ? [{}, rest[0]] : rest;
    if (this.#definitions.has(name)) throw new TypeError(`the task ${name} is registered twice`);
    const definition = define(name, options, handler);
    this.#definitions.set(name, definition);
    return new Task(this, definition, {});
  }

  /** Task whose handler is in another application: it can be pushed, but this application does not work on it. */
  remote<P = unknown, R = unknown>(name: string, options: TaskOptions = {}): Task<P, R> {
    return new Task(this, define(name, options, undefined), {});
  }

  /**
   * Registers a schedule: the handler runs by a cron rule (`"0 9 * * MON-FRI"`), or at intervals (`"every 5m"`).
   * The worker creates it on the server when it starts; `deploy()` does so without a worker.
   */
  cron<R>(name: string, rule: string, handler: Handler<unknown, R>): Task<unknown, Awaited<R>>;
  cron<R>(name: string, rule: string, options: CronOptions, handler: Handler<unknown, R>): Task<unknown, Awaited<R>>;
  cron<R>(name: string, rule: string, ...rest: [Handler<unknown, R>] | [CronOptions, Handler<unknown, R>]): Task<unknown, Awaited<R>> {
    const [options, handler]: [CronOptions, Handler<unknown, R>] = rest.length === 1 ? [{}, rest[0]] : rest;
    const { tz, payload, catchUp, ...taskOptions } = options;
    const task = this.task(name, taskOptions, handler);
    const repeat = tz === undefined ? rule : `TZ=${tz} ${rule}`;
    const unique = { key: `cron:${name}`, on_conflict: "return" };
    this.#schedules.push({ name, rule: repeat, job: { payload, repeat, catch_up: catchUp, unique } });
    return task;
  }

  /** Adds functions that are called around each run. `before` in the order of `use`, `after` and `error` in reverse. */
  use(middleware: Middleware): this {
    this.#middleware.push(middleware);
    return this;
  }

  /** Pushes a job by the name of its task. */
  push(name: string, payload?: unknown, options: PushOptions = {}): Promise<JobHandle> {
    const definition = this.#definitions.get(name) ?? define(name, {}, undefined);
    return new Task<unknown, unknown>(this, definition, options).push(payload);
  }

  /** Job on the server, by its id or alias. */
  job<R = unknown>(id: JobId): JobHandle<R> {
    return new JobHandle(this, id);
  }

  /** Works on the registered tasks until SIGTERM, SIGINT, `stop()` or the abort of `signal`. */
  async work(options: WorkOptions = {}): Promise<void> {
    const handled = new Map([...this.#definitions].filter(([, definition]) => definition.handler !== undefined));
    if (handled.size === 0) throw new TypeError("there is nothing to work on; register a task first");
    await otel.load();
    const over = new AbortController();
    const worker = new Worker(this.#client, handled, await this.#settings(options, handled), {
      middleware: this.#middleware,
      pushAll: (jobs) => this.pushAll(jobs),
    });
    const stop = () => worker.stop();
    this.#workers.add(worker);
    const signals = options.signals === false ? [] : (["SIGTERM", "SIGINT"] as const);
    for (const signal of signals) process.on(signal, stop);
    options.signal?.addEventListener("abort", stop);
    if (options.signal?.aborted) stop();
    try {
      await this.#deployFor(over.signal);
      await worker.run();
    } finally {
      over.abort();
      this.#workers.delete(worker);
      for (const signal of signals) process.off(signal, stop);
      options.signal?.removeEventListener("abort", stop);
    }
  }

  /** Ends the workers of this application like SIGTERM: running jobs have the grace. A second call releases them at once. */
  stop(): void {
    for (const worker of this.#workers) worker.stop();
  }

  /** Creates the registered schedules on the server, and changes those whose rule is another one now. */
  deploy(): Promise<void> {
    return this.#deploy({});
  }

  async #deploy(options: CallOptions): Promise<void> {
    for (const { name, rule, job } of this.#schedules) {
      const definition = this.#definitions.get(name) as Definition;
      const [head, body] = [new Task(this, definition, {}).encode(undefined), JSON.stringify(job)];
      const { ids, existing } = await this.#client.push([`${head.slice(0, -1)},${body.slice(1)}`], options);
      const id = ids?.[0];
      if (id === undefined || id === null || existing === undefined || existing.length === 0) continue;
      const { repeat } = await this.#client.job(id);
      if (repeat !== rule) await this.#client.reschedule(id, rule);
    }
  }

  /** Replaces the server by memory: pushed jobs are collected or run at once, and time is moved by the test. */
  testing(options: TestingOptions = {}): Testing {
    this.#testing?.close();
    const testing = new Testing(this.#definitions, this.#middleware, this.#log, options, () => {
      if (this.#testing === testing) this.#testing = undefined;
    });
    this.#testing = testing;
    return testing;
  }

  /** Closes idle connections to the server. */
  close(): void {
    this.#client.close();
  }

  /** @internal */
  get backend(): Backend {
    return this.#testing ?? this.#client;
  }

  /**
   * Pushes encoded jobs, 10,000 per call.
   * @internal
   */
  async pushAll(jobs: readonly string[]): Promise<Pushed[]> {
    const pushed: Pushed[] = [];
    for (let start = 0; start < jobs.length; start += BATCH_MAX) {
      pushed.push(...(await this.batcher.push(jobs.slice(start, start + BATCH_MAX))));
    }
    return pushed;
  }

  async #settings(options: WorkOptions, handled: ReadonlyMap<string, Definition>) {
    const { concurrency = 10, lease = "30s", grace = "30s" } = options;
    if (!Number.isInteger(concurrency) || concurrency < 1) throw new TypeError(`concurrency must be 1 or more, not ${concurrency}`);
    const queues = [...new Set([...handled.values()].map((definition) => definition.options.queue ?? DEFAULT_QUEUE))];
    return {
      concurrency,
      leaseMs: milliseconds(lease),
      graceMs: milliseconds(grace),
      worker: options.worker ?? (await defaultName()),
      queues: options.queues ?? queues,
      log: this.#log,
    };
  }

  /** Creates the schedules; in the background while the server is unreachable. */
  async #deployFor(signal: AbortSignal): Promise<void> {
    if (this.#schedules.length === 0) return;
    const again = async () => {
      for (let tries = 1; !signal.aborted; tries += 1) {
        await pause(backoffMs(tries), signal);
        try {
          return await this.#deploy({ repeatForMs: 0 });
        } catch (error) {
          if (!isOutage(error)) return this.#log(`schedules not created: ${(error as Error).message}`);
        }
      }
    };
    try {
      await this.#deploy({ repeatForMs: 0 });
    } catch (error) {
      if (!isOutage(error)) throw error;
      void again();
    }
  }
}

// eslint-disable-next-line @typescript-eslint/no-explicit-any
function define(name: string, options: TaskOptions, handler: Handler<any, unknown> | undefined): Definition {
  const timeoutMs = options.timeout === undefined ? undefined : milliseconds(options.timeout);
  return { name, options, timeoutMs, handler };
}

async function defaultName(): Promise<string> {
  const { hostname } = await import("node:os");
  return `${hostname()}-${process.pid}`;
}

export type { Context };
