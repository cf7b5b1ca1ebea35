import { get, post } from '../api.js';
import { ask, chip, fill, h, int, jobsLink, link, quoted, time, toast } from '../dom.js';
import { keepFresh } from '../live.js';
import { table } from '../table.js';

// One line per worker, from three lists: who holds jobs, who has registered to be given some, whose claims wait.
function together(answer) {
  const workers = new Map();
  const of = (one) => {
    const key = `${one.tenant}/${one.worker ?? ''}`;
    if (!workers.has(key)) workers.set(key, { key, worker: one.worker, tenant: one.tenant, by: [], holds: 0, jobs: [], claims: 0 });
    return workers.get(key);
  };
  for (const one of answer.registered) Object.assign(of(one), { registered: one, last_sign: one.last_sign, by: [one.dialect] });
  for (const one of answer.workers) {
    const worker = of(one);
    if (!worker.by.includes(one.origin)) worker.by.push(one.origin);
    worker.holds += one.holds;
    worker.jobs.push(...one.jobs);
    worker.since = Math.min(worker.since ?? Infinity, one.since);
    worker.last_sign = Math.max(worker.last_sign ?? 0, one.last_sign);
  }
  for (const one of answer.waiting) of(one).claims = one.claims;
  return [...workers.values()];
}

function condition(worker) {
  if (worker.registered?.quiet) return h('span', { class: 'state paused' }, 'quiet');
  if (worker.holds) return chip('running');
  return h('span', { class: 'state' }, worker.claims ? 'waiting' : 'idle');
}

export default function workers(root, where, { me, may }) {
  const whose = (worker) => (me.role === 'admin' ? { tenant: worker.tenant } : {});
  const rows = table({
    label: 'Workers', key: (worker) => worker.key, empty: 'no workers: none has a job, is registered, or waits for jobs under a name',
    columns: [
      { title: 'Worker', class: 'name who', sort: (worker) => worker.worker, cell: (worker) => [worker.worker ? jobsLink(`state:running worker:${quoted(worker.worker)}`, worker.worker) : h('span', { class: 'soft' }, 'unnamed'), worker.registered?.address ? h('div', { class: 'soft' }, worker.registered.address) : null] },
      { title: 'State', cell: condition },
      { title: 'Protocol', class: 'wide', cell: (worker) => worker.by.join(', ') || '–' },
      { title: 'Tenant', class: 'wide', differs: (worker) => worker.tenant, cell: (worker) => worker.tenant },
      { title: 'Running', class: 'num', sort: (worker) => worker.holds, cell: (worker) => `${int(worker.holds)}${worker.registered ? ` of ${int(worker.registered.slots)}` : ''}` },
      { title: 'Since', class: 'nowrap wide', sort: (worker) => worker.since, cell: (worker) => time(worker.since) },
      { title: 'Last heartbeat', class: 'nowrap', sort: (worker) => worker.last_sign, cell: (worker) => (worker.claims ? 'now' : time(worker.last_sign || undefined)) },
      { title: 'Jobs', class: 'wide', cell: (worker) => [worker.jobs.slice(0, 5).map((job, index) => [index ? ', ' : '', link(`job/${job.id}`, `${job.name} #${job.id}`)]), worker.holds > 5 ? ` and ${int(worker.holds - 5)} more` : ''] },
      ...(may('operator') ? [{ title: '', class: 'right', cell: buttons }] : []),
    ],
  });
  const summary = h('span', { class: 'soft' });
  fill(root, h('div', { class: 'head' }, h('h1', {}, 'Workers'), summary), h('section', { class: 'card flush' }, rows.node),
    h('p', { class: 'soft' }, 'Registered workers, to which the server sends jobs, can be quieted and removed here. Workers that claim jobs themselves can only be stopped where they run; to keep jobs from all workers, pause the queue.'));

  function buttons(worker) {
    if (!worker.registered) return null;
    const quiet = worker.registered.quiet;
    return h('div', { class: 'row-buttons' },
      h('button', { class: 'small', 'aria-label': `${quiet ? 'Wake' : 'Quiet'} ${worker.worker}`, onclick: () => turn(worker, quiet ? 'wake' : 'quiet') }, quiet ? 'Wake' : 'Quiet'),
      h('button', { class: 'small danger', 'aria-label': `Remove ${worker.worker}`, onclick: () => dismiss(worker) }, 'Remove'));
  }

  async function turn(worker, what) {
    try {
      await post(`workers/${encodeURIComponent(worker.worker)}/${what}`, undefined, whose(worker));
      toast(what === 'quiet' ? `${worker.worker} gets no new jobs; its running jobs continue` : what === 'wake' ? `${worker.worker} gets jobs again` : `${worker.worker} removed`);
    } catch (error) { toast(error.message, true); }
    fresh.look();
  }

  async function dismiss(worker) {
    const text = `Remove ${worker.worker}? ${worker.holds ? `Its ${int(worker.holds)} running jobs fail.` : 'It has no running jobs.'} It may register again.`;
    if (await ask('Remove worker', h('p', {}, text), 'Remove', true)) turn(worker, 'dismiss');
  }

  async function load(signal) {
    const answer = await get('workers', {}, signal);
    const all = together(answer);
    rows.set(all);
    const waiting = answer.waiting_claims === undefined ? '' : `, ${int(answer.waiting_claims)} waiting claims`;
    summary.textContent = `${answer.more ? 'at least ' : ''}${int(all.filter((worker) => worker.holds).length)} with running jobs, ${int(answer.registered.length)} registered${waiting}`;
  }
  const fresh = keepFresh({ load, every: 5000 });
  return fresh;
}
