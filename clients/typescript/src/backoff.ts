import { setImmediate } from "node:timers";

/** First delay while the server is unreachable. */
const FIRST_MS = 100;
/** Longest delay while the server is unreachable. */
const LONGEST_MS = 5_000;

/** Delay before try `n` (from 1) of a call to an unreachable server: doubles up to 5 s, with half of it at random. */
export function backoffMs(n: number, chance = Math.random()): number {
  const full = Math.min(FIRST_MS * 2 ** Math.min(n - 1, 16), LONGEST_MS);
  return full * (0.5 + chance / 2);
}

/** Waits; ends early if the signal is aborted. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const over = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", over);
      resolve();
    };
    const timer = setTimeout(over, ms);
    signal?.addEventListener("abort", over);
  });
}

/** Waits until the promise reactions that are due have run. */
export function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
