import { call, get, post } from '../api.js';
import { chart } from '../charts.js';
import { durationText, field, fill, h, int, link, milliseconds, quoted, rate, span, toast } from '../dom.js';
import { failureLine, lastFailure, showsFailure } from '../failure.js';
import { keepFresh } from '../live.js';
import { table } from '../table.js';
import { failureTable, withTenants } from './failures.js';
import { notFound } from './missing.js';

const STATES = [['ready', 'blue'], ['delayed', 'amber'], ['retrying', 'amber'], ['running', 'violet'], ['waiting', 'amber'], ['failed', 'red'], ['completed', 'green'], ['cancelled', 'grey']];
const KEPT = [['completed_ms', 'completed'], ['failed_ms', 'failed'], ['cancelled_ms', 'cancelled']];
// Jobs that are read to find the slowest, and rows that are shown of them.
const READ = 100;
const SHOWN = 8;
// How often lists are read anew; the counts and the chart follow at once.
const LISTS_MS = 10_000;

export default function queuePage(root, where, { me, may }) {
  const name = where.id;
  const tenant = me.role === 'admin' ? where.query.get('tenant') ?? me.tenant : undefined;
  const words = `queue:${quoted(name)}${tenant && tenant !== me.tenant ? ` tenant:${quoted(tenant)}` : ''}`;
  const tiles = h('div', { class: 'tiles' });
  const head = h('div', { class: 'head' });
  const form = h('div');
  const figures = h('dl', { class: 'figures' });
  const lines = chart(`Jobs of ${name} per second`);
  const chartCard = h('section', { class: 'card', id: 'queue-chart', hidden: true }, h('h2', {}, 'Jobs per second, last 15 minutes'), lines);
  const keep = h('dl', { class: 'figures', id: 'keep' });
  const keepCard = h('section', { class: 'card', hidden: true }, h('div', { class: 'head' }, h('h2', {}, 'Retention'), h('span', { class: 'fill' }), may('operator') ? h('button', { class: 'small', id: 'keep-change', onclick: () => editKeep() }, 'Change') : null), keep);
  const groups = failureTable({ may, acted: () => fresh.look() });
  const failures = h('section', { class: 'card flush', hidden: true }, h('h2', {}, 'Failures'), groups.node);
  const running = slowest('Running longest', 'no running jobs', (job) => span(Date.now() - job.started_at));
  const completed = slowest(`Slowest of the last ${READ} completed`, 'no completed jobs', (job) => span(job.finished_at - job.started_at));
  let shown = null;
  let listed = 0;
  let drawn = '';
  fill(root, head, form, tiles, chartCard, h('section', { class: 'card' }, figures), failures, h('div', { class: 'two' }, card('Running longest', running), card(`Slowest of the last ${READ} completed`, completed)), keepCard);

  function card(title, rows) { return h('section', { class: 'card flush' }, h('h2', {}, title), rows.node); }

  function slowest(label, empty, took) {
    return table({
      label, key: (job) => job.id, empty, href: (job) => `#/job/${job.id}`,
      columns: [
        { title: 'Id', class: 'num id', cell: (job) => link(`job/${job.id}`, job.id) },
        { title: 'Name', class: 'name', cell: (job) => [link(`job/${job.id}`, job.name), showsFailure(job) ? h('div', {}, failureLine(lastFailure(job))) : null] },
        { title: 'Worker', class: 'wide', cell: (job) => job.lease?.worker ?? '–', differs: (job) => job.lease?.worker },
        { title: 'Took', class: 'num', cell: took },
      ],
    });
  }

  async function turn(button) {
    button.disabled = true;
    try {
      await post(`queues/${encodeURIComponent(name)}/${shown.paused ? 'resume' : 'pause'}`, undefined, { tenant });
      toast(`${name} ${shown.paused ? 'resumed' : 'paused: its jobs are not handed out; running jobs continue'}`);
    } catch (error) { toast(error.message, true); }
    button.disabled = false;
    fresh.look();
  }

  function drawHead(queue) {
    const now = JSON.stringify([queue.paused]);
    if (now === drawn) return;
    drawn = now;
    fill(head, h('h1', {}, name), h('span', { class: 'soft' }, tenant && tenant !== 'default' ? `queue of ${tenant}` : 'queue'), queue.paused ? h('span', { class: 'state paused' }, 'paused') : null, h('span', { class: 'fill' }),
      h('div', { class: 'row-buttons' }, h('a', { class: 'button', href: `#/jobs?search=${encodeURIComponent(words)}` }, 'Jobs'), may('worker') ? h('a', { class: 'button', href: `#/push?queue=${encodeURIComponent(name)}` }, 'New job') : null,
        may('operator') ? h('button', { 'data-action': queue.paused ? 'resume' : 'pause', onclick: (event) => turn(event.currentTarget) }, queue.paused ? 'Resume' : 'Pause') : null));
  }

  function draw(queue) {
    drawHead(queue);
    fill(tiles, STATES.filter(([state]) => queue[state] !== undefined).map(([state, colour]) => h('a', { class: `tile c-${colour}`, 'data-state': state, href: `#/jobs?search=${encodeURIComponent(`state:${state} ${words}`)}` },
      h('div', { class: 'label' }, h('i'), state), h('div', { class: 'value' }, int(queue[state])))));
    const facts = [['Oldest waiting', queue.oldest_ms === null || queue.oldest_ms === undefined ? '–' : span(queue.oldest_ms)], ['Pushed / s', rate(queue.pushed_per_s ?? 0)], ['Claimed / s', rate(queue.claimed_per_s ?? 0)],
      ['Empty in', queue.ready === 0 ? '–' : queue.paused ? 'paused' : queue.empty_in_ms === undefined ? 'not shrinking' : span(queue.empty_in_ms)]];
    fill(figures, facts.map(([title, value]) => h('div', {}, h('dt', {}, title), h('dd', {}, value))));
    keepCard.hidden = !queue.keep;
    if (queue.keep) fill(keep, KEPT.map(([key, word]) => h('div', {}, h('dt', {}, word), h('dd', {}, keptText(queue.keep[key]), h('span', { class: 'soft' }, queue.keep_set?.includes(key) ? ' (of this queue)' : ' (of the server)')))));
  }

  function keptText(value) { return value === 'ever' ? 'forever' : value === 0 ? 'deleted at once' : `for ${span(value)}`; }

  function editKeep() {
    const written = (key) => (!shown.keep_set?.includes(key) ? '' : shown.keep[key] === 'ever' ? 'forever' : durationText(shown.keep[key]));
    const inputs = KEPT.map(([key, word]) => [key, word, h('input', { id: `keep-${word}`, value: written(key), placeholder: 'as the server' })]);
    const trouble = h('div', { class: 'notice bad', role: 'alert', hidden: true });
    const read = (text) => (text === '' ? null : text === 'forever' ? 'ever' : milliseconds(text));
    async function save(event) {
      event.preventDefault();
      try {
        await call('PUT', `queues/${encodeURIComponent(name)}`, { body: { keep: Object.fromEntries(inputs.map(([key, , input]) => [key, read(input.value.trim())])) }, query: { tenant } });
        fill(form);
        toast(`retention of ${name} saved; it applies to jobs pushed from now on`);
        fresh.look();
      } catch (error) { trouble.textContent = error.message; trouble.hidden = false; }
    }
    fill(form, h('form', { class: 'card', onsubmit: save }, h('h2', {}, `How long jobs of ${name} are kept`), trouble,
      h('div', { class: 'grid' }, inputs.map(([, word, input]) => field(word, input, '7d, 90m, 0 or forever; empty: as the server'))),
      h('div', { class: 'tools' }, h('button', { class: 'main', type: 'submit', id: 'keep-save' }, 'Save'), h('button', { type: 'button', onclick: () => fill(form) }, 'Cancel'))));
    inputs[0][2].focus();
    scrollTo(0, 0);
  }

  async function load(signal) {
    const answer = await get('queues', { tenant }, signal);
    const queue = answer.queues.find((one) => one.queue === name);
    if (!queue) { document.title = 'Not found · Windlass'; return fill(root, notFound(`Queue ${name} not found`, h('p', {}, 'A queue exists as soon as a job was pushed to it, and as long as it holds jobs or has settings.'))); }
    shown = queue;
    draw(queue);
    await Promise.all([drawChart(signal), Date.now() - listed > LISTS_MS ? drawLists(signal) : null]);
    return undefined;
  }

  async function drawChart(signal) {
    const past = await get('history', { span: '15m', queue: name, tenant }, signal).catch((error) => { if (error.name === 'AbortError') throw error; return null; });
    chartCard.hidden = !past;
    if (!past) return;
    const series = [['pushed', 'blue', false], ['claimed', 'violet', true]].map(([key, colour, dash]) => ({ name: key, colour, dash, values: past[key].length ? past[key].map((count) => count / (past.step_ms / 1000)) : [0] }));
    lines.data = { from: past.from, step: past.step_ms, unit: '/s', series };
  }

  async function drawLists(signal) {
    const list = (state) => get('jobs', { search: `state:${state} ${words}`, limit: READ }, signal);
    const [held, done, failed] = await Promise.all([list('running'), list('completed'), get('failures', { queue: name, tenant, limit: 5 }, signal).catch((error) => { if (error.name === 'AbortError') throw error; return { groups: [] }; })]);
    listed = Date.now();
    running.set(held.jobs.filter((job) => job.started_at).sort((a, b) => a.started_at - b.started_at).slice(0, SHOWN));
    completed.set(done.jobs.filter((job) => job.started_at && job.finished_at).sort((a, b) => b.finished_at - b.started_at - (a.finished_at - a.started_at)).slice(0, SHOWN));
    groups.set(withTenants(failed.groups));
    failures.hidden = failed.groups.length === 0;
  }

  const fresh = keepFresh({ load, every: 5000 });
  return { ...fresh, look: () => { listed = 0; return fresh.look(); } };
}
