import { backoffMs, pause, turn } from "./backoff.js";
import type { Client } from "./client.js";
import { BadRequest, Cancelled, errorOf, isOutage, LeaseLost, NotFound, Refused, Unreachable, WindlassError } from "./errors.js";
import { NoteSender } from "./notes.js";
import { Run, type Surroundings } from "./run.js";
import type { Definition } from "./task.js";
import type { ClaimedJob, ExtendedEntry, SettleAnswer, SettledEntry } from "./wire.js";

/** Duration of one claim that waits for jobs. Proxies close silent connections after about a minute. */
const WAIT_MS = 20_000;
/** Time within which an empty answer to a waiting claim is early; the next claim follows after a backoff. */
const EARLY_MS = 1_000;
/** Time for the last reports after the grace of a shutdown. */
const LAST_REPORTS_MS = 5_000;
/** Reports and heartbeats per call of the server. */
const BATCH_MAX = 10_000;

/** Settings of a worker, all given. */
export interface WorkerSettings {
  concurrency: number;
  leaseMs: number;
  graceMs: number;
  worker: string;
  queues: readonly string[];
  log: (text: string) => void;
}

/** Report that the server has not accepted yet. */
interface Report {
  job: ClaimedJob;
  json: string;
  /** True if a call with it has been made; the server may have accepted it although the answer was lost. */
  isSent?: boolean;
}

/** Holder of a lease: a run, or the report of an ended one. */
type Held = Run | Report;

/** Worker: claims jobs, runs them and reports their ends. */
export class Worker {
  readonly #client: Client;
  readonly #definitions: ReadonlyMap<string, Definition>;
  readonly #settings: WorkerSettings;
  readonly #around: Surroundings;
  readonly #running = new Map<number, Run>();
  readonly #claim: string;
  #reports: Report[] = [];
  /** Reports without an answer, also those of calls under way. Heartbeats keep their leases. */
  readonly #unsettled = new Set<Report>();
  /** Wakes the loop when a run has ended. */
  #wake: (() => void) | undefined;
  /** True while a claim waits at the server; runs that end meanwhile are reported on their own. */
  #isPolling = false;
  #reporting: Promise<void> | undefined;
  /** Aborted at the begin of the shutdown. */
  readonly #stopping = new AbortController();
  /** Aborted at the end of the grace. */
  readonly #giveUp = new AbortController();
  /** Aborted at the end of the worker. */
  readonly #over = new AbortController();
  #fatal: unknown;

  constructor(
    client: Client,
    definitions: ReadonlyMap<string, Definition>,
    settings: WorkerSettings,
    around: Pick<Surroundings, "middleware" | "pushAll">,
  ) {
    this.#client = client;
    this.#definitions = definitions;
    this.#settings = settings;
    const notes = new NoteSender(
      () => client,
      (run, entry) => this.#heard(run, entry),
    );
    const ended = (run: Run, report: string | undefined) => this.#ended(run, report);
    this.#around = { ...around, backend: () => client, notes, warn: settings.log, ended, leaseMs: settings.leaseMs, now: Date.now };
    const { queues, leaseMs, worker } = settings;
    const names = [...definitions.keys()];
    this.#claim = JSON.stringify({ names, queues, lease_ms: leaseMs, worker }).slice(0, -1);
  }

  /** Works until `stop()`, and until the running jobs have ended or the grace is over. */
  async run(): Promise<void> {
    void this.#beat();
    try {
      await this.#loop();
      await this.#finish();
    } finally {
      this.#over.abort();
    }
    if (this.#fatal !== undefined) throw this.#fatal;
  }

  /** Claims no more jobs; waits for the running ones. A second call releases them at once. */
  stop(): void {
    if (this.#stopping.signal.aborted) this.#giveUp.abort();
    this.#stopping.abort();
    this.#wake?.();
  }

  async #loop(): Promise<void> {
    const { signal } = this.#stopping;
    let outages = 0;
    let early = 0;
    let mayWait = true;
    /** True after the server has accepted a claim: later refusals are an outage, such as a proxy or an access token that changes. */
    let isKnown = false;
    while (!signal.aborted) {
      const free = this.#settings.concurrency - this.#running.size;
      if (free <= 0) {
        await this.#nextEnd();
        continue;
      }
      try {
        // A call with reports does not wait: its answer says which reports were accepted.
        const waitMs = mayWait && this.#reports.length === 0 ? WAIT_MS : 0;
        const from = Date.now();
        const claimed = await this.#settleAndClaim(free, waitMs);
        if (outages > 0) this.#settings.log(`connected to ${this.#client.server} again`);
        outages = 0;
        isKnown = true;
        mayWait = claimed < free;
        // A server that shuts down answers waiting claims at once.
        early = claimed === 0 && waitMs > 0 && Date.now() - from < EARLY_MS ? early + 1 : 0;
        if (early > 0) await pause(backoffMs(early), signal);
        // Short jobs end now; the next call reports them.
        await turn();
      } catch (error) {
        if (signal.aborted) return;
        if (endsWorker(error, isKnown)) return this.#refused(error);
        outages += 1;
        if (outages === 1) this.#settings.log(`${(error as Error).message}; retrying`);
        await pause(backoffMs(outages), signal);
      }
    }
  }

  /** Reports ended runs and claims jobs in one call. Returns the number of claimed jobs. */
  async #settleAndClaim(limit: number, waitMs: number): Promise<number> {
    const reports = this.#take();
    const claim = `${this.#claim},"limit":${limit},"wait_ms":${waitMs}}`;
    this.#isPolling = waitMs > 0;
    const options = { waitMs, repeatForMs: 0, signal: waitMs > 0 ? this.#stopping.signal : undefined };
    try {
      const answer = await this.#settle(reports, claim, options);
      const jobs = answer.jobs ?? [];
      for (const job of jobs) this.#start(job);
      return jobs.length;
    } finally {
      this.#isPolling = false;
    }
  }

  #start(job: ClaimedJob): void {
    const definition = this.#definitions.get(job.name) as Definition;
    const run = new Run(job, definition, this.#around);
    const before = this.#running.get(job.id);
    if (before !== undefined) this.#lost(before, "the lease is lost: the job was claimed again");
    this.#running.set(job.id, run);
    run.start();
  }

  #ended(run: Run, report: string | undefined): void {
    if (this.#running.get(run.job.id) === run) this.#running.delete(run.job.id);
    if (report !== undefined) this.#add(run.job, report);
    if (this.#isPolling) this.#reporting ??= this.#reportAlone();
    this.#wake?.();
  }

  #add(job: ClaimedJob, json: string): void {
    const report = { job, json };
    this.#reports.push(report);
    this.#unsettled.add(report);
  }

  #nextEnd(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = () => {
        this.#wake = undefined;
        // Runs that end in the same turn share the next call.
        void turn().then(resolve);
      };
      if (this.#stopping.signal.aborted) this.#wake();
    });
  }

  /** Reports runs that end while a claim waits. */
  async #reportAlone(): Promise<void> {
    for (let outages = 0; ; ) {
      await turn();
      const reports = this.#isPolling || this.#stopping.signal.aborted ? this.#take() : [];
      if (reports.length === 0) break;
      try {
        await this.#settle(reports, undefined, { repeatForMs: 0 });
        outages = 0;
      } catch (error) {
        outages += 1;
        if (!isOutage(error) && outages === 1) this.#settings.log(`reports refused: ${(error as Error).message}; retrying`);
        await pause(backoffMs(outages), this.#over.signal);
        if (this.#over.signal.aborted) break;
      }
    }
    this.#reporting = undefined;
  }

  #take(): Report[] {
    return this.#reports.length <= BATCH_MAX ? this.#reports.splice(0) : this.#reports.splice(0, BATCH_MAX);
  }

  /** Sends reports. Reports that did not reach the server are kept for the next call. */
  async #settle(reports: Report[], claim: string | undefined, options: object): Promise<SettleAnswer> {
    try {
      const answer = await this.#client.settle(reports.map(({ json }) => json), claim, options);
      settledOf(answer, reports.length).forEach((entry, index) => this.#settled(reports[index] as Report, entry));
      return answer;
    } catch (error) {
      if (reports.length === 0) throw error;
      if (!(error instanceof BadRequest)) this.#putBack(reports, error);
      await this.#settleEach(reports, options);
      return {};
    }
  }

  /** Sends reports one by one, because the server refused a call with all of them. */
  async #settleEach(reports: Report[], options: object): Promise<void> {
    for (const [index, report] of reports.entries()) {
      try {
        const answer = await this.#client.settle([report.json], undefined, options);
        this.#settled(report, settledOf(answer, 1)[0] as SettledEntry);
      } catch (error) {
        if (!(error instanceof BadRequest)) this.#putBack(reports.slice(index), error);
        this.#replace(report, (error as Error).message);
      }
    }
  }

  /** Keeps reports for a later call: the error is not about their content. */
  #putBack(reports: Report[], error: unknown): never {
    const isRefused = error instanceof Refused || error instanceof NotFound;
    if (!isRefused) for (const report of reports) report.isSent = true;
    this.#reports.unshift(...reports);
    throw error;
  }

  #settled(report: Report, entry: SettledEntry): void {
    this.#unsettled.delete(report);
    if (entry.ok) return;
    const error = errorOf(409, { error: entry.error });
    const { id, name } = report.job;
    if (error.code === "payload_too_large" || error.code === "bad_request") this.#replace(report, error.message);
    else if (report.isSent !== true) this.#settings.log(`report of job ${id} (${name}) dropped: ${error.message}`);
  }

  /** Replaces a report that the server refuses by a failure that says so. */
  #replace(report: Report, why: string): void {
    this.#unsettled.delete(report);
    const { id, token, name } = report.job;
    const message = `the report of the run was refused: ${why}`;
    this.#settings.log(`job ${id} (${name}): ${message}`);
    const json = JSON.stringify({ id, token, outcome: "fail", class: "ReportRefused", message });
    if (json !== report.json) this.#add(report.job, json);
  }

  /** Ends the worker: the server refuses its claims. */
  #refused(error: unknown): void {
    this.#fatal = error;
    this.#stopping.abort();
  }

  /** Sends heartbeats for all running jobs and waiting reports, every third of the lease. */
  async #beat(): Promise<void> {
    const intervalMs = this.#settings.leaseMs / 3;
    for (let next = performance.now() + intervalMs; ; next = Math.max(next + intervalMs, performance.now())) {
      await pause(next - performance.now(), this.#over.signal);
      if (this.#over.signal.aborted) return;
      const held: Held[] = [...this.#running.values(), ...this.#unsettled];
      const calls: Promise<void>[] = [];
      // A heartbeat without an answer must not delay the next one.
      for (let start = 0; start < held.length; start += BATCH_MAX) calls.push(this.#extend(held.slice(start, start + BATCH_MAX), intervalMs / 2));
      await Promise.all(calls);
    }
  }

  async #extend(held: Held[], timeoutMs: number): Promise<void> {
    const entries = held.map(({ job }) => `{"id":${job.id},"token":${job.token},"lease_ms":${this.#settings.leaseMs}}`);
    try {
      const answers = await this.#client.extend(entries, timeoutMs);
      held.forEach((one, index) => {
        if (one instanceof Run) this.#heard(one, answers[index] as ExtendedEntry);
      });
    } catch (error) {
      if (!isOutage(error)) this.#settings.log(`heartbeat refused: ${(error as Error).message}`);
    }
  }

  #heard(run: Run, entry: ExtendedEntry): void {
    if (run.ended || this.#running.get(run.job.id) !== run) return;
    if (entry.cancel === true) run.stop(new Cancelled());
    if (entry.ok) return;
    const error = errorOf(409, { error: entry.error });
    if (error instanceof LeaseLost || error.code === "not_found") this.#lost(run, error.message);
  }

  #lost(run: Run, why: string): void {
    if (run.reason instanceof LeaseLost) return;
    this.#settings.log(`job ${run.job.id} (${run.job.name}): ${why}`);
    run.stop(new LeaseLost(why, { code: "lease_lost", status: 409 }));
  }

  /** Waits for the running jobs, at most the grace, then releases them and sends the last reports. */
  async #finish(): Promise<void> {
    const graceOver = this.#giveUp.signal;
    const timer = setTimeout(() => this.#giveUp.abort(), this.#settings.graceMs);
    graceOver.addEventListener("abort", () => this.#wake?.());
    while (this.#running.size > 0 && !graceOver.aborted) {
      await this.#nextEndOr(graceOver);
      this.#reporting ??= this.#reportAlone();
    }
    clearTimeout(timer);
    for (const run of this.#running.values()) this.#add(run.job, run.release());
    this.#running.clear();
    await this.#lastReports();
  }

  #nextEndOr(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = () => {
        this.#wake = undefined;
        resolve();
      };
      if (signal.aborted) resolve();
    });
  }

  async #lastReports(): Promise<void> {
    const late = AbortSignal.timeout(LAST_REPORTS_MS);
    let trouble = "the server is unreachable";
    for (let tries = 1; this.#reports.length > 0 || this.#reporting !== undefined; tries += 1) {
      if (late.aborted) {
        this.#settings.log(`${this.#reports.length} reports were not sent: ${trouble}`);
        return;
      }
      if (this.#reporting !== undefined) {
        await Promise.race([this.#reporting, pause(LAST_REPORTS_MS, late)]);
        continue;
      }
      const reports = this.#take();
      try {
        await this.#settle(reports, undefined, { repeatForMs: 0, timeoutMs: LAST_REPORTS_MS });
      } catch (error) {
        trouble = (error as Error).message;
        await pause(backoffMs(tries), late);
      }
    }
  }
}

/** Answers to the reports of a call. Any other body is not the server's, and says nothing about the reports. */
function settledOf({ settled }: SettleAnswer, count: number): SettledEntry[] {
  if (count === 0) return [];
  if (!Array.isArray(settled) || settled.length !== count) throw new Unreachable(`the answer to ${count} reports is not from the server`);
  return settled;
}

/** True if further claims are in vain: the claim is malformed, or the first one was refused because of a wrong token or URL. */
function endsWorker(error: unknown, isKnown: boolean): boolean {
  if (!(error instanceof WindlassError)) return true;
  if (error.retryable) return false;
  return error instanceof BadRequest || (!isKnown && (error instanceof Refused || error instanceof NotFound));
}
