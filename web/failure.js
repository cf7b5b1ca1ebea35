// The failure of a job: one line for lists, a timeline of its attempts for its page.
import { h, plural, span, stateWord, time, toast } from './dom.js';
import { partOf, payload } from './payload.js';

// Class and message of the last failure.
export function lastFailure(job) {
  const last = job.errors?.at(-1);
  const message = last?.message ?? job.message ?? (typeof job.error === 'string' ? job.error : undefined);
  const kind = last?.class ?? job.class;
  return kind === undefined && message === undefined ? undefined : { kind, message };
}

const firstLine = (text) => (text ?? '').trimStart().split('\n', 1)[0].slice(0, 300);

export function failureLine(failure) {
  const message = firstLine(failure.message);
  return h('span', { class: 'err', title: failure.message?.slice(0, 2000) }, failure.kind ? h('b', {}, failure.kind) : null, failure.kind && message ? ': ' : null, message);
}

export const showsFailure = (job) => ['failed', 'retrying'].includes(stateWord(job)) && lastFailure(job) !== undefined;

function copyButton(text) {
  return h('button', { class: 'small', onclick: () => navigator.clipboard?.writeText(text).then(() => toast('copied'), () => toast('the browser does not allow copying here', true)) }, 'Copy');
}

function trace(lines, isOpen, same) {
  if (same) return h('div', { class: 'soft' }, `Backtrace as in attempt ${same}`);
  const text = lines.join('\n');
  const pre = h('pre', { class: 'code trace', tabindex: '0' }, text);
  return h('details', { class: 'backtrace', open: isOpen }, h('summary', {}, `Backtrace, ${plural(lines.length, 'line')}`), h('div', { class: 'snippet' }, pre, copyButton(text)));
}

const linesOf = (backtrace) => (backtrace === undefined || backtrace === null ? [] : Array.isArray(backtrace) ? backtrace.map(String) : String(backtrace).split('\n'));

// The error as the worker sent it, unless it is the message once more.
function detail(entry) {
  const part = partOf(entry, 'error');
  if (!part || part.value === null || part.value === entry.message) return null;
  return h('details', { class: 'error-detail' }, h('summary', {}, 'Error as sent'), payload(part, 'Error'));
}

function item(entry, isLatest, same) {
  const head = h('div', { class: 'soft' }, `attempt ${entry.attempt}`, entry.worker ? ` by ${entry.worker}` : '', ', ', time(entry.at), entry.started_at ? `, after ${span(entry.at - entry.started_at)}` : '');
  const said = [entry.message, entry.code ? `code ${entry.code}` : null, entry.exit_code !== undefined ? `exit code ${entry.exit_code}` : null].filter(Boolean).join('\n');
  const lines = linesOf(entry.backtrace);
  return h('li', { class: 'error-item', 'data-attempt': entry.attempt }, head, entry.class ? h('b', { class: 'kind' }, entry.class) : null, said ? h('pre', {}, said) : null,
    lines.length ? trace(lines, isLatest, same) : null, detail(entry));
}

// The last outcome belongs to the last attempt; it is told there, once.
function attemptsOf(job) {
  const outcome = Object.fromEntries(['class', 'message', 'error', 'error_base64', 'error_format', 'backtrace', 'code', 'exit_code'].filter((key) => job[key] !== undefined).map((key) => [key, job[key]]));
  const errors = (job.errors ?? []).map((error) => ({ ...error }));
  const last = errors.at(-1);
  if (job.state !== 'completed' && last) Object.assign(last, { ...outcome, ...last });
  else if (job.state !== 'completed' && Object.keys(outcome).length) errors.push({ attempt: job.attempts, at: job.finished_at ?? job.updated_at, started_at: job.started_at, ...outcome });
  return errors.reverse();
}

// What the attempts show, for finding out whether to draw them anew.
export const failureFacts = (job) => ['class', 'message', 'error', 'error_base64', 'backtrace', 'code', 'exit_code', 'errors', 'attempts', 'max_attempts', 'state', 'run_at'].map((key) => job[key] ?? null);

function next(job) {
  const word = stateWord(job);
  if (word === 'retrying') return h('li', { class: 'attempt-item' }, `attempt ${job.attempts + 1} of ${job.max_attempts ?? 'any number'} `, time(job.run_at));
  if (job.state === 'running' && job.lease) return h('li', { class: 'attempt-item' }, `attempt ${job.attempts} is running${job.lease.worker ? ` at ${job.lease.worker}` : ''} since `, time(job.lease.granted_at));
  if (job.state === 'completed') return h('li', { class: 'attempt-item good' }, `attempt ${job.attempts} completed `, time(job.finished_at));
  return null;
}

export function attempts(job) {
  const list = attemptsOf(job);
  if (list.length === 0) return null;
  // A backtrace is shown once: at the newest attempt that has it.
  const first = new Map();
  const sameAs = (entry) => {
    const key = linesOf(entry.backtrace).join('\n');
    if (!first.has(key)) first.set(key, entry.attempt);
    return first.get(key) === entry.attempt ? undefined : first.get(key);
  };
  const counted = job.errors ? list.length : 1;
  return h('section', { class: 'card', id: 'attempts' }, h('h2', {}, counted === 1 ? 'Failed attempt' : `${counted} failed attempts`),
    h('ol', { class: 'attempts' }, next(job), list.map((entry, index) => item(entry, index === 0, sameAs(entry)))));
}
