import type { Pushed } from "./batcher.js";
import type { Context } from "./context.js";
import { milliseconds, type Duration } from "./duration.js";
import { JobHandle } from "./handle.js";
import * as otel from "./otel.js";
import type { Windlass } from "./app.js";

/** Delay before the next attempt: none, the same each time, or growing from `base` up to `cap`. */
export type Backoff = "none" | FixedBackoff | GrowingBackoff;

/** Constant delay. */
export interface FixedBackoff {
  /** Delay before each further attempt. */
  fixed: Duration;
}

/** Delay that doubles after each failure. */
export interface GrowingBackoff {
  /** First delay. */
  base: Duration;
  /** Longest delay. */
  cap?: Duration;
  /** Random addition to the delay, as a percentage. */
  jitterPercent?: number;
}

/** Retry policy: total number of attempts, or the whole policy. */
export type RetryPolicy = number | RetryOptions;

/** Whole retry policy. */
export interface RetryOptions {
  /** Total number of attempts, the first included; null: no bound; 10 if omitted. */
  maxAttempts?: number | null;
  /** Delay before the next attempt; from 1 s, doubled each time, if omitted. */
  backoff?: Backoff;
  /** No attempt starts later than this after the push. */
  giveUpAfter?: Duration;
}

/** Retention after each kind of end. */
export interface Keep {
  /** After completion; one hour if omitted. */
  completed?: KeepFor;
  /** After failure; for ever if omitted. */
  failed?: KeepFor;
  /** After cancellation; seven days if omitted. */
  cancelled?: KeepFor;
}

/** Retention of a settled job: a duration, 0 to delete it at once, or `"ever"`. */
export type KeepFor = Duration | "ever";

/** Options of a push. */
export interface PushOptions {
  /** Queue; the queue of the task if omitted. */
  queue?: string;
  /** Priority; a smaller number runs first. */
  priority?: number;
  /** Retry policy; ten attempts with growing delays if omitted. */
  retry?: RetryPolicy;
  /** Tags for searches. */
  tags?: string[];
  /** Second id, chosen by the caller. */
  alias?: string;
  /** Retention after the end. */
  keep?: Keep;
  /** Delay before the first run. */
  delay?: Duration;
  /** Time of the first run. */
  at?: Date | number;
  /** Key that makes a push safe to repeat; random if omitted. */
  idempotencyKey?: string;
  /** Id of a running job that waits for this one. */
  parent?: number;
}

/** Options of a task. */
export interface TaskOptions extends Pick<PushOptions, "queue" | "priority" | "retry" | "tags" | "keep"> {
  /** Time after which a run is stopped and fails with the class `Timeout`. */
  timeout?: Duration;
  /**
   * Unique key from the payload: while a job with the key is not settled, a push with the same key creates no second job.
   * The key holds for this task only. Children of `ctx.all` have none. (`any`, because the type of the payload is inferred from the handler, which stands behind it.)
   */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  unique?: (payload: any) => string | number | null | undefined;
  /** Version of the code, kept with the first step of each job; see `ctx.version`. */
  version?: number;
  /** Reaction to kept steps that the code does not reach any more: a warning in the log, or failure of the job. */
  onChange?: "warn" | "refuse";
}

/** Function that does the work of a task. Its payload and its result travel as JSON: a `Date` becomes a string. */
export type Handler<P, R> = (payload: P, ctx: Context) => R | Promise<R>;

/** Client of `pg`, or another one with the same `query`. */
export interface SqlClient {
  /** Runs a statement with parameters. */
  query(text: string, values: unknown[]): Promise<SqlRows>;
}

/** Answer to a statement. */
export interface SqlRows {
  /** Rows as objects. */
  rows: unknown[];
}

/** Arguments of a push: the payload may be omitted if the handler does not need it. */
export type PushArgs<P> = unknown extends P
  ? [payload?: P, options?: PushOptions]
  : undefined extends P
    ? [payload?: P, options?: PushOptions]
    : [payload: P, options?: PushOptions];

/** Task with its handler, as the worker sees it. */
export interface Definition {
  name: string;
  options: TaskOptions;
  timeoutMs: number | undefined;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  handler: Handler<any, unknown> | undefined;
}

/** Child job to be started by `ctx.all`. */
export class Call<R = unknown> {
  /** Result type, for inference only. */
  declare readonly result: R;

  /** @internal */
  constructor(
    /** Task of the child. */
    readonly task: Task<never, R>,
    /** Payload of the child. */
    readonly payload: unknown,
    /** Options of its push. */
    readonly options: PushOptions,
  ) {}
}

/** Random part of the idempotency keys of this process. */
const PROCESS_KEY = crypto.randomUUID().replaceAll("-", "").slice(0, 20);
let pushes = 0;

/** Idempotency key of one push of this process. Keys grow, so that the server adds them at one place of its index. */
function nextKey(): string {
  pushes += 1;
  return `${PROCESS_KEY}-${pushes.toString(36).padStart(7, "0")}`;
}

/** Task of an application: pushes jobs that its handler runs. */
export class Task<P, R> {
  /** Name of the jobs. */
  readonly name: string;
  readonly #app: Windlass;
  readonly #definition: Definition;
  readonly #options: PushOptions;
  /** Fields of a job that do not depend on the payload, as JSON without the closing brace. */
  readonly #head: string;

  /** @internal */
  constructor(app: Windlass, definition: Definition, options: PushOptions) {
    this.name = definition.name;
    this.#app = app;
    this.#definition = definition;
    this.#options = options;
    this.#head = JSON.stringify({ name: definition.name, ...fields({ ...definition.options, ...options }) }).slice(0, -1);
  }

  /** The same task with other options of its pushes. */
  with(options: PushOptions): Task<P, R> {
    return new Task(this.#app, this.#definition, { ...this.#options, ...options });
  }

  /** The same task; its jobs run after a delay. */
  delay(delay: Duration): Task<P, R> {
    return this.with({ delay, at: undefined });
  }

  /** The same task; its jobs run at a time. */
  at(at: Date | number): Task<P, R> {
    return this.with({ at, delay: undefined });
  }

  /** Pushes a job. Pushes made at the same time share a call. */
  async push(...[payload, options]: PushArgs<P>): Promise<JobHandle<R>> {
    if (!otel.isLoaded()) await otel.load();
    const [pushed] = await this.#app.batcher.push([this.encode(payload, options)]);
    return this.#handle(pushed as Pushed);
  }

  /**
   * Pushes many jobs: up to 10,000 in one call, which creates all of them or none.
   * An idempotency key is numbered: `key/0`, `key/1`, ….
   */
  async pushMany(payloads: readonly P[], options?: PushOptions): Promise<JobHandle<R>[]> {
    if (!otel.isLoaded()) await otel.load();
    const key = options?.idempotencyKey ?? this.#options.idempotencyKey;
    const jobs = payloads.map((payload, index) => this.encode(payload, numbered(options, key, index)));
    return (await this.#app.pushAll(jobs)).map((pushed) => this.#handle(pushed));
  }

  /**
   * Pushes a job inside a transaction of the caller, with a client of `pg`: the job exists if and only if the transaction commits.
   * Needs the PostgreSQL store. Returns the id of the job.
   */
  async pushIn(client: SqlClient, ...[payload, options]: PushArgs<P>): Promise<number> {
    const { schema } = this.#app;
    const values = [this.name, JSON.stringify(payload ?? null), JSON.stringify(this.#sqlOptions(payload, options))];
    const answer = await client.query(`SELECT "${schema.replaceAll('"', '""')}".push($1, $2, $3) AS id`, values);
    return Number((answer.rows[0] as { id: unknown }).id);
  }

  #sqlOptions(payload: unknown, options: PushOptions = {}): Record<string, unknown> {
    const merged = { ...this.#definition.options, ...this.#options, ...options };
    const key = this.#definition.options.unique?.(payload);
    const unique = key === undefined || key === null ? undefined : `${this.name}:${key}`;
    return { ...fields(merged), unique, tags: merged.tags };
  }

  /** Child job for `ctx.all`. */
  call(...[payload, options]: PushArgs<P>): Call<R> {
    return new Call(this as unknown as Task<never, R>, payload, options ?? {});
  }

  /** Runs the handler directly, without a job; for tests of the handler alone. */
  async run(payload: P, ctx: Context): Promise<R> {
    const { handler } = this.#definition;
    if (handler === undefined) throw new TypeError(`task ${this.name} has no handler in this application`);
    return (await handler(payload, ctx)) as R;
  }

  #handle(pushed: Pushed): JobHandle<R> {
    return new JobHandle(this.#app, pushed.id, pushed.existing);
  }

  /**
   * Child job of `ctx.all` as JSON, without its unique key: a job of that key would take the place of the child, and is not the parent's.
   * The idempotency key makes the push safe to repeat.
   * @internal
   */
  encodeChild(payload: unknown, options: PushOptions): string {
    return this.#encode(payload, options, "");
  }

  /**
   * Job as JSON.
   * @internal
   */
  encode(payload: unknown, options?: PushOptions): string {
    return this.#encode(payload, options, this.#unique(payload));
  }

  #encode(payload: unknown, options: PushOptions | undefined, unique: string): string {
    const head = options === undefined ? this.#head : this.with(options).#head;
    const merged = options === undefined ? this.#options : { ...this.#options, ...options };
    const body = payload === undefined ? "" : `,"payload":${JSON.stringify(payload)}`;
    const key = merged.idempotencyKey === undefined ? nextKey() : merged.idempotencyKey;
    return `${head}${body}${unique}${traceTags(this.#definition, merged)},"idempotency_key":${JSON.stringify(key)}}`;
  }

  #unique(payload: unknown): string {
    const key = this.#definition.options.unique?.(payload);
    return key === undefined || key === null ? "" : `,"unique":${JSON.stringify(`${this.name}:${key}`)}`;
  }
}

/** Options of the job with this index: an idempotency key given for all of them is made different for each. */
function numbered(options: PushOptions | undefined, key: string | undefined, index: number): PushOptions | undefined {
  return key === undefined ? options : { ...options, idempotencyKey: `${key}/${index}` };
}

function traceTags(definition: Definition, options: PushOptions): string {
  const trace = otel.traceTag();
  const tags = options.tags ?? definition.options.tags;
  if (trace === undefined && tags === undefined) return "";
  return `,"tags":${JSON.stringify([...(tags ?? []), ...(trace === undefined ? [] : [trace])])}`;
}

/** Fields of a push that do not depend on the payload, in the words of the server. Tags are added by the push. */
function fields(options: PushOptions): Record<string, unknown> {
  const { delay, at } = options;
  return {
    queue: options.queue,
    priority: options.priority,
    retry: options.retry === undefined ? undefined : retryField(options.retry),
    alias: options.alias,
    keep: options.keep === undefined ? undefined : keepField(options.keep),
    delay_ms: delay === undefined ? undefined : milliseconds(delay),
    run_at: at === undefined ? undefined : Number(at),
    parent: options.parent,
  };
}

function retryField(retry: RetryPolicy): unknown {
  if (typeof retry === "number") return retry;
  const { maxAttempts, backoff, giveUpAfter } = retry;
  return {
    max_attempts: maxAttempts,
    backoff: backoff === undefined ? undefined : backoffField(backoff),
    give_up_after_ms: giveUpAfter === undefined ? undefined : milliseconds(giveUpAfter),
  };
}

function backoffField(backoff: Backoff): unknown {
  if (backoff === "none") return backoff;
  if ("fixed" in backoff) return { fixed_ms: milliseconds(backoff.fixed) };
  const { base, cap, jitterPercent } = backoff;
  return { base_ms: milliseconds(base), cap_ms: cap === undefined ? undefined : milliseconds(cap), jitter_percent: jitterPercent };
}

function keepField(keep: Keep): unknown {
  const ms = (time: KeepFor | undefined) => (time === undefined || time === "ever" ? time : milliseconds(time));
  return { completed_ms: ms(keep.completed), failed_ms: ms(keep.failed), cancelled_ms: ms(keep.cancelled) };
}
