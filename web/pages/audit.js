import { get } from '../api.js';
import { clock, fill, h, link, time } from '../dom.js';
import { keepFresh } from '../live.js';
import { table } from '../table.js';

const PAGE = 100;
const KINDS = [['', 'all'], ['job', 'single jobs'], ['jobs', 'many jobs'], ['queue', 'queues'], ['schedule', 'schedules'], ['limit', 'limits'], ['token', 'tokens']];
const address = (query) => `#/audit?${new URLSearchParams(Object.entries(query).filter(([, value]) => value))}`;

// The thing that was acted on, with a link where it has a page.
function target(entry) {
  const [kind] = entry.action.split('.');
  const name = entry.target;
  if (['job', 'schedule'].includes(kind) && /^\d+$/.test(name)) return link(`job/${name}`, `${kind} ${name}`);
  if (kind === 'queue' && name) return ['queue ', link(`queue/${encodeURIComponent(name)}?tenant=${encodeURIComponent(entry.tenant)}`, name)];
  if (kind === 'limit' && name) return ['limit ', link('limits', name)];
  return name || '–';
}

export default function audit(root, where) {
  const query = Object.fromEntries(['who', 'action', 'job', 'cursor'].map((key) => [key, where.query.get(key) ?? '']));
  const { cursor, ...filter } = query;
  const rows = table({
    label: 'Audit', key: (entry) => entry.id, empty: 'nobody has changed anything yet',
    columns: [
      { title: 'When', class: 'nowrap', cell: (entry) => [time(entry.at), h('div', { class: 'soft' }, clock(entry.at))] },
      { title: 'Who', class: 'name', cell: (entry) => [h('a', { href: address({ ...filter, who: entry.who }) }, entry.who), h('div', { class: 'soft' }, entry.role)] },
      { title: 'Tenant', class: 'wide', differs: (entry) => entry.tenant, cell: (entry) => entry.tenant },
      { title: 'Action', class: 'name', cell: (entry) => h('b', {}, entry.action) },
      { title: 'Target', class: 'name', cell: (entry) => [target(entry), h('div', { class: 'narrow soft' }, entry.detail)] },
      { title: 'Detail', class: 'name wide', cell: (entry) => entry.detail },
    ],
  });
  const trouble = h('div', { class: 'notice bad', role: 'alert', hidden: true });
  const pager = h('div', { class: 'pager' });
  const only = [['who', query.who], ['job', query.job]].filter(([, value]) => value);
  fill(root, h('div', { class: 'head' }, h('h1', {}, 'Audit'), h('span', { class: 'soft' }, 'who did what'), h('span', { class: 'fill' }),
    only.map(([key, value]) => h('a', { class: 'button', href: address({ ...filter, [key]: '' }), 'aria-label': `Not only ${value}` }, `${key === 'job' ? 'job ' : ''}${value} ✕`))),
  h('nav', { class: 'chips', 'aria-label': 'Kinds' }, KINDS.map(([kind, label]) => h('a', { href: address({ ...filter, action: kind }), 'aria-current': kind === query.action ? 'true' : null }, label))),
  trouble, h('section', { class: 'card flush' }, rows.node, pager));

  async function load(signal) {
    let answer;
    try {
      answer = await get('audit', { ...query, limit: PAGE }, signal);
      trouble.hidden = true;
    } catch (error) {
      if (error.status >= 400) { trouble.textContent = error.message; trouble.hidden = false; }
      throw error;
    }
    rows.set(answer.entries);
    fill(pager, cursor ? h('a', { class: 'button', href: address(filter) }, '« Newest') : null, h('span', { class: 'fill' }),
      answer.next ? h('a', { class: 'button', id: 'older', href: address({ ...filter, cursor: answer.next }) }, 'Older ›') : h('span', { class: 'soft' }, answer.entries.length ? 'end of list' : ''));
  }
  const fresh = keepFresh({ load, every: 10_000, gap: 2000 });
  return fresh;
}
