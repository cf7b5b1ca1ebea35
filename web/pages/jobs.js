import { get, post } from '../api.js';
import { ask, chip, fill, h, int, link, stateWord, time, toast } from '../dom.js';
import { keepFresh } from '../live.js';
import { excerpt } from '../payload.js';
import { searchBar } from '../search.js';
import { table } from '../table.js';

const PAGE = 50;
const QUICK = [['', 'all'], ['state:running', 'running'], ['state:ready', 'ready'], ['state:delayed', 'delayed'], ['state:failed', 'failed'], ['state:completed', 'completed'], ['state:failed age<1h', 'failed in the last hour']];
const ACTIONS = [['retry', 'Retry'], ['run', 'Run now'], ['cancel', 'Cancel'], ['delete', 'Delete'], ['priority', 'Priority…']];
const DONE = { retry: 'retried', run: 'set to run now', cancel: 'cancelled', delete: 'deleted', priority: 'changed' };

const address = (search, cursor) => `#/jobs?${new URLSearchParams({ ...(search ? { search } : {}), ...(cursor ? { cursor } : {}) })}`;

export default function jobs(root, where, { me, may }) {
  const search = where.query.get('search') ?? '';
  const cursor = where.query.get('cursor') ?? '';
  const bar = searchBar(search, (text) => {
    if (/^\d+$/.test(text)) location.hash = `#/job/${text}`;
    else if (text === search && !cursor) fresh.look();
    else location.hash = address(text);
  });
  const operator = may('operator');
  const picked = new Set();
  let all = false;
  let page = { jobs: [], next: null };
  let count = null;

  const pickAll = h('input', { type: 'checkbox', id: 'pick-all', 'aria-label': 'Select all on this page', onchange: () => { all = false; for (const job of page.jobs) if (pickAll.checked) picked.add(job.id); else picked.delete(job.id); draw(); } });
  const rows = table({
    label: 'Jobs', key: (job) => job.id, empty: 'no jobs found', href: (job) => `#/job/${job.id}`, rowClass: (job) => (all || picked.has(job.id) ? 'picked' : ''),
    columns: [
      ...(operator ? [{ head: pickAll, cell: (job) => h('input', { type: 'checkbox', 'aria-label': `Select job ${job.id}`, checked: all || picked.has(job.id), onchange: (event) => { all = false; if (event.currentTarget.checked) picked.add(job.id); else picked.delete(job.id); draw(); } }) }] : []),
      { title: 'Id', class: 'num id', cell: (job) => link(`job/${job.id}`, job.id) },
      { title: 'State', cell: (job) => chip(stateWord(job)) },
      { title: 'Name', class: 'name', cell: (job) => link(`job/${job.id}`, job.name) },
      { title: 'Queue', class: 'wide', cell: (job) => job.queue },
      ...(me.role === 'admin' ? [{ title: 'Tenant', class: 'wide', cell: (job) => job.tenant }] : []),
      { title: 'Attempts', class: 'num wide', cell: (job) => (job.max_attempts ? `${job.attempts}/${job.max_attempts}` : job.attempts) },
      { title: 'When', class: 'nowrap', cell: (job) => time(stateWord(job) === 'delayed' ? job.run_at : job.finished_at ?? job.updated_at) },
      { title: 'Payload', class: 'excerpt wide', cell: (job) => (job.progress?.percent !== undefined ? `${job.progress.percent} % ${job.progress.note ?? ''}` : excerpt(job)) },
    ],
  });
  const summary = h('span', { class: 'soft', id: 'found', role: 'status' });
  const actions = h('div', { class: 'actions' });
  const trouble = h('div', { class: 'notice bad', role: 'alert', hidden: true });
  const pager = h('div', { class: 'pager' });
  fill(root,
    h('div', { class: 'head' }, h('h1', { class: 'sr' }, 'Jobs'), bar.node, h('button', { class: 'main', onclick: () => { location.hash = address(bar.input.value.trim()); } }, 'Search')),
    h('nav', { class: 'chips', 'aria-label': 'Quick searches' }, QUICK.map(([text, label]) => h('a', { href: address(text), 'aria-current': text === search ? 'true' : null }, label))),
    trouble, h('section', { class: 'card flush' }, actions, rows.node, pager));
  if (where.query.get('focus')) setTimeout(() => bar.input.focus());

  async function load(signal) {
    try {
      const [found, counted] = await Promise.all([get('jobs', { search, cursor, limit: PAGE }, signal), get('jobs/count', { search }, signal)]);
      [page, count] = [found, counted];
      trouble.hidden = true;
    } catch (error) {
      if (error.status >= 400) { trouble.textContent = error.message; trouble.hidden = false; [page, count] = [{ jobs: [], next: null }, null]; draw(); }
      throw error;
    }
    draw();
  }

  function counted() { return count ? `${count.at_least ? 'at least ' : ''}${int(count.count)} ${count.count === 1 && !count.at_least ? 'job' : 'jobs'}` : ''; }

  function draw() {
    rows.set(page.jobs);
    rows.none.textContent = page.next ? 'none found so far; continue with older jobs' : 'no jobs found';
    for (const row of rows.body.children) {
      const box = row.querySelector('input');
      if (box) box.checked = all || picked.has(Number(row.dataset.key));
    }
    pickAll.checked = page.jobs.length > 0 && page.jobs.every((job) => all || picked.has(job.id));
    summary.textContent = counted();
    const many = all ? count?.count ?? 0 : picked.size;
    fill(actions, many === 0 ? summary : [
      h('b', { id: 'picked' }, all ? `all ${counted()}` : `${int(picked.size)} selected`),
      ...ACTIONS.map(([action, label]) => h('button', { class: action === 'delete' ? 'small danger' : 'small', 'data-action': action, onclick: () => act(action, label) }, label)),
      !all && count && (count.count > picked.size || count.at_least) ? h('button', { class: 'small', id: 'pick-matches', onclick: () => { all = true; draw(); } }, `Select all ${counted()}`) : null,
      h('button', { class: 'small bare', onclick: () => { all = false; picked.clear(); draw(); } }, 'Clear')]);
    fill(pager, cursor ? h('a', { class: 'button', href: address(search) }, '« Newest') : null, h('span', { class: 'fill' }),
      page.next ? h('a', { class: 'button', id: 'older', href: address(search, page.next) }, page.jobs.length ? 'Older ›' : 'Continue ›') : h('span', { class: 'soft' }, page.jobs.length ? 'end of list' : ''));
  }

  async function act(action, label) {
    const body = { action };
    const what = all ? ['all ', counted(), search ? [' matching ', h('code', {}, search)] : ' of this server'] : [int(picked.size), picked.size === 1 ? ' job' : ' jobs'];
    const level = h('input', { type: 'number', id: 'ask-priority', value: '0', 'aria-label': 'Priority' });
    const text = [h('p', {}, `${label.replace('…', '')}: `, what, '?'), action === 'priority' ? h('label', { class: 'field' }, h('span', {}, 'Priority (smaller numbers run first)'), level) : null,
      all && count?.at_least ? h('p', { class: 'soft' }, 'The count is a lower bound; the action applies to all matching jobs.') : null,
      action === 'cancel' ? h('p', { class: 'soft' }, 'The workers of running jobs are asked to stop.') : null];
    if (!await ask(`${label.replace('…', '')} jobs`, text, label.replace('…', ''), action === 'delete')) return;
    if (action === 'priority') body.priority = Number(level.value);
    Object.assign(body, all ? { search } : { ids: [...picked] });
    const sum = { done: 0, refused: 0, errors: [] };
    do {
      const answer = await post('jobs/bulk', body);
      sum.done += answer.done;
      sum.refused += answer.refused;
      sum.errors.push(...answer.errors);
      body.cursor = answer.next;
      if (body.cursor) fill(actions, h('b', { role: 'status' }, `${int(sum.done)} of ${counted()} ${DONE[action]} …`));
    } while (body.cursor);
    delete body.cursor;
    toast(`${int(sum.done)} ${DONE[action]}`);
    if (sum.refused > 0) toast(`${int(sum.refused)} failed: ${sum.errors[0]?.message ?? 'the jobs no longer exist'}`, true);
    all = false;
    picked.clear();
    fresh.look();
  }

  const fresh = keepFresh({ load, every: 15_000 });
  return fresh;
}
