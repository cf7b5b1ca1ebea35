import { backoffMs, pause } from "./backoff.js";
import { errorOf, Unreachable } from "./errors.js";
import { connect, NoAnswer, type Answer, type Transport } from "./http.js";
import type { ExtendedEntry, JobId, JobView, PushAnswer, ResultView, SettleAnswer, StepAnswer } from "./wire.js";

/** Time for which a call is repeated while the server is unreachable. */
const REPEAT_FOR_MS = 30_000;
/** Time until an answer must be complete, besides the time that the call asks the server to wait. */
const ANSWER_WITHIN_MS = 30_000;

/** How a call is made. */
export interface CallOptions {
  /** Time that the server may wait before it answers. */
  waitMs?: number;
  /** Time for which the call is repeated while the server is unreachable; 0: one try. */
  repeatForMs?: number;
  /** False for calls with an effect that adds up: they are repeated only if nothing was sent. */
  idempotent?: boolean;
  /** Time until the answer, instead of 30 s. */
  timeoutMs?: number;
  /** Ends the call. */
  signal?: AbortSignal | undefined;
}

/** Calls that runs of jobs and producers make: to a server, or to the memory of `app.testing()`. */
export interface Backend {
  push(jobs: readonly string[]): Promise<PushAnswer>;
  keepSteps(id: number, token: number, steps: readonly string[], signal?: AbortSignal): Promise<StepAnswer[]>;
  log(id: number, token: number, lines: readonly string[]): Promise<void>;
  extend(entries: readonly string[], timeoutMs?: number): Promise<ExtendedEntry[]>;
  children(id: number): Promise<JobView[]>;
  result(id: JobId, waitMs: number, signal?: AbortSignal): Promise<ResultView>;
  job(id: JobId): Promise<JobView>;
  act(id: JobId, action: string, body?: unknown): Promise<JobView>;
  signal(id: JobId, name: string, payload: unknown): Promise<{ woken: boolean }>;
}

/** True if the server has answered: with JSON, or with a status that has no body. */
function isComplete({ status, body }: Answer): boolean {
  return status < 300 && (body !== undefined || status === 204);
}

/** Error of a successful answer that is not the server's: a page of a proxy. */
function noJson(status: number): Unreachable {
  return new Unreachable(`the answer with status ${status} is not JSON; it is not from the server`, { status });
}

/** Calls of the server's API over HTTP. */
export class Client implements Backend {
  readonly server: string;
  readonly #transport: Transport;

  constructor(server: string, token: string | undefined, transport?: "node" | "fetch") {
    this.server = server;
    this.#transport = connect(server, token, transport);
  }

  /** Makes a call, repeats it while the server is unreachable, and returns the body of the answer. */
  async call(method: string, path: string, body?: string, options: CallOptions = {}): Promise<unknown> {
    const { waitMs = 0, repeatForMs = REPEAT_FOR_MS, idempotent = true, signal } = options;
    const timeoutMs = waitMs + (options.timeoutMs ?? ANSWER_WITHIN_MS);
    const until = Date.now() + repeatForMs;
    for (let tries = 1; ; tries += 1) {
      let trouble: Unreachable;
      try {
        const answer = await this.#transport.send({ method, path, body, timeoutMs, signal });
        if (isComplete(answer)) return answer.body;
        const error = answer.status < 300 ? noJson(answer.status) : errorOf(answer.status, answer.body);
        if (!(error instanceof Unreachable)) throw error;
        trouble = error;
      } catch (error) {
        if (!(error instanceof NoAnswer) || (!idempotent && !error.notSent)) throw error;
        trouble = error;
      }
      const delay = backoffMs(tries);
      if (signal?.aborted || Date.now() + delay > until) throw trouble;
      await pause(delay, signal);
    }
  }

  push(jobs: readonly string[], options?: CallOptions): Promise<PushAnswer> {
    return this.call("POST", "/api/v1/jobs", `{"jobs":[${jobs.join(",")}]}`, options) as Promise<PushAnswer>;
  }

  settle(reports: readonly string[], claim: string | undefined, options: CallOptions): Promise<SettleAnswer> {
    if (reports.length === 0 && claim !== undefined) {
      return this.call("POST", "/api/v1/claim", claim, options) as Promise<SettleAnswer>;
    }
    const next = claim === undefined ? "" : `,"claim":${claim}`;
    const body = `{"settle":[${reports.join(",")}]${next}}`;
    return this.call("POST", "/api/v1/settle", body, options) as Promise<SettleAnswer>;
  }

  async extend(entries: readonly string[], timeoutMs?: number): Promise<ExtendedEntry[]> {
    const options = { repeatForMs: 0, ...(timeoutMs === undefined ? {} : { timeoutMs }) };
    const answer = await this.call("POST", "/api/v1/extend", `{"extend":[${entries.join(",")}]}`, options);
    return (answer as { extended: ExtendedEntry[] }).extended;
  }

  async keepSteps(id: number, token: number, steps: readonly string[], signal?: AbortSignal): Promise<StepAnswer[]> {
    const body = `{"token":${token},"steps":[${steps.join(",")}]}`;
    const answer = await this.call("POST", `/api/v1/jobs/${id}/steps`, body, { signal });
    const kept = (answer as { steps?: StepAnswer[] }).steps;
    if (kept?.length !== steps.length) throw new Unreachable(`the answer to ${steps.length} steps is not from the server`);
    return kept;
  }

  async log(id: number, token: number, lines: readonly string[]): Promise<void> {
    await this.call("POST", `/api/v1/jobs/${id}/log`, JSON.stringify({ token, lines }), { repeatForMs: 0 });
  }

  async children(id: number): Promise<JobView[]> {
    const found: JobView[] = [];
    let cursor: string | undefined;
    do {
      const query = cursor === undefined ? "" : `?${new URLSearchParams({ cursor })}`;
      const page = (await this.call("GET", `/api/v1/jobs/${id}/children${query}`)) as { jobs: JobView[]; next?: string | null };
      found.push(...page.jobs);
      cursor = page.next ?? undefined;
    } while (cursor !== undefined);
    return found;
  }

  result(id: JobId, waitMs: number, signal?: AbortSignal): Promise<ResultView> {
    const path = `/api/v1/jobs/${encodeURIComponent(id)}/result?wait_ms=${waitMs}`;
    return this.call("GET", path, undefined, { waitMs, signal }) as Promise<ResultView>;
  }

  job(id: JobId): Promise<JobView> {
    return this.call("GET", `/api/v1/jobs/${encodeURIComponent(id)}`) as Promise<JobView>;
  }

  act(id: JobId, action: string, body?: unknown): Promise<JobView> {
    const text = body === undefined ? undefined : JSON.stringify(body);
    return this.call("POST", `/api/v1/jobs/${encodeURIComponent(id)}/${action}`, text) as Promise<JobView>;
  }

  signal(id: JobId, name: string, payload: unknown): Promise<{ woken: boolean }> {
    const path = `/api/v1/jobs/${encodeURIComponent(id)}/signal/${encodeURIComponent(name)}`;
    const body = JSON.stringify(payload ?? null);
    return this.call("POST", path, body, { idempotent: false }) as Promise<{ woken: boolean }>;
  }

  /** Sets the rule of a schedule; its next run is the first time of the new rule. */
  async reschedule(id: JobId, repeat: string): Promise<void> {
    await this.call("PATCH", `/api/v1/schedules/${encodeURIComponent(id)}`, JSON.stringify({ repeat }));
  }

  /** Closes idle connections. */
  close(): void {
    this.#transport.close();
  }
}
