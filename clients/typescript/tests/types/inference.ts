// Types of payloads and results are those of the handler. Compiled by `npm run types`; never run.
import { Windlass, type JobHandle, type SqlClient } from "windlass";

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function same<A, B>(_: Equal<A, B>): void {}

const app = new Windlass();

const send = app.task("mail.send", { queue: "mail", retry: 5, timeout: "2m", unique: (p) => p.to }, async (p: { to: string }, ctx) => {
  same<typeof ctx.attempt, number>(true);
  return { sent: p.to };
});
const plain = app.task("plain", (n: number) => n * 2);
const nothing = app.task("nothing", async () => "done");
const maybe = app.task("maybe", async (p?: { x: number }) => p?.x);

export async function pushes(client: SqlClient): Promise<void> {
  const job = await send.push({ to: "a@example.org" });
  same<typeof job, JobHandle<{ sent: string }>>(true);
  const result = await job.wait();
  same<typeof result, { sent: string }>(true);
  same<Awaited<ReturnType<typeof plain.push>>, JobHandle<number>>(true);
  await nothing.push();
  await maybe.push();
  await maybe.push({ x: 1 });
  await send.pushMany([{ to: "a" }]);
  await send.delay("5m").push({ to: "a" }, { priority: 1 });
  await send.pushIn(client, { to: "a" });
  // @ts-expect-error the payload is missing
  await send.push();
  // @ts-expect-error another type
  await send.push({ to: 1 });
  // @ts-expect-error a field is missing
  await send.pushMany([{}]);
  // @ts-expect-error another type
  await plain.at(new Date()).push("1");
  // @ts-expect-error another type
  await maybe.push({ x: "1" });
}

app.task("steps", async (items: string[], ctx) => {
  const charge = await ctx.step("charge", () => ({ id: 1 }));
  same<typeof charge, { id: number }>(true);
  const approval = await ctx.waitFor<{ by: string }>("approval", { timeout: "7d" });
  same<typeof approval, { by: string } | null>(true);
  const many = await ctx.all(items.map((to) => send.call({ to })));
  same<typeof many, { sent: string }[]>(true);
  const [sent, doubled] = await ctx.all([send.call({ to: "a" }), plain.call(1)]);
  same<typeof sent, { sent: string }>(true);
  same<typeof doubled, number>(true);
  const lazy = await ctx.all(new Set([plain.call(1)]));
  same<typeof lazy, number[]>(true);
  // @ts-expect-error the payload is missing
  send.call();
  return many.length;
});

// @ts-expect-error a handler is missing
app.task("x", {});
// @ts-expect-error no such option
app.task("y", { colour: "red" }, async () => undefined);
