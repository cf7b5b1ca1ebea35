// Elements, numbers, times. Everything that comes from outside becomes a text node: there is no markup made of text here.

export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key === 'class') element.className = value;
    else if (key in element && (typeof value !== 'string' || key === 'value')) element[key] = value;
    else element.setAttribute(key, value === true ? '' : value);
  }
  put(element, children);
  return element;
}

export function put(element, children) {
  for (const child of [children].flat(5)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export const fill = (element, ...children) => put((element.replaceChildren(), element), children);

export function svg(tag, attributes, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [key, value] of Object.entries(attributes ?? {})) element.setAttribute(key, value);
  return put(element, children);
}

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
export const int = (number) => (number instanceof Big ? number.source : whole.format(number));

export function short(number) {
  if (number < 10_000) return whole.format(number);
  const [size, unit] = number < 1e6 ? [1e3, 'k'] : number < 1e9 ? [1e6, 'M'] : [1e9, 'G'];
  return `${(number / size).toFixed(number / size < 100 ? 1 : 0)} ${unit}`;
}

export const rate = (perSecond) => (perSecond === 0 ? '0' : perSecond < 10 ? perSecond.toFixed(2) : short(Math.round(perSecond)));

export function span(ms) {
  if (ms < 0) return `-${span(-ms)}`;
  if (ms < 1) return ms === 0 ? '0 ms' : `${ms.toFixed(2)} ms`;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.floor(seconds)} s`;
  const units = [[86400, 'd'], [3600, 'h'], [60, 'm'], [1, 's']];
  const first = units.findIndex(([size]) => seconds >= size);
  const [size, unit] = units[first];
  const rest = units[first + 1];
  const left = rest ? Math.floor((seconds % size) / rest[0]) : 0;
  return `${Math.floor(seconds / size)}${unit}${left ? ` ${left}${rest[1]}` : ''}`;
}

export const exact = (ms) => {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? String(ms) : date.toISOString().replace('T', ' ').replace('Z', ' UTC');
};

export function relative(ms, now = Date.now()) {
  const past = now - ms;
  if (Math.abs(past) < 1000) return 'now';
  const text = Math.abs(past) < 60_000 ? `${Math.floor(Math.abs(past) / 1000)} s` : span(Math.abs(past));
  return past > 0 ? `${text} ago` : `in ${text}`;
}

// A moment: how long ago for the eye, exactly in its title.
class Moment extends HTMLElement {
  set ms(ms) {
    this.moment = ms;
    this.title = exact(ms);
    this.tick();
  }
  tick() {
    const text = relative(this.moment);
    if (this.textContent !== text) this.textContent = text;
  }
}
customElements.define('w-time', Moment);
setInterval(() => {
  if (!document.hidden) for (const element of document.getElementsByTagName('w-time')) element.tick();
}, 1000);

export const time = (ms) => (ms === undefined || ms === null ? '–' : Object.assign(document.createElement('w-time'), { ms }));

// A moment by the clock of this computer: the time of today, else the day, too.
export function clock(ms, now = Date.now(), hasSeconds = false) {
  const date = new Date(ms);
  const isToday = date.toDateString() === new Date(now).toDateString();
  const day = isToday ? '' : `${date.toLocaleDateString('en', { month: 'short', day: 'numeric' })} `;
  return h('time', { title: exact(ms) }, `${day}${date.toLocaleTimeString('en', { hour: '2-digit', minute: '2-digit', hour12: false, ...(hasSeconds ? { second: '2-digit' } : {}) })}`);
}

// A whole number that a double cannot hold, as it was written.
export class Big {
  constructor(source) { this.source = source; }
  toString() { return this.source; }
  toJSON() { return JSON.rawJSON ? JSON.rawJSON(this.source) : this.source; }
}

export function parse(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_, value, context) =>
    typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source
      ? new Big(context.source) : value);
}

// The word of the API; the browser's clock turns `delayed` and `retrying` into `ready` between two looks.
export function stateWord(job, now = Date.now()) {
  const waits = job.state === 'delayed' || job.state === 'retrying';
  return waits && !(job.run_at > now) ? 'ready' : job.state;
}
export const chip = (state) => h('span', { class: `state ${state}` }, state);
export const link = (path, ...text) => h('a', { href: `#/${path}` }, ...text);
export const jobsLink = (search, ...text) => link(`jobs?search=${encodeURIComponent(search)}`, ...text);
// A value of a search word, kept together if need be.
export const quoted = (value) => (/[\s"\\]/.test(value) ? `"${value.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"` : value);

// `offer` is a label and what it does, such as Undo.
export function toast(message, bad = false, offer) {
  let place = document.querySelector('.toasts');
  if (!place) document.body.append((place = h('div', { class: 'toasts', role: 'status', 'aria-live': 'polite' })));
  const button = offer ? h('button', { class: 'small', 'data-offer': offer[0], onclick: () => { item.remove(); offer[1](); } }, offer[0]) : null;
  const item = h('div', { class: bad ? 'toast bad' : 'toast' }, message, button ? ' ' : null, button);
  place.append(item);
  setTimeout(() => item.remove(), offer ? 20_000 : bad ? 9000 : 4000);
}

// Asks before something is done; answers whether to go on. Enter in a field goes on.
export function ask(title, body, action, danger = false) {
  return new Promise((resolve) => {
    const dialog = h('dialog', { 'aria-label': title },
      h('form', { onsubmit: (event) => { event.preventDefault(); dialog.close('yes'); } },
        h('h2', {}, title), h('div', {}, body),
        h('div', { class: 'buttons' },
          h('button', { type: 'button', onclick: () => dialog.close('') }, 'Cancel'),
          h('button', { class: danger ? 'danger' : 'main', id: 'ask-yes', type: 'submit' }, action))));
    dialog.addEventListener('close', () => { dialog.remove(); resolve(dialog.returnValue === 'yes'); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

export const field = (label, input, hint) => h('label', { class: 'field' }, h('span', {}, label), input, hint ? h('small', {}, hint) : null);
export const plural = (count, one, many) => `${int(count)} ${count === 1 ? one : many ?? `${one}s`}`;

// `10s`, `5m`, `1h30m`; a bare number is seconds.
export function milliseconds(text) {
  if (/^\d+$/.test(text)) return Number(text) * 1000;
  const sizes = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)/g)];
  if (parts.map((part) => part[0]).join('').replace(/\s/g, '') !== text.replace(/\s/g, '') || parts.length === 0) {
    throw new Error(`“${text}” is not a duration; use the form 10s, 5m or 1h30m`);
  }
  return Math.round(parts.reduce((sum, [, count, unit]) => sum + Number(count) * sizes[unit], 0));
}

// A span of time as the fields of this UI read it: 90 minutes are `1h30m`.
export function durationText(ms) {
  const units = [['d', 86_400_000], ['h', 3_600_000], ['m', 60_000], ['s', 1000], ['ms', 1]];
  let left = ms;
  const parts = units.map(([unit, size]) => { const count = Math.floor(left / size); left -= count * size; return count ? `${count}${unit}` : ''; });
  return parts.join('') || '0s';
}
