// Turns of a repeating job: each is one scheduled run with its attempts.
import { chip, clock, h, int, plural, span, time } from './dom.js';
import { failureLine } from './failure.js';

const COLOURS = { missed: 'waiting' };

export const outcome = (turn) => h('span', { class: `state ${COLOURS[turn.outcome] ?? turn.outcome}` }, turn.outcome);
export const durationOf = (turn) => (turn?.duration_ms === undefined || turn.duration_ms === null ? '–' : span(turn.duration_ms));

export function turnNotes(turn) {
  const notes = [];
  if (turn.attempts > 1) notes.push(plural(turn.attempts, 'attempt'));
  if (turn.requested) notes.push('requested');
  if (turn.missed) notes.push(`${plural(turn.missed, 'time')} skipped`);
  return notes.join(', ');
}

export const turnFailure = (turn) => (turn.class === undefined && turn.message === undefined ? null : failureLine({ kind: turn.class, message: turn.message }));

// The newest first.
export function turnTable(turns) {
  if (turns.length === 0) return h('p', { class: 'soft' }, 'no run has ended yet');
  const row = (turn) => h('tr', {}, h('td', { class: 'nowrap' }, clock(turn.due_at)), h('td', {}, outcome(turn)), h('td', { class: 'num' }, durationOf(turn)), h('td', { class: 'nowrap wide' }, time(turn.ended_at)),
    h('td', { class: 'wide' }, turn.worker ?? '–'), h('td', { class: 'name' }, turnNotes(turn), turnNotes(turn) && turnFailure(turn) ? '; ' : null, turnFailure(turn)));
  return h('div', { class: 'scroll' }, h('table', { 'aria-label': 'Runs of the schedule', class: 'turns' },
    h('thead', {}, h('tr', {}, [['Scheduled for'], ['Outcome'], ['Duration', 'num'], ['Ended', 'wide'], ['Worker', 'wide'], ['']].map(([title, style]) => h('th', { scope: 'col', class: style }, title)))),
    h('tbody', {}, turns.map(row))));
}

// What a schedule says about itself beside its turns: paused, late, failing.
export function scheduleNotice(schedule) {
  if (!schedule) return null;
  const { overdue, failed_in_a_row: failed } = schedule;
  const list = [];
  if (overdue) {
    const why = overdue.server_was_down ? 'the server was not running' : 'no worker has claimed it';
    list.push(['Late: the run of ', clock(overdue.due_at), ` waits because ${why}`, overdue.missed ? `; ${plural(overdue.missed, 'later time')} passed meanwhile` : '', schedule.catch_up === 'none' ? '; it is skipped when the next one is due.' : '; one run makes up for all.']);
  }
  if (failed > 1) list.push([`The last ${int(failed)} runs failed.`]);
  return list.map((text) => h('div', { class: 'notice warn' }, text));
}

export const scheduleState = (job) => (job.schedule?.paused ? h('span', { class: 'state paused' }, 'paused') : chip(job.state));
