// Fixtures of the tests: a real server per file, an application per test.
import { after, before } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { dev, Windlass } from "../dist/index.js";

/** Real server of a test file. */
export function server(args = []) {
  const fixture = { url: "", server: undefined };
  before(async () => {
    fixture.server = await dev({ args });
    fixture.url = fixture.server.url;
  });
  after(() => fixture.server?.stop());
  return fixture;
}

/** Application of one test, with the lines that it logs. */
export function application(t, url, options = {}) {
  const lines = [];
  const app = new Windlass({ server: url, log: (line) => lines.push(line), ...options });
  t.after(() => app.close());
  return { app, lines };
}

/** Starts a worker that ends with the test. `stop()` ends it earlier, and waits for its end. */
export function working(t, app, options = {}) {
  const over = new AbortController();
  const ended = app.work({ signals: false, signal: over.signal, grace: "5s", ...options });
  ended.catch(() => undefined);
  const stop = () => {
    over.abort();
    return ended;
  };
  t.after(() => stop().catch(() => undefined));
  return { stop, ended };
}

/** Promise that the test resolves. */
export function deferred() {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
}

/** Waits until the condition holds; fails after ten seconds. */
export async function until(condition, what = "the condition") {
  for (const end = Date.now() + 10_000; Date.now() < end; await pause(10)) {
    const value = await condition();
    if (value) return value;
  }
  throw new Error(`${what} did not come within ten seconds`);
}

/** Body of a call to the server. */
export async function api(url, method, path, body) {
  const init = { method, headers: { "content-type": "application/json" }, body: body === undefined ? undefined : JSON.stringify(body) };
  const response = await fetch(`${url}/api/v1${path}`, init);
  return { status: response.status, body: await response.json().catch(() => undefined) };
}
