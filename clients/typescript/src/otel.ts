/** Trace context of OpenTelemetry, if `@opentelemetry/api` is installed. It travels in the tag `traceparent=…` of a job. */

const TAG = "traceparent=";

type Carrier = Record<string, string>;

interface Span {
  setStatus(status: { code: number; message?: string }): void;
  recordException(error: unknown): void;
  end(): void;
}

interface Api {
  context: { active(): unknown; with<T>(context: unknown, run: () => T): T };
  propagation: { inject(context: unknown, carrier: Carrier): void; extract(context: unknown, carrier: Carrier): unknown };
  trace: {
    getTracer(name: string): { startSpan(name: string, options: object, context?: unknown): Span };
    setSpan(context: unknown, span: Span): unknown;
  };
  SpanKind: { CONSUMER: number; PRODUCER: number };
  SpanStatusCode: { ERROR: number };
  ROOT_CONTEXT: unknown;
}

let api: Api | null | undefined;
let loading: Promise<void> | undefined;

/** True after the first `load()`. */
export function isLoaded(): boolean {
  return api !== undefined;
}

/** True if `@opentelemetry/api` is installed. */
export function isPresent(): boolean {
  return api !== undefined && api !== null;
}

/** Looks for `@opentelemetry/api`, once per process. */
export function load(): Promise<void> {
  const name = "@opentelemetry/api";
  loading ??= import(name).then(
    (found: Api) => {
      api = found;
    },
    () => {
      api = null;
    },
  );
  return loading;
}

/** Tag with the context of the active span; undefined if there is none. */
export function traceTag(): string | undefined {
  if (!api) return undefined;
  const carrier: Carrier = {};
  api.propagation.inject(api.context.active(), carrier);
  return carrier.traceparent === undefined ? undefined : TAG + carrier.traceparent;
}

/** Run inside a span: its result, and a function that ends the span early. */
export interface Traced<T> {
  result: Promise<T>;
  end: () => void;
}

interface TracedJob {
  id: number;
  name: string;
  queue: string;
  attempt: number;
  tags?: string[];
}

/** Runs a job inside a span that continues the trace of its push. */
export function traced<T>(job: TracedJob, run: () => Promise<T>): Traced<T> {
  if (!api) return { result: run(), end: () => undefined };
  const { context, propagation, trace, SpanKind, SpanStatusCode, ROOT_CONTEXT } = api;
  const parent = job.tags?.find((tag) => tag.startsWith(TAG))?.slice(TAG.length);
  const from = parent === undefined ? ROOT_CONTEXT : propagation.extract(ROOT_CONTEXT, { traceparent: parent });
  const attributes = {
    "messaging.system": "windlass",
    "messaging.destination.name": job.queue,
    "messaging.message.id": String(job.id),
    "windlass.attempt": job.attempt,
  };
  const span = trace.getTracer("windlass").startSpan(job.name, { kind: SpanKind.CONSUMER, attributes }, from);
  let isOpen = true;
  const end = () => {
    if (isOpen) span.end();
    isOpen = false;
  };
  const result = context.with(trace.setSpan(from, span), run).then(
    (value) => {
      end();
      return value;
    },
    (error: unknown) => {
      span.recordException(error);
      span.setStatus({ code: SpanStatusCode.ERROR, message: error instanceof Error ? error.message : String(error) });
      end();
      throw error;
    },
  );
  return { result, end };
}
