import { call, get, post } from '../api.js';
import { ask, chip, exact, fill, h, jobsLink, link, quoted, relative, span, stateWord, time, toast } from '../dom.js';
import { keepFresh } from '../live.js';
import { partOf, payload } from '../payload.js';
import { table } from '../table.js';

const EVENTS_KEPT = 100;
const SETTLED = ['completed', 'failed', 'cancelled', 'terminated'];

export default function jobPage(root, where, { may }) {
  const id = where.id;
  const events = [];
  let last = null;
  const parts = { head: h('div', { class: 'head' }), notice: h('div'), facts: h('section', { class: 'card' }), body: h('div'), family: h('div'), events: h('section', { class: 'card' }) };
  const marks = {};
  fill(root, parts.head, parts.notice, h('div', { class: 'side' }, h('div', {}, parts.facts, parts.body, parts.family), h('div', {}, parts.events)));

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
    const isNew = last === null;
    const children = job.pending_children || isNew || marks.children ? (await get(`jobs/${job.id}/children`, {}, signal)).jobs : [];
    marks.children = children.length > 0;
    last = job;
    document.title = `${job.name} · job ${job.id} · Windlass`;
    part('head', [job.name, job.state, job.run_at, may('operator')], () => heading(job));
    part('notice', [job.waiting_for, job.lease, job.progress, job.run_at, job.hidden], () => notices(job));
    part('facts', job, () => facts(job));
    part('body', ['payload', 'result', 'error', 'message', 'code', 'exit_code', 'errors', 'hidden', 'payload_base64', 'result_base64', 'next_runs'].map((key) => job[key] ?? null), () => bodies(job));
    part('family', [job.parent, children.map((child) => [child.id, child.state, child.updated_at])], () => family(job, children));
    drawEvents();
  }

  function gone() {
    const was = last ? `Job ${last.id} (${last.name}) is gone.` : `There is no job ${id}, or it is gone.`;
    fill(parts.head, h('h1', {}, `Job ${id}`));
    fill(parts.notice, h('div', { class: 'notice warn', role: 'status' }, was, ' ', link('jobs', 'All jobs')));
    if (!last) [parts.facts, parts.events].forEach((place) => { place.hidden = true; });
  }

  async function act(title, method, path, body, danger) {
    if (danger && !await ask(title, h('p', {}, `${title}: job ${last.id}, ${last.name}?`), title, true)) return;
    try {
      const answer = await call(method, `jobs/${id}${path}`, { body });
      toast(answer.state === 'gone' ? `job ${id} is gone` : `job ${id}: ${answer.state}`);
    } catch (error) {
      toast(error.message, true);
    }
    fresh.look();
  }

  async function priority() {
    const input = h('input', { type: 'number', value: String(last.priority), 'aria-label': 'Priority' });
    if (await ask('Change priority', h('label', { class: 'field' }, h('span', {}, 'Priority (smaller runs first)'), input), 'Change')) act('Change', 'PATCH', '', { priority: Number(input.value) });
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
      list.push(h('div', { class: job.lease.cancel_asked ? 'notice warn' : 'notice', id: 'lease' }, 'Held by ', h('b', {}, job.lease.worker ?? 'a worker without a name'), ' since ', time(job.lease.granted_at),
        job.lease.until ? ['; the lease ends ', time(job.lease.until), ' without a sign of life'] : '; the lease has no end', job.lease.cancel_asked ? '. It was asked to stop.' : '.'));
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
    if (reason === 'due') return ['Waits for its time: ', time(job.run_at), '.'];
    if (reason === 'paused queue') return ['Its queue ', link('queues', job.queue), ' is paused.'];
    if (reason.startsWith('limit ')) return ['Held back by the limit ', link('limits', reason.slice(6)), '.'];
    if (reason.startsWith('children ')) return `Waits for ${reason.slice(9)} of its children.`;
    if (reason === 'parent') return ['Waits for its parent', job.parent ? [' ', link(`job/${job.parent}`, job.parent)] : '', '.'];
    if (reason === 'being run') return 'Suspended: it waits to be run again.';
    return ['Could run now: it waits for a worker.'];
  }

  function facts(job) {
    const moment = (ms) => (ms ? [time(ms), h('br'), h('small', { class: 'soft' }, exact(ms))] : null);
    const took = job.started_at && job.finished_at ? span(job.finished_at - job.started_at) : null;
    const list = [
      ['Queue', jobsLink(`queue:${quoted(job.queue)}`, job.queue)], ['Tenant', job.tenant], ['Came by', job.origin], ['Priority', job.priority],
      ['Attempts', job.max_attempts ? `${job.attempts} of ${job.max_attempts}` : job.attempts], ['Created', moment(job.created_at)], ['Due', moment(job.run_at)],
      ['Started', moment(job.started_at)], ['Finished', moment(job.finished_at)], ['Took', took], ['Kept until', moment(job.expires_at)], ['Alias', job.alias],
      ['Unique key', job.unique ? `${job.unique.key} (${job.unique.on_conflict})` : null], ['Repeats', job.repeat ? h('code', {}, job.repeat) : null],
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
    if (said.length) list.push(h('section', { class: 'card' }, h('h2', {}, 'Last word'), h('pre', {}, said.join('\n'))));
    if (job.errors) {
      list.push(h('section', { class: 'card' }, h('h2', {}, 'Attempts that went wrong'), [...job.errors].reverse().map((error) => h('div', { class: 'error-item' }, h('div', { class: 'soft' }, `attempt ${error.attempt}, `, time(error.at)), h('pre', {}, error.message)))));
    }
    if (job.next_runs) {
      list.push(h('section', { class: 'card' }, h('h2', {}, 'Next runs'), h('ul', { class: 'timeline' }, job.next_runs.map((run) => h('li', {}, time(run), h('span', {}, exact(run).replace('.000', '')))))));
    }
    return list;
  }

  function family(job, children) {
    if (!job.parent && children.length === 0) return [];
    const rows = table({
      label: 'Children', key: (child) => child.id, href: (child) => `#/job/${child.id}`,
      columns: [
        { title: 'Id', class: 'num id', cell: (child) => link(`job/${child.id}`, child.id) }, { title: 'State', cell: (child) => chip(stateWord(child)) },
        { title: 'Name', class: 'name', cell: (child) => [child.name, child.child_name ? h('span', { class: 'soft' }, ` ${child.child_name}`) : null] }, { title: 'When', cell: (child) => time(child.finished_at ?? child.updated_at) },
      ],
    });
    rows.set(children);
    return h('section', { class: 'card flush' }, h('h2', {}, 'Family'),
      job.parent ? h('p', { class: 'none' }, 'child of ', link(`job/${job.parent}`, `job ${job.parent}`), job.child_name ? `, which calls it ${job.child_name}` : '') : null,
      children.length ? rows.node : null);
  }

  function drawEvents() {
    const job = last;
    const known = [
      [job.created_at, 'created'],
      ...(job.errors ?? []).map((error) => [error.at, `attempt ${error.attempt} went wrong`]),
      job.lease ? [job.lease.granted_at, `claimed by ${job.lease.worker ?? 'a worker'}`] : [job.started_at, 'last run began'],
      [job.finished_at, job.state],
      ...events.map((event) => [event.at, event.kind]),
    ].filter(([at]) => at).sort((a, b) => b[0] - a[0]);
    part('events', known, () => [h('h2', {}, 'Events'), h('ul', { class: 'timeline', id: 'events' }, known.slice(0, EVENTS_KEPT).map(([at, what]) => h('li', {}, time(at), h('span', {}, what.replaceAll('_', ' '))))),
      h('p', { class: 'soft' }, 'The server keeps what a job is, not all that happened to it: single events show while this page is open.')]);
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
