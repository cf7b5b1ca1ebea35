// The frame around the pages: where we are, who we are, keys, colours.
import { get, token } from './api.js';
import { h, fill, toast } from './dom.js';
import { live } from './live.js';
import { step, current } from './table.js';

// Pages are loaded when they are opened first. The letter after `g` leads there.
const PAGES = [
  { name: '', title: 'Overview', key: 'o', load: () => import('./pages/overview.js') },
  { name: 'jobs', title: 'Jobs', key: 'j', load: () => import('./pages/jobs.js') },
  { name: 'failures', title: 'Failures', key: 'f', load: () => import('./pages/failures.js') },
  { name: 'queues', title: 'Queues', key: 'q', load: () => import('./pages/queues.js') },
  { name: 'schedules', title: 'Schedules', key: 's', load: () => import('./pages/schedules.js') },
  { name: 'limits', title: 'Limits', key: 'l', load: () => import('./pages/limits.js') },
  { name: 'workers', title: 'Workers', key: 'w', load: () => import('./pages/workers.js') },
  { name: 'audit', title: 'Audit', key: 'a', role: 'operator', load: () => import('./pages/audit.js') },
  { name: 'push', title: 'New job', key: 'n', role: 'worker', load: () => import('./pages/push.js') },
];
// Pages about what only some protocols have.
const PROTOCOL_PAGES = [
  { name: 'handlers', title: 'Handlers', key: 'h', about: 'code that the server runs (miniq)', load: () => import('./pages/handlers.js') },
  { name: 'blobs', title: 'Blobs', key: 'b', about: 'content-addressed data (queuey, miniq)', load: () => import('./pages/blobs.js') },
];
const INNER_PAGES = [
  { name: 'job', in: 'jobs', load: () => import('./pages/job.js') },
  { name: 'queue', in: 'queues', load: () => import('./pages/queue.js') },
];
const MISSING = { title: 'Not found', load: () => import('./pages/missing.js') };
const ALL_PAGES = [...PAGES, ...PROTOCOL_PAGES, ...INNER_PAGES];
const ROLES = ['viewer', 'worker', 'operator', 'admin'];
const BUTTON_KEYS = { R: 'retry', C: 'cancel', D: 'delete', E: 'edit' };

let me = null;
let leave = () => {};

const main = h('main', { id: 'main', tabindex: '-1' });
const nav = h('nav', { class: 'pages', 'aria-label': 'Pages' });
const menu = h('details', { class: 'menu', onkeydown: (event) => { if (event.key === 'Escape') { menu.open = false; menu.firstChild.focus(); } } }, h('summary', { id: 'protocols' }, 'Protocols'),
  h('div', { class: 'card' }, PROTOCOL_PAGES.map((page) => h('a', { href: `#/${page.name}`, 'data-page': page.name }, page.title, h('small', { class: 'soft' }, page.about)))));
const dot = h('span', { class: 'dot' });
const liveWord = h('span', {}, 'Live');
const liveButton = h('button', { id: 'live', title: 'Pause or resume live updates (p)', onclick: () => { live.paused = !live.paused; } }, dot, liveWord);
const themeButton = h('button', { id: 'theme', class: 'bare', title: 'Light or dark theme', 'aria-label': 'Light or dark theme', onclick: turnTheme }, '◐');
const userButton = h('button', { id: 'leave', class: 'bare', hidden: true, onclick: () => { token.clear(); location.reload(); } });
const helpButton = h('button', { class: 'bare', title: 'Keyboard shortcuts (?)', 'aria-label': 'Keyboard shortcuts', onclick: help }, '?');
const header = h('header', { class: 'top' },
  h('a', { class: 'brand', href: '#/' }, h('img', { src: 'icon.svg', alt: '' }), 'Windlass'), nav, menu,
  h('div', { class: 'tools' }, liveButton, h('a', { id: 'docs', class: 'button bare', href: '../docs/' }, 'Docs'), themeButton, helpButton, userButton));

function turnTheme() {
  const dark = document.documentElement.dataset.theme === 'dark' || (!document.documentElement.dataset.theme && matchMedia('(prefers-color-scheme: dark)').matches);
  const theme = dark ? 'light' : 'dark';
  localStorage.setItem('windlass.theme', theme);
  document.documentElement.dataset.theme = theme;
}

function status(word) {
  dot.className = `dot ${word === 'live' ? 'on' : word === 'offline' ? 'off' : ''}`;
  liveWord.textContent = word === 'paused' ? 'Paused' : word === 'offline' ? 'Offline' : 'Live';
  liveButton.setAttribute('aria-pressed', String(word === 'paused'));
}

function help() {
  const went = [...PAGES, ...PROTOCOL_PAGES];
  const keys = [['/', 'search'], ['j k', 'next, previous row'], ['Enter', 'open the row'], ['x', 'select the row'], ['a', 'select all jobs that match'], ['Esc', 'clear the selection'],
    ['R C D', 'retry, cancel, delete the selected jobs, the current row or the open job'], ['E', 'edit the open job'], ['u', 'undo the last deletion'],
    [`g then ${went.map((page) => page.key).join(' ')}`, went.map((page) => page.title.toLowerCase()).join(', ')], ['p', 'pause or resume live updates'], ['r', 'refresh'], ['?', 'this help']];
  const dialog = h('dialog', { 'aria-label': 'Keyboard shortcuts', onclose: () => dialog.remove() }, h('h2', {}, 'Keyboard shortcuts'),
    h('dl', { class: 'keys' }, keys.map(([key, what]) => [h('dt', {}, key.split(' ').map((part) => (part === 'then' ? ' then ' : h('kbd', {}, part)))), h('dd', {}, what)])),
    h('div', { class: 'buttons' }, h('button', { onclick: () => dialog.close() }, 'Close')));
  document.body.append(dialog);
  dialog.showModal();
}

// Presses the button of an action. Without a selection, the current row is selected first.
function press(action) {
  const row = current();
  if (row && !document.getElementById('picked')) row.querySelector('input[type=checkbox]:not(:checked)')?.click();
  const button = (row && !document.getElementById('picked') ? row : document.querySelector('main')).querySelector(`[data-action=${action}]:not(:disabled)`);
  button?.click();
}

let gPressed = 0;
function keyed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
  const target = event.target;
  if (target.matches?.('input:not([type=checkbox]), textarea, select')) {
    if (event.key === 'Escape') target.blur();
    return;
  }
  const went = [...PAGES, ...PROTOCOL_PAGES].find((page) => page.key === event.key);
  if (Date.now() - gPressed < 1000 && went) {
    gPressed = 0;
    location.hash = `#/${went.name}`;
    event.preventDefault();
    return;
  }
  const keys = {
    g: () => { gPressed = Date.now(); },
    '/': () => { const box = document.getElementById('search'); if (box) box.focus(); else location.hash = '#/jobs?focus=1'; },
    '?': help,
    j: () => step(1),
    k: () => step(-1),
    x: () => current()?.querySelector('input[type=checkbox]')?.click(),
    a: () => document.getElementById('pick-matches')?.click(),
    Escape: () => { const clear = document.getElementById('pick-none'); if (!clear) return false; clear.click(); return true; },
    u: () => document.querySelector('[data-offer=Undo]')?.click(),
    p: () => { live.paused = !live.paused; },
    r: () => dispatchEvent(new Event('windlass:look')),
    Enter: () => { const row = current(); if (row?.dataset.href && (target === document.body || target === main)) location.hash = row.dataset.href; else return false; return true; },
    ...Object.fromEntries(Object.entries(BUTTON_KEYS).map(([key, action]) => [key, () => press(action)])),
  };
  const act = keys[event.key];
  if (act && act() !== false) event.preventDefault();
}

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const parts = path.split('/').map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  const known = ALL_PAGES.find((page) => page.name === parts[0]);
  // Inner pages are about one thing, which their address names; the others have no parts.
  const fits = known && (INNER_PAGES.includes(known) ? parts.length === 2 && parts[1] : parts.length === 1 || (parts.length === 2 && !parts[1]));
  return { page: fits ? known : MISSING, id: parts[1], query: new URLSearchParams(query ?? '') };
}

function mark(page) {
  const here = page.in ?? page.name;
  for (const item of [...nav.children, ...menu.querySelectorAll('a')]) {
    const isHere = item.dataset.page === here;
    if (isHere) item.setAttribute('aria-current', 'page'); else item.removeAttribute('aria-current');
    if (isHere && item.parentNode === nav) nav.scrollLeft = item.offsetLeft - nav.offsetLeft - (nav.clientWidth - item.offsetWidth) / 2;
  }
  menu.classList.toggle('here', PROTOCOL_PAGES.includes(page));
  menu.open = false;
}

let shows = 0;
async function show() {
  if (!me) return;
  leave();
  leave = () => {};
  shows += 1;
  const turn = shows;
  const where = route();
  mark(where.page);
  let loaded;
  try {
    loaded = (await where.page.load()).default;
  } catch {
    return unavailable('The page could not be loaded: the server is unreachable, or was upgraded.', () => location.reload());
  }
  // Another page was opened meanwhile.
  if (turn !== shows || !me) return undefined;
  document.title = `${where.page.title ?? (where.page.name === 'job' ? `Job ${where.id}` : where.id)} · Windlass`;
  const root = h('div', {});
  fill(main, root);
  const mounted = loaded(root, where, { me, may: (role) => ROLES.indexOf(me.role) >= ROLES.indexOf(role) });
  const look = () => mounted?.look?.();
  addEventListener('windlass:look', look);
  leave = () => { removeEventListener('windlass:look', look); mounted?.stop?.(); };
  return undefined;
}

function unavailable(text, again) {
  status('offline');
  return fill(main, h('div', { class: 'lone' }, h('h1', {}, 'Server not available'), h('p', {}, text), h('button', { class: 'main', onclick: again }, 'Try again')));
}

let before = location.hash.split('?')[0];
function moved() {
  show();
  const now = location.hash.split('?')[0];
  if (now !== before) { scrollTo(0, 0); main.focus({ preventScroll: true }); }
  before = now;
}

async function enter() {
  leave();
  leave = () => {};
  // The page is on its way while the server says who we are.
  route().page.load().catch(() => {});
  try {
    me = await get('me');
  } catch (error) {
    me = null;
    if (error.status !== 401) return unavailable(error.message, enter);
    const login = (await import('./pages/login.js')).default;
    return fill(main, login(enter, token.get() ? 'This token is not valid, or no longer valid.' : ''));
  }
  userButton.hidden = me.open;
  userButton.textContent = `${me.role} · sign out`;
  userButton.title = `tenant ${me.tenant}`;
  fill(nav, PAGES.filter((page) => ROLES.indexOf(me.role) >= ROLES.indexOf(page.role ?? 'viewer')).map((page) => h('a', { href: `#/${page.name}`, 'data-page': page.name }, page.title)));
  return show();
}

const theme = localStorage.getItem('windlass.theme');
if (theme) document.documentElement.dataset.theme = theme;
document.body.append(h('a', { class: 'skip', href: '#main', onclick: (event) => { event.preventDefault(); main.focus(); } }, 'Skip to content'), header, main);
status(live.paused ? 'paused' : 'live');
addEventListener('windlass:status', (event) => status(event.detail));
addEventListener('windlass:login', () => { if (me) { me = null; enter(); } });
addEventListener('unhandledrejection', (event) => {
  if (event.reason?.name === 'AbortError') return;
  toast(event.reason?.message ?? 'unexpected error', true);
});
addEventListener('hashchange', moved);
addEventListener('keydown', keyed);
addEventListener('click', (event) => { if (menu.open && !menu.contains(event.target)) menu.open = false; });
enter();
