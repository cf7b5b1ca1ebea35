import { get, post } from '../api.js';
import { fill, h, int, span, toast } from '../dom.js';
import { keepFresh } from '../live.js';
import { table } from '../table.js';
import { queueColumns } from './overview.js';

// How much a queue has grown or shrunk while we looked.
const WINDOW_MS = 60_000;

export default function queues(root, where, { me, may }) {
  const seen = new Map();
  const rows = table({
    label: 'Queues', key: (queue) => `${queue.tenant}/${queue.queue}`, empty: 'no queues yet',
    columns: [
      ...queueColumns(me.role === 'admin'),
      { title: 'change', class: 'num wide', cell: (queue) => (queue.change === null ? '–' : `${queue.change > 0 ? '+' : ''}${queue.change.toFixed(1)}/s`) },
      { title: 'empty in', class: 'num wide', cell: (queue) => (queue.change !== null && queue.change < 0 && queue.ready > 0 ? span((queue.ready / -queue.change) * 1000) : '–') },
      ...(may('operator') ? [{ title: '', class: 'right', cell: (queue) => h('button', { class: 'small', 'aria-label': `${queue.paused ? 'Resume' : 'Pause'} ${queue.queue}`, onclick: (event) => turn(queue, event.currentTarget) }, queue.paused ? 'Resume' : 'Pause') }] : []),
    ],
  });
  const summary = h('span', { class: 'soft' });
  fill(root, h('div', { class: 'head' }, h('h1', {}, 'Queues'), summary), h('section', { class: 'card flush' }, rows.node));

  async function turn(queue, button) {
    button.disabled = true;
    try {
      await post(`queues/${encodeURIComponent(queue.queue)}/${queue.paused ? 'resume' : 'pause'}`, undefined, me.role === 'admin' ? { tenant: queue.tenant } : {});
      toast(`${queue.queue} ${queue.paused ? 'goes on' : 'is paused: nothing of it is handed out, what runs goes on'}`);
    } catch (error) { toast(error.message, true); }
    button.disabled = false;
    fresh.look();
  }

  async function load(signal) {
    const answer = await get('queues', {}, signal);
    const now = Date.now();
    for (const queue of answer.queues) {
      const key = `${queue.tenant}/${queue.queue}`;
      const past = (seen.get(key) ?? []).filter((look) => now - look.at < WINDOW_MS);
      past.push({ at: now, ready: queue.ready });
      seen.set(key, past);
      const long = now - past[0].at;
      queue.change = long < 3000 ? null : Math.round(((queue.ready - past[0].ready) / (long / 1000)) * 10) / 10;
    }
    rows.set(answer.queues);
    summary.textContent = `${int(answer.queues.length)} in all`;
  }
  const fresh = keepFresh({ load, every: 5000 });
  return fresh;
}
