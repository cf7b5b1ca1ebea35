import { ACTIONS, actOnMany, plain } from '../actions.js';
import { get } from '../api.js';
import { clock, fill, h, int, link, plural, quoted, time } from '../dom.js';
import { failureLine } from '../failure.js';
import { keepFresh } from '../live.js';
import { searchBar, withState } from '../search.js';
import { table } from '../table.js';
import { address as jobsAddress } from './jobs.js';

const GROUPS = 100;
const KINDS = [['', 'failed and retrying'], ['failed', 'failed'], ['retrying', 'retrying']];
const ORDERS = [['count', 'most frequent'], ['last', 'most recent']];
// Which of the jobs of a group an action is for, and whether there are any.
const FOR = { retry: ['failed', (group) => group.failed], run: ['retrying', (group) => group.retrying], cancel: ['retrying', (group) => group.retrying], delete: ['failed,retrying', (group) => group.count] };

const address = (query) => `#/failures?${new URLSearchParams(Object.entries(query).filter(([, value]) => value))}`;

// Rows of failure groups: what failed, how often, since when, and what can be done about all of it.
export function failureTable({ may, acted }) {
  const searchOf = (group) => `${group.search}${group.several && !/(^|\s)tenant:/.test(group.search) ? ` tenant:${quoted(group.tenant)}` : ''}`;
  const title = (group) => group.class ?? group.title;

  async function act(group, action, place) {
    const target = { search: withState(group.search, FOR[action.name][0]), tenant: group.several ? group.tenant : undefined };
    if (await actOnMany(action, target, (text) => fill(place, text))) acted();
  }

  function buttons(group) {
    const fitting = ACTIONS.filter((action) => FOR[action.name]?.[1](group) > 0);
    const place = h('div', { class: 'row-buttons' });
    return fill(place, fitting.map((action) => h('button', { class: action.danger ? 'small danger' : 'small', 'data-action': action.name, 'aria-label': `${plain(action.label)} the jobs with ${title(group)} in ${group.name}`, onclick: () => act(group, action, place) }, action.label)));
  }

  return table({
    label: 'Failures', key: (group) => `${group.tenant}/${group.name}/${group.search}`, empty: 'no failed or retrying jobs', href: (group) => jobsAddress(searchOf(group)),
    columns: [
      { title: 'Jobs', class: 'num', sort: (group) => group.count, cell: (group) => [h('b', {}, int(group.count)), ' ×', group.retrying && group.failed ? h('div', { class: 'soft' }, `${int(group.retrying)} retrying`) : null] },
      {
        title: 'Error', class: 'name grow', sort: title,
        cell: (group) => [h('a', { href: jobsAddress(searchOf(group)) }, h('b', {}, title(group))), ' in ', h('code', {}, group.name),
          group.sample ? h('div', { class: 'soft clip' }, link(`job/${group.sample.id}`, `#${group.sample.id}`), ' ', failureLine({ message: group.sample.message })) : null,
          h('div', { class: 'narrow soft' }, 'first ', clock(group.first_at), ', last ', time(group.last_at))],
      },
      { title: 'Queues', class: 'wide', cell: (group) => (group.queues ?? []).slice(0, 3).map((queue, index) => [index ? ', ' : '', link(`queue/${encodeURIComponent(queue)}`, queue)]) },
      { title: 'Tenant', class: 'wide', differs: (group) => group.tenant, cell: (group) => group.tenant },
      { title: 'First', class: 'nowrap wide', sort: (group) => group.first_at, cell: (group) => clock(group.first_at) },
      { title: 'Last', class: 'nowrap wide', sort: (group) => group.last_at, cell: (group) => time(group.last_at) },
      ...(may('operator') ? [{ title: '', class: 'right buttons', cell: buttons }] : []),
    ],
  });
}

// With several tenants in one answer, links and actions name the tenant.
export const withTenants = (groups) => groups.map((group) => ({ ...group, several: groups.some((other) => other.tenant !== group.tenant) }));

export default function failures(root, where, { may }) {
  const query = { search: where.query.get('search') ?? '', state: where.query.get('state') ?? '', sort: where.query.get('sort') ?? '' };
  const bar = searchBar(query.search, (text) => { location.hash = address({ ...query, search: text }); });
  const rows = failureTable({ may, acted: () => fresh.look() });
  const summary = h('span', { class: 'soft', id: 'found', role: 'status' });
  const trouble = h('div', { class: 'notice bad', role: 'alert', hidden: true });
  const partial = h('div', { class: 'notice warn', hidden: true });
  const choice = (label, key, list, usual) => h('nav', { class: 'chips', 'aria-label': label }, list.map(([value, text]) => h('a', { href: address({ ...query, [key]: value === usual ? '' : value }), 'aria-current': (query[key] || usual) === value ? 'true' : null }, text)));
  fill(root,
    h('div', { class: 'head' }, h('h1', {}, 'Failures'), bar.node, h('button', { class: 'main', onclick: () => { location.hash = address({ ...query, search: bar.input.value.trim() }); } }, 'Search')),
    h('div', { class: 'choices' }, choice('States', 'state', KINDS, ''), choice('Order', 'sort', ORDERS, 'count')), trouble, partial,
    h('section', { class: 'card flush' }, h('div', { class: 'actions' }, summary), rows.node));

  async function load(signal) {
    let answer;
    try {
      answer = await get('failures', { ...query, limit: GROUPS }, signal);
      trouble.hidden = true;
    } catch (error) {
      if (error.status >= 400) { trouble.textContent = error.message; trouble.hidden = false; rows.set([]); summary.textContent = ''; }
      throw error;
    }
    rows.set(withTenants(answer.groups));
    const shown = answer.groups.length < answer.groups_total ? `; ${int(answer.groups.length)} of them are shown` : '';
    summary.textContent = `${answer.partial ? 'at least ' : ''}${plural(answer.looked_at, 'job')} in ${plural(answer.groups_total, 'group')}${shown}`;
    partial.hidden = !answer.partial;
    partial.textContent = `Only the newest ${int(answer.looked_at)} of ${int(answer.total)} failed and retrying jobs were looked at; the counts are lower bounds. A search for a queue or a name looks at fewer jobs.`;
  }
  const fresh = keepFresh({ load, every: 15_000, gap: 3000 });
  return fresh;
}
