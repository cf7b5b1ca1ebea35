// OpenTelemetry: the trace of a push goes on in the run.
import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";
import { test } from "node:test";
import { context, propagation, ROOT_CONTEXT, SpanStatusCode, trace } from "@opentelemetry/api";
import { application, server, working } from "./helpers.mjs";

const at = server();
const TRACE = "0af7651916cd43dd8448eb211c80319c";
const spans = [];

/** The parts of an SDK that the library talks to. */
function install() {
  const store = new AsyncLocalStorage();
  context.setGlobalContextManager({
    active: () => store.getStore() ?? ROOT_CONTEXT,
    with: (current, run, self, ...args) => store.run(current, () => run.apply(self, args)),
    bind: (_, target) => target,
    enable: () => undefined,
    disable: () => undefined,
  });
  propagation.setGlobalPropagator({
    inject: (current, carrier, setter) => {
      const span = trace.getSpanContext(current);
      if (span !== undefined) setter.set(carrier, "traceparent", `00-${span.traceId}-${span.spanId}-01`);
    },
    extract: (current, carrier, getter) => {
      const [, traceId, spanId] = String(getter.get(carrier, "traceparent")).split("-");
      return trace.setSpanContext(current, { traceId, spanId, traceFlags: 1, isRemote: true });
    },
    fields: () => ["traceparent"],
  });
  const startSpan = (name, options, from) => {
    const parent = trace.getSpanContext(from ?? context.active());
    const span = { name, options, parent, ended: 0, status: undefined, errors: [] };
    spans.push(span);
    const own = { traceId: parent?.traceId ?? TRACE, spanId: `000000000000000${spans.length}`, traceFlags: 1 };
    return {
      spanContext: () => own,
      setStatus: (status) => void (span.status = status),
      recordException: (error) => void span.errors.push(error.message),
      end: () => void (span.ended += 1),
    };
  };
  trace.setGlobalTracerProvider({ getTracer: () => ({ startSpan }) });
}

test("a run is a span in the trace of its push, also when it fails", async (t) => {
  install();
  const { app } = application(t, at.url);
  const child = app.task("traced.child", async () => "fine");
  const parent = app.task("traced.parent", { tags: ["mine"] }, async (_, ctx) => {
    assert.deepEqual(ctx.tags.length, 2);
    return (await child.push()).id;
  });
  const broken = app.task("traced.broken", { retry: 1 }, async () => {
    throw new Error("broken");
  });
  working(t, app);
  const root = trace.setSpanContext(ROOT_CONTEXT, { traceId: TRACE, spanId: "00f067aa0ba902b7", traceFlags: 1 });
  const job = await context.with(root, () => parent.push());
  const childId = await job.wait({ timeout: "20s" });
  await app.job(childId).wait({ timeout: "20s" });
  await assert.rejects((await context.with(root, () => broken.push())).wait({ timeout: "20s" }));
  const [first, second, third] = ["traced.parent", "traced.child", "traced.broken"].map((name) => spans.find((span) => span.name === name));
  assert.deepEqual([first.parent.traceId, first.parent.spanId, first.ended], [TRACE, "00f067aa0ba902b7", 1]);
  assert.equal(first.options.attributes["messaging.message.id"], String(job.id));
  assert.deepEqual([second.parent.traceId, second.parent.spanId], [TRACE, "0000000000000001"]);
  assert.deepEqual([third.errors, third.status.code, third.ended], [["broken"], SpanStatusCode.ERROR, 1]);
  const untraced = await child.push();
  await untraced.wait({ timeout: "20s" });
  assert.equal((await untraced.get()).tags, undefined);
});
