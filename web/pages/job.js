import { call, get } from '../api.js';
import { ask, chip, exact, fill, h, int, jobsLink, link, quoted, span, stateWord, time, toast } from '../dom.js';
import { keepFresh } from '../live.js';
import { partOf, payload } from '../payload.js';

const EVENTS_KEPT = 100;
// What the server keeps of an event that was heard while the page was open.
const KEPT_AS = {
  pushed: ['pushed'], claimed: ['claimed'], completed: ['completed'], failed: ['failed', 'attempt_failed'], retrying: ['attempt_failed'], lapsed: ['attempt_failed'], cancelled: ['cancelled'],
  cancel_asked: ['cancel_asked'], ready: ['run', 'retried'], updated: ['changed'], suspended: ['suspended'], waiting: ['waiting'], terminating: ['terminated'], terminated: ['terminated'],
};
const SETTLED = ['completed', 'failed', 'cancelled', 'terminated'];

export default function jobPage(root, where, { may }) {
  const id = where.id;
  const events = [];
  let last = null;
  const parts = { head: h('div', { class: 'head' }), notice: h('div'), facts: h('section', { class: 'card' }), body: h('div'), family: h('div'), log: h('div'), events: h('section', { class: 'card' }) };
  const marks = {};
  fill(root, parts.head, parts.notice, h('div', { class: 'side' }, h('div', {}, parts.facts, parts.body, parts.log, parts.family), h('div', {}, parts.events)));

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
      job = await get(`jobs/${encodeURIComponent(id)}`, {}, signal);
    } catch (error) {
      if (error.status === 404) return gone();
      throw error;
    }
    const hasFamily = last === null || job.parent || job.pending_children || marks.kin;
    const kin = hasFamily ? await get(`jobs/${job.id}/family`, {}, signal) : null;
    marks.kin = Boolean(kin && (kin.ancestors.length || kin.children.length));
    last = job;
    document.title = `${job.name} · job ${job.id} · Windlass`;
    part('head', [job.name, job.state, job.run_at, may('operator')], () => heading(job));
    part('notice', [job.waiting_for, job.lease, job.progress, job.run_at, job.hidden], () => notices(job));
    part('facts', job, () => facts(job));
    part('body', ['payload', 'result', 'error', 'message', 'code', 'exit_code', 'errors', 'hidden', 'payload_base64', 'result_base64', 'next_runs', 'ports', 'custom_state'].map((key) => job[key] ?? null), () => bodies(job));
    drawLog(job);
    part('family', [job.parent, job.state, kin], () => (marks.kin ? family(job, kin) : []));
    drawEvents();
  }

  function gone() {
    const was = last ? `Job ${last.id} (${last.name}) was deleted.` : `Job ${id} not found: it does not exist, or was deleted.`;
    fill(parts.head, h('h1', {}, `Job ${id}`));
    fill(parts.notice, h('div', { class: 'notice warn', role: 'status' }, was, ' ', link('jobs', 'All jobs')));
    if (!last) [parts.facts, parts.events].forEach((place) => { place.hidden = true; });
  }

  async function act(title, method, path, body, danger) {
    if (danger && !await ask(title, h('p', {}, `${title}: job ${last.id}, ${last.name}?`), title, true)) return;
    try {
      const answer = await call(method, `jobs/${id}${path}`, { body });
      toast(answer.state === 'gone' ? `job ${id} deleted` : `job ${id}: ${answer.state}`);
    } catch (error) {
      toast(error.message, true);
    }
    fresh.look();
  }

  async function priority() {
    const input = h('input', { type: 'number', value: String(last.priority), 'aria-label': 'Priority' });
    if (await ask('Change priority', h('label', { class: 'field' }, h('span', {}, 'Priority (smaller numbers run first)'), input), 'Change')) act('Change', 'PATCH', '', { priority: Number(input.value) });
  }

  function heading(job) {
    const settled = SETTLED.includes(job.state);
    const buttons = !may('operator') ? [] : [
      settled ? h('button', { 'data-action': 'retry', onclick: () => act('Retry', 'POST', '/retry', {}) }, 'Retry') : null,
      !settled && job.state !== 'running' ? h('button', { 'data-action': 'run', onclick: () => act('Run now', 'POST', '/run', {}) }, 'Run now') : null,
      !settled && job.state !== 'running' ? h('button', { onclick: priority }, 'Priority') : null,
      !settled ? h('button', { 'data-action': 'cancel', onclick: () => act('Cancel', 'POST', '/cancel', {}) }, 'Cancel') : null,
      job.state !== 'running' ? h('button', { class: 'danger', 'data-action': 'delete', onclick: () => act('Delete', 'DELETE', '', undefined, true) }, 'Delete') : null,
    ];
    return [h('h1', {}, job.name, h('span', { class: 'soft' }, ` #${job.id}`)), h('span', { id: 'state' }, chip(stateWord(job))), h('span', { class: 'fill' }), h('div', { class: 'row-buttons' }, buttons)];
  }

  function notices(job) {
    const why = waiting(job);
    const list = [];
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
    if (reason === 'due') return ['Delayed: runs ', time(job.run_at), '.'];
    if (reason === 'paused queue') return ['The queue ', link('queues', job.queue), ' is paused.'];
    if (reason.startsWith('limit ')) return ['Held back by the limit ', link('limits', reason.slice(6)), '.'];
    if (reason.startsWith('children ')) return `Waits for ${reason.slice(9)} unfinished children.`;
    if (reason === 'parent') return ['Waits for its parent', job.parent ? [' ', link(`job/${job.parent}`, job.parent)] : '', '.'];
    if (reason === 'being run') return 'Suspended: it waits until it is run again.';
    return ['Ready: it waits for a worker.'];
  }

  function facts(job) {
    const moment = (ms) => (ms ? [time(ms), h('br'), h('small', { class: 'soft' }, exact(ms))] : null);
    const took = job.started_at && job.finished_at ? span(job.finished_at - job.started_at) : null;
    const list = [
      ['Queue', jobsLink(`queue:${quoted(job.queue)}`, job.queue)], ['Tenant', job.tenant], ['Source', job.origin], ['Priority', job.priority],
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
    section('Error', 'error');
    const said = [job.message, job.code ? `code ${job.code}` : null, job.exit_code !== undefined ? `exit code ${job.exit_code}` : null].filter(Boolean);
    if (said.length) list.push(h('section', { class: 'card' }, h('h2', {}, 'Last error'), h('pre', {}, said.join('\n'))));
    if (job.errors) {
      list.push(h('section', { class: 'card' }, h('h2', {}, 'Failed attempts'), [...job.errors].reverse().map((error) => h('div', { class: 'error-item' }, h('div', { class: 'soft' }, `attempt ${error.attempt}`, error.worker ? ` by ${error.worker}` : '', ', ', time(error.at), error.started_at ? `, after ${span(error.at - error.started_at)}` : ''), h('pre', {}, error.message)))));
    }
    if (job.custom_state && Object.keys(job.custom_state).length) {
      list.push(h('section', { class: 'card', 'data-part': 'state' }, h('h2', {}, 'State'), payload({ value: job.custom_state, format: 'json' }, 'State')));
    }
    for (const [key, title] of [['inports', 'Input ports'], ['outports', 'Output ports']]) {
      const ports = Object.entries(job.ports?.[key] ?? {});
      if (ports.length) list.push(h('section', { class: 'card', 'data-part': key }, h('h2', {}, title), ports.map(([name, port]) => portOf(name, port))));
    }
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

  // Above: who it came from, the oldest first. Below: its children and theirs, as many as the server tells of.
  function family(job, kin) {
    const place = (other, isHere) => h('span', { class: 'kin' }, isHere ? h('b', {}, `${other.name} #${other.id}`) : link(`job/${other.id}`, `${other.name} #${other.id}`), ' ', chip(stateWord(other)),
      other.child_name ? h('span', { class: 'soft' }, ` ${other.child_name}`) : null);
    const more = (count) => (count ? h('li', { class: 'soft' }, `${int(count)} more`) : null);
    const branch = (nodes, rest) => (nodes.length || rest ? h('ul', { class: 'kin-list' }, nodes.map((node) => h('li', {}, place(node), branch(node.children, node.more))), more(rest)) : null);
    let tree = h('ul', { class: 'kin-list', id: 'family' }, h('li', {}, place(job, true), branch(kin.children, kin.more)));
    for (const parent of [...kin.ancestors].reverse()) tree = h('ul', { class: 'kin-list', id: 'family' }, h('li', {}, place(parent), tree));
    return h('section', { class: 'card' }, h('h2', {}, 'Parents and children'), tree);
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
    load, events: { job: id }, every: 10_000,
    heard: (kind, data) => {
      if (data?.id !== undefined && kind !== 'progress') { events.push({ kind, at: data.at }); if (events.length > EVENTS_KEPT) events.shift(); }
      return false;
    },
  });
  return fresh;
}
