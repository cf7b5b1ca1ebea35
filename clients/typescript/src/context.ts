import { milliseconds, type Duration } from "./duration.js";
import { ChildFailed, Fail } from "./errors.js";
import { resultOf } from "./handle.js";
import type { Run } from "./run.js";
import type { StepOptions } from "./steps.js";
import type { Call } from "./task.js";
import { isSettled, payloadOf, type JobView } from "./wire.js";

/** Retention of the children of `ctx.all`: their results must be there when the last one ends. */
const CHILDREN_KEPT_MS = 30 * 86_400_000;

/** Results of calls, in their order. */
export type Results<C extends readonly Call[]> = { -readonly [I in keyof C]: C[I] extends Call<infer R> ? R : never };

/** Outcome of one child of `ctx.allSettled`. */
export type Settled<R> = Fulfilled<R> | Rejected;

/** Child that is completed. */
export interface Fulfilled<R> {
  /** Tells the two outcomes apart. */
  status: "fulfilled";
  /** Result of the child. */
  value: R;
}

/** Child that failed or was cancelled. */
export interface Rejected {
  /** Tells the two outcomes apart. */
  status: "rejected";
  /** Failure of the child. */
  reason: Error;
}

/** Job that runs now, with its durable steps. The second argument of a handler. */
export class Context {
  readonly #run: Run;

  /** @internal */
  constructor(run: Run) {
    this.#run = run;
  }

  /** Id of the job. */
  get id(): number {
    return this.#run.job.id;
  }

  /** Name of the job: the name of its task. */
  get name(): string {
    return this.#run.job.name;
  }

  /** Queue that the job came from. */
  get queue(): string {
    return this.#run.job.queue;
  }

  /** Number of this attempt, from 1. */
  get attempt(): number {
    return this.#run.job.attempt;
  }

  /** Payload of the job. */
  get payload(): unknown {
    return payloadOf(this.#run.job);
  }

  /** Tags of the job. */
  get tags(): readonly string[] {
    return this.#run.job.tags ?? [];
  }

  /** Time of the push. */
  get createdAt(): Date {
    return new Date(this.#run.job.created_at);
  }

  /** Aborted when the job is cancelled, exceeds its timeout or loses its lease; its reason says which. */
  get signal(): AbortSignal {
    return this.#run.signal;
  }

  /** True after the signal was aborted. */
  get cancelled(): boolean {
    return this.#run.reason !== undefined;
  }

  /** Throws the reason of the signal if it is aborted. */
  throwIfCancelled(): void {
    if (this.#run.reason !== undefined) throw this.#run.reason;
  }

  /** Reports progress, shown with the job. */
  progress(percent: number, note?: string): void {
    if (this.#run.ended) return;
    const whole = Math.max(0, Math.min(100, Math.round(percent)));
    this.#run.notes.progress = { percent: whole, note };
    this.#run.around.notes.mark(this.#run);
  }

  /** Adds lines to the log of the job. */
  log(text: string): void {
    if (this.#run.ended) return;
    this.#run.notes.lines.push(...text.split("\n"));
    this.#run.around.notes.mark(this.#run);
  }

  /** Version of the task with which this job began; 0 if it began without one. */
  get version(): number {
    return this.#run.steps.version;
  }

  /**
   * Runs `work` once and keeps its result. A later run of the job gets the kept result, and `work` is not called.
   * Until the result is kept, `work` may run again: at least once.
   * The result travels as JSON, in the first run, too: a `Date` becomes a string, and `undefined` null.
   */
  async step<T>(name: string, work: () => T | Promise<T>, options: StepOptions = {}): Promise<T> {
    const steps = this.#run.steps;
    const key = steps.name(name);
    const kept = steps.visit(key);
    return kept === undefined ? steps.execute(key, work, options) : ((kept.result ?? null) as T);
  }

  /** Suspends the job for a time, or until a date. It holds no worker meanwhile. */
  async sleep(time: Duration | Date): Promise<void> {
    const steps = this.#run.steps;
    const key = steps.name("sleep");
    if (steps.visit(key) !== undefined) return;
    const ask = time instanceof Date ? { until: time.getTime() } : { delay_ms: milliseconds(time) };
    await steps.suspend(key, ask);
  }

  /** Suspends the job until a signal comes, and returns its payload, which travels as JSON; null after the timeout. */
  async waitFor<T = unknown>(signal: string, options: { timeout?: Duration } = {}): Promise<T | null> {
    const steps = this.#run.steps;
    const key = steps.name(`wait:${signal}`);
    const kept = steps.visit(key);
    if (kept !== undefined) return (kept.result ?? null) as T | null;
    const limit = options.timeout === undefined ? {} : { delay_ms: milliseconds(options.timeout) };
    return steps.suspend(key, { signal, ...limit });
  }

  /**
   * Starts child jobs, suspends this job until all of them are settled, and returns their results.
   * Results travel as JSON: a `Date` becomes a string, and `undefined` null.
   * Throws `ChildFailed` if one of them failed or was cancelled.
   */
  all<const C extends readonly Call[]>(calls: C): Promise<Results<C>>;
  all<R>(calls: Iterable<Call<R>>): Promise<R[]>;
  async all(calls: Iterable<Call>): Promise<unknown[]> {
    const children = await this.#children([...calls]);
    return children.map((child) => {
      const outcome = settled(child);
      if (outcome.status === "rejected") throw new ChildFailed(`child ${child.id} (${child.name}): ${outcome.reason.message}`, child.id);
      return outcome.value;
    });
  }

  /** Like `all`, but returns the outcome of each child, also of those that failed. */
  async allSettled<R>(calls: Iterable<Call<R>>): Promise<Settled<R>[]> {
    const children = await this.#children([...calls]);
    return children.map((child) => settled(child) as Settled<R>);
  }

  async #children(calls: readonly Call[]): Promise<JobView[]> {
    const { steps, around } = this.#run;
    const key = steps.name("all");
    const kept = steps.visit(key);
    if (kept !== undefined) return steps.load(() => this.#childrenOf(labelOf(key, kept.generation), calls.length));
    if (calls.length === 0) return [];
    const label = labelOf(key, this.#run.job.generation);
    const jobs = calls.map((call, index) => this.#child(call, label, index));
    return steps.suspend(key, { children: true }, async () => {
      await around.pushAll(jobs);
    });
  }

  #child(call: Call, step: string, index: number): string {
    return call.task.encodeChild(call.payload, {
      keep: { completed: CHILDREN_KEPT_MS },
      ...call.options,
      parent: this.id,
      idempotencyKey: `${this.id}/${step}/${index}`,
      tags: [...(call.options.tags ?? []), `windlass.step=${step}`, `windlass.index=${index}`, this.#family(step)],
    });
  }

  /** Tag that the children of one `all` have in common. */
  #family(step: string): string {
    return `windlass.all=${this.id}/${step}`;
  }

  async #childrenOf(step: string, count: number): Promise<JobView[]> {
    const backend = this.#run.around.backend();
    const family = this.#family(step);
    const found = await backend.children(this.id);
    const byIndex = new Map(found.filter(({ tags }) => tags?.includes(family)).map((child) => [indexOf(child), child]));
    return Array.from({ length: count }, (_, index) => {
      const child = byIndex.get(index);
      if (child === undefined) throw new Fail(`the result of child ${index} of step ${step} is gone: the job was deleted`);
      return child;
    });
  }
}

/** Name of a step in the keys and tags of its children: a step that is executed again has others. */
function labelOf(step: string, generation = 0): string {
  return generation === 0 ? step : `${step}@${generation}`;
}

function indexOf(child: JobView): number {
  const tag = child.tags?.find((label) => label.startsWith("windlass.index="));
  return Number(tag?.slice("windlass.index=".length));
}

function settled(child: JobView): Settled<unknown> {
  if (!isSettled(child.state)) return { status: "rejected", reason: new Error(`the job is ${child.state}`) };
  try {
    return { status: "fulfilled", value: resultOf(child) };
  } catch (error) {
    return { status: "rejected", reason: error as Error };
  }
}
