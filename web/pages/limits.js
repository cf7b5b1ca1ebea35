import { call, get } from '../api.js';
import { ask, fill, h, int, short, toast } from '../dom.js';
import { keepFresh } from '../live.js';
import { table } from '../table.js';

const KINDS = [['name_glob', 'name matches'], ['name', 'name is'], ['queue', 'queue is'], ['json', 'JSON matcher']];

const QUOTA = [['jobs', 'unfinished jobs'], ['payload_bytes', 'payload bytes'], ['blob_bytes', 'blob bytes'], ['handlers', 'handlers'], ['requests_in_flight', 'concurrent requests'], ['requests_per_second', 'requests per second'], ['waiting_claims', 'waiting claims'], ['connections', 'connections'], ['handler_seconds_per_minute', 'handler seconds per minute']];

// Rounded from a thousand million on: longer numbers do not fit on a phone.
const size = (value) => h('span', { title: int(value) }, value < 1e9 ? int(value) : short(value));

function about(matcher) {
  const [[key, value] = []] = Object.entries(matcher);
  const known = KINDS.find(([kind]) => kind === key && Object.keys(matcher).length === 1 && typeof value === 'string');
  return known ? `${known[1]} ${value}` : JSON.stringify(matcher);
}

const speed = (limit) => `${limit.rate.per_second}/s${limit.rate.burst ? `, burst ${limit.rate.burst}` : ''}`;

// A bound that holds for each value of something is no bound on all of them.
function running(limit) {
  if (limit.max_running === undefined || limit.max_running === null) return int(limit.running);
  return limit.group_by?.length ? `${int(limit.running)}, max ${limit.max_running} per group` : `${int(limit.running)} of ${limit.max_running}`;
}

export default function limits(root, where, { me, may }) {
  const tenant = where.query.get('tenant') ?? '';
  const query = tenant ? { tenant } : {};
  const rows = table({
    label: 'Limits', key: (limit) => limit.id, empty: 'no limits',
    columns: [
      { title: 'Limit', class: 'name', sort: (limit) => limit.id, cell: (limit) => [limit.id, h('div', { class: 'narrow soft' }, about(limit.matcher), limit.rate ? `, ${speed(limit)}` : '')] },
      { title: 'Jobs', class: 'name wide', cell: (limit) => about(limit.matcher) },
      { title: 'Rate', class: 'num wide', cell: (limit) => (limit.rate ? speed(limit) : '–') },
      { title: 'Running', class: 'num', cell: running },
      { title: 'Waiting', class: 'num wide', sort: (limit) => limit.waiting ?? 0, cell: (limit) => int(limit.waiting ?? 0) },
      { title: 'Held back', class: 'num', sort: (limit) => limit.held ?? 0, cell: (limit) => (limit.held ? h('b', {}, int(limit.held)) : h('span', { class: 'zero' }, '0')) },
      { title: 'Per', class: 'wide', cell: (limit) => (limit.group_by?.length ? limit.group_by.map((path) => path.join('.')).join(', ') : '–') },
      ...(may('operator') ? [{ title: '', class: 'right', cell: (limit) => h('div', { class: 'row-buttons' }, h('button', { class: 'small', onclick: () => edit(limit) }, 'Change'), h('button', { class: 'small danger', 'aria-label': `Remove ${limit.id}`, onclick: () => remove(limit) }, 'Remove')) }] : []),
    ],
  });
  const place = h('div');
  const quotaRows = table({
    label: 'Quota', key: (row) => row.key,
    columns: [
      { title: 'Resource', class: 'name', cell: (row) => row.label },
      { title: 'In use', class: 'num', cell: (row) => (row.now === undefined ? '–' : size(row.now)) },
      { title: 'Quota', class: 'num', cell: (row) => size(row.max) },
      ...(may('admin') ? [{ title: '', class: 'right', cell: (row) => h('button', { class: 'small', 'aria-label': `Change the quota of ${row.label}`, onclick: () => editQuota(row) }, 'Change') }] : []),
    ],
  });
  const quotaCard = h('section', { class: 'card flush', id: 'quota' }, h('h2', {}, 'Quotas of the tenant'), quotaRows.node);
  const whose = me.role === 'admin' ? h('form', { class: 'tools', onsubmit: (event) => { event.preventDefault(); location.hash = `#/limits?tenant=${encodeURIComponent(event.currentTarget.elements.tenant.value.trim())}`; } },
    h('label', { class: 'soft', for: 'limit-tenant' }, 'tenant'), h('input', { id: 'limit-tenant', name: 'tenant', value: tenant || me.tenant, size: 14 })) : null;
  fill(root, h('div', { class: 'head' }, h('h1', {}, 'Limits'), h('span', { class: 'soft' }, 'rate and concurrency limits'), h('span', { class: 'fill' }), whose, may('operator') ? h('button', { id: 'new-limit', onclick: () => edit(null) }, 'New limit') : null),
    place, h('section', { class: 'card flush' }, rows.node), quotaCard);

  function edit(limit) {
    const [[key, value] = ['name_glob', '']] = Object.entries(limit?.matcher ?? {});
    const simple = limit === null || (KINDS.some(([kind]) => kind === key) && typeof value === 'string' && Object.keys(limit.matcher).length === 1);
    const kind = h('select', { id: 'limit-kind', 'aria-label': 'Which jobs' }, KINDS.map(([name, label]) => h('option', { value: name }, label)));
    kind.value = simple ? key : 'json';
    const inputs = {
      id: h('input', { id: 'limit-id', required: true, value: limit?.id ?? '', disabled: limit !== null, placeholder: 'mail-per-user' }),
      what: h('input', { id: 'limit-what', required: true, value: simple ? value : JSON.stringify(limit.matcher), placeholder: 'mail*' }),
      rate: h('input', { id: 'limit-rate', type: 'number', step: 'any', min: '0', value: limit?.rate?.per_second ?? '' }),
      burst: h('input', { id: 'limit-burst', type: 'number', min: '1', value: limit?.rate?.burst ?? '' }),
      running: h('input', { id: 'limit-running', type: 'number', min: '0', value: limit?.max_running ?? '' }),
      group: h('input', { id: 'limit-group', value: limit?.group_by?.map((path) => path.join('.')).join(', ') ?? '', placeholder: 'user.id' }),
    };
    const trouble = h('div', { class: 'notice bad', role: 'alert', hidden: true });
    const field = (label, input, hint) => h('label', { class: 'field' }, h('span', {}, label), input, hint ? h('small', {}, hint) : null);
    async function save(event) {
      event.preventDefault();
      try {
        const body = { matcher: kind.value === 'json' ? JSON.parse(inputs.what.value) : { [kind.value]: inputs.what.value.trim() } };
        if (inputs.rate.value) body.rate = { per_second: Number(inputs.rate.value), ...(inputs.burst.value ? { burst: Number(inputs.burst.value) } : {}) };
        if (inputs.running.value) body.max_running = Number(inputs.running.value);
        if (inputs.group.value.trim()) body.group_by = inputs.group.value.split(',').map((path) => path.trim().split('.'));
        await call('PUT', `limits/${encodeURIComponent(inputs.id.value.trim())}`, { body, query });
        fill(place);
        toast(`limit ${inputs.id.value} saved`);
        fresh.look();
      } catch (error) { trouble.textContent = error.message; trouble.hidden = false; }
    }
    fill(place, h('form', { class: 'card', onsubmit: save }, h('h2', {}, limit ? `Change ${limit.id}` : 'New limit'), trouble,
      h('div', { class: 'grid' }, field('Id', inputs.id), field('Jobs whose', kind), field('Value', inputs.what)),
      h('div', { class: 'grid' }, field('Starts per second', inputs.rate), field('Burst', inputs.burst, 'starts at once after an idle time'), field('Maximum running', inputs.running), field('Group by', inputs.group, 'paths in the payload; each value has its own limit')),
      h('div', { class: 'tools' }, h('button', { class: 'main', type: 'submit', id: 'limit-save' }, 'Save'), h('button', { type: 'button', onclick: () => fill(place) }, 'Cancel'))));
    (limit ? inputs.what : inputs.id).focus();
  }

  async function remove(limit) {
    if (!await ask('Remove limit', h('p', {}, `Remove ${limit.id}? Jobs that it holds back can start at once.`), 'Remove', true)) return;
    await call('DELETE', `limits/${encodeURIComponent(limit.id)}`, { query });
    toast(`limit ${limit.id} removed`);
    fresh.look();
  }

  async function load(signal) {
    rows.set((await get('limits', query, signal)).limits);
    const { quota, in_use: now } = await get(`tenants/${encodeURIComponent(tenant || me.tenant)}/quota`, {}, signal);
    quotaRows.set(QUOTA.map(([key, label]) => ({ key, label, now: now[key], max: quota[key] })));
  }

  function editQuota(row) {
    const of = tenant || me.tenant;
    const bound = h('input', { id: 'quota-bound', type: 'number', min: '0', step: '1', required: true, value: row.max });
    const trouble = h('div', { class: 'notice bad', role: 'alert', hidden: true });
    async function save(event) {
      event.preventDefault();
      try {
        await call('PUT', `tenants/${encodeURIComponent(of)}/quota`, { body: { [row.key]: Number(bound.value) } });
        fill(place);
        toast(`quota of ${row.label} saved`);
        fresh.look();
      } catch (error) { trouble.textContent = error.message; trouble.hidden = false; }
    }
    fill(place, h('form', { class: 'card', onsubmit: save }, h('h2', {}, `Quota of ${of}`), trouble,
      h('div', { class: 'grid' }, h('label', { class: 'field' }, h('span', {}, row.label), bound)),
      h('div', { class: 'tools' }, h('button', { class: 'main', type: 'submit', id: 'quota-save' }, 'Save'), h('button', { type: 'button', onclick: () => fill(place) }, 'Cancel'))));
    bound.focus();
  }

  const fresh = keepFresh({ load, every: 5000 });
  return fresh;
}
