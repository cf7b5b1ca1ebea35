// A table that changes only where its rows did, so that nothing jumps and nothing loses the focus.
import { h, fill } from './dom.js';

export function table({ label, columns, key, empty, rowClass, href }) {
  const body = h('tbody');
  const head = h('tr', {}, columns.map((column) => h('th', { scope: 'col', class: column.class }, column.head ?? column.title)));
  const none = h('div', { class: 'none', hidden: true }, empty ?? 'nothing here');
  const node = h('div', { class: 'scroll' }, h('table', { 'aria-label': label }, h('thead', {}, head), body), none);
  const known = new Map();
  let first = true;

  function set(items) {
    const left = new Set(known.keys());
    items.forEach((item, index) => {
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
        fill(row.tr, columns.map((column) => h('td', { class: column.class }, column.cell(item))));
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
  return { node, set, body, none };
}

// j, k, Enter and x on the rows of the first table of the page.
export function step(by) {
  const rows = [...document.querySelectorAll('main tbody tr')];
  if (rows.length === 0) return;
  const at = rows.findIndex((row) => row.classList.contains('current'));
  const next = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by))];
  rows.forEach((row) => row.classList.toggle('current', row === next));
  next.scrollIntoView({ block: 'nearest' });
}

export function current() { return document.querySelector('main tbody tr.current'); }
