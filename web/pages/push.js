import { get, post, server, token } from '../api.js';
import { field, fill, h, link, milliseconds, toast } from '../dom.js';
import { payloadInput, payloadText, tagList } from '../edit.js';

export default function push(root, where, { me }) {
  const from = where.query;
  const body = payloadInput('push');
  const inputs = {
    name: h('input', { id: 'push-name', required: true, value: from.get('name') ?? '', placeholder: 'mail' }),
    queue: h('input', { id: 'push-queue', value: from.get('queue') ?? '', placeholder: 'default' }),
    delay: h('input', { id: 'push-delay', placeholder: '10s, 5m, 1h30m' }),
    priority: h('input', { type: 'number', id: 'push-priority', placeholder: '0' }),
    retry: h('input', { type: 'number', id: 'push-retry', min: '1', placeholder: '10' }),
    repeat: h('input', { id: 'push-repeat', placeholder: 'every 5m, 0 4 * * *' }),
    unique: h('input', { id: 'push-unique', placeholder: 'customer-7' }),
    tags: h('input', { id: 'push-tags', placeholder: 'red, blue' }),
  };
  const done = h('div', { role: 'status' });

  async function send(event) {
    event.preventDefault();
    const value = (key) => inputs[key].value.trim();
    try {
      const job = { name: value('name'), ...body.read() };
      if (value('queue')) job.queue = value('queue');
      if (value('delay')) job.delay_ms = milliseconds(value('delay'));
      if (value('priority')) job.priority = Number(value('priority'));
      if (value('retry')) job.retry = Number(value('retry'));
      if (value('repeat')) job.repeat = value('repeat');
      if (value('unique')) job.unique = value('unique');
      if (value('tags')) job.tags = tagList(value('tags'));
      const answer = await post('jobs', job);
      const was = answer.existing.length > 0;
      fill(done, h('div', { class: 'notice' }, was ? 'A job with this unique key exists already: ' : 'Pushed: ', link(`job/${answer.id}`, `job ${answer.id}`)));
    } catch (error) {
      fill(done, h('div', { class: 'notice bad', role: 'alert' }, error.message));
    }
  }

  // The form of a job like another one.
  async function fillFrom(id) {
    const job = await get(`jobs/${encodeURIComponent(id)}`);
    const values = { name: job.name, queue: job.queue, priority: job.priority || '', retry: job.max_attempts ?? '', tags: (job.tags ?? []).join(', ') };
    for (const [key, value] of Object.entries(values)) inputs[key].value = value;
    body.set(payloadText(job), job.format === 'text');
    const lost = !['json', 'text', undefined].includes(job.format) || job.hidden;
    fill(done, h('div', { class: lost ? 'notice warn' : 'notice' }, 'Filled with ', link(`job/${job.id}`, `job ${job.id}`), lost ? ', without its payload, which cannot be edited here.' : '.'));
  }

  const form = h('form', { class: 'card', onsubmit: send },
    h('div', { class: 'grid' }, field('Name', inputs.name, 'workers claim jobs by name'), field('Queue', inputs.queue)), body.nodes,
    h('div', { class: 'grid' },
      field('Delay', inputs.delay, 'before the job may run'), field('Priority', inputs.priority, 'smaller numbers run first'), field('Attempts', inputs.retry, 'including the first'),
      field('Repeat', inputs.repeat, 'interval or cron rule'), field('Unique key', inputs.unique, 'at most one unfinished job per key'), field('Tags', inputs.tags)),
    h('button', { class: 'main', type: 'submit', id: 'push-send' }, 'Push'));
  fill(root, h('div', { class: 'head' }, h('h1', {}, 'New job')), done,
    h('div', { class: 'side' }, form, h('section', { class: 'card' }, h('h2', {}, 'Push from a terminal'), snippets(me))));
  if (from.get('from')) fillFrom(from.get('from')).catch((error) => fill(done, h('div', { class: 'notice bad', role: 'alert' }, error.message)));
}

function snippet(title, text) {
  const copy = h('button', { class: 'small', onclick: () => navigator.clipboard?.writeText(text).then(() => toast('copied'), () => toast('the browser does not allow copying here', true)) }, 'Copy');
  return h('div', {}, h('div', { class: 'soft' }, title), h('div', { class: 'snippet' }, h('pre', { class: 'code' }, text), copy));
}

export function snippets(me) {
  const usual = server === 'http://127.0.0.1:7373' || server === 'http://localhost:7373';
  const at = usual ? '' : ` --server ${server}`;
  const bearer = token.get() ? " -H 'Authorization: Bearer YOUR_TOKEN'" : '';
  const ports = Object.entries(me.doors ?? {}).map(([dialect, address]) => `${dialect} on ${address}`).join(', ');
  const python = [
    'import json, urllib.request',
    `request = urllib.request.Request("${server}/api/v1/jobs",`,
    '    json.dumps({"name": "hello", "payload": {"to": "you"}}).encode(),',
    `    {"Content-Type": "application/json"${token.get() ? ', "Authorization": "Bearer YOUR_TOKEN"' : ''}})`,
    'print(urllib.request.urlopen(request).read().decode())',
  ].join('\n');
  return [
    snippet('shell', `windlass push hello '{"to":"you"}'${at}`),
    snippet('curl', `curl ${server}/api/v1/jobs${bearer} --json '{"name":"hello","payload":{"to":"you"}}'`),
    snippet('Python', python),
    snippet('worker', `windlass work hello${at} -- cat`),
    ports ? h('p', { class: 'soft' }, `Other protocols of this server: ${ports}`) : null,
  ];
}

export const firstSteps = (me) => h('section', { class: 'card', id: 'first-steps' },
  h('h2', {}, 'No jobs yet: push the first one'),
  h('p', { class: 'soft' }, 'Paste one of these commands into a terminal and watch this page, or use the form ', link('push', 'New job'), '.'), snippets(me));
