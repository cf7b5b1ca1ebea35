import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pause } from "./backoff.js";

/** Options of `dev()`. */
export interface DevOptions {
  /** Path of the `windlass` binary; `WINDLASS_BIN`, else `windlass` on the PATH. */
  binary?: string;
  /** Further arguments of `windlass serve`. */
  args?: string[];
}

/** Time that the server has to open its port. */
const START_MS = 30_000;
const LOOK_AGAIN_MS = 10;

/** Real server on a temporary folder, for tests. */
export class DevServer {
  readonly #binary: string;
  readonly #args: readonly string[];
  readonly #folder: string;
  #address = "127.0.0.1:0";
  #process: ChildProcess | undefined;
  #watchdog: ChildProcess | undefined;
  #stderr = "";
  /** @internal */
  constructor(binary: string, args: readonly string[], folder: string) {
    this.#binary = binary;
    this.#args = args;
    this.#folder = folder;
  }

  /** URL of the server; the same one after a restart. */
  get url(): string {
    return `http://${this.#address}`;
  }

  /** Starts the server again after `kill()`, on the same port and folder. */
  async start(): Promise<void> {
    const ready = join(this.#folder, "ready.json");
    await rm(ready, { force: true });
    const args = ["serve", "--data", join(this.#folder, "data"), "--http", this.#address, "--bedrock", "off", "--mdns", "off"];
    const child = spawn(this.#binary, [...args, "--ready-file", ready, ...this.#args], { stdio: ["ignore", "ignore", "pipe"] });
    this.#process = child;
    if (child.pid !== undefined) this.#watchdog = watch(child.pid);
    this.#stderr = "";
    child.stderr?.on("data", (chunk: Buffer) => {
      this.#stderr = (this.#stderr + chunk.toString()).slice(-4_000);
    });
    let trouble: Error | undefined;
    child.on("error", (error) => {
      trouble = error;
    });
    for (const until = Date.now() + START_MS; ; await pause(LOOK_AGAIN_MS)) {
      const address = await readFile(ready, "utf8").then(addressIn, () => undefined);
      if (address !== undefined) {
        this.#address = address;
        return;
      }
      const isOver = trouble !== undefined || child.exitCode !== null || Date.now() > until;
      if (isOver) throw new Error(`${this.#binary} did not start: ${trouble?.message ?? this.#stderr.trim()}`);
    }
  }

  /** Kills the server with SIGKILL. Its folder stays, for `start()`. */
  async kill(): Promise<void> {
    await this.#end("SIGKILL");
  }

  /** Stops the server and removes its folder. */
  async stop(): Promise<void> {
    await this.#end("SIGTERM");
    await rm(this.#folder, { recursive: true, force: true });
  }

  /** Stops the server: `await using server = await dev()`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    this.#watchdog?.kill("SIGKILL");
    this.#watchdog = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
    const ended = once(child, "exit");
    child.kill(signal);
    await ended;
  }
}

/** Starts a process that kills the server when this process has ended, in any way: then its standard input is closed. */
function watch(pid: number): ChildProcess {
  const watchdog = spawn("sh", ["-c", 'read -r _; kill -KILL "$1"', "sh", String(pid)], { stdio: ["pipe", "ignore", "ignore"], detached: true });
  watchdog.on("error", () => undefined);
  watchdog.unref();
  (watchdog.stdin as unknown as { unref?: () => void } | null)?.unref?.();
  return watchdog;
}

/** Address in the ready file; undefined while it is written. */
function addressIn(text: string): string | undefined {
  try {
    return (JSON.parse(text) as { http?: string }).http;
  } catch {
    return undefined;
  }
}

/** Starts the real server on a free port and a temporary folder. End it with `stop()`. */
export async function dev(options: DevOptions = {}): Promise<DevServer> {
  const binary = options.binary ?? (process.env["WINDLASS_BIN"] || "windlass");
  const folder = await mkdtemp(join(tmpdir(), "windlass-dev-"));
  const server = new DevServer(binary, options.args ?? [], folder);
  try {
    await server.start();
  } catch (error) {
    await server.stop();
    throw error;
  }
  return server;
}
