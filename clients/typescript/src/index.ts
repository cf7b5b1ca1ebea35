/**
 * Client library of the Windlass job server: tasks, workers, schedules and durable steps.
 *
 * @packageDocumentation
 */
export { Windlass, type CronOptions, type WindlassOptions, type WorkOptions } from "./app.js";
export { Context, type Fulfilled, type Rejected, type Results, type Settled } from "./context.js";
export { dev, DevServer, type DevOptions } from "./dev.js";
export type { Duration } from "./duration.js";
export {
  BadRequest,
  Cancelled,
  ChildFailed,
  Conflict,
  Fail,
  JobFailed,
  LeaseLost,
  NotFound,
  Refused,
  Retry,
  Snooze,
  StepNotKept,
  StepsChanged,
  Timeout,
  Unreachable,
  WaitTimeout,
  WindlassError,
  type ErrorDetails,
} from "./errors.js";
export { JobHandle } from "./handle.js";
export type { Middleware } from "./run.js";
export type { StepOptions } from "./steps.js";
export {
  Call,
  Task,
  type Backoff,
  type FixedBackoff,
  type GrowingBackoff,
  type Keep,
  type RetryOptions,
  type SqlRows,
  type Handler,
  type KeepFor,
  type PushArgs,
  type PushOptions,
  type RetryPolicy,
  type SqlClient,
  type TaskOptions,
} from "./task.js";
export { Testing, type Named, type TestingOptions, type TestJob, type TestProgress } from "./testing.js";
export type { JobId, JobView, ResultView } from "./wire.js";
