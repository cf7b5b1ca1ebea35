import { pause, turn, backoffMs } from "./backoff.js";
import { milliseconds, type Duration } from "./duration.js";
import { BadRequest, Conflict, Fail, isOutage, LeaseLost, NotFound, Retry, Snooze, StepNotKept, StepsChanged, WindlassError } from "./errors.js";
import type { Run } from "./run.js";
import type { KeptStep } from "./wire.js";

/** Name of the step that keeps the version of the task. */
export const VERSION_STEP = "@version";
/** Delay between two tries of a step unless given. */
const STEP_BACKOFF_MS = 100;

/** Options of a step. */
export interface StepOptions {
  /** Further tries in the same run after an error; none after `Fail`, `Retry` and `Snooze`. */
  retry?: number;
  /** Delay before a further try; 100 ms, doubled each time, if omitted. A duration given here is not doubled. */
  backoff?: Duration;
}

interface Unkept {
  name: string;
  json: string;
  done: (result: unknown) => void;
  failed: (error: unknown) => void;
}

/** Promise of a handler that goes on in a later run, or never. */
function never<T>(): Promise<T> {
  return new Promise(() => undefined);
}

/** True if the server will not keep the step, however often it is sent: too large, too many, lease lost, job deleted. */
function isFinal(error: unknown): boolean {
  if (!(error instanceof WindlassError)) return true;
  if (error.retryable) return false;
  return error instanceof LeaseLost || error instanceof BadRequest || error instanceof Conflict || (error instanceof NotFound && error.code === "not_found");
}

/** True if the error says how the run ends; a further try of the step would contradict it. */
function isOutcome(error: unknown): boolean {
  return error instanceof Fail || error instanceof Retry || error instanceof Snooze;
}

/** Steps of one run: the kept ones, and those that the run adds. */
export class Steps {
  readonly #run: Run;
  readonly #kept = new Map<string, KeptStep>();
  readonly #unvisited = new Set<string>();
  readonly #uses = new Map<string, number>();
  readonly #names = new Set<string>();
  #unkept: Unkept[] = [];
  #keeping = false;
  /** Steps that run now. A wait suspends the job when there are none. */
  #active = 0;
  /** Calls that a replay waits for. */
  #loading = 0;
  #wait: { name: string; ask: Record<string, unknown> } | undefined;
  #suspending = false;
  #warned = new Set<string>();

  constructor(run: Run) {
    this.#run = run;
    for (const step of run.job.steps ?? []) {
      this.#kept.set(step.name, step);
      if (step.name !== VERSION_STEP) this.#unvisited.add(step.name);
    }
  }

  /** Version with which the job began: the kept one; 0 if it began without one. */
  get version(): number {
    const kept = this.#kept.get(VERSION_STEP);
    if (kept !== undefined) return kept.result as number;
    return this.#kept.size > 0 ? 0 : (this.#run.definition.options.version ?? 0);
  }

  /** Name of the next use of a step name: `charge`, `charge#2`, …, by order of the calls. */
  name(base: string): string {
    let use = this.#uses.get(base) ?? 0;
    let name: string;
    do {
      use += 1;
      name = use === 1 ? base : `${base}#${use}`;
    } while (this.#names.has(name));
    this.#uses.set(base, use);
    this.#names.add(name);
    return name;
  }

  /** Kept step of this name, if there is one; counts as visited. */
  visit(name: string): KeptStep | undefined {
    const step = this.#kept.get(name);
    if (step !== undefined) this.#unvisited.delete(name);
    return step;
  }

  /** Runs a new step and keeps its result. */
  async execute<T>(name: string, work: () => T | Promise<T>, options: StepOptions): Promise<T> {
    await this.#begin(name);
    const startedAt = this.#run.around.now();
    return this.#while(async () => {
      const result = await this.#try(work, options);
      return this.#keep(name, result, startedAt) as Promise<T>;
    });
  }

  /** Suspends the job until the wait is over; the next run finds the step kept. Never resolves in this run. */
  async suspend(name: string, ask: Record<string, unknown>, prepare?: () => Promise<void>): Promise<never> {
    await this.#begin(name);
    if (prepare !== undefined) await this.#while(() => this.#insist(prepare, isOutage));
    this.#wait ??= { name, ask };
    this.#suspendIfIdle();
    return never();
  }

  /** Makes a call that belongs to a kept step. */
  async load<T>(call: () => Promise<T>): Promise<T> {
    this.#loading += 1;
    try {
      return await this.#insist(call, isOutage);
    } finally {
      this.#loading -= 1;
      this.#suspendIfIdle();
    }
  }

  /** Kept steps that the run has not reached; undefined if it has reached all. */
  unvisited(): string[] | undefined {
    return this.#unvisited.size === 0 ? undefined : [...this.#unvisited];
  }

  /** Reports kept steps that the code does not reach any more: a warning, or an error that fails the job. */
  async report(gone: readonly string[]): Promise<void> {
    const fresh = gone.filter((name) => !this.#warned.has(name));
    if (fresh.length === 0) return;
    for (const name of fresh) this.#warned.add(name);
    const [steps, occur] = fresh.length > 1 ? ["steps", "occur"] : ["step", "occurs"];
    const { id, name: task } = this.#run.job;
    const text = `steps changed: the kept ${steps} ${fresh.join(", ")} of job ${id} (${task}) no longer ${occur} at this point of the code`;
    if (this.#run.definition.options.onChange === "refuse") throw new StepsChanged(text);
    this.#run.around.warn(text);
    this.#run.ctx.log(`warning: ${text}`);
  }

  /** Checks that the run may begin a step, and that it has visited the kept ones. */
  async #begin(name: string): Promise<void> {
    const run = this.#run;
    if (name === "" || name === VERSION_STEP) throw new TypeError(`"${name}" is not a name for a step`);
    if (run.ended || this.#suspending) return never();
    if (run.reason instanceof LeaseLost) return never();
    if (run.reason !== undefined) throw run.reason;
    if (this.#unvisited.size === 0) return;
    // Other steps of the same `Promise.all` are kept, and about to be visited.
    this.#active += 1;
    do await turn();
    while (this.#loading > 0);
    this.#active -= 1;
    const gone = this.unvisited();
    if (gone !== undefined) await this.report(gone);
  }

  async #while<T>(work: () => Promise<T>): Promise<T> {
    this.#active += 1;
    try {
      return await work();
    } finally {
      this.#active -= 1;
      this.#suspendIfIdle();
    }
  }

  async #try<T>(work: () => T | Promise<T>, { retry = 0, backoff }: StepOptions): Promise<T> {
    for (let tries = 0; ; tries += 1) {
      try {
        return await work();
      } catch (error) {
        const run = this.#run;
        if (tries >= retry || run.reason !== undefined || isOutcome(error)) throw error;
        await pause(backoff === undefined ? STEP_BACKOFF_MS * 2 ** tries : milliseconds(backoff), run.signal);
        if (run.reason !== undefined) throw run.reason;
      }
    }
  }

  /** Keeps a result. Results that are there at the same time are kept with one call. */
  #keep(name: string, result: unknown, startedAt: number): Promise<unknown> {
    return new Promise((done, failed) => {
      const json = `{"name":${JSON.stringify(name)},"result":${JSON.stringify(result) ?? "null"},"started_at":${startedAt}}`;
      this.#unkept.push({ name, json, done, failed });
      if (!this.#keeping) void this.#keepAll();
    });
  }

  async #keepAll(): Promise<void> {
    this.#keeping = true;
    await turn();
    while (this.#unkept.length > 0) {
      const batch = this.#unkept;
      this.#unkept = [];
      try {
        const results = await this.#send(batch.map(({ json }) => json));
        for (const step of batch) step.done(results.get(step.name));
      } catch (error) {
        if (error instanceof LeaseLost) {
          // The handler must not go on, not even with its error handling: another worker has the job.
          this.#run.lose(error);
          return;
        }
        for (const step of batch) {
          const why = error instanceof WindlassError && isFinal(error) ? error.message : undefined;
          step.failed(why === undefined ? error : new StepNotKept(`step ${step.name} was not kept: ${why}`, { cause: error }));
        }
      }
    }
    this.#keeping = false;
  }

  /** Sends steps until the server has answered; returns the kept results by name. */
  async #send(steps: readonly string[]): Promise<Map<string, unknown>> {
    const { job, around, definition } = this.#run;
    const { version } = definition.options;
    const isFirst = version !== undefined && this.#kept.size === 0;
    const first = isFirst ? [`{"name":"${VERSION_STEP}","result":${JSON.stringify(version)}}`] : [];
    const all = [...first, ...steps];
    // Keeping is idempotent by name, and a step that is not kept would run again.
    const answers = await this.#insist(() => around.backend().keepSteps(job.id, job.token, all), (error) => !isFinal(error));
    const results = new Map<string, unknown>();
    answers.forEach((answer, index) => {
      const sent = JSON.parse(all[index] as string) as { result: unknown };
      const result = answer.kept ? sent.result : answer.result;
      this.#kept.set(answer.name, { name: answer.name, kind: "run", result });
      results.set(answer.name, result);
    });
    return results;
  }

  /** Repeats a call while its errors pass and the run goes on. */
  async #insist<T>(call: () => Promise<T>, passes: (error: unknown) => boolean): Promise<T> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await call();
      } catch (error) {
        if (this.#run.ended || !passes(error)) throw error;
        const { id, name } = this.#run.job;
        if (tries === 1) this.#run.around.warn(`job ${id} (${name}): ${(error as Error).message}; retrying`);
        await pause(backoffMs(tries));
      }
    }
  }

  /** Suspends the job if a wait is pending and no step runs, also none that follows at once. */
  #suspendIfIdle(): void {
    if (this.#wait === undefined || this.#suspending || this.#isBusy()) return;
    void turn().then(async () => {
      if (this.#wait === undefined || this.#suspending || this.#isBusy() || this.#run.ended) return;
      this.#suspending = true;
      const { name, ask } = this.#wait;
      try {
        if (this.#run.definition.options.version !== undefined && this.#kept.size === 0) await this.#send([]);
        this.#run.suspend({ step: name, ...ask });
      } catch (error) {
        if (error instanceof LeaseLost) this.#run.lose(error);
        else this.#run.fail(error);
      }
    });
  }

  #isBusy(): boolean {
    return this.#active > 0 || this.#loading > 0;
  }
}
