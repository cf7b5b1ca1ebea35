import { isDeepStrictEqual } from "node:util";
import type { Backend } from "./client.js";
import { milliseconds, type Duration } from "./duration.js";
import { WaitTimeout } from "./errors.js";
import { Memory, type MemoryJob, type NewJob, type SettleReport } from "./memory.js";
import { NoteSender } from "./notes.js";
import { Run, type Middleware, type Surroundings } from "./run.js";
import type { Definition, Task } from "./task.js";
import { isSettled, type ExtendedEntry, type JobId, type JobView, type PushAnswer, type ResultView, type StepAnswer } from "./wire.js";

/** Options of `app.testing()`. */
export interface TestingOptions {
  /** True: a push runs its job before it returns, if the job is due. False: jobs are collected until `run()`. */
  inline?: boolean;
  /** Time at the beginning; now. */
  now?: Date | number;
}

/** Runs of one `run()` or `advance()`; more are a loop. */
const RUNS_MAX = 100_000;

/** Lease of a run in a test; it never expires. */
const LEASE_MS = 30_000;

/** Job that a test has seen. */
export interface TestJob {
  /** Id. */
  id: number;
  /** Name of the task. */
  name: string;
  /** Queue. */
  queue: string;
  /** Payload as JSON makes it. */
  payload: unknown;
  /** State, as on the server. */
  state: string;
  /** Time of the next run. */
  runAt: Date;
  /** Counted attempts. */
  attempts: number;
  /** Result, if it is completed. */
  result: unknown;
  /** Messages of the failed attempts. */
  errors: string[];
  /** Names of the kept steps. */
  steps: string[];
  /** Lines of its log. */
  log: string[];
  /** Last progress. */
  progress: TestProgress | undefined;
}

/** Progress of a job. */
export interface TestProgress {
  /** Percent done. */
  percent: number;
  /** Note for people. */
  note?: string;
}

/** Task whose jobs are looked for. */
export type Named = string | Pick<Task<never, unknown>, "name">;

/** Application without a server: jobs are in memory, and time moves only by `advance()`. */
export class Testing implements Backend {
  readonly #memory: Memory;
  readonly #definitions: ReadonlyMap<string, Definition>;
  readonly #isInline: boolean;
  readonly #around: Omit<Surroundings, "ended">;
  readonly #closed: () => void;

  /** @internal */
  constructor(
    definitions: ReadonlyMap<string, Definition>,
    middleware: readonly Middleware[],
    warn: (text: string) => void,
    options: TestingOptions,
    closed: () => void,
  ) {
    this.#definitions = definitions;
    this.#isInline = options.inline ?? false;
    this.#memory = new Memory(Number(options.now ?? Date.now()));
    this.#closed = closed;
    const notes = new NoteSender(
      () => this,
      () => undefined,
    );
    this.#around = { backend: () => this, notes, middleware, warn, pushAll: (jobs) => this.push(jobs), leaseMs: LEASE_MS, now: () => this.#memory.now };
  }

  /** Time of the test. */
  get now(): Date {
    return new Date(this.#memory.now);
  }

  /** All jobs, in the order of their pushes. */
  get jobs(): TestJob[] {
    return this.#memory.jobs.map((job) => shown(this.#memory, job));
  }

  /** Jobs of one task. */
  pushed(task: Named): TestJob[] {
    return this.jobs.filter(({ name }) => name === nameOf(task));
  }

  /** Asserts that a job of the task was pushed, with these fields in its payload. Returns the first one. */
  assertPushed(task: Named, payload?: unknown, times?: number): TestJob {
    const jobs = this.pushed(task);
    const found = payload === undefined ? jobs : jobs.filter((job) => contains(job.payload, payload));
    if (found.length > 0 && (times === undefined || found.length === times)) return found[0] as TestJob;
    const wanted = payload === undefined ? "" : ` with ${JSON.stringify(payload)}`;
    const there = jobs.map((job) => `\n  ${JSON.stringify(job.payload)}`).join("") || " none";
    const count = times === undefined ? "a job" : `${times} job(s)`;
    throw new Error(`expected ${count} of ${nameOf(task)}${wanted}, found ${found.length}; pushed:${there}`);
  }

  /** Asserts that no job of the task was pushed, or none with these fields in its payload. */
  assertNotPushed(task: Named, payload?: unknown): void {
    const found = this.pushed(task).filter((job) => payload === undefined || contains(job.payload, payload));
    if (found.length > 0) throw new Error(`expected no job of ${nameOf(task)}, found ${JSON.stringify(found[0]?.payload)}`);
  }

  /** Runs the jobs that are due, and those that they push, until none is due. Returns the number of runs. */
  async run(): Promise<number> {
    let runs = 0;
    for (let job = this.#next(); job !== undefined; job = this.#next()) {
      if (runs >= RUNS_MAX) throw new Error(`jobs do not come to an end after ${RUNS_MAX} runs`);
      runs += 1;
      await this.#runOne(job);
    }
    return runs;
  }

  /** Moves time forward, and runs each job when its time comes. */
  async advance(time: Duration): Promise<void> {
    const target = this.#memory.now + milliseconds(time);
    for (let runs = 0; runs < RUNS_MAX; ) {
      runs += await this.run();
      const next = this.#memory.nextTime();
      if (next === undefined || next > target) break;
      if (next <= this.#memory.now && this.#next() === undefined) break;
      this.#memory.now = Math.max(next, this.#memory.now);
    }
    this.#memory.now = target;
    await this.run();
  }

  /** Returns the application to its server. */
  close(): void {
    this.#closed();
  }

  /** @internal */
  [Symbol.dispose](): void {
    this.close();
  }

  #next(): MemoryJob | undefined {
    return this.#memory.next(this.#definitions);
  }

  async #runOne(job: MemoryJob): Promise<void> {
    const definition = this.#definitions.get(job.name) as Definition;
    const claimed = this.#memory.claim(job);
    const report = await new Promise<string | undefined>((ended) => {
      new Run(claimed, definition, { ...this.#around, ended: (_, text) => ended(text) }).start();
    });
    if (report !== undefined) this.#memory.settle(job, JSON.parse(report) as SettleReport);
  }

  /** @internal */
  async push(jobs: readonly string[]): Promise<PushAnswer> {
    const pushed = jobs.map((job) => this.#memory.push(JSON.parse(job) as NewJob));
    const isNested = this.#memory.jobs.some(({ state }) => state === "running");
    if (this.#isInline && !isNested) await this.run();
    return { ids: pushed.map(({ id }) => id), existing: pushed.filter(({ existing }) => existing).map(({ id }) => id) };
  }

  /** @internal */
  async keepSteps(id: number, token: number, steps: readonly string[]): Promise<StepAnswer[]> {
    return this.#memory.keep(this.#memory.find(id), token, steps.map((step) => JSON.parse(step)));
  }

  /** @internal */
  async log(id: number, _token: number, lines: readonly string[]): Promise<void> {
    this.#memory.find(id).log.push(...lines);
  }

  /** @internal */
  async extend(entries: readonly string[]): Promise<ExtendedEntry[]> {
    return entries.map((entry) => {
      const { id, progress, note } = JSON.parse(entry) as { id: number; progress?: number; note?: string };
      if (progress !== undefined) this.#memory.find(id).progress = { percent: progress, ...(note === undefined ? {} : { note }) };
      return { id, ok: true };
    });
  }

  /** @internal */
  async children(id: number): Promise<JobView[]> {
    return this.#memory.jobs.filter(({ pushed }) => pushed.parent === id).map((job) => this.#memory.view(job));
  }

  /** @internal */
  async result(id: JobId): Promise<ResultView> {
    await this.run();
    const view = this.#memory.view(this.#memory.find(id));
    if (!isSettled(view.state)) throw new WaitTimeout(`job ${id} is ${view.state}; move time with advance(), or send the signal it waits for`);
    return view;
  }

  /** @internal */
  async job(id: JobId): Promise<JobView> {
    return this.#memory.view(this.#memory.find(id));
  }

  /** @internal */
  async act(id: JobId, action: string, body?: unknown): Promise<JobView> {
    const job = this.#memory.find(id);
    this.#memory.act(job, action, (body as { from_step?: string } | undefined)?.from_step);
    return this.#memory.view(job);
  }

  /** @internal */
  async signal(id: JobId, name: string, payload: unknown): Promise<{ woken: boolean }> {
    const answer = this.#memory.signal(this.#memory.find(id), name, payload === undefined ? null : JSON.parse(JSON.stringify(payload)));
    if (this.#isInline) await this.run();
    return answer;
  }
}

function nameOf(task: Named): string {
  return typeof task === "string" ? task : task.name;
}

function shown(memory: Memory, job: MemoryJob): TestJob {
  const { id, name, queue, payload, attempt, result, errors, log, progress } = job;
  const steps = job.steps.map((step) => step.name);
  return { id, name, queue, payload, state: memory.view(job).state, runAt: new Date(job.runAt), attempts: attempt, result, errors, steps, log, progress };
}

/** True if every field of `part` is in `whole`, at any depth. */
function contains(whole: unknown, part: unknown): boolean {
  if (typeof part !== "object" || part === null || Array.isArray(part)) return isDeepStrictEqual(whole, part);
  if (typeof whole !== "object" || whole === null) return false;
  return Object.entries(part).every(([key, value]) => contains((whole as Record<string, unknown>)[key], value));
}
