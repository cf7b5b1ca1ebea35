// Actions on jobs: to which states each fits, what it asks first, and how many jobs it reaches.
import { call, get, post } from './api.js';
import { ask, field, h, int, milliseconds, plural, stateWord, toast } from './dom.js';
import { statesOf } from './search.js';

export const SETTLED = ['completed', 'failed', 'cancelled', 'terminated'];
const WAITING = ['ready', 'delayed', 'retrying'];
// `as` is the word in a job's list of actions, if it is another one.
export const ACTIONS = [
  { name: 'retry', label: 'Retry', done: 'retried', states: [...SETTLED, 'retrying'] },
  { name: 'run', label: 'Run now', done: 'set to run now', states: ['delayed', 'retrying', 'suspended'] },
  { name: 'cancel', label: 'Cancel', done: 'cancelled', states: [...WAITING, 'running', 'waiting', 'suspended'] },
  { name: 'move', label: 'Move…', done: 'moved', as: 'edit', states: [...WAITING, 'waiting', 'suspended'] },
  { name: 'priority', label: 'Priority…', done: 'changed', as: 'edit', states: [...WAITING, 'waiting', 'suspended'] },
  { name: 'reschedule', label: 'Run time…', done: 'rescheduled', as: 'edit', states: WAITING },
  { name: 'delete', label: 'Delete', done: 'deleted', danger: true, states: [...WAITING, ...SETTLED, 'waiting', 'suspended', 'terminating'] },
];
// Jobs that one call brings back.
const UNDO_STEP = 1000;

export const plain = (label) => label.replace('…', '');

export function fits(action, job) {
  if (job.actions && !['move', 'priority', 'reschedule'].includes(action.name)) return job.actions.includes(action.as ?? action.name);
  return action.states.includes(stateWord(job));
}

// Actions for all jobs of a search: those that fit at least one of the states it names.
export function fitsSearch(action, search) {
  const states = statesOf(search);
  return states.length === 0 || states.some((state) => action.states.includes(state));
}

let queues;
function queueInput(id, attributes) {
  const list = h('datalist', { id: `${id}-list` });
  queues ??= get('queues').then((answer) => [...new Set(answer.queues.map((queue) => queue.queue))].slice(0, 200)).catch(() => []);
  queues.then((names) => names.forEach((name) => list.append(h('option', { value: name }))));
  return [h('input', { id, list: list.id, ...attributes }), list];
}

// A moment to run at: after a span of time, or at a time of the clock of this computer.
export function whenFields(prefix, isRequired = true) {
  const after = h('input', { id: `${prefix}-in`, placeholder: '10m, 2h30m' });
  const at = h('input', { id: `${prefix}-at`, type: 'datetime-local', step: '1' });
  return {
    nodes: h('div', { class: 'grid' }, field('In', after, 'from now'), field('or at', at, 'in the time zone of this computer')),
    read() {
      if (after.value.trim()) return { delay_ms: milliseconds(after.value.trim()) };
      if (at.value) return { run_at: new Date(at.value).getTime() };
      if (isRequired) throw new Error('give a span of time or a moment');
      return {};
    },
  };
}

// What an action asks for beside a yes, and how the answer becomes part of the request.
function questions(action) {
  if (action.name === 'priority') {
    const level = h('input', { type: 'number', id: 'ask-priority', value: '0', required: true });
    return { nodes: field('Priority', level, 'smaller numbers run first'), read: () => ({ priority: Number(level.value) }) };
  }
  if (action.name === 'move' || action.name === 'retry') {
    const isMove = action.name === 'move';
    const [queue, list] = queueInput('ask-queue', { required: isMove, placeholder: isMove ? '' : 'its own queue' });
    return { nodes: [field(isMove ? 'To queue' : 'In queue', queue), list], read: () => (queue.value.trim() ? { queue: queue.value.trim() } : {}) };
  }
  if (action.name === 'reschedule') return whenFields('ask');
  return { nodes: action.name === 'cancel' ? h('p', { class: 'soft' }, 'The workers of running jobs are asked to stop.') : null, read: () => ({}) };
}

export const countText = (count) => `${count.at_least ? 'at least ' : ''}${int(count.count)} ${count.count === 1 && !count.at_least ? 'job' : 'jobs'}`;

// Carries out an action on `target`, { ids } or { search, tenant }, after it has said on how many jobs.
// `tell(text)` shows how far it has come.
export async function actOnMany(action, target, tell = () => {}) {
  const label = plain(action.label);
  const whom = target.ids ? { ids: target.ids } : { search: target.search, tenant: target.tenant };
  const count = await countFor(action, whom);
  if (count.count === 0 && !count.at_least) { toast('no job matches any more'); return false; }
  const matching = target.search ? [' matching ', h('code', {}, target.search)] : ' of this server';
  const asked = questions(action);
  const body = [
    h('p', { id: 'ask-count' }, `${label}: `, target.ids ? plural(count.count, 'job') : ['all ', countText(count), matching], '?'), asked.nodes,
    target.unfit ? h('p', { class: 'soft' }, `${plural(target.unfit, 'selected job is', 'selected jobs are')} in a state to which this does not apply.`) : null,
    count.at_least ? h('p', { class: 'soft' }, 'The count is a lower bound; the action applies to all matching jobs.') : null,
    action.name === 'delete' ? h('p', { class: 'soft', id: 'ask-undo' }, undoText(count)) : null];
  if (!await ask(`${label} jobs`, body, label, action.danger)) return false;
  let sum;
  try {
    sum = await steps({ action: action.name, ...whom, ...asked.read() }, (done) => tell(`${int(done)} of ${countText(count)} ${action.done} …`));
  } catch (error) { toast(error.message, true); return false; }
  const undo = sum.undo.length > 0 && sum.done <= count.undo_max ? ['Undo', () => undelete(sum.undo)] : undefined;
  toast(`${int(sum.done)} ${action.done}`, false, undo);
  if (sum.refused > 0) toast(`${int(sum.refused)} not ${action.done}: ${sum.errors[0]?.message ?? 'the jobs no longer exist'}`, true);
  return true;
}

// How many jobs an action applies to and, of a deletion, how many the server can bring back.
async function countFor(action, whom) {
  if (action.name === 'delete') return post('jobs/bulk', { action: 'delete', dry_run: true, ...whom });
  return whom.ids ? { count: whom.ids.length } : get('jobs/count', whom);
}

function undoText({ count, at_least: isMore, undo_max: most }) {
  if (count > most) return `This can't be undone${most ? `: the server keeps only ${int(most)} deleted jobs` : ''}.`;
  return isMore ? `Undo is offered afterwards if there are no more than ${int(most)} jobs.` : 'Undo is offered for a short time afterwards.';
}

// A thousand jobs a call. Every call begins below the last job of the one before, so the steps come to an end.
async function steps(body, tell) {
  const sum = { done: 0, refused: 0, errors: [], undo: [] };
  do {
    const answer = await post('jobs/bulk', body);
    sum.done += answer.done;
    sum.refused += answer.refused;
    sum.errors.push(...answer.errors);
    sum.undo.push(...(answer.undo ?? []));
    body.cursor = answer.next;
    if (body.cursor) tell(sum.done);
  } while (body.cursor);
  return sum;
}

export async function undelete(ids) {
  let [back, lost] = [0, null];
  try {
    for (let from = 0; from < ids.length; from += UNDO_STEP) {
      const answer = await post('jobs/bulk', { action: 'undelete', ids: ids.slice(from, from + UNDO_STEP) });
      back += answer.done;
      lost ??= answer.errors[0] ?? null;
    }
  } catch (error) { lost = error; }
  if (back) toast(`${plural(back, 'job')} restored`);
  if (lost) toast(`${plural(ids.length - back, 'job')} not restored: ${lost.message}`, true);
  dispatchEvent(new Event('windlass:look'));
}

export async function deleteOne(job) {
  if (!await ask('Delete', h('p', {}, `Delete job ${job.id}, ${job.name}?`), 'Delete', true)) return false;
  try {
    const answer = await call('DELETE', `jobs/${job.id}`);
    toast(`job ${job.id} deleted`, false, answer.undo_until ? ['Undo', () => undelete([job.id])] : undefined);
    return true;
  } catch (error) { toast(error.message, true); return false; }
}
