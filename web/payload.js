// A payload, result or error as its reader can use it: a tree, its text, its bytes. Payloads are hostile: all of it is text.
import { h, fill, Big } from './dom.js';

const KIDS_MAX = 200;
const HEX_BYTES_MAX = 16_384;
const TEXT_MAX = 200_000;

function leaf(value) {
  if (value instanceof Big) return h('span', { class: 'n' }, value.source);
  if (typeof value === 'string') return h('span', { class: 's' }, JSON.stringify(value));
  if (typeof value === 'number') return h('span', { class: 'n' }, String(value));
  return h('span', { class: 'b' }, String(value));
}

function branch(key, value, depth) {
  const label = key === undefined ? [] : [h('span', { class: 'k' }, `${key}: `)];
  if (value === null || typeof value !== 'object' || value instanceof Big) return h('div', { class: 'leaf' }, label, leaf(value));
  const entries = Array.isArray(value) ? value.map((item, index) => [index, item]) : Object.entries(value);
  const [open, close] = Array.isArray(value) ? '[]' : '{}';
  if (entries.length === 0) return h('div', { class: 'leaf' }, label, `${open}${close}`);
  const kids = h('div', { class: 'kids' });
  let shown = 0;
  const more = () => {
    const button = kids.querySelector(':scope > button');
    button?.remove();
    for (const [name, item] of entries.slice(shown, shown + KIDS_MAX)) kids.append(branch(name, item, depth + 1));
    shown += KIDS_MAX;
    if (shown < entries.length) kids.append(h('button', { class: 'small', onclick: more }, `${entries.length - shown} more`));
  };
  const node = h('details', { ontoggle: () => { if (node.open && shown === 0) more(); } },
    h('summary', {}, label, `${open}${entries.length}${close}`), kids);
  if (depth < 2 && entries.length <= 50) { node.open = true; more(); }
  return node;
}

function bytesOf(part) {
  if (part.base64 !== undefined) return Uint8Array.from(atob(part.base64), (letter) => letter.charCodeAt(0));
  const text = part.format === 'text' ? part.value : JSON.stringify(part.value);
  return new TextEncoder().encode(text ?? '');
}

function hex(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, HEX_BYTES_MAX); at += 16) {
    const row = [...bytes.slice(at, at + 16)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, '0')).join(' ').padEnd(48);
    const letters = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : '.')).join('');
    lines.push(`${at.toString(16).padStart(6, '0')}  ${digits} ${letters}`);
  }
  if (bytes.length > HEX_BYTES_MAX) lines.push(`… ${bytes.length - HEX_BYTES_MAX} more bytes`);
  return lines.join('\n') || '(empty)';
}

function pretty(part) {
  if (part.format === 'text') return part.value ?? '';
  if (part.value === undefined) return new TextDecoder().decode(bytesOf(part));
  return JSON.stringify(part.value, null, 2);
}

// The part of an answer under `key`: its value, bytes and format.
export function partOf(answer, key) {
  const base64 = answer[`${key}_base64`];
  if (answer[key] === undefined && base64 === undefined) return undefined;
  const format = (key === 'payload' ? answer.format : answer[`${key}_format`]) ?? 'json';
  return { value: answer[key], base64, format };
}

export function payload(part, label) {
  const tree = part.value !== undefined && part.value !== null && typeof part.value === 'object' && !(part.value instanceof Big);
  const views = [
    ...(tree ? [['Tree', () => h('div', { class: 'tree' }, branch(undefined, part.value, 0))]] : []),
    ['Text', () => {
      const text = pretty(part);
      return h('pre', { class: 'code' }, text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)}\n… ${text.length - TEXT_MAX} more characters` : text);
    }],
    ['Hex', () => h('pre', { class: 'code' }, hex(bytesOf(part)))],
  ];
  if (part.value === undefined) views.reverse();
  const place = h('div');
  const buttons = views.map(([name, make]) => h('button', { class: 'small', 'aria-pressed': 'false', onclick: (event) => show(event.currentTarget, make) }, name));
  function show(button, make) {
    buttons.forEach((other) => other.setAttribute('aria-pressed', String(other === button)));
    fill(place, make());
  }
  show(buttons[0], views[0][1]);
  return h('section', { 'aria-label': label }, h('div', { class: 'tabs' }, buttons, h('span', { class: 'soft' }, part.format)), place);
}

export function excerptOf(part) {
  if (!part || part.value === null) return '';
  if (part.value === undefined) return `${part.format}, ${Math.floor((part.base64.length * 3) / 4)} bytes`;
  return (typeof part.value === 'string' ? part.value : JSON.stringify(part.value)).slice(0, 300);
}

export const excerpt = (job) => (job.hidden ? 'hidden' : excerptOf(partOf(job, 'payload')));
