import { milliseconds, type Duration } from "./duration.js";

/** Details of a failed call. */
export interface ErrorDetails {
  /** Stable code of the server, such as `lease_lost`. */
  code?: string;
  /** HTTP status; 0 if there was no answer. */
  status?: number;
  /** True if the same call may succeed later. */
  retryable?: boolean;
  /** Conflicting job. */
  jobId?: number | string | undefined;
  /** Error that led to this one. */
  cause?: unknown;
}

/** Base of all errors of calls to the server. */
export class WindlassError extends Error {
  /** Stable code of the server, such as `lease_lost`; `unreachable` if there was no answer. */
  readonly code: string;
  /** HTTP status; 0 if there was no answer. */
  readonly status: number;
  /** True if the same call may succeed later. */
  readonly retryable: boolean;
  /** Conflicting job, if the server named one. */
  readonly jobId: number | string | undefined;

  /** Creates an error of a call. */
  constructor(message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.code = details.code ?? "error";
    this.status = details.status ?? 0;
    this.retryable = details.retryable ?? false;
    this.jobId = details.jobId;
  }
}

/** No answer of the server, or an answer that says that it is not available. A run that ends with it is released, not failed. */
export class Unreachable extends WindlassError {
  /** Creates an error that is always retryable. */
  constructor(message: string, details: ErrorDetails = {}) {
    super(message, { code: "unreachable", ...details, retryable: true });
  }
}

/** The lease has expired or the job was given to another worker; reports of this run no longer count. */
export class LeaseLost extends WindlassError {}
/** The job does not exist, was deleted, or belongs to another tenant. */
export class NotFound extends WindlassError {}
/** The server refused the call: missing rights, a quota, a store that is full. */
export class Refused extends WindlassError {}
/** The call is malformed or too large; repeating it does not help. */
export class BadRequest extends Refused {}
/** The state of the job does not allow the call, or a key is taken. */
export class Conflict extends WindlassError {}

/** Statuses after which a call is repeated. */
export function isPassing(status: number): boolean {
  return status === 502 || status === 503 || status === 504;
}

/** Converts an error answer of the server to the error class that fits. */
export function errorOf(status: number, body: unknown): WindlassError {
  const error = (body as { error?: { code?: string; message?: string; id?: number } } | undefined)?.error;
  const code = error?.code ?? `http_${status}`;
  const message = error?.message ?? `the server answered with status ${status}`;
  const details = { code, status, jobId: error?.id };
  if (isPassing(status)) return new Unreachable(message, details);
  if (code === "lease_lost") return new LeaseLost(message, details);
  switch (status) {
    case 400:
    case 413:
    case 415:
    case 422:
      return new BadRequest(message, details);
    case 404:
      return new NotFound(message, details);
    case 409:
      return new Conflict(message, details);
    case 401:
    case 403:
      return new Refused(message, details);
    case 429:
    case 507:
      return new Refused(message, { ...details, retryable: true });
    default:
      return new WindlassError(message, { ...details, retryable: code === "outcome_unknown" });
  }
}

/** True if the error is `Unreachable`, or one of its causes is. */
export function isOutage(error: unknown): boolean {
  for (let depth = 0; depth < 16 && error instanceof Error; depth += 1) {
    if (error instanceof Unreachable) return true;
    error = error.cause;
  }
  return false;
}

/** Outcome of a handler: the attempt failed, and the next one starts after `after`. */
export class Retry extends Error {
  /** Delay before the next attempt in milliseconds; by the retry policy of the job if undefined. */
  readonly afterMs: number | undefined;

  /** Creates the outcome: `throw new Retry({ after: "5m" })`, or `new Retry("5m")`. */
  constructor(after?: Duration | { after?: Duration; message?: string; cause?: unknown }) {
    const options = typeof after === "object" ? after : { after };
    super(options.message ?? "retry requested", options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "Retry";
    this.afterMs = options.after === undefined ? undefined : milliseconds(options.after);
  }
}

/** Outcome of a handler: the job fails for good, even if attempts are left. */
export class Fail extends Error {
  /** Creates the outcome: `throw new Fail("no such customer")`. */
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** Outcome of a handler: the job runs again after `for`, and the run does not count as an attempt. */
export class Snooze extends Error {
  /** Delay in milliseconds. */
  readonly forMs: number;

  /** Creates the outcome: `throw new Snooze({ for: "10m" })`, or `new Snooze("10m")`. */
  constructor(time: Duration | { for: Duration }) {
    super("snoozed");
    this.name = "Snooze";
    this.forMs = milliseconds(typeof time === "object" ? time.for : time);
  }
}

/** Reason of `ctx.signal` after the job was cancelled, or the worker shuts down and its grace has passed. */
export class Cancelled extends Error {
  /** Creates the reason. */
  constructor(message = "the job was cancelled") {
    super(message);
    this.name = "Cancelled";
  }
}

/** Reason of `ctx.signal` after the timeout of the task; also the class of the failed attempt. */
export class Timeout extends Error {
  /** Creates the reason. */
  constructor(message: string) {
    super(message);
    this.name = "Timeout";
  }
}

/** Failure of `ctx.all`: a child failed or was cancelled. Leaves the handler as a failure for good. */
export class ChildFailed extends Fail {
  /** Id of the first child that failed. */
  readonly childId: number | string;

  /** Creates the failure. */
  constructor(message: string, childId: number | string) {
    super(message);
    this.childId = childId;
  }
}

/** Failure of a job whose kept steps do not fit the code any more, with `onChange: "refuse"`. */
export class StepsChanged extends Fail {}

/** Failure of a step whose result the server refused to keep: too large, or too many steps. */
export class StepNotKept extends Fail {}

/** Failure of `wait()`: the job failed or was cancelled. */
export class JobFailed extends Error {
  /** Creates the failure. */
  constructor(
    /** Id of the job. */
    readonly jobId: number | string,
    /** State of the job: `failed` or `cancelled`. */
    readonly state: string,
    message: string,
    /** Class of the error of the last attempt. */
    readonly failureClass: string | undefined,
    /** Error value that the worker sent. */
    readonly error: unknown,
  ) {
    super(message);
    this.name = "JobFailed";
  }
}

/** The time given to `wait()` is over; the job goes on. */
export class WaitTimeout extends Error {
  /** Creates the error. */
  constructor(message: string) {
    super(message);
    this.name = "WaitTimeout";
  }
}
