import { deleteOne, SETTLED } from '../actions.js';
import { call, get } from '../api.js';
import { chip, exact, fill, h, int, jobsLink, link, quoted, span, stateWord, time, toast } from '../dom.js';
import { cloneForm, editForm } from '../edit.js';
import { attempts, failureFacts } from '../failure.js';
import { family } from '../family.js';
import { keepFresh } from '../live.js';
import { partOf, payload } from '../payload.js';
import { scheduleNotice, stepTimeline, turnTable, waitWords } from '../turns.js';
import { notFound } from './missing.js';

const EVENTS_KEPT = 100;
// What the server keeps of an event that was heard while the page was open.
const KEPT_AS = {
  pushed: ['pushed'], claimed: ['claimed'], completed: ['completed'], failed: ['failed', 'attempt_failed'], retrying: ['attempt_failed'], lapsed: ['attempt_failed'], cancelled: ['cancelled'],
  cancel_asked: ['cancel_asked'], ready: ['run', 'retried'], updated: ['changed'], suspended: ['suspended'], waiting: ['waiting'], terminating: ['terminated'], terminated: ['terminated'],
};

export default function jobPage(root, where, { me, may }) {
  const id = where.id;
  const events = [];
  let last = null;
  const parts = { head: h('div', { class: 'head' }), form: h('div'), notice: h('div'), attempts: h('div'), facts: h('section', { class: 'card' }), body: h('div'), family: h('div'), log: h('div'), events: h('section', { class: 'card' }) };
  const marks = {};
  const steps = stepTimeline({ may, look: () => fresh.look() });
  fill(root, parts.head, parts.form, parts.notice, h('div', { class: 'side' }, h('div', {}, parts.attempts, steps.node, parts.facts, parts.body, parts.log, parts.family), h('div', {}, parts.events)));

  // Draws a part anew only if what it shows has changed, so that an open tree stays open.
  function part(name, shown, draw) {
    const mark = JSON.stringify(shown);
    if (marks[name] === mark) return;
    marks[name] = mark;
    fill(parts[name], draw());
  }

  async function load(signal) {
    let job;
    try {
      job = await get(/^\d+$/.test(id) ? `jobs/${id}` : `aliases/${encodeURIComponent(id)}`, {}, signal);
    } catch (error) {
      if (error.status === 404) return gone();
      throw error;
    }
    if (String(job.id) !== id) return location.replace(`#/job/${job.id}`);
    const hasFamily = last === null || job.parent || job.pending_children || marks.kin;
    const kin = hasFamily ? await get(`jobs/${job.id}/family`, {}, signal) : null;
    marks.kin = Boolean(kin && (kin.ancestors.length || kin.children.length || kin.more));
    last = job;
    document.title = `${job.name} · job ${job.id} · Windlass`;
    part('head', [job.name, stateWord(job), job.actions, may('operator')], () => heading(job));
    part('notice', [job.waiting_for, job.wait, job.pending_children, job.lease, job.progress, job.run_at, job.hidden, job.schedule], () => notices(job));
    part('facts', { ...job, steps: null }, () => facts(job));
    steps.set(job);
    part('attempts', failureFacts(job), () => attempts(job));
    part('body', ['payload', 'result', 'hidden', 'payload_base64', 'result_base64', 'next_runs', 'ports', 'custom_state', 'schedule'].map((key) => job[key] ?? null), () => bodies(job));
    drawLog(job);
    part('family', [job.parent, job.state, kin], () => (marks.kin ? family(job, kin) : []));
    return drawEvents();
  }

  // A page that has shown the job keeps it readable after it was deleted.
  function gone() {
    fill(parts.form);
    if (last) {
      fill(parts.head, h('h1', {}, `Job ${last.id}`));
      steps.set(last, true);
      marks.head = marks.notice = undefined;
      return fill(parts.notice, h('div', { class: 'notice warn', role: 'status' }, `Job ${last.id} (${last.name}) was deleted. `, link('jobs', 'All jobs')));
    }
    document.title = 'Not found · Windlass';
    return fill(root, notFound(`Job ${id} not found`, h('p', {}, /^\d+$/.test(id) ? 'No job has this id. Ids are never reused: it was deleted, its retention time is over, or it never existed.' : 'No job has this alias, and it is not an id.')));
  }

  async function act(path, body) {
    try {
      const answer = await call('POST', `jobs/${id}${path}`, { body });
      toast(`job ${id}: ${answer.state}`);
    } catch (error) {
      toast(error.message, true);
    }
    fresh.look();
  }

  function heading(job) {
    const word = stateWord(job);
    const isSettled = SETTLED.includes(word);
    const usual = { retry: isSettled, run: ['delayed', 'retrying', 'suspended'].includes(word), edit: !isSettled && word !== 'running', cancel: !isSettled, clone: true, delete: word !== 'running' };
    const button = (name, label, onclick, style) => ((job.actions ? job.actions.includes(name) : usual[name]) ? h('button', { 'data-action': name, class: style, onclick }, label) : null);
    const buttons = !may('operator') ? [] : [
      button('retry', 'Retry', () => act('/retry', {})),
      // A job that is due needs a worker, not another time.
      word === 'ready' ? null : button('run', 'Run now', () => act('/run', {})),
      button('edit', 'Edit', () => editForm(parts.form, last, () => fresh.look())),
      button('clone', 'Clone', () => cloneForm(parts.form, last)),
      button('cancel', 'Cancel', () => act('/cancel', {})),
      button('delete', 'Delete', async () => { if (await deleteOne(last)) fresh.look(); }, 'danger'),
    ];
    return [h('h1', {}, job.name, h('span', { class: 'soft' }, ` #${job.id}`)), h('span', { id: 'state' }, chip(word)), h('span', { class: 'fill' }), h('div', { class: 'row-buttons' }, buttons)];
  }

  function notices(job) {
    const why = waiting(job);
    const list = [scheduleNotice(job.schedule)];
    if (why) list.push(h('div', { class: 'notice', id: 'why' }, why));
    if (job.lease) {
      list.push(h('div', { class: job.lease.cancel_asked ? 'notice warn' : 'notice', id: 'lease' }, 'Claimed by ', h('b', {}, job.lease.worker ?? 'an unnamed worker'), ' ', time(job.lease.granted_at),
        job.lease.until ? ['; without a heartbeat, the lease expires ', time(job.lease.until)] : '; the lease does not expire', job.lease.cancel_asked ? '. The worker was asked to stop.' : '.'));
    }
    if (job.progress && job.lease) {
      list.push(h('div', { class: 'card' }, h('div', { class: 'soft' }, `${job.progress.percent ?? '?'} % ${job.progress.note ?? ''}`), h('progress', { max: 100, value: job.progress.percent ?? 0, 'aria-label': 'Progress' })));
    }
    if (job.hidden) list.push(h('div', { class: 'notice warn' }, 'Payload, result and errors are hidden from viewers on this server.'));
    return list;
  }

  function waiting(job) {
    const reason = job.waiting_for;
    if (!reason) return null;
    if (job.wait) return ['Suspended: the job ', waitWords(job), '.'];
    if (reason === 'due') return [stateWord(job) === 'retrying' ? 'Failed: the next attempt is ' : 'Delayed: runs ', time(job.run_at), '.'];
    if (reason === 'paused queue') return ['The queue ', queueLink(job), ' is paused.'];
    if (reason.startsWith('limit ')) return ['Held back by the limit ', link('limits', reason.slice(6)), '.'];
    if (reason.startsWith('children ')) return `Waits for ${reason.slice(9)} unfinished children.`;
    if (reason === 'parent') return ['Waits for its parent', job.parent ? [' ', link(`job/${job.parent}`, job.parent)] : '', '.'];
    if (job.schedule?.paused) return 'The schedule is paused.';
    if (reason === 'being run') return 'Suspended: it waits until it is run again.';
    return ['Ready: it waits for a worker.'];
  }

  const queueLink = (job) => link(`queue/${encodeURIComponent(job.queue)}?tenant=${encodeURIComponent(job.tenant)}`, job.queue);

  function facts(job) {
    const moment = (ms) => (ms ? [time(ms), h('br'), h('small', { class: 'soft' }, exact(ms))] : null);
    const took = job.started_at && job.finished_at ? span(job.finished_at - job.started_at) : null;
    const list = [
      ['Queue', queueLink(job)], ['Tenant', me.role === 'admin' && (job.tenant !== 'default' || me.tenant !== 'default') ? job.tenant : null], ['Source', job.origin], ['Priority', job.priority],
      ['Attempts', job.max_attempts ? `${job.attempts} of ${job.max_attempts}` : job.attempts], ['Created', moment(job.created_at)], ['Scheduled for', moment(job.run_at)],
      ['Started', moment(job.started_at)], ['Finished', moment(job.finished_at)], ['Duration', took], ['Kept until', moment(job.expires_at)], ['Alias', job.alias],
      ['Unique key', job.unique ? `${job.unique.key} (${job.unique.on_conflict})` : null], ['Repeat rule', job.repeat ? h('code', {}, job.repeat) : null],
      ['Tags', job.tags?.map((tag) => [jobsLink(`tag:${quoted(tag)}`, tag), ' '])],
    ];
    return h('dl', { class: 'facts' }, list.filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
  }

  function bodies(job) {
    const list = [];
    const section = (title, key) => {
      const found = partOf(job, key);
      if (found) list.push(h('section', { class: 'card', 'data-part': key }, h('h2', {}, title), payload(found, title)));
    };
    section('Payload', 'payload');
    section('Result', 'result');
    if (job.custom_state && Object.keys(job.custom_state).length) {
      list.push(h('section', { class: 'card', 'data-part': 'state' }, h('h2', {}, 'State'), payload({ value: job.custom_state, format: 'json' }, 'State')));
    }
    for (const [key, title] of [['inports', 'Input ports'], ['outports', 'Output ports']]) {
      const ports = Object.entries(job.ports?.[key] ?? {});
      if (ports.length) list.push(h('section', { class: 'card', 'data-part': key }, h('h2', {}, title), ports.map(([name, port]) => portOf(name, port))));
    }
    if (job.schedule?.turns) list.push(h('section', { class: 'card', 'data-part': 'turns' }, h('h2', {}, 'Runs of the schedule'), turnTable(job.schedule.turns)));
    if (job.next_runs) {
      list.push(h('section', { class: 'card' }, h('h2', {}, 'Next runs'), h('ul', { class: 'timeline' }, job.next_runs.map((run) => h('li', {}, time(run), h('span', {}, exact(run).replace('.000', '')))))));
    }
    return list;
  }

  // What waits at a port, and what is read when nothing does.
  function portOf(name, port) {
    const values = port.values ?? [];
    return h('details', { class: 'port', open: values.length > 0 && values.length <= 5 },
      h('summary', {}, h('b', {}, name), ` ${port.size === 1 ? '1 value' : `${int(port.size)} values`}`, port.default === undefined ? null : h('span', { class: 'soft' }, `, default ${JSON.stringify(port.default)}`)),
      h('ol', { class: 'mono' }, values.map((value) => h('li', {}, JSON.stringify(value))), port.size > values.length ? h('li', { class: 'soft' }, `${int(port.size - values.length)} more`) : null));
  }

  // Keeps to the end of the log while it grows, unless somebody has scrolled up to read.
  function drawLog(job) {
    const lines = job.log?.lines ?? [];
    part('log', [lines.length, lines.at(-1)?.at, job.log?.dropped], () => {
      if (!lines.length) return [];
      const old = parts.log.querySelector('.log');
      const stays = old && old.scrollTop + old.clientHeight < old.scrollHeight - 8;
      const list = h('div', { class: 'log code', id: 'log', tabindex: '0', role: 'log', 'aria-label': 'Log output' },
        job.log.dropped ? h('div', { class: 'soft' }, `${int(job.log.dropped)} earlier lines were dropped`) : null,
        lines.map((line, index) => [
          index === 0 || lines[index - 1].attempt !== line.attempt ? h('div', { class: 'soft' }, line.attempt ? `attempt ${line.attempt}` : 'before the first attempt') : null,
          h('div', { title: `${exact(line.at)}${line.source ? `, ${line.source}` : ''}` }, line.text || ' ')]));
      const top = old?.scrollTop;
      queueMicrotask(() => { list.scrollTop = stays ? top : list.scrollHeight; });
      return h('section', { class: 'card' }, h('h2', {}, 'Log output'), list);
    });
  }

  function drawEvents() {
    const words = { attempt_failed: 'failed', run: 'run now', cancel_asked: 'cancellation requested' };
    const kept = last.history.map((one) => [one.at, `${one.attempt ? `attempt ${one.attempt} ` : ''}${words[one.what] ?? one.what}${one.who ? ` by ${one.who}` : ''}`]);
    const isKept = (event) => last.history.some((one) => KEPT_AS[event.kind]?.includes(one.what) && Math.abs(one.at - event.at) < 2000);
    const known = [...kept, ...events.filter((event) => !isKept(event)).map((event) => [event.at, event.kind.replaceAll('_', ' ')])].sort((a, b) => b[0] - a[0]);
    part('events', known, () => [h('h2', {}, 'History'), h('ul', { class: 'timeline', id: 'events' }, known.slice(0, EVENTS_KEPT).map(([at, what]) => h('li', {}, time(at), h('span', {}, what))))]);
  }

  const fresh = keepFresh({
    load, events: /^\d+$/.test(id) ? { job: id } : null, every: 10_000,
    heard: (kind, data) => {
      if (data?.id !== undefined && kind !== 'progress') { events.push({ kind, at: data.at }); if (events.length > EVENTS_KEPT) events.shift(); }
      return false;
    },
  });
  return fresh;
}
