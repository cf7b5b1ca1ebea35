/** Length of time: milliseconds as a number, or text such as `"500ms"`, `"30s"`, `"5m"`, `"1h30m"`, `"7d"`. */
export type Duration = number | string;

const UNITS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 604_800_000,
};

const PART = /(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)\s*/gy;

/** Converts a duration to milliseconds. Throws a `TypeError` if it is negative or not a duration. */
export function milliseconds(duration: Duration): number {
  if (typeof duration === "number") {
    if (Number.isFinite(duration) && duration >= 0) return Math.round(duration);
    throw new TypeError(`${duration} is not a duration; give milliseconds from 0, or a text such as "5m"`);
  }
  let total = 0;
  let end = 0;
  PART.lastIndex = 0;
  for (let part = PART.exec(duration); part !== null; part = PART.exec(duration)) {
    total += Number(part[1]) * (UNITS[part[2] as string] as number);
    end = PART.lastIndex;
  }
  if (end === 0 || end !== duration.length) {
    throw new TypeError(`"${duration}" is not a duration; write for example "500ms", "30s", "5m", "1h30m" or "7d"`);
  }
  return Math.round(total);
}
