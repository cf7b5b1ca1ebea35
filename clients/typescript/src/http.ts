import * as http from "node:http";
import * as https from "node:https";
import { Unreachable } from "./errors.js";

/** One HTTP request. */
export interface Request {
  method: string;
  path: string;
  /** JSON text. */
  body?: string | undefined;
  /** Time until the answer is complete. */
  timeoutMs: number;
  /** Ends the request. */
  signal?: AbortSignal | undefined;
}

/** Answer with its body as parsed JSON; undefined if the body is empty or not JSON. */
export interface Answer {
  status: number;
  body: unknown;
}

/** Connection to a server. */
export interface Transport {
  send(request: Request): Promise<Answer>;
  /** Closes idle connections. */
  close(): void;
}

/** Sockets per server. More concurrent calls than this wait for a socket. */
const SOCKETS_MAX = 256;

/** Nothing was sent: the call is safe to repeat, whatever it does. */
const NOT_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "ENOENT"]);

/** Error of a request without an answer. */
export class NoAnswer extends Unreachable {
  /** True if the request cannot have reached the server. */
  readonly notSent: boolean;

  constructor(what: string, cause: unknown) {
    const reason = cause instanceof Error ? innermost(cause) : undefined;
    const code = (reason as { code?: string } | undefined)?.code;
    super(`${what}: ${reason?.message || code || "no answer"}`, { cause });
    this.name = "Unreachable";
    this.notSent = code !== undefined && NOT_SENT.has(code);
  }
}

function innermost(error: Error): Error {
  if (error instanceof AggregateError && error.errors[0] instanceof Error) return error.errors[0];
  return error.cause instanceof Error ? innermost(error.cause) : error;
}

/** Chooses the transport: `node:http` in Node, `fetch` elsewhere. Measured with Node 20, `node:http` makes more calls per second. */
export function connect(server: string, token: string | undefined, kind?: "node" | "fetch"): Transport {
  const url = new URL(server);
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw new TypeError(`"${server}" is not the URL of a server; write for example http://127.0.0.1:7373`);
  }
  const elsewhere = "Bun" in globalThis || "Deno" in globalThis;
  const chosen = kind ?? (elsewhere ? "fetch" : "node");
  return chosen === "fetch" ? new FetchTransport(url, token) : new NodeTransport(url, token);
}

function headersOf(token: string | undefined): Record<string, string> {
  const headers: Record<string, string> = { accept: "application/json" };
  if (token !== undefined && token !== "") headers.authorization = `Bearer ${token}`;
  return headers;
}

function parsed(text: string): unknown {
  if (text === "") return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function prefixOf(url: URL): string {
  return url.pathname.replace(/\/+$/, "");
}

class NodeTransport implements Transport {
  readonly #agent: http.Agent;
  readonly #request: typeof http.request;
  readonly #base: http.RequestOptions;
  readonly #prefix: string;
  readonly #headers: Record<string, string>;
  readonly #server: string;

  constructor(url: URL, token: string | undefined) {
    const secure = url.protocol === "https:";
    const options = { keepAlive: true, maxSockets: SOCKETS_MAX, maxFreeSockets: 16, noDelay: true };
    this.#agent = secure ? new https.Agent(options) : new http.Agent(options);
    this.#request = secure ? https.request : http.request;
    const host = url.hostname.replace(/^\[|\]$/g, "");
    this.#base = { protocol: url.protocol, host, port: url.port || (secure ? 443 : 80), agent: this.#agent };
    this.#prefix = prefixOf(url);
    this.#headers = headersOf(token);
    this.#server = url.origin;
  }

  send(request: Request): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const { body, signal } = request;
      const headers: http.OutgoingHttpHeaders = { ...this.#headers };
      if (body !== undefined) {
        headers["content-type"] = "application/json";
        headers["content-length"] = Buffer.byteLength(body);
      }
      const options = { ...this.#base, method: request.method, path: this.#prefix + request.path, headers };
      const call = this.#request(options);
      const stop = (why: Error) => call.destroy(why);
      const aborted = () => stop(new Error("the call was stopped"));
      const timer = setTimeout(() => stop(new Error(`no answer within ${request.timeoutMs} ms`)), request.timeoutMs);
      const over = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", aborted);
      };
      const failed = (error: unknown) => {
        over();
        reject(new NoAnswer(`${request.method} ${this.#server}${request.path}`, error));
      };
      if (signal?.aborted) aborted();
      signal?.addEventListener("abort", aborted);
      call.on("error", failed);
      call.on("response", (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("error", failed);
        response.on("end", () => {
          over();
          const text = chunks.length === 1 ? (chunks[0] as Buffer).toString() : Buffer.concat(chunks).toString();
          resolve({ status: response.statusCode ?? 0, body: parsed(text) });
        });
      });
      call.end(body);
    });
  }

  close(): void {
    this.#agent.destroy();
  }
}

class FetchTransport implements Transport {
  readonly #base: string;
  readonly #headers: Record<string, string>;

  constructor(url: URL, token: string | undefined) {
    this.#base = url.origin + prefixOf(url);
    this.#headers = headersOf(token);
  }

  async send(request: Request): Promise<Answer> {
    const { method, path, body } = request;
    const headers = body === undefined ? this.#headers : { ...this.#headers, "content-type": "application/json" };
    const stop = new AbortController();
    const aborted = () => stop.abort(new Error("the call was stopped"));
    const late = () => stop.abort(new Error(`no answer within ${request.timeoutMs} ms`));
    const timer = setTimeout(late, request.timeoutMs);
    if (request.signal?.aborted) aborted();
    request.signal?.addEventListener("abort", aborted);
    try {
      const response = await fetch(this.#base + path, { method, headers, body: body ?? null, signal: stop.signal });
      return { status: response.status, body: parsed(await response.text()) };
    } catch (error) {
      throw new NoAnswer(`${method} ${this.#base}${path}`, error);
    } finally {
      clearTimeout(timer);
      request.signal?.removeEventListener("abort", aborted);
    }
  }

  close(): void {}
}
