import { errorOf } from "./errors.js";
import { isSettled, type ClaimedJob, type JobView, type KeptStep, type StepAnswer } from "./wire.js";

/** Job as pushed, in the words of the server. */
export interface NewJob {
  name: string;
  queue?: string;
  payload?: unknown;
  priority?: number;
  delay_ms?: number;
  run_at?: number;
  retry?: number | { max_attempts?: number | null; backoff?: unknown };
  unique?: string;
  idempotency_key?: string;
  alias?: string;
  parent?: number;
  tags?: string[];
}

/** Report of an ended run, in the words of the server. */
export interface SettleReport {
  outcome: "finish" | "fail" | "release" | "suspend";
  result?: unknown;
  class?: string;
  message?: string;
  error?: unknown;
  retry?: false;
  delay_ms?: number;
  step?: string;
  until?: number;
  signal?: string;
  children?: boolean;
}

/** Job in the memory of a test. */
export interface MemoryJob {
  id: number;
  name: string;
  queue: string;
  payload: unknown;
  priority: number;
  state: string;
  runAt: number;
  createdAt: number;
  attempt: number;
  errors: string[];
  result?: unknown;
  message?: string | undefined;
  class?: string | undefined;
  tags: string[];
  steps: KeptStep[];
  log: string[];
  progress?: { percent: number; note?: string };
  /** As pushed. */
  pushed: NewJob;
  token: number;
  isCancelled: boolean;
  signals: { name: string; payload: unknown }[];
  wait?: SettleReport | undefined;
}

const ATTEMPTS_DEFAULT = 10;

/** Jobs of a test, with the rules of the server as far as a test of an application needs them. */
export class Memory {
  readonly jobs: MemoryJob[] = [];
  now: number;
  #tokens = 0;

  constructor(now: number) {
    this.now = now;
  }

  push(job: NewJob): { id: number; existing: boolean } {
    const found = this.jobs.find(
      ({ pushed, state }) =>
        (job.idempotency_key !== undefined && pushed.idempotency_key === job.idempotency_key) ||
        (job.alias !== undefined && pushed.alias === job.alias) ||
        (job.unique !== undefined && pushed.unique === job.unique && !isSettled(state)),
    );
    if (found !== undefined) return { id: found.id, existing: true };
    const runAt = job.run_at ?? this.now + (job.delay_ms ?? 0);
    const held = job.parent !== undefined && this.find(job.parent).state === "running";
    this.jobs.push({
      id: this.jobs.length + 1,
      name: job.name,
      queue: job.queue ?? "default",
      payload: job.payload ?? null,
      priority: job.priority ?? 0,
      state: held ? "waiting" : "ready",
      runAt,
      createdAt: this.now,
      attempt: 0,
      errors: [],
      tags: job.tags ?? [],
      steps: [],
      log: [],
      pushed: job,
      token: 0,
      isCancelled: false,
      signals: [],
    });
    return { id: this.jobs.length, existing: false };
  }

  find(id: number | string): MemoryJob {
    const job = this.jobs.find((one) => one.id === Number(id) || one.pushed.alias === id);
    if (job === undefined) throw errorOf(404, { error: { code: "not_found", message: "job not found" } });
    return job;
  }

  /** Job that a worker would get now: smallest priority, then earliest time, then smallest id. */
  next(names: ReadonlyMap<string, unknown>): MemoryJob | undefined {
    this.#wakeDue();
    return this.jobs
      .filter((job) => isWaitingForTime(job) && job.runAt <= this.now && names.has(job.name))
      .sort((a, b) => a.priority - b.priority || a.runAt - b.runAt || a.id - b.id)[0];
  }

  /** Time of the next run or the next end of a wait; undefined if nothing waits for a time. */
  nextTime(): number | undefined {
    const times = this.jobs.flatMap((job) => {
      if (isWaitingForTime(job)) return [job.runAt];
      return job.state === "suspended" && job.wait?.until !== undefined ? [job.wait.until] : [];
    });
    return times.length === 0 ? undefined : Math.min(...times);
  }

  claim(job: MemoryJob): ClaimedJob {
    this.#tokens += 1;
    job.token = this.#tokens;
    job.state = "running";
    job.attempt += 1;
    const { id, token, name, queue, attempt, priority } = job;
    const steps = job.steps.length > 0 ? { steps: structuredClone(job.steps) } : {};
    const payload = structuredClone(job.payload);
    return { id, token, name, queue, payload, attempt, priority, created_at: job.createdAt, run_at: job.runAt, tags: job.tags, ...steps };
  }

  settle(job: MemoryJob, report: SettleReport): void {
    switch (report.outcome) {
      case "finish":
        job.result = report.result ?? null;
        job.state = this.#pendingChildren(job).length > 0 ? "waiting" : "completed";
        break;
      case "fail":
        this.#fail(job, report);
        break;
      case "release":
        job.attempt -= 1;
        job.runAt = this.now + (report.delay_ms ?? 0);
        job.state = job.isCancelled ? "cancelled" : "ready";
        break;
      case "suspend":
        job.state = "suspended";
        job.wait = { ...report, ...(report.delay_ms === undefined ? {} : { until: this.now + report.delay_ms }) };
        break;
    }
    for (const child of this.#children(job)) if (child.state === "waiting" && child.attempt === 0) child.state = "ready";
    this.#wakeDue();
  }

  keep(job: MemoryJob, token: number, steps: { name: string; result: unknown }[]): StepAnswer[] {
    if (job.token !== token || job.state !== "running") throw errorOf(409, { error: { code: "lease_lost", message: "the lease is lost" } });
    return steps.map(({ name, result }) => {
      const found = job.steps.find((step) => step.name === name);
      if (found !== undefined) return { name, kept: false, result: found.result };
      job.steps.push({ name, kind: "run", result, at: this.now });
      return { name, kept: true };
    });
  }

  signal(job: MemoryJob, name: string, payload: unknown): { woken: boolean } {
    if (isSettled(job.state)) throw errorOf(409, { error: { code: "settled", message: `the job is already ${job.state}` } });
    job.signals.push({ name, payload });
    const wasSuspended = job.state === "suspended";
    this.#wakeDue();
    return { woken: wasSuspended && job.state !== "suspended" };
  }

  act(job: MemoryJob, action: string, fromStep: string | undefined): void {
    if (action === "cancel") {
      if (job.state === "running") job.isCancelled = true;
      else if (isSettled(job.state)) throw errorOf(409, { error: { code: "settled", message: `the job is already ${job.state}` } });
      else job.state = "cancelled";
      return;
    }
    if (action === "retry" && job.state === "completed") job.steps = [];
    if (fromStep !== undefined) {
      const index = job.steps.findIndex(({ name }) => name === fromStep);
      if (index >= 0) job.steps.length = index;
    }
    Object.assign(job, { state: "ready", runAt: this.now, attempt: 0, isCancelled: false });
  }

  view(job: MemoryJob): JobView {
    const { id, name, queue, state, result, message, tags, attempt, errors, steps, log, progress, payload } = job;
    const word = state === "ready" && job.runAt > this.now ? "delayed" : state;
    return { id, name, queue, state: word, result, message, class: job.class, tags, attempts: attempt, errors, steps, log, progress, payload } as JobView;
  }

  #fail(job: MemoryJob, report: SettleReport): void {
    job.class = report.class;
    job.message = report.message;
    job.errors.push(report.message ?? "");
    const { retry } = job.pushed;
    const policy = typeof retry === "object" ? retry : { max_attempts: retry };
    const max = policy.max_attempts === undefined ? ATTEMPTS_DEFAULT : (policy.max_attempts ?? Infinity);
    if (job.isCancelled) {
      job.state = "cancelled";
    } else if (report.retry === false || job.attempt >= max) {
      job.state = "failed";
    } else {
      job.state = "retrying";
      job.runAt = this.now + (report.delay_ms ?? backoffMs(policy.backoff, job.attempt));
    }
  }

  /** Wakes suspended jobs whose signal, time or children have come, and parents that wait for children. */
  #wakeDue(): void {
    for (const job of this.jobs) {
      if (job.state === "waiting" && job.attempt > 0 && this.#pendingChildren(job).length === 0) {
        Object.assign(job, { state: "ready", attempt: 0 });
      }
      const { wait } = job;
      if (job.state !== "suspended" || wait === undefined) continue;
      const index = job.signals.findIndex(({ name }) => name === wait.signal);
      if (index >= 0) {
        const [found] = job.signals.splice(index, 1);
        this.#wake(job, wait, { result: found?.payload ?? null });
      } else if (wait.children === true && this.#pendingChildren(job).length === 0) {
        this.#wake(job, wait, { result: null });
      } else if (wait.until !== undefined && wait.until <= this.now) {
        const isLate = wait.signal !== undefined || wait.children === true;
        this.#wake(job, wait, { result: null, ...(isLate ? { timed_out: true } : {}) });
      }
    }
  }

  #wake(job: MemoryJob, wait: SettleReport, found: { result: unknown; timed_out?: boolean }): void {
    const kind = wait.signal !== undefined ? "signal" : wait.children === true ? "children" : "sleep";
    if (wait.step !== undefined) job.steps.push({ name: wait.step, kind, at: this.now, ...found });
    Object.assign(job, { wait: undefined, state: "ready", runAt: this.now, attempt: 0 });
  }

  #children(parent: MemoryJob): MemoryJob[] {
    return this.jobs.filter(({ pushed }) => pushed.parent === parent.id);
  }

  #pendingChildren(parent: MemoryJob): MemoryJob[] {
    return this.#children(parent).filter(({ state }) => !isSettled(state));
  }
}

function isWaitingForTime({ state }: MemoryJob): boolean {
  return state === "ready" || state === "retrying";
}

/** Delay after failure `n` by the backoff of the job, without its random part. */
function backoffMs(backoff: unknown, n: number): number {
  if (backoff === "none") return 0;
  const { fixed_ms, base_ms = 1_000, cap_ms = 3_600_000 } = (backoff ?? {}) as Record<string, number | undefined>;
  return fixed_ms ?? Math.min(base_ms * 2 ** (n - 1), cap_ms);
}
