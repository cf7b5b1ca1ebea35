import { get } from '../api.js';
import { chart } from '../charts.js';
import { h, fill, int, jobsLink, link, quoted, rate, short, span } from '../dom.js';
import { keepFresh } from '../live.js';
import { table } from '../table.js';
import { firstSteps } from './push.js';

const STATES = [
  ['ready', 'blue'], ['delayed', 'amber'], ['retrying', 'amber'], ['running', 'violet'], ['waiting', 'amber'], ['failed', 'red'], ['completed', 'green'], ['cancelled', 'grey'],
  ['suspended', 'amber', true], ['terminating', 'red', true], ['terminated', 'grey', true],
];
const SPANS = [['15m', '15 minutes'], ['24h', '24 hours'], ['30d', '30 days']];
const QUEUES_SHOWN = 12;

export default function overview(root, where, { me, may }) {
  const tiles = h('div', { class: 'tiles' });
  const values = new Map();
  const figures = h('dl', { class: 'figures' });
  const lines = chart('Jobs over time');
  const wholeServer = me.role === 'admin';
  let shown = localStorage.getItem('windlass.span') ?? '15m';
  const buttons = SPANS.map(([value, label]) => h('button', { class: 'small', 'data-span': value, 'aria-pressed': String(value === shown), onclick: () => choose(value) }, label));
  const start = h('div', { hidden: true });
  const queues = table({
    label: 'Queues', key: (queue) => `${queue.tenant}/${queue.queue}`, empty: 'no queues yet', columns: queueColumns().map(({ sort, ...column }) => column),
  });
  const tenants = table({
    label: 'Tenants', key: (tenant) => tenant.tenant,
    columns: [
      { title: 'Tenant', class: 'name', cell: (tenant) => jobsLink(`tenant:${quoted(tenant.tenant)}`, tenant.tenant) },
      ...['ready', 'running', 'failed'].map((state) => ({ title: state, class: 'num', cell: (tenant) => number(tenant[state]) })),
    ],
  });
  const tenantCard = h('section', { class: 'card flush', hidden: true }, h('h2', {}, 'Tenants'), tenants.node);
  const content = h('div', {},
    tiles,
    wholeServer ? h('section', { class: 'card' }, h('div', { class: 'head' }, h('h2', {}, 'Jobs per second'), h('span', { class: 'fill' }), h('div', { class: 'group', role: 'group', 'aria-label': 'Time range' }, buttons)), lines) : null,
    h('section', { class: 'card' }, h('h2', {}, 'Statistics'), figures),
    h('section', { class: 'card flush' }, h('h2', {}, 'Queues'), queues.node), tenantCard);
  fill(root, h('div', { class: 'head' }, h('h1', {}, 'Overview'), h('span', { class: 'fill' }), may('worker') ? h('a', { class: 'button', href: '#/push' }, 'New job') : null), start, content);

  let began = false;
  async function load(signal) {
    const [stats, all, history] = await Promise.all([get('stats', {}, signal), get('queues', {}, signal), wholeServer ? past(shown, signal) : null]);
    const total = STATES.reduce((sum, [state]) => sum + (stats.totals[state] ?? 0), 0);
    if (!began && total === 0 && may('worker')) fill(start, firstSteps(me));
    start.hidden = total > 0 || !may('worker');
    began = true;
    showStates(stats.totals);
    showFigures(stats);
    if (history) lines.data = history;
    showQueues(all.queues);
  }

  function showStates(totals) {
    for (const [state, colour, rare] of STATES) {
      if (totals[state] === undefined || (rare && !totals[state])) { values.get(state)?.closest('.tile').remove(); values.delete(state); continue; }
      if (!values.has(state)) {
        const value = h('div', { class: 'value' });
        values.set(state, value);
        tiles.append(h('a', { class: `tile c-${colour}`, href: `#/jobs?search=state:${state}`, 'data-state': state }, h('div', { class: 'label' }, h('i'), state), value));
      }
      values.get(state).textContent = totals[state] < 1e6 ? int(totals[state]) : short(totals[state]);
      values.get(state).title = int(totals[state]);
    }
  }

  function showFigures(stats) {
    const parts = [['Oldest waiting', stats.oldest_ms === null ? '–' : span(stats.oldest_ms)]];
    if (stats.rates) {
      for (const [name, value] of Object.entries(stats.rates)) parts.push([`${name} / s`, rate(value)]);
      for (const [name, value] of [['Queue time', stats.pickup_ms], ['Run time', stats.run_ms]]) {
        parts.push([`${name} p50 · p95 · p99`, value ? ['p50', 'p95', 'p99'].map((key) => span(value[key])).join(' · ') : '–']);
      }
      parts.push(['Waiting claims', int(stats.waiting_claims)]);
    }
    parts.push([`Uptime (${stats.version})`, span(stats.uptime_ms)]);
    fill(figures, parts.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
  }

  function showQueues(all) {
    const backlog = (queue) => queue.ready + queue.running + queue.failed;
    const busiest = [...all].sort((a, b) => backlog(b) - backlog(a) || a.queue.localeCompare(b.queue)).slice(0, QUEUES_SHOWN);
    queues.set(busiest);
    const byTenant = new Map();
    for (const queue of all) {
      const sum = byTenant.get(queue.tenant) ?? { tenant: queue.tenant, ready: 0, running: 0, failed: 0 };
      for (const state of ['ready', 'running', 'failed']) sum[state] += queue[state];
      byTenant.set(queue.tenant, sum);
    }
    tenantCard.hidden = byTenant.size < 2;
    tenants.set([...byTenant.values()].sort((a, b) => b.ready - a.ready).slice(0, QUEUES_SHOWN));
  }

  const fresh = keepFresh({ load, every: 5000 });
  function choose(value) {
    shown = value;
    localStorage.setItem('windlass.span', value);
    buttons.forEach((button) => button.setAttribute('aria-pressed', String(button.dataset.span === value)));
    fresh.look();
  }
  return fresh;
}

export const number = (value) => h('span', { class: value ? '' : 'zero' }, int(value));

export const queueLink = (queue) => link(`queue/${encodeURIComponent(queue.queue)}?tenant=${encodeURIComponent(queue.tenant)}`, queue.queue);

export function queueColumns() {
  return [
    { title: 'Queue', class: 'name', sort: (queue) => queue.queue, cell: (queue) => [queueLink(queue), queue.paused ? [' ', h('span', { class: 'state paused' }, 'paused')] : null] },
    { title: 'Tenant', class: 'wide', sort: (queue) => queue.tenant, differs: (queue) => queue.tenant, cell: (queue) => queue.tenant },
    ...['ready', 'delayed', 'retrying', 'running', 'failed', 'completed'].map((state) => ({
      title: state, class: ['ready', 'running', 'failed'].includes(state) ? 'num' : 'num wide', sort: (queue) => queue[state] ?? 0,
      cell: (queue) => (queue[state] ? link(`jobs?search=${encodeURIComponent(`state:${state} queue:${quoted(queue.queue)}`)}`, int(queue[state])) : number(0)),
    })),
    { title: 'oldest', class: 'num', sort: (queue) => queue.oldest_ms, cell: (queue) => (queue.oldest_ms === null ? '–' : span(queue.oldest_ms)) },
  ];
}

async function past(shown, signal) {
  const span = shown === '15m' ? '15m' : '30d';
  const answer = await get('history', { span }, signal);
  const names = [['pushed', 'blue', false], ['finished', 'green', false], ['failed', 'red', true]];
  const last = shown === '24h' ? 24 : Infinity;
  const length = Math.max(1, Math.min(last, answer.pushed.length));
  const seconds = answer.step_ms / 1000;
  // The hour we are in is not over: what it has seen so far is spread over what it has had.
  const part = span === '30d' ? Math.max(1, (Date.now() - answer.from - (answer.pushed.length - 1) * answer.step_ms) / 1000) : seconds;
  const values = (name) => answer[name].slice(-length).map((count, index, all) => count / (index === all.length - 1 ? Math.min(part, seconds) : seconds));
  return {
    from: answer.from + Math.max(0, answer.pushed.length - length) * answer.step_ms, step: answer.step_ms, unit: '/s',
    series: names.map(([name, colour, dash]) => ({ name, colour, dash, values: answer[name].length ? values(name) : [0] })),
  };
}
