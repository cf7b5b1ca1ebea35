// Rules without a server: durations, backoff, outcomes, errors.
import assert from "node:assert/strict";
import { test } from "node:test";
import { backoffMs } from "../dist/backoff.js";
import { milliseconds } from "../dist/duration.js";
import { errorOf, isOutage } from "../dist/errors.js";
import { outcomeOf } from "../dist/outcome.js";
import * as windlass from "../dist/index.js";

const { Cancelled, Fail, Retry, Snooze, Timeout, Unreachable } = windlass;

test("durations are milliseconds or texts with units", () => {
  const table = [[0, 0], [1500, 1500], ["500ms", 500], ["30s", 30_000], ["5m", 300_000], ["1h30m", 5_400_000], ["7d", 604_800_000], ["0.5s", 500], ["2 m", 120_000]];
  for (const [duration, ms] of table) assert.equal(milliseconds(duration), ms, String(duration));
});

test("a text that is not a duration is refused with an example", () => {
  for (const bad of ["", "5", "m", "5x", "5m and more", "-5m", -1, NaN, Infinity]) {
    assert.throws(() => milliseconds(bad), TypeError, String(bad));
  }
});

test("the backoff doubles up to five seconds, with half of it at random", () => {
  const table = [[1, 0, 50], [1, 1, 100], [2, 1, 200], [3, 0, 200], [6, 1, 3_200], [7, 1, 5_000], [100, 0, 2_500]];
  for (const [n, chance, ms] of table) assert.equal(backoffMs(n, chance), ms, `${n} ${chance}`);
});

test("answers of the server become the error that fits", () => {
  const table = [
    [400, "bad_request", "BadRequest", false],
    [413, "payload_too_large", "BadRequest", false],
    [401, "unauthorized", "Refused", false],
    [403, "forbidden", "Refused", false],
    [404, "not_found", "NotFound", false],
    [409, "lease_lost", "LeaseLost", false],
    [409, "duplicate", "Conflict", false],
    [429, "quota_exceeded", "Refused", true],
    [502, undefined, "Unreachable", true],
    [503, "shutting_down", "Unreachable", true],
    [507, "store_full", "Refused", true],
    [500, "outcome_unknown", "WindlassError", true],
    [500, "store_damaged", "WindlassError", false],
  ];
  for (const [status, code, name, retryable] of table) {
    const error = errorOf(status, code === undefined ? undefined : { error: { code, message: "why", id: 7 } });
    assert.ok(error instanceof windlass[name], `${status} ${code}`);
    assert.ok(error instanceof windlass.WindlassError);
    assert.deepEqual([error.name, error.status, error.retryable], [name, status, retryable], `${status} ${code}`);
    if (code !== undefined) assert.deepEqual([error.code, error.message, error.jobId], [code, "why", 7]);
  }
});

test("an error caused by an outage counts as an outage", () => {
  assert.ok(isOutage(new Unreachable("gone")));
  assert.ok(isOutage(new Error("mail not sent", { cause: new Error("push", { cause: new Unreachable("gone") }) })));
  assert.ok(!isOutage(new Error("other", { cause: new TypeError("x") })));
  const loop = new Error("loop");
  loop.cause = loop;
  assert.ok(!isOutage(loop));
});

test("the error of a handler decides how its run ends", () => {
  class CardDeclined extends Error {}
  const cancelled = new Cancelled();
  const table = [
    [new Error("broken"), undefined, { outcome: "fail", class: "Error", message: "broken" }],
    [new CardDeclined("no money"), undefined, { outcome: "fail", class: "CardDeclined", message: "no money" }],
    [new TypeError(""), undefined, { outcome: "fail", class: "TypeError", message: "TypeError" }],
    ["text", undefined, { outcome: "fail", class: "Error", message: "text", error: "text" }],
    [new Fail("for good"), undefined, { outcome: "fail", class: "Fail", message: "for good", retry: false }],
    [new Retry({ after: "5s" }), undefined, { outcome: "fail", class: "Retry", message: "retry requested", delay_ms: 5_000 }],
    [new Retry("1s"), undefined, { outcome: "fail", class: "Retry", message: "retry requested", delay_ms: 1_000 }],
    [new Snooze({ for: "1m" }), undefined, { outcome: "release", delay_ms: 60_000 }],
    [new Unreachable("gone"), undefined, { outcome: "release", delay_ms: 1_000 }],
    [new Error("push", { cause: new Unreachable("gone") }), undefined, { outcome: "release", delay_ms: 1_000 }],
    [cancelled, cancelled, { outcome: "release" }],
    [new DOMException("stop", "AbortError"), cancelled, { outcome: "release" }],
    [new Error("broken"), cancelled, { outcome: "fail", class: "Error", message: "broken" }],
    [new Error("late"), new Timeout("2 s"), { outcome: "fail", class: "Timeout", message: "2 s" }],
  ];
  for (const [error, reason, expected] of table) {
    const { backtrace, ...outcome } = JSON.parse(JSON.stringify(outcomeOf(error, reason)));
    assert.deepEqual(outcome, expected, String(error));
    if (outcome.outcome === "fail" && error instanceof Error) assert.match(backtrace, /pure\.test\.mjs/);
  }
});
