// Fixtures of the tests: a real server per file, an application per test.
import { once } from "node:events";
import { createServer } from "node:http";
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

/** Waits until the condition holds; fails after `seconds`. */
export async function until(condition, what = "the condition", seconds = 10) {
  for (const end = Date.now() + seconds * 1000; Date.now() < end; await pause(10)) {
    const value = await condition();
    if (value) return value;
  }
  throw new Error(`${what} did not come within ${seconds} seconds`);
}

/** Body of a call to the server. */
export async function api(url, method, path, body) {
  const init = { method, headers: { "content-type": "application/json" }, body: body === undefined ? undefined : JSON.stringify(body) };
  const response = await fetch(`${url}/api/v1${path}`, init);
  return { status: response.status, body: await response.json().catch(() => undefined) };
}

/**
 * Proxy in front of a server; returns its URL. `intercept(path, body)` returns undefined to pass a call on, `[status, text]` to answer
 * in the place of the server, or null to leave the call without an answer.
 */
export async function proxy(t, url, intercept) {
  const between = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const answered = intercept(request.url, body);
    if (answered === null) return;
    if (answered !== undefined) return response.writeHead(answered[0]).end(answered[1]);
    const stop = new AbortController();
    response.on("close", () => stop.abort());
    const init = { method: request.method, headers: { "content-type": "application/json" }, ...(body === "" ? {} : { body }) };
    const answer = await fetch(url + request.url, { ...init, signal: stop.signal }).catch(() => undefined);
    if (answer !== undefined) response.writeHead(answer.status).end(await answer.text().catch(() => ""));
  });
  between.listen(0, "127.0.0.1");
  await once(between, "listening");
  t.after(() => between.closeAllConnections() ?? between.close());
  return `http://127.0.0.1:${between.address().port}`;
}
