import { get, post } from '../api.js';
import { chip, exact, fill, h, link, stateWord, time, toast } from '../dom.js';
import { keepFresh } from '../live.js';
import { table } from '../table.js';

export default function schedules(root, where, { may }) {
  const cursor = where.query.get('cursor') ?? '';
  const rows = table({
    label: 'Schedules', key: (job) => job.id, empty: 'no repeating jobs; push one with a repeat rule, such as every 5m', href: (job) => `#/job/${job.id}`,
    columns: [
      { title: 'Id', class: 'num id', cell: (job) => link(`job/${job.id}`, job.id) },
      { title: 'Name', class: 'name', cell: (job) => link(`job/${job.id}`, job.name) },
      { title: 'Queue', class: 'wide', cell: (job) => job.queue },
      { title: 'Tenant', class: 'wide', differs: (job) => job.tenant, cell: (job) => job.tenant },
      { title: 'State', class: 'wide', cell: (job) => chip(stateWord(job)) },
      { title: 'Rule', cell: (job) => h('code', {}, job.repeat) },
      {
        title: 'Next runs', cell: (job) => {
          const [first, ...later] = job.next_runs ?? [];
          if (!first) return 'none';
          return h('details', {}, h('summary', {}, time(first), h('span', { class: 'soft wide' }, `  ${exact(first).replace(/\.\d+/, '')}`)), h('ul', { class: 'timeline' }, later.map((run) => h('li', {}, h('span', {}, exact(run).replace(/\.\d+/, ''))))));
        },
      },
      ...(may('operator') ? [{ title: '', class: 'right wide', cell: (job) => (job.state === 'ready' ? h('button', { class: 'small', onclick: () => run(job) }, 'Run now') : '') }] : []),
    ],
  });
  const pager = h('div', { class: 'pager', hidden: true });
  fill(root, h('div', { class: 'head' }, h('h1', {}, 'Schedules'), h('span', { class: 'soft' }, 'repeating jobs')), h('section', { class: 'card flush' }, rows.node, pager));

  async function run(job) {
    try { await post(`jobs/${job.id}/run`, {}); toast(`job ${job.id} runs now`); } catch (error) { toast(error.message, true); }
    fresh.look();
  }

  async function load(signal) {
    const page = await get('schedules', { cursor, limit: 100 }, signal);
    rows.set(page.jobs);
    pager.hidden = !page.next && !cursor;
    fill(pager, cursor ? h('a', { class: 'button', href: '#/schedules' }, '« Newest') : null, h('span', { class: 'fill' }), page.next ? h('a', { class: 'button', href: `#/schedules?cursor=${page.next}` }, 'Older ›') : null);
  }
  const fresh = keepFresh({ load, every: 15_000 });
  return fresh;
}
