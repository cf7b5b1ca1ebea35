import { ACTIONS, actOnMany, countText, fits, fitsSearch } from '../actions.js';
import { get } from '../api.js';
import { chip, fill, h, int, link, short, stateWord, time } from '../dom.js';
import { failureLine, lastFailure, showsFailure } from '../failure.js';
import { keepFresh } from '../live.js';
import { excerpt } from '../payload.js';
import { searchBar, STATES, statesOf, withoutState, withState } from '../search.js';
import { table } from '../table.js';

const PAGE = 50;
// Chips that are always there; the others only where there are such jobs.
const USUAL = ['ready', 'delayed', 'retrying', 'running', 'failed', 'completed'];

export const address = (search, cursor) => `#/jobs?${new URLSearchParams({ ...(search ? { search } : {}), ...(cursor ? { cursor } : {}) })}`;

// Counters are at hand for everything, and for one queue; a search beyond that would have to read the jobs of every state.
async function countsFor(rest, signal) {
  if (!rest) return (await get('stats', {}, signal)).totals;
  const found = rest.match(/^queue:(?:"([^"\\]*)"|([^\s"]+))$/);
  if (!found) return null;
  const queue = found[1] ?? found[2];
  const sums = {};
  for (const one of (await get('queues', {}, signal)).queues.filter((other) => other.queue === queue)) {
    for (const state of STATES) sums[state] = (sums[state] ?? 0) + (one[state] ?? 0);
  }
  return sums;
}

export default function jobs(root, where, { may }) {
  const search = where.query.get('search') ?? '';
  const cursor = where.query.get('cursor') ?? '';
  const rest = withoutState(search);
  const ordered = withState(rest, statesOf(search).join(','));
  const bar = searchBar(search, (text) => {
    if (/^\d+$/.test(text)) location.hash = `#/job/${text}`;
    else if (text === search && !cursor) fresh.look();
    else location.hash = address(text);
  });
  const operator = may('operator');
  const picked = new Map();
  let all = false;
  let page = { jobs: [], next: null };
  let count = null;
  const isPicked = (job) => all || picked.has(job.id);
  const pick = (job, on) => { all = false; if (on) picked.set(job.id, job); else picked.delete(job.id); };

  const pickAll = h('input', { type: 'checkbox', id: 'pick-all', 'aria-label': 'Select all on this page', onchange: () => { for (const job of page.jobs) pick(job, pickAll.checked); draw(); } });
  const rows = table({
    label: 'Jobs', key: (job) => job.id, empty: 'no jobs found', href: (job) => `#/job/${job.id}`, rowClass: (job) => (isPicked(job) ? 'picked' : ''), sorted: () => drawPager(),
    columns: [
      ...(operator ? [{ head: pickAll, cell: (job) => h('input', { type: 'checkbox', 'aria-label': `Select job ${job.id}`, checked: isPicked(job), onchange: (event) => { pick(job, event.currentTarget.checked); draw(); } }) }] : []),
      { title: 'Id', class: 'num id', sort: (job) => Number(job.id), cell: (job) => link(`job/${job.id}`, job.id) },
      { title: 'State', sort: stateWord, cell: (job) => chip(stateWord(job)) },
      { title: 'Name', class: 'name', sort: (job) => job.name, cell: (job) => [link(`job/${job.id}`, job.name), showsFailure(job) ? h('div', { class: 'narrow small-err' }, failureLine(lastFailure(job))) : null] },
      { title: 'Queue', class: 'wide', sort: (job) => job.queue, cell: (job) => job.queue },
      { title: 'Tenant', class: 'wide', sort: (job) => job.tenant, differs: (job) => job.tenant, cell: (job) => job.tenant },
      { title: 'Attempts', class: 'num wide', sort: (job) => job.attempts, cell: (job) => (job.max_attempts ? `${job.attempts}/${job.max_attempts}` : job.attempts) },
      { title: 'When', class: 'nowrap', sort: when, cell: (job) => time(when(job)) },
      { title: 'Error or payload', class: 'excerpt wide', cell: about },
    ],
  });
  const summary = h('span', { class: 'soft', id: 'found', role: 'status' });
  const actions = h('div', { class: 'actions' });
  const trouble = h('div', { class: 'notice bad', role: 'alert', hidden: true });
  const alias = h('div', { class: 'notice', id: 'alias', hidden: true });
  const pager = h('div', { class: 'pager' });
  const chips = h('nav', { class: 'chips', 'aria-label': 'States' });
  fill(root,
    h('div', { class: 'head' }, h('h1', { class: 'sr' }, 'Jobs'), bar.node, h('button', { class: 'main', onclick: () => { location.hash = address(bar.input.value.trim()); } }, 'Search')),
    chips, trouble, alias, h('section', { class: 'card flush' }, actions, rows.node, pager));
  if (where.query.get('focus')) setTimeout(() => bar.input.focus());
  drawChips(null);
  if (/^[^\s:"<>*]+$/.test(search)) findAlias(search);

  function when(job) { return ['delayed', 'retrying'].includes(stateWord(job)) ? job.run_at : job.finished_at ?? job.updated_at; }

  function about(job) {
    if (showsFailure(job)) return failureLine(lastFailure(job));
    return job.progress?.percent !== undefined ? `${job.progress.percent} % ${job.progress.note ?? ''}` : excerpt(job);
  }

  async function findAlias(word) {
    const job = await get(`aliases/${encodeURIComponent(word)}`).catch(() => null);
    if (!job) return;
    fill(alias, 'The alias of ', link(`job/${job.id}`, `job ${job.id}, ${job.name}`), '. The list below has the jobs with this text in the payload.');
    alias.hidden = false;
  }

  async function load(signal) {
    try {
      const [found, counted, states] = await Promise.all([get('jobs', { search, cursor, limit: PAGE }, signal), get('jobs/count', { search }, signal), countsFor(rest, signal)]);
      [page, count] = [found, counted];
      trouble.hidden = true;
      drawChips(states);
    } catch (error) {
      if (error.status >= 400) { trouble.textContent = error.message; trouble.hidden = false; [page, count] = [{ jobs: [], next: null }, null]; draw(); }
      throw error;
    }
    draw();
  }

  // Each chip keeps the other words of the search.
  function drawChips(counts) {
    const shown = STATES.filter((state) => USUAL.includes(state) || counts?.[state] > 0);
    const total = counts ? STATES.reduce((sum, state) => sum + (counts[state] ?? 0), 0) : undefined;
    const one = (text, label, number) => h('a', { href: address(text), 'data-chip': label, 'aria-current': text === ordered ? 'true' : null }, label,
      number === undefined ? null : [' ', h('b', { title: int(number) }, number < 1e6 ? int(number) : short(number))]);
    const focused = document.activeElement?.dataset?.chip;
    fill(chips, one(rest, 'all', total), shown.map((state) => one(withState(rest, state), state, counts?.[state])), one(withState(`${rest.replace(/(^|\s)ended<1h(?=\s|$)/, '')} ended<1h`, 'failed'), 'failed in the last hour'));
    if (focused) [...chips.children].find((item) => item.dataset.chip === focused)?.focus();
  }

  function draw() {
    rows.set(page.jobs);
    for (const job of page.jobs) if (picked.has(job.id)) picked.set(job.id, job);
    rows.none.textContent = page.next ? 'none found so far; continue with older jobs' : 'no jobs found';
    for (const row of rows.body.children) {
      const box = row.querySelector('input');
      if (box) box.checked = all || picked.has(Number(row.dataset.key));
    }
    pickAll.checked = page.jobs.length > 0 && page.jobs.every(isPicked);
    summary.textContent = count ? countText(count) : '';
    drawActions();
    drawPager();
  }

  function drawActions() {
    const many = all ? count?.count ?? 0 : picked.size;
    const isMore = !all && count && (count.count > picked.size || count.at_least);
    const everything = operator && isMore && count.count > 0 ? h('button', { class: 'small', id: 'pick-matches', onclick: () => { all = true; draw(); } }, `Select all ${countText(count)}`) : null;
    if (many === 0) return fill(actions, summary, h('span', { class: 'fill' }), everything);
    const fitting = ACTIONS.filter((action) => (all ? fitsSearch(action, search) : [...picked.values()].some((job) => fits(action, job))));
    return fill(actions, h('b', { id: 'picked' }, all ? `all ${countText(count)}` : `${int(picked.size)} selected`),
      fitting.map((action) => h('button', { class: action.danger ? 'small danger' : 'small', 'data-action': action.name, onclick: () => act(action) }, action.label)),
      everything, h('button', { class: 'small bare', id: 'pick-none', onclick: () => { all = false; picked.clear(); draw(); } }, 'Clear'));
  }

  function drawPager() {
    const by = rows.sortedBy();
    fill(pager, cursor ? h('a', { class: 'button', href: address(search) }, '« Newest') : null,
      h('span', { class: 'soft', id: 'sorted' }, by && page.jobs.length ? `the jobs of this page, by ${by.toLowerCase()}` : ''), h('span', { class: 'fill' }),
      page.next ? h('a', { class: 'button', id: 'older', href: address(search, page.next) }, page.jobs.length ? 'Older ›' : 'Continue ›') : h('span', { class: 'soft' }, page.jobs.length ? 'end of list' : ''));
  }

  async function act(action) {
    const chosen = [...picked.values()];
    const ids = chosen.filter((job) => fits(action, job)).map((job) => job.id);
    const target = all ? { search } : { ids, unfit: chosen.length - ids.length };
    if (!await actOnMany(action, target, (text) => fill(actions, h('b', { role: 'status' }, text)))) return;
    all = false;
    picked.clear();
    fresh.look();
  }

  const fresh = keepFresh({ load, every: 15_000 });
  return fresh;
}
