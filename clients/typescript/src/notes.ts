import { pause, turn } from "./backoff.js";
import type { Backend } from "./client.js";
import { isOutage } from "./errors.js";
import type { Run } from "./run.js";
import type { ExtendedEntry } from "./wire.js";

/** Lines per call and per job; the server keeps as many. */
const LINES_MAX = 1_000;
/** Pause after a call that did not reach the server. */
const OUTAGE_PAUSE_MS = 500;
/** Time that the end of a run waits for its notes. Progress and log are not worth more. */
const FLUSH_MS = 2_000;
/** Interval at which the end of a run looks whether its notes are sent. */
const FLUSH_LOOK_MS = 1;

/** Progress and log lines of a run that are not sent yet. */
export interface Notes {
  progress?: { percent: number; note: string | undefined } | undefined;
  lines: string[];
}

/** Sends progress and log lines of all runs of a worker; notes made at the same time share a call. */
export class NoteSender {
  readonly #backend: () => Backend;
  readonly #heard: (run: Run, entry: ExtendedEntry) => void;
  readonly #dirty = new Set<Run>();
  #sending: Promise<void> | undefined;

  constructor(backend: () => Backend, heard: (run: Run, entry: ExtendedEntry) => void) {
    this.#backend = backend;
    this.#heard = heard;
  }

  /** Sends the notes of the run soon. */
  mark(run: Run): void {
    this.#dirty.add(run);
    this.#sending ??= this.#loop().finally(() => {
      this.#sending = undefined;
    });
  }

  /** Waits until the notes of the run are sent, at most two seconds. */
  async flush(run: Run): Promise<void> {
    const until = Date.now() + FLUSH_MS;
    while ((this.#dirty.has(run) || run.isSendingNotes) && Date.now() < until) await pause(FLUSH_LOOK_MS);
    this.#dirty.delete(run);
  }

  async #loop(): Promise<void> {
    await turn();
    while (this.#dirty.size > 0) {
      const runs = [...this.#dirty];
      this.#dirty.clear();
      const isReached = await this.#send(runs);
      if (!isReached) await pause(OUTAGE_PAUSE_MS);
    }
  }

  async #send(runs: Run[]): Promise<boolean> {
    const noted = runs.filter((run) => !run.ended);
    for (const run of noted) run.isSendingNotes = true;
    const sent = await Promise.all([this.#progress(noted), ...noted.map((run) => this.#log(run))]);
    for (const run of noted) run.isSendingNotes = false;
    return sent.every(Boolean);
  }

  async #progress(runs: Run[]): Promise<boolean> {
    const moved = runs.filter((run) => run.notes.progress !== undefined);
    if (moved.length === 0) return true;
    const entries = moved.map(({ job, notes, around }) => {
      const { percent, note } = notes.progress as { percent: number; note: string | undefined };
      return JSON.stringify({ id: job.id, token: job.token, lease_ms: around.leaseMs, progress: percent, note });
    });
    const sent = moved.map((run) => run.notes.progress);
    try {
      const answers = await this.#backend().extend(entries);
      moved.forEach((run, index) => {
        if (run.notes.progress === sent[index]) run.notes.progress = undefined;
        this.#heard(run, answers[index] as ExtendedEntry);
      });
      return true;
    } catch (error) {
      return this.#missed(error, moved, () => undefined);
    }
  }

  async #log(run: Run): Promise<boolean> {
    const lines = run.notes.lines.splice(0, LINES_MAX);
    if (lines.length === 0) return true;
    if (run.notes.lines.length > 0) this.#dirty.add(run);
    try {
      await this.#backend().log(run.job.id, run.job.token, lines);
      return true;
    } catch (error) {
      return this.#missed(error, [run], () => {
        run.notes.lines = [...lines, ...run.notes.lines].slice(-LINES_MAX);
      });
    }
  }

  /** Keeps notes for later if the server was unreachable; drops notes that it refused. */
  #missed(error: unknown, runs: Run[], keep: () => void): boolean {
    if (!isOutage(error)) {
      for (const run of runs) run.notes.progress = undefined;
      return true;
    }
    keep();
    for (const run of runs) this.#dirty.add(run);
    return false;
  }
}
