import type { Windlass } from "./app.js";
import { milliseconds, type Duration } from "./duration.js";
import { JobFailed, WaitTimeout } from "./errors.js";
import { bytesOf, isSettled, type JobId, type JobView, type ResultView } from "./wire.js";

/** Duration of one call that waits for a result. Proxies close silent connections after about a minute. */
const WAIT_MS = 20_000;

/** Job on the server. */
export class JobHandle<R = unknown> {
  readonly #app: Windlass;

  /** @internal */
  constructor(
    app: Windlass,
    /** Id of the job. */
    readonly id: JobId,
    /** True if the push found the job there already: same unique key or idempotency key. */
    readonly existing: boolean = false,
  ) {
    this.#app = app;
  }

  /**
   * Waits for the end of the job and returns its result. It travels as JSON: a `Date` becomes a string, and `undefined` null.
   * Throws `JobFailed` if it failed or was cancelled, and `WaitTimeout` after `timeout`.
   */
  async wait(options: { timeout?: Duration; signal?: AbortSignal } = {}): Promise<R> {
    const until = options.timeout === undefined ? Infinity : Date.now() + milliseconds(options.timeout);
    for (;;) {
      options.signal?.throwIfAborted();
      const waitMs = Math.max(0, Math.min(WAIT_MS, until - Date.now()));
      const view = await this.#app.backend.result(this.id, waitMs, options.signal);
      if (isSettled(view.state)) return resultOf(view) as R;
      if (Date.now() >= until) throw new WaitTimeout(`job ${this.id} is ${view.state} after ${options.timeout}`);
    }
  }

  /** Reads the job with all its details. */
  get(): Promise<JobView> {
    return this.#app.backend.job(this.id);
  }

  /** Sends a signal to the job, for its `ctx.waitFor(name)`. A signal that comes early is kept. */
  async signal(name: string, payload?: unknown): Promise<void> {
    await this.#app.backend.signal(this.id, name, payload);
  }

  /** Cancels the job; the worker of a running job is told with its next heartbeat. */
  async cancel(): Promise<void> {
    await this.#app.backend.act(this.id, "cancel");
  }

  /** Starts the job again. With `fromStep` that step and the ones kept after it are dropped. */
  async retry(options: { fromStep?: string } = {}): Promise<void> {
    const body = options.fromStep === undefined ? undefined : { from_step: options.fromStep };
    await this.#app.backend.act(this.id, "retry", body);
  }
}

/** Result of a settled job; throws if it is not completed. */
export function resultOf(view: ResultView): unknown {
  if (view.state === "completed") {
    return view.result_base64 === undefined ? (view.result ?? null) : bytesOf(view.result_base64);
  }
  const message = view.message ?? (typeof view.error === "string" ? view.error : `the job is ${view.state}`);
  throw new JobFailed(view.id, view.state, message, view.class, view.error);
}
