// The frame around the pages: where we are, who we are, keys, colours.
import { get, token } from './api.js';
import { h, fill, toast } from './dom.js';
import { live } from './live.js';
import { step, current } from './table.js';
import overview from './pages/overview.js';
import jobs from './pages/jobs.js';
import job from './pages/job.js';
import queues from './pages/queues.js';
import schedules from './pages/schedules.js';
import limits from './pages/limits.js';
import workers from './pages/workers.js';
import handlers from './pages/handlers.js';
import blobs from './pages/blobs.js';
import push from './pages/push.js';
import login from './pages/login.js';

const PAGES = [
  ['', 'Overview', overview], ['jobs', 'Jobs', jobs], ['queues', 'Queues', queues], ['schedules', 'Schedules', schedules],
  ['limits', 'Limits', limits], ['workers', 'Workers', workers], ['handlers', 'Handlers', handlers], ['blobs', 'Blobs', blobs], ['push', 'New job', push],
];
const ROLES = ['viewer', 'worker', 'operator', 'admin'];

let me = null;
let leave = () => {};

const main = h('main', { id: 'main', tabindex: '-1' });
const nav = h('nav', { class: 'pages', 'aria-label': 'Pages' });
const dot = h('span', { class: 'dot' });
const liveWord = h('span', {}, 'Live');
const liveButton = h('button', { id: 'live', title: 'Pause or resume live updates (p)', onclick: () => { live.paused = !live.paused; } }, dot, liveWord);
const themeButton = h('button', { id: 'theme', class: 'bare', title: 'Light or dark theme', 'aria-label': 'Light or dark theme', onclick: turnTheme }, '◐');
const userButton = h('button', { id: 'leave', class: 'bare', hidden: true, onclick: () => { token.clear(); location.reload(); } });
const helpButton = h('button', { class: 'bare', title: 'Keyboard shortcuts (?)', 'aria-label': 'Keyboard shortcuts', onclick: help }, '?');
const header = h('header', { class: 'top' },
  h('a', { class: 'brand', href: '#/' }, h('img', { src: 'icon.svg', alt: '' }), 'Windlass'), nav,
  h('div', { class: 'tools' }, liveButton, themeButton, helpButton, userButton));

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
  const keys = [['/', 'search'], ['j k', 'next, previous row'], ['Enter', 'open the row'], ['x', 'select the row'], ['g then o j q s l w h b n', 'overview, jobs, queues, schedules, limits, workers, handlers, blobs, new job'],
    ['p', 'pause or resume live updates'], ['r', 'refresh'], ['?', 'this help']];
  const dialog = h('dialog', { 'aria-label': 'Keyboard shortcuts', onclose: () => dialog.remove() }, h('h2', {}, 'Keyboard shortcuts'),
    h('dl', { class: 'keys' }, keys.map(([key, what]) => [h('dt', {}, key.split(' ').map((part) => (part === 'then' ? ' then ' : h('kbd', {}, part)))), h('dd', {}, what)])),
    h('div', { class: 'buttons' }, h('button', { onclick: () => dialog.close() }, 'Close')));
  document.body.append(dialog);
  dialog.showModal();
}

let gPressed = 0;
function keyed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
  const target = event.target;
  if (target.matches?.('input:not([type=checkbox]), textarea, select')) {
    if (event.key === 'Escape') target.blur();
    return;
  }
  const went = { o: '', j: 'jobs', q: 'queues', s: 'schedules', l: 'limits', w: 'workers', h: 'handlers', b: 'blobs', n: 'push' }[event.key];
  if (Date.now() - gPressed < 1000 && went !== undefined) {
    gPressed = 0;
    location.hash = `#/${went}`;
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
    p: () => { live.paused = !live.paused; },
    r: () => dispatchEvent(new Event('windlass:look')),
    Enter: () => { const row = current(); if (row?.dataset.href && target === document.body) location.hash = row.dataset.href; else return false; },
  };
  const act = keys[event.key];
  if (act && act() !== false) event.preventDefault();
}

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const parts = path.split('/').map(decodeURIComponent);
  return { name: parts[0], id: parts[1], query: new URLSearchParams(query ?? '') };
}

function show() {
  if (!me) return;
  leave();
  const where = route();
  const [, title, page] = where.name === 'job' ? ['', `Job ${where.id}`, job] : PAGES.find(([name]) => name === where.name) ?? PAGES[0];
  for (const item of nav.children) {
    const isHere = item.dataset.page === (where.name === 'job' ? 'jobs' : where.name);
    if (isHere) item.setAttribute('aria-current', 'page'); else item.removeAttribute('aria-current');
    if (isHere) nav.scrollLeft = item.offsetLeft - nav.offsetLeft - (nav.clientWidth - item.offsetWidth) / 2;
  }
  document.title = `${title} · Windlass`;
  const root = h('div', {});
  fill(main, root);
  const mounted = page(root, where, { me, may: (role) => ROLES.indexOf(me.role) >= ROLES.indexOf(role) });
  const look = () => mounted?.look?.();
  addEventListener('windlass:look', look);
  leave = () => { removeEventListener('windlass:look', look); mounted?.stop?.(); };
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
  try {
    me = await get('me');
  } catch (error) {
    me = null;
    if (error.status === 401) return fill(main, login(enter, token.get() ? 'This token is not valid, or no longer valid.' : ''));
    status('offline');
    const again = h('button', { class: 'main', onclick: enter }, 'Try again');
    return fill(main, h('div', { class: 'lone' }, h('h1', {}, 'Server not available'), h('p', {}, error.message), again));
  }
  userButton.hidden = me.open;
  userButton.textContent = `${me.role} · sign out`;
  userButton.title = `tenant ${me.tenant}`;
  fill(nav, PAGES.filter(([name]) => name !== 'push' || ROLES.indexOf(me.role) >= 1)
    .map(([name, title]) => h('a', { href: `#/${name}`, 'data-page': name }, title)));
  show();
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
enter();
