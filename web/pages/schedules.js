import { call, get, post } from '../api.js';
import { clock, exact, field, fill, h, link, plural, time, toast } from '../dom.js';
import { payloadInput, payloadText } from '../edit.js';
import { keepFresh } from '../live.js';
import { table } from '../table.js';
import { durationOf, outcome, scheduleState, turnFailure, turnNotes, turnTable } from '../turns.js';

const HELP = 'no repeating jobs; push one with a repeat rule, such as every 5m';
const CATCH_UP = [['one', 'run once, late'], ['none', 'skip it']];
const at = (ms) => exact(ms).replace(/\.\d+/, '');

export default function schedules(root, where, { may }) {
  const cursor = where.query.get('cursor') ?? '';
  const operator = may('operator');
  const rows = table({
    label: 'Schedules', key: (job) => job.id, empty: HELP, href: (job) => `#/job/${job.id}`,
    columns: [
      { title: 'Name', class: 'name', sort: (job) => job.name, cell: (job) => [link(`job/${job.id}`, job.name), h('div', { class: 'soft' }, `#${job.id}`)] },
      { title: 'Rule', sort: (job) => job.repeat, cell: (job) => [h('code', {}, job.repeat), h('div', { class: 'narrow' }, scheduleState(job), job.schedule?.paused || !job.next_runs?.length ? null : [' next ', time(job.next_runs[0])])] },
      { title: 'Queue', class: 'wide', sort: (job) => job.queue, cell: (job) => job.queue },
      { title: 'Tenant', class: 'wide', differs: (job) => job.tenant, cell: (job) => job.tenant },
      { title: 'State', class: 'wide', cell: (job) => [scheduleState(job), lateness(job)] },
      { title: 'Last run', class: 'name', sort: (job) => job.schedule?.last_turn?.ended_at, cell: lastRun },
      { title: 'Took', class: 'num wide', sort: (job) => job.schedule?.last_turn?.duration_ms, cell: (job) => durationOf(job.schedule?.last_turn) },
      { title: 'Next runs', class: 'wide', sort: (job) => job.next_runs?.[0], cell: nextRuns },
      ...(operator ? [{ title: '', class: 'right buttons', cell: buttons }] : []),
    ],
  });
  const place = h('div');
  const pager = h('div', { class: 'pager', hidden: true });
  fill(root, h('div', { class: 'head' }, h('h1', {}, 'Schedules'), h('span', { class: 'soft' }, 'repeating jobs')), place, h('section', { class: 'card flush' }, rows.node, pager));

  function lateness(job) {
    const { overdue, failed_in_a_row: failed } = job.schedule ?? {};
    if (overdue) return h('div', { class: 'late' }, overdue.server_was_down ? 'late: the server was down' : 'late: no worker', overdue.missed ? `, ${plural(overdue.missed, 'time')} passed` : '');
    return failed > 1 ? h('div', { class: 'late' }, `failed ${failed} times in a row`) : null;
  }

  function lastRun(job) {
    const turn = job.schedule?.last_turn;
    if (!turn) return h('span', { class: 'soft' }, 'none yet');
    return [outcome(turn), ' ', time(turn.ended_at), h('div', { class: 'soft clip' }, turnNotes(turn), ' ', turnFailure(turn))];
  }

  function nextRuns(job) {
    const [first, ...later] = job.next_runs ?? [];
    if (!first || job.schedule?.paused) return job.schedule?.paused ? 'paused' : 'none';
    return h('details', {}, h('summary', { class: 'nowrap' }, time(first), ', ', clock(first)), h('ul', { class: 'timeline' }, later.map((run) => h('li', {}, h('span', {}, at(run))))));
  }

  function buttons(job) {
    const isPaused = job.schedule?.paused;
    const one = (label, act) => h('button', { class: 'small', 'aria-label': `${label} ${job.name} #${job.id}`, 'data-action': label.toLowerCase().replace(' ', '-'), onclick: act }, label);
    return h('div', { class: 'row-buttons' }, isPaused ? one('Resume', () => act(job, 'resume', 'resumed')) : [one('Run now', () => act(job, 'run', 'runs now')), one('Pause', () => act(job, 'pause', 'paused; a run that has begun goes on'))],
      one('Edit', () => edit(job)), one('History', () => history(job)));
  }

  async function act(job, verb, done) {
    try { await post(`schedules/${job.id}/${verb}`, {}); toast(`${job.name} ${done}`); } catch (error) { toast(error.message, true); }
    fresh.look();
  }

  async function history(job) {
    const { turns } = await get(`schedules/${job.id}/turns`);
    const close = h('button', { class: 'small', onclick: () => fill(place) }, 'Close');
    fill(place, h('section', { class: 'card', id: 'turns' }, h('div', { class: 'head' }, h('h2', {}, `Runs of ${job.name} #${job.id}`), h('span', { class: 'fill' }), close), turnTable(turns)));
    close.focus();
  }

  function edit(job) {
    const inputs = {
      repeat: h('input', { id: 'schedule-repeat', required: true, value: job.repeat }), queue: h('input', { id: 'schedule-queue', required: true, value: job.queue }),
      priority: h('input', { id: 'schedule-priority', type: 'number', required: true, value: String(job.priority) }),
      catch_up: h('select', { id: 'schedule-catch-up' }, CATCH_UP.map(([value, label]) => h('option', { value }, label))),
    };
    inputs.catch_up.value = job.schedule?.catch_up ?? 'one';
    const before = Object.fromEntries(Object.entries(inputs).map(([key, input]) => [key, input.value]));
    const body = payloadInput('schedule', payloadText(job), job.format === 'text');
    const isEditable = !job.hidden && ['json', 'text'].includes(job.format ?? 'json');
    const trouble = h('div', { class: 'notice bad', role: 'alert', hidden: true });
    async function save(event) {
      event.preventDefault();
      try {
        const changed = Object.entries(inputs).filter(([key, input]) => input.value.trim() !== before[key]).map(([key, input]) => [key, key === 'priority' ? Number(input.value) : input.value.trim()]);
        const changes = { ...Object.fromEntries(changed), ...(isEditable && body.isChanged() ? { payload: null, ...body.read() } : {}) };
        if (Object.keys(changes).length) await call('PATCH', `schedules/${job.id}`, { body: changes });
        fill(place);
        toast(`${job.name} saved`);
        fresh.look();
      } catch (error) { trouble.textContent = error.message; trouble.hidden = false; }
    }
    fill(place, h('form', { class: 'card', onsubmit: save }, h('h2', {}, `Edit ${job.name} #${job.id}`), trouble,
      h('div', { class: 'grid' }, field('Repeat rule', inputs.repeat, 'every 5m, 0 4 * * *'), field('Queue', inputs.queue), field('Priority', inputs.priority, 'smaller numbers run first'), field('A run that comes too late', inputs.catch_up)),
      isEditable ? body.nodes : null,
      h('div', { class: 'tools' }, h('button', { class: 'main', type: 'submit', id: 'schedule-save' }, 'Save'), h('button', { type: 'button', onclick: () => fill(place) }, 'Cancel'))));
    inputs.repeat.focus();
    scrollTo(0, 0);
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
