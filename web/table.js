// A table that changes only where its rows did, so that nothing jumps and nothing loses the focus. A column with `sort` can be
// sorted by its title; a column with `differs` is shown only if its rows differ there.
import { h, fill } from './dom.js';

const compare = (a, b) => (a === b ? 0 : typeof a === 'string' ? a.localeCompare(b, 'en', { numeric: true }) : a < b ? -1 : 1);

// Rows without a value come last, in either direction.
function inOrder(items, sort, down) {
  const known = items.filter((item) => sort(item) !== undefined && sort(item) !== null);
  const rest = items.filter((item) => !known.includes(item));
  known.sort((a, b) => (down ? -1 : 1) * compare(sort(a), sort(b)));
  return [...known, ...rest];
}

export function table({ label, columns, key, empty, rowClass, href, sorted }) {
  const KEY = `windlass.sort.${label}`;
  const body = h('tbody');
  const head = h('tr');
  const none = h('div', { class: 'none', hidden: true }, empty ?? 'nothing here');
  const node = h('div', { class: 'scroll' }, h('table', { 'aria-label': label }, h('thead', {}, head), body), none);
  const known = new Map();
  let first = true;
  let shown = [];
  let last = [];
  let [by, down] = JSON.parse(sessionStorage.getItem(KEY) ?? '[null, false]');

  function turn(column) {
    if (by !== column.title) [by, down] = [column.title, column.class?.includes('num') ?? false];
    else if (down === (column.class?.includes('num') ?? false)) down = !down;
    else by = null;
    sessionStorage.setItem(KEY, JSON.stringify([by, down]));
    drawHead();
    set(last);
    sorted?.();
  }

  function title(column) {
    const direction = by === column.title ? (down ? 'descending' : 'ascending') : null;
    const text = column.sort ? h('button', { class: 'sort', 'data-sort': column.title, title: `Sort by ${column.title}`, onclick: () => turn(column) }, column.title, h('span', { 'aria-hidden': 'true' }, direction ? (down ? ' ↓' : ' ↑') : '')) : column.head ?? column.title;
    return h('th', { scope: 'col', class: column.class, 'aria-sort': direction }, text);
  }

  function drawHead() {
    const focused = document.activeElement?.dataset?.sort;
    fill(head, shown.map(title));
    if (focused) [...head.querySelectorAll('button')].find((button) => button.dataset.sort === focused)?.focus();
  }

  function chooseColumns(items) {
    const wanted = columns.filter((column) => !column.differs || items.some((item) => column.differs(item) !== column.differs(items[0])));
    if (wanted.length === shown.length && wanted.every((column, index) => column === shown[index])) return;
    shown = wanted;
    for (const row of known.values()) row.mark = undefined;
    drawHead();
  }

  function set(items) {
    last = items;
    chooseColumns(items);
    const sort = shown.find((column) => column.title === by && column.sort)?.sort;
    const left = new Set(known.keys());
    (sort ? inOrder(items, sort, down) : items).forEach((item, index) => {
      const id = String(key(item));
      left.delete(id);
      const mark = JSON.stringify(item) + (rowClass?.(item) ?? '');
      let row = known.get(id);
      if (!row) {
        row = { tr: h('tr', { 'data-key': id }) };
        known.set(id, row);
        if (!first) row.fresh = true;
      }
      if (row.mark !== mark) {
        row.mark = mark;
        fill(row.tr, shown.map((column) => h('td', { class: column.class }, column.cell(item))));
        row.tr.className = [rowClass?.(item), row.fresh && 'fresh', row.tr.classList.contains('current') && 'current'].filter(Boolean).join(' ');
        row.fresh = false;
        if (href) row.tr.dataset.href = href(item);
      }
      if (body.children[index] !== row.tr) body.insertBefore(row.tr, body.children[index] ?? null);
    });
    for (const id of left) {
      known.get(id).tr.remove();
      known.delete(id);
    }
    none.hidden = items.length > 0;
    first = false;
  }
  chooseColumns([]);
  return { node, set, body, none, sortedBy: () => by };
}

// j, k, Enter and x on the rows of the page.
export function step(by) {
  const rows = [...document.querySelectorAll('main tbody tr')];
  if (rows.length === 0) return;
  const at = rows.findIndex((row) => row.classList.contains('current'));
  const next = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by))];
  rows.forEach((row) => row.classList.toggle('current', row === next));
  next.scrollIntoView({ block: 'nearest' });
}

export function current() { return document.querySelector('main tbody tr.current'); }
