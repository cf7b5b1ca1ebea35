import type { Backend } from "./client.js";
import { Conflict, WindlassError } from "./errors.js";
import type { JobId, PushAnswer } from "./wire.js";

/** Jobs per call of the server. */
export const BATCH_MAX = 10_000;
/** Jobs of a call that joins several pushes; a larger commit delays the others for longer than it saves. */
const JOINED_MAX = 1_000;
/** Characters of a call that joins several pushes. */
const JOINED_CHARS_MAX = 4 << 20;
/** Calls in flight. While they are, further pushes gather for the next call. */
const CALLS_MAX = 2;

/** Job that was pushed. */
export interface Pushed {
  id: JobId;
  /** True if the server had the job already: same unique key or idempotency key. */
  existing: boolean;
}

interface Group {
  jobs: readonly string[];
  chars: number;
  done: (pushed: Pushed[]) => void;
  failed: (error: unknown) => void;
}

/** Joins pushes that are made at the same time into one call each. */
export class Batcher {
  readonly #backend: () => Backend;
  #waiting: Group[] = [];
  #calls = 0;
  #scheduled = false;

  constructor(backend: () => Backend) {
    this.#backend = backend;
  }

  /** Pushes encoded jobs, all of them in one call. */
  push(jobs: readonly string[]): Promise<Pushed[]> {
    return new Promise((done, failed) => {
      let chars = 0;
      for (const job of jobs) chars += job.length;
      this.#waiting.push({ jobs, chars, done, failed });
      this.#schedule();
    });
  }

  #schedule(): void {
    if (this.#scheduled || this.#waiting.length === 0 || this.#calls >= CALLS_MAX) return;
    this.#scheduled = true;
    queueMicrotask(() => {
      this.#scheduled = false;
      const groups = this.#next();
      this.#calls += 1;
      void this.#send(groups).finally(() => {
        this.#calls -= 1;
        this.#schedule();
      });
      this.#schedule();
    });
  }

  /** Takes the groups of the next call. A group is never split: its jobs are created together. */
  #next(): Group[] {
    let jobs = 0;
    let chars = 0;
    let count = 0;
    for (const group of this.#waiting) {
      jobs += group.jobs.length;
      chars += group.chars;
      if (count > 0 && (jobs > JOINED_MAX || chars > JOINED_CHARS_MAX)) break;
      count += 1;
    }
    return this.#waiting.splice(0, count);
  }

  async #send(groups: Group[]): Promise<void> {
    try {
      const answer = await this.#backend().push(groups.flatMap((group) => group.jobs));
      let start = 0;
      for (const group of groups) {
        answerGroup(group, start, answer);
        start += group.jobs.length;
      }
    } catch (error) {
      const isAnswered = error instanceof WindlassError && !error.retryable;
      if (groups.length === 1 || !isAnswered) {
        for (const group of groups) group.failed(error);
        return;
      }
      // One bad job refuses the whole call; the others must not suffer.
      for (const group of groups) await this.#send([group]);
    }
  }
}

function answerGroup(group: Group, start: number, answer: PushAnswer): void {
  const count = group.jobs.length;
  const ids = (answer.ids ?? answer.aliases ?? []).slice(start, start + count);
  const refused = answer.refused?.find(({ index }) => index >= start && index < start + count);
  if (refused !== undefined) {
    const details = { code: refused.code, status: 409, jobId: refused.id };
    group.failed(new Conflict(refused.message, details));
    return;
  }
  const existing = answer.existing !== undefined && answer.existing.length > 0 ? new Set(answer.existing) : undefined;
  group.done(ids.map((id) => ({ id: id as JobId, existing: existing?.has(id as JobId) ?? false })));
}
