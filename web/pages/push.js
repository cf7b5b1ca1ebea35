import { post, server, token } from '../api.js';
import { h, fill, link, toast } from '../dom.js';

function field(label, input, hint) {
  return h('label', { class: 'field' }, h('span', {}, label), input, hint ? h('small', {}, hint) : null);
}

// `10s`, `5m`, `1h30m`; a bare number is seconds.
function milliseconds(text) {
  if (/^\d+$/.test(text)) return Number(text) * 1000;
  const sizes = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)/g)];
  if (parts.map((part) => part[0]).join('').replace(/\s/g, '') !== text.replace(/\s/g, '') || parts.length === 0) {
    throw new Error(`“${text}” is not a duration; use the form 10s, 5m or 1h30m`);
  }
  return Math.round(parts.reduce((sum, [, count, unit]) => sum + Number(count) * sizes[unit], 0));
}

export default function push(root, where, { me }) {
  const from = where.query;
  const inputs = {
    name: h('input', { id: 'push-name', required: true, value: from.get('name') ?? '', placeholder: 'mail' }),
    queue: h('input', { id: 'push-queue', value: from.get('queue') ?? '', placeholder: 'default' }),
    payload: h('textarea', { id: 'push-payload', rows: 8, placeholder: '{"to": "ann@example.org"}' }),
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
      const job = { name: value('name') };
      const text = inputs.payload.value;
      if (text.trim()) {
        try { job.payload = JSON.parse(text); } catch { job.payload = text; job.format = 'text'; }
      }
      if (value('queue')) job.queue = value('queue');
      if (value('delay')) job.delay_ms = milliseconds(value('delay'));
      if (value('priority')) job.priority = Number(value('priority'));
      if (value('retry')) job.retry = Number(value('retry'));
      if (value('repeat')) job.repeat = value('repeat');
      if (value('unique')) job.unique = value('unique');
      if (value('tags')) job.tags = value('tags').split(',').map((tag) => tag.trim()).filter(Boolean);
      const answer = await post('jobs', job);
      const was = answer.existing.length > 0;
      fill(done, h('div', { class: 'notice' }, was ? 'A job with this unique key exists already: ' : 'Pushed: ', link(`job/${answer.id}`, `job ${answer.id}`)));
    } catch (error) {
      fill(done, h('div', { class: 'notice bad', role: 'alert' }, error.message));
    }
  }

  const form = h('form', { class: 'card', onsubmit: send },
    h('div', { class: 'grid' }, field('Name', inputs.name, 'workers claim jobs by name'), field('Queue', inputs.queue)),
    field('Payload', inputs.payload, 'JSON, or text if it does not parse as JSON'),
    h('div', { class: 'grid' },
      field('Delay', inputs.delay, 'before the job may run'), field('Priority', inputs.priority, 'smaller numbers run first'), field('Attempts', inputs.retry, 'including the first'),
      field('Repeat', inputs.repeat, 'interval or cron rule'), field('Unique key', inputs.unique, 'at most one unfinished job per key'), field('Tags', inputs.tags)),
    h('button', { class: 'main', type: 'submit', id: 'push-send' }, 'Push'));
  fill(root, h('div', { class: 'head' }, h('h1', {}, 'New job')), done,
    h('div', { class: 'side' }, form, h('section', { class: 'card' }, h('h2', {}, 'Push from a terminal'), snippets(me))));
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
