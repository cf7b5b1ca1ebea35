import { get } from '../api.js';
import { fill, h, int, jobsLink, link, quoted, time } from '../dom.js';
import { keepFresh } from '../live.js';
import { table } from '../table.js';

export default function workers(root, where, { me }) {
  const rows = table({
    label: 'Workers', key: (worker) => `${worker.tenant}/${worker.origin}/${worker.worker ?? ''}`, empty: 'no worker holds a job now',
    columns: [
      { title: 'Worker', class: 'name', cell: (worker) => (worker.worker ? jobsLink(`state:running worker:${quoted(worker.worker)}`, worker.worker) : h('span', { class: 'soft' }, 'without a name')) },
      { title: 'Came by', class: 'wide', cell: (worker) => worker.origin },
      ...(me.role === 'admin' ? [{ title: 'Tenant', class: 'wide', cell: (worker) => worker.tenant }] : []),
      { title: 'Holds', class: 'num', cell: (worker) => int(worker.holds) },
      { title: 'Since', class: 'nowrap wide', cell: (worker) => time(worker.since) },
      { title: 'Last sign', class: 'nowrap', cell: (worker) => time(worker.last_sign) },
      { title: 'Jobs', cell: (worker) => [worker.jobs.slice(0, 5).map((job, index) => [index ? ', ' : '', link(`job/${job.id}`, `${job.name} #${job.id}`)]), worker.holds > 5 ? ` and ${int(worker.holds - 5)} more` : ''] },
    ],
  });
  const summary = h('span', { class: 'soft' });
  fill(root, h('div', { class: 'head' }, h('h1', {}, 'Workers'), summary), h('section', { class: 'card flush' }, rows.node));
  async function load(signal) {
    const answer = await get('workers', {}, signal);
    rows.set(answer.workers);
    const waiting = answer.waiting_claims === undefined ? '' : `; ${int(answer.waiting_claims)} more ask for jobs and wait`;
    summary.textContent = `${answer.more ? 'at least ' : ''}${int(answer.workers.length)} hold jobs${waiting}`;
  }
  return keepFresh({ load, every: 5000 });
}
