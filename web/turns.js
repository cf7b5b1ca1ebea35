// Turns of a repeating job: each is one scheduled run with its attempts. Durable steps of a job: kept results that outlive a run.
import { SETTLED } from './actions.js';
import { post } from './api.js';
import { ask, chip, clock, fill, h, int, plural, span, stateWord, svg, time, toast } from './dom.js';
import { signalForm } from './edit.js';
import { failureLine } from './failure.js';
import { excerptOf, partOf, payload } from './payload.js';

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

// Steps in the page at first, the newest; each press on the button above them doubles the number.
const STEPS_SHOWN = 25;
const NAMES_SHOWN = 10;
const SIGNALS_SHOWN = 20;
const RESULT_SHORT = 60;
const KINDS = {
  run: { words: 'executed', colour: 'c-green' }, sleep: { words: 'slept', colour: 'c-grey' },
  signal: { words: 'waited for a signal', colour: 'c-blue' }, children: { words: 'waited for children', colour: 'c-violet' },
};
const kindOf = (step) => KINDS[step.kind] ?? { words: step.kind, colour: 'c-grey' };

const second = (ms) => clock(ms, Date.now(), true);

// What a suspended job waits for, and until when.
export function waitWords(job) {
  const { wait } = job;
  const ends = [wait.signal ? ['signal ', h('b', {}, wait.signal)] : null, wait.children ? plural(job.pending_children ?? 0, 'child', 'children') : null].filter(Boolean);
  const head = ends.length ? ['waits for ', ends[0], ends.length > 1 ? [' or ', ends[1]] : ''] : wait.until ? 'sleeps' : 'waits until it is run';
  return [head, wait.until ? [' until ', second(wait.until), ', ', time(wait.until)] : ''];
}

// The end of the timeline: where the job is now. A bar begins at `since`.
function position(job) {
  const word = stateWord(job);
  const last = job.steps?.at(-1);
  const after = last ? [' after step ', h('b', { class: 'mono' }, last.name)] : job.hidden ? '' : ' before the first step';
  const begun = (at) => ['since ', second(at), ', ', time(at)];
  if (job.wait) return { text: waitWords(job), more: [job.wait.step ? [h('span', { class: 'mono' }, job.wait.step), ' '] : '', begun(job.wait.since)], since: job.wait.since, colour: 'c-amber' };
  if (job.lease) return { text: [job.lease.worker ? `runs at ${job.lease.worker},` : 'runs', after], more: begun(job.lease.granted_at), since: job.lease.granted_at, colour: 'c-violet' };
  if (['ready', 'delayed', 'retrying'].includes(word)) return { text: [`${word}, continues`, after], colour: 'c-grey' };
  if (['failed', 'cancelled'].includes(word)) return { text: [word, after], colour: word === 'failed' ? 'c-red' : 'c-grey' };
  return null;
}

function result(step) {
  const part = partOf(step, 'result');
  if (!part || part.value === null) return null;
  const text = excerptOf(part);
  if (text.length <= RESULT_SHORT) return h('code', { class: 'step-result' }, text);
  const place = h('div');
  const node = h('details', { class: 'step-result', ontoggle: () => { if (node.open && !place.firstChild) fill(place, payload(part, `Result of ${step.name}`)); } },
    h('summary', { class: 'mono' }, text), place);
  return node;
}

const startOf = (step) => step.started_at ?? step.at;

// The steps of a job as a timeline that changes only where they did. `may(role)` says what the reader is allowed to do, `look` looks at the job anew.
export function stepTimeline({ may, look }) {
  const rows = new Map();
  let [job, isGone, limit, needle] = [null, false, STEPS_SHOWN, ''];
  const count = h('span', { class: 'soft', id: 'steps-count' });
  const find = h('input', { type: 'search', id: 'steps-find', placeholder: 'Find a step', 'aria-label': 'Find a step', hidden: true, oninput: () => { needle = find.value.trim().toLowerCase(); limit = STEPS_SHOWN; draw(); } });
  const form = h('div');
  const signal = h('button', { id: 'signal', class: 'small', onclick: () => signalForm(form, job, look) }, 'Send signal');
  const earlier = h('button', { id: 'steps-earlier', class: 'small', onclick: () => { limit *= 2; draw(); } });
  const list = h('ol', { class: 'steps', 'aria-label': 'Steps' });
  const now = h('li', { class: 'step now', id: 'step-now' });
  const early = h('p', { class: 'soft', id: 'signals' });
  const node = h('section', { class: 'card', id: 'steps', hidden: true }, h('div', { class: 'head' }, h('h2', {}, 'Steps'), count, h('span', { class: 'fill' }), find, signal), form, earlier, list, early);

  async function retryFrom(name) {
    const at = (job.steps ?? []).findIndex((step) => step.name === name);
    if (at < 0) return;
    const again = job.steps.slice(at);
    const body = [
      h('p', { id: 'ask-steps' }, `Job ${job.id} runs again from step `, h('b', { class: 'mono' }, name), `. ${plural(again.length, 'step is', 'steps are')} executed again:`),
      h('ul', { class: 'mono' }, again.slice(0, NAMES_SHOWN).map((step) => h('li', {}, step.name)), again.length > NAMES_SHOWN ? h('li', { class: 'soft' }, `${int(again.length - NAMES_SHOWN)} more`) : null),
      h('p', { class: 'soft' }, at === 0 ? 'No step keeps its result.' : `${plural(at, 'step', 'steps')} before it ${at === 1 ? 'keeps its result' : 'keep their results'}.`,
        again.some((step) => step.kind !== 'run') ? ' Waits among them begin again; a signal that ended one has to be sent again.' : ''),
    ];
    if (!await ask('Retry from a step', body, 'Retry')) return;
    try {
      const answer = await post(`jobs/${job.id}/retry`, { from_step: name });
      toast(`job ${answer.id}: ${answer.state}, from step ${name}`);
    } catch (error) { toast(error.message, true); }
    look();
  }

  function row(step, mark, canRetry) {
    const known = rows.get(step.name);
    if (known?.mark === mark) return known;
    const bar = svg('rect', { y: '1', height: '8', rx: '2' });
    const took = step.started_at === undefined ? '–' : span(step.at - step.started_at);
    const li = known?.li ?? h('li', { 'data-step': step.name });
    li.className = `step ${step.timed_out ? 'c-amber' : kindOf(step).colour}`;
    fill(li, h('div', { class: 'step-name' }, h('b', { class: 'mono' }, step.name), step.timed_out ? [' ', h('span', { class: 'state waiting' }, 'timed out')] : null,
      h('small', { class: 'soft' }, `${kindOf(step).words}, `, second(startOf(step)))),
    svg('svg', { class: 'lane', 'aria-hidden': 'true' }, bar), h('span', { class: 'step-took', title: `kept ${new Date(step.at).toISOString()}` }, took),
    h('span', { class: 'step-act' }, canRetry ? h('button', { class: 'small', 'data-retry-from': step.name, 'aria-label': `Retry from step ${step.name}`, onclick: () => retryFrom(step.name) }, 'Retry from here') : null), result(step));
    const fresh = { li, bar, mark };
    rows.set(step.name, fresh);
    return fresh;
  }

  // Places a bar within the time of all steps; a short one stays visible.
  function place(bar, from, to, whole) {
    const width = Math.min(100, Math.max(0.8, (100 * (to - from)) / whole.ms));
    bar.setAttribute('x', `${Math.max(0, Math.min(100 - width, (100 * (from - whole.from)) / whole.ms))}%`);
    bar.setAttribute('width', `${width}%`);
  }

  function drawNow(whole) {
    const here = position(job);
    now.hidden = !here || isGone || needle !== '';
    if (now.hidden) return;
    const bar = here.since ? svg('rect', { y: '1', height: '8', rx: '2' }) : null;
    if (bar) place(bar, here.since, Date.now(), whole);
    now.className = `step now ${here.colour}`;
    fill(now, h('div', { class: bar ? 'step-name' : 'step-name long' }, h('span', {}, here.text), here.more ? h('small', { class: 'soft' }, here.more) : null), bar ? svg('svg', { class: 'lane', 'aria-hidden': 'true' }, bar) : null);
  }

  function draw() {
    const steps = job.steps ?? [];
    const found = needle ? steps.filter((step) => step.name.toLowerCase().includes(needle)) : steps;
    const shown = found.slice(-limit);
    const isOver = isGone || SETTLED.includes(job.state);
    const from = steps.reduce((least, step) => Math.min(least, startOf(step)), job.wait?.since ?? Infinity);
    const whole = { from, ms: Math.max(1, (isOver ? steps.reduce((most, step) => Math.max(most, step.at), 0) : Date.now()) - from) };
    const canRetry = !isGone && may('operator') && (job.actions ?? []).includes('retry');
    const left = new Set(rows.keys());
    shown.forEach((step, index) => {
      left.delete(step.name);
      const { li, bar } = row(step, `${canRetry}${JSON.stringify(step)}`, canRetry);
      place(bar, startOf(step), step.at, whole);
      if (list.children[index] !== li) list.insertBefore(li, list.children[index] ?? null);
    });
    for (const name of left) { rows.get(name).li.remove(); rows.delete(name); }
    drawNow(whole);
    if (list.lastChild !== now) list.append(now);
    count.textContent = needle ? `${int(found.length)} of ${int(steps.length)}` : steps.length ? `${int(steps.length)} kept` : '';
    find.hidden = steps.length <= STEPS_SHOWN;
    earlier.hidden = found.length <= shown.length;
    earlier.textContent = `${int(found.length - shown.length)} earlier steps`;
  }

  function drawSignals() {
    const kept = job.signals ?? [];
    early.hidden = kept.length === 0;
    fill(early, kept.length ? 'Signals that no wait has taken yet: ' : '', kept.slice(0, SIGNALS_SHOWN).map((one, index) => [index ? ', ' : '', h('b', {}, one.name), ' ', time(one.at)]), kept.length > SIGNALS_SHOWN ? `, ${int(kept.length - SIGNALS_SHOWN)} more` : '');
  }

  return {
    node,
    set(fresh, gone = false) {
      [job, isGone] = [fresh, gone];
      node.hidden = !(job.steps || job.wait || job.signals);
      if (node.hidden) return;
      signal.hidden = isGone || !may('worker') || SETTLED.includes(job.state);
      signal.className = job.wait?.signal ? 'small main' : 'small';
      if (signal.hidden) fill(form);
      draw();
      drawSignals();
    },
  };
}
