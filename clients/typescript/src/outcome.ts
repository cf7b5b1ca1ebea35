import { Cancelled, Fail, isOutage, Retry, Snooze, Timeout } from "./errors.js";

/** Delay before a job is claimed again that was released because the server was unreachable. */
const OUTAGE_DELAY_MS = 1_000;
/** Characters of a backtrace; the server keeps 32 KiB. */
const BACKTRACE_CHARS_MAX = 32_000;

/** Report of an ended run, except its result, in the words of the server. */
export type Outcome =
  | { outcome: "release"; delay_ms?: number | undefined }
  | {
      outcome: "fail";
      class: string;
      message: string;
      error?: unknown;
      backtrace?: string | undefined;
      retry?: false | undefined;
      delay_ms?: number | undefined;
    };

/** Decides how a run ends whose handler threw `error`. `reason` is why the run was stopped, if it was. */
export function outcomeOf(error: unknown, reason: Error | undefined): Outcome {
  if (reason instanceof Timeout) return failure(reason);
  if (reason instanceof Cancelled && isStop(error, reason)) return { outcome: "release" };
  if (error instanceof Snooze) return { outcome: "release", delay_ms: error.forMs };
  if (error instanceof Retry) return { ...failure(error.cause ?? error), delay_ms: error.afterMs };
  if (error instanceof Fail) return { ...failure(error), retry: false };
  if (isOutage(error)) return { outcome: "release", delay_ms: OUTAGE_DELAY_MS };
  return failure(error);
}

/** True if the error is the answer of the handler to the abort signal. */
function isStop(error: unknown, reason: Error): boolean {
  if (error === reason || error instanceof Cancelled) return true;
  if (!(error instanceof Error)) return false;
  return error.name === "AbortError" || error.cause === reason;
}

function failure(error: unknown): Outcome & { outcome: "fail" } {
  if (!(error instanceof Error)) {
    return { outcome: "fail", class: "Error", message: text(error), error: jsonOrText(error) };
  }
  const backtrace = error.stack?.split("\n").slice(1).map((line) => line.trim()).join("\n").slice(0, BACKTRACE_CHARS_MAX);
  return { outcome: "fail", class: classOf(error), message: error.message || classOf(error), backtrace: backtrace || undefined };
}

/** Class of an error: its name, or the name of its constructor if it was not given one. */
function classOf(error: Error): string {
  const named = error.name === "Error" ? error.constructor.name : error.name;
  return named || "Error";
}

function text(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(jsonOrText(value)) ?? "undefined");
}

function jsonOrText(value: unknown): unknown {
  try {
    return JSON.stringify(value) === undefined ? String(value) : value;
  } catch {
    return String(value);
  }
}
