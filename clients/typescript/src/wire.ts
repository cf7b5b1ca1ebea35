/** Bodies of the server's API, as far as the library uses them. */

/** Id of a job; an alias (text) where the server journals pushes. */
export type JobId = number | string;

/** Step as delivered with a claim. */
export interface KeptStep {
  name: string;
  kind: string;
  result?: unknown;
  at?: number;
  timed_out?: boolean;
  generation?: number;
}

/** Claimed job. */
export interface ClaimedJob {
  id: number;
  token: number;
  name: string;
  queue: string;
  payload?: unknown;
  payload_base64?: string;
  format?: string;
  attempt: number;
  priority: number;
  created_at: number;
  run_at: number;
  tags?: string[];
  steps?: KeptStep[];
  generation?: number;
}

/** Error inside an answer. */
export interface ErrorBody {
  code: string;
  message: string;
  id?: number;
}

/** Answer to one report. */
export interface SettledEntry {
  id: number;
  ok: boolean;
  error?: ErrorBody;
  state?: string;
}

/** Answer to `settle` and `claim`. */
export interface SettleAnswer {
  settled?: SettledEntry[];
  jobs?: ClaimedJob[];
}

/** Answer to one heartbeat. */
export interface ExtendedEntry {
  id: number;
  ok: boolean;
  error?: ErrorBody;
  cancel?: boolean;
}

/** Answer to a push. */
export interface PushAnswer {
  ids?: (JobId | null)[];
  existing?: JobId[];
  refused?: { index: number; code: string; message: string; id?: number }[];
  /** Instead of ids, where the server journals pushes. */
  aliases?: string[];
}

/** Answer to one step sent. */
export interface StepAnswer {
  name: string;
  kept: boolean;
  result?: unknown;
}

/** Outcome of a job, or its current state. */
export interface ResultView {
  /** Id of the job. */
  id: number;
  /** State of the job. */
  state: string;
  /** Result, if it is JSON. */
  result?: unknown;
  /** Result in base64, if it is not JSON. */
  result_base64?: string;
  /** Error value of the last failed attempt. */
  error?: unknown;
  /** Message of the last failed attempt. */
  message?: string;
  /** Class of the error of the last failed attempt. */
  class?: string;
}

/** Job as shown to clients, as far as the library reads it. */
export interface JobView extends ResultView {
  /** Name of the job. */
  name: string;
  /** Queue of the job. */
  queue: string;
  /** Repeat rule. */
  repeat?: string;
  /** Tags. */
  tags?: string[];
  /** Further fields; the server's `/api/openapi.json` describes them. */
  [field: string]: unknown;
}

/** Payload of a claimed job as a value: JSON, or bytes if it is not JSON. */
export function payloadOf(job: ClaimedJob): unknown {
  if (job.payload_base64 !== undefined) return bytesOf(job.payload_base64);
  return job.payload ?? null;
}

/** Bytes of a text in base64. */
export function bytesOf(base64: string): Uint8Array {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/** States in which nothing follows without a request. */
export function isSettled(state: string): boolean {
  return state === "completed" || state === "failed" || state === "cancelled" || state === "terminated";
}
