import { get, post } from '../api.js';
import { fill, h, int, rate, span, toast } from '../dom.js';
import { keepFresh } from '../live.js';
import { table } from '../table.js';
import { queueColumns } from './overview.js';

export default function queues(root, where, { me, may }) {
  const rows = table({
    label: 'Queues', key: (queue) => `${queue.tenant}/${queue.queue}`, empty: 'no queues yet', href: (queue) => `#/queue/${encodeURIComponent(queue.queue)}?tenant=${encodeURIComponent(queue.tenant)}`,
    columns: [
      ...queueColumns(),
      { title: 'pushed', class: 'num wide', sort: (queue) => queue.pushed_per_s, cell: (queue) => (queue.pushed_per_s ? `${rate(queue.pushed_per_s)}/s` : '–') },
      { title: 'claimed', class: 'num wide', sort: (queue) => queue.claimed_per_s, cell: (queue) => (queue.claimed_per_s ? `${rate(queue.claimed_per_s)}/s` : '–') },
      { title: 'empty in', class: 'num wide', sort: (queue) => queue.empty_in_ms, cell: (queue) => emptyIn(queue) },
      ...(may('operator') ? [{ title: '', class: 'right', cell: (queue) => h('button', { class: 'small', 'aria-label': `${queue.paused ? 'Resume' : 'Pause'} ${queue.queue}`, onclick: (event) => turn(queue, event.currentTarget) }, queue.paused ? 'Resume' : 'Pause') }] : []),
    ],
  });
  const summary = h('span', { class: 'soft' });
  fill(root, h('div', { class: 'head' }, h('h1', {}, 'Queues'), summary), h('section', { class: 'card flush' }, rows.node));

  async function turn(queue, button) {
    button.disabled = true;
    try {
      await post(`queues/${encodeURIComponent(queue.queue)}/${queue.paused ? 'resume' : 'pause'}`, undefined, me.role === 'admin' ? { tenant: queue.tenant } : {});
      toast(`${queue.queue} ${queue.paused ? 'resumed' : 'paused: its jobs are not handed out; running jobs continue'}`);
    } catch (error) { toast(error.message, true); }
    button.disabled = false;
    fresh.look();
  }

  async function load(signal) {
    const answer = await get('queues', {}, signal);
    rows.set(answer.queues);
    summary.textContent = `${int(answer.queues.length)} ${answer.queues.length === 1 ? 'queue' : 'queues'}`;
  }
  // As far as the last minute tells; a queue that grows or stands still has no end in sight.
  function emptyIn(queue) {
    if (queue.ready === 0) return '–';
    if (queue.paused) return 'paused';
    return queue.empty_in_ms === undefined ? 'not shrinking' : span(queue.empty_in_ms);
  }
  const fresh = keepFresh({ load, every: 5000 });
  return fresh;
}
