import type { Backend } from "./client.js";
import { Context } from "./context.js";
import { Cancelled, LeaseLost, Timeout } from "./errors.js";
import type { NoteSender, Notes } from "./notes.js";
import * as otel from "./otel.js";
import { outcomeOf, type Outcome } from "./outcome.js";
import { Steps } from "./steps.js";
import type { Definition } from "./task.js";
import { payloadOf, type ClaimedJob } from "./wire.js";

/** Functions that are called around each run. They may be asynchronous. */
export interface Middleware {
  /** Called before the handler; an error it throws fails the attempt. */
  before?: (ctx: Context) => unknown;
  /** Called after the handler has returned. */
  after?: (ctx: Context, result: unknown) => unknown;
  /** Called after the handler, `before` or `after` has thrown. */
  error?: (ctx: Context, error: unknown) => unknown;
}

/** Surroundings of a run: the worker, or the memory of `app.testing()`. */
export interface Surroundings {
  backend: () => Backend;
  notes: NoteSender;
  middleware: readonly Middleware[];
  /** Writes a warning to the log of the process. */
  warn: (text: string) => void;
  /** Takes the report of the run; undefined if the lease is lost and there is nothing to report. */
  ended: (run: Run, report: string | undefined) => void;
  /** Creates the jobs of `ctx.all`. */
  pushAll: (jobs: readonly string[]) => Promise<unknown>;
  /** Length of the lease, renewed with each report of progress. */
  leaseMs: number;
  now: () => number;
}

/** Time that a handler has to end after its timeout, before the failure is reported. */
const TIMEOUT_GRACE_MS = 1_000;
/** Time that a run without a lease occupies its slot while its handler goes on. */
const LOST_GRACE_MS = 10_000;
/** Longest delay of a timer: 24 days. A longer timeout never comes. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** One run of a claimed job. */
export class Run {
  readonly ctx: Context;
  readonly notes: Notes = { lines: [] };
  isSendingNotes = false;
  /** Why the run was stopped: cancellation, timeout, lost lease. */
  reason: Error | undefined;
  /** True after the report was made. */
  ended = false;
  #controller: AbortController | undefined;
  #steps: Steps | undefined;
  #timers: NodeJS.Timeout[] = [];
  /** Ends the span of a run whose handler does not return, because it is suspended. */
  #endSpan: (() => void) | undefined;

  constructor(
    readonly job: ClaimedJob,
    readonly definition: Definition,
    readonly around: Surroundings,
  ) {
    if (job.steps !== undefined) this.#steps = new Steps(this);
    this.ctx = new Context(this);
  }

  get steps(): Steps {
    this.#steps ??= new Steps(this);
    return this.#steps;
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.reason !== undefined) this.#controller.abort(this.reason);
    }
    return this.#controller.signal;
  }

  /** Calls the handler. The end is reported to `around.ended`. */
  start(): void {
    const { timeoutMs } = this.definition;
    if (timeoutMs !== undefined) this.#after(timeoutMs, () => this.#timeOut(timeoutMs));
    this.#invoke().then(
      (result) => this.#returned(result),
      (error: unknown) => this.#threw(error),
    );
  }

  /** Stops the run: aborts its signal. Its handler decides when it ends. */
  stop(reason: Error): void {
    if (this.reason !== undefined || this.ended) return;
    this.reason = reason;
    this.#controller?.abort(reason);
    if (reason instanceof LeaseLost) this.#after(LOST_GRACE_MS, () => this.#end(undefined));
  }

  /** Ends the run without a report: its lease is lost. */
  lose(error: LeaseLost): void {
    this.stop(error);
    this.#end(undefined);
  }

  /** Ends the run with a release, whatever its handler does. */
  release(): string {
    this.stop(new Cancelled("the worker shuts down"));
    this.ended = true;
    this.#clear();
    return this.#report({ outcome: "release" });
  }

  /** Ends the run as if its handler had thrown the error. */
  fail(error: unknown): void {
    this.#threw(error);
  }

  /** Ends the run with a suspension. */
  suspend(wait: Record<string, unknown>): void {
    void this.#endWith(JSON.stringify({ id: this.job.id, token: this.job.token, outcome: "suspend", ...wait }));
  }

  async #invoke(): Promise<unknown> {
    const { definition, job, ctx } = this;
    const handler = definition.handler as (payload: unknown, ctx: Context) => unknown;
    if (this.around.middleware.length === 0 && !otel.isPresent()) return handler(payloadOf(job), ctx);
    const traced = otel.traced(job, () => this.#withMiddleware(() => handler(payloadOf(job), ctx)));
    this.#endSpan = traced.end;
    return traced.result;
  }

  async #withMiddleware(handle: () => unknown): Promise<unknown> {
    const { middleware } = this.around;
    try {
      for (const { before } of middleware) await before?.(this.ctx);
      const result = await handle();
      for (const { after } of middleware.toReversed()) await after?.(this.ctx, result);
      return result;
    } catch (error) {
      for (const middle of middleware.toReversed()) await middle.error?.(this.ctx, error);
      throw error;
    }
  }

  #returned(result: unknown): void {
    if (this.ended) return;
    if (this.reason instanceof Timeout || this.reason instanceof LeaseLost) return this.#threw(this.reason);
    const changed = this.#steps?.unvisited();
    if (changed !== undefined) {
      this.steps.report(changed).then(
        () => this.#finish(result),
        (error: unknown) => this.#threw(error),
      );
      return;
    }
    this.#finish(result);
  }

  #finish(result: unknown): void {
    const { id, token } = this.job;
    try {
      const json = result === undefined ? undefined : JSON.stringify(result);
      const field = json === undefined ? "" : `,"result":${json}`;
      void this.#endWith(`{"id":${id},"token":${token},"outcome":"finish"${field}}`);
    } catch (error) {
      this.#threw(new TypeError("the result cannot be written as JSON", { cause: error }));
    }
  }

  #threw(error: unknown): void {
    if (this.ended) return;
    if (this.reason instanceof LeaseLost) return this.#end(undefined);
    void this.#endWith(this.#report(outcomeOf(error, this.reason)));
  }

  #report(outcome: Outcome): string {
    return JSON.stringify({ id: this.job.id, token: this.job.token, ...outcome });
  }

  #timeOut(timeoutMs: number): void {
    const error = new Timeout(`the run took longer than ${timeoutMs} ms`);
    this.stop(error);
    this.#after(TIMEOUT_GRACE_MS, () => this.#threw(error));
  }

  /** Ends the run after its notes were sent: they need its lease. */
  async #endWith(report: string): Promise<void> {
    if (this.notes.lines.length > 0 || this.notes.progress !== undefined || this.isSendingNotes) {
      await this.around.notes.flush(this);
    }
    this.#end(report);
  }

  #end(report: string | undefined): void {
    if (this.ended) return;
    this.ended = true;
    this.#clear();
    this.#endSpan?.();
    this.around.ended(this, report);
  }

  #after(ms: number, act: () => void): void {
    if (ms <= TIMER_MS_MAX) this.#timers.push(setTimeout(act, ms));
  }

  #clear(): void {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers = [];
  }
}
