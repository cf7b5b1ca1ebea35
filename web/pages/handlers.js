import { get, post } from '../api.js';
import { fill, h, int, jobsLink, quoted, toast } from '../dom.js';
import { keepFresh } from '../live.js';

const PARTS = [['before', 'Before the first job of a process'], ['before_each', 'Before each batch'], ['body', 'For each job'], ['after_each', 'After each batch']];

// Handlers are texts that run jobs: their versions can be read here, and the one in force can be tried on a payload.
export default function handlers(root, where, { me, may }) {
  const list = h('div');
  const summary = h('span', { class: 'soft' });
  fill(root, h('div', { class: 'head' }, h('h1', {}, 'Handlers'), summary), list);
  let shown = '';

  function versionOf(version, index) {
    const text = version.text;
    const parts = text ? PARTS.filter(([key]) => text[key]).map(([key, title]) => [h('div', { class: 'soft' }, title), h('pre', { class: 'code' }, text[key])]) : h('p', { class: 'soft' }, 'not shown: hidden from viewers, or too large for this list');
    return h('details', { open: index === 0 }, h('summary', {}, index === 0 ? 'current version' : `${index} ${index === 1 ? 'version' : 'versions'} earlier`, h('span', { class: 'soft' }, ` ${version.id}${text ? `, ${text.lang}` : ''}${text?.eid ? `, context ${text.eid}` : ''}`)),
      parts, text?.options ? h('p', { class: 'soft' }, `options ${JSON.stringify(text.options)}`) : null);
  }

  function trial(handler) {
    if (!may('worker')) return null;
    const input = h('textarea', { rows: '2', 'aria-label': `Payload for a test run of ${handler.name}`, placeholder: 'payload for a test run' });
    return h('form', { class: 'trial', onsubmit: (event) => { event.preventDefault(); run(handler, input.value); } }, input, h('button', { type: 'submit' }, 'Test run'));
  }

  // A job like any other, so that nothing is different from what will happen later; one try, and a tag to tell it by.
  async function run(handler, text) {
    try {
      const answer = await post('jobs', { name: handler.name, queue: handler.queue, payload: text, format: 'text', retry: 1, tags: ['test-run'], ...(me.role === 'admin' ? { tenant: handler.tenant } : {}) });
      location.hash = `#/job/${answer.id}`;
    } catch (error) { toast(error.message, true); }
  }

  function card(handler) {
    return h('section', { class: 'card', 'data-handler': handler.name },
      h('div', { class: 'head' }, h('h2', {}, handler.name), h('span', { class: 'soft' }, `${handler.dialect}, ${int(handler.versions.length)} ${handler.versions.length === 1 ? 'version' : 'versions'}${me.role === 'admin' ? `, tenant ${handler.tenant}` : ''}`), h('span', { class: 'fill' }), jobsLink(`queue:${quoted(handler.queue)} name:${quoted(handler.name)}${me.role === 'admin' ? ` tenant:${quoted(handler.tenant)}` : ''}`, 'jobs')),
      handler.trouble ? h('div', { class: 'notice warn' }, handler.trouble) : null,
      handler.versions.map(versionOf), trial(handler));
  }

  async function load(signal) {
    const found = (await get('handlers', {}, signal)).handlers;
    summary.textContent = found.length ? `${int(found.length)} ${found.length === 1 ? 'handler' : 'handlers'}` : '';
    const now = JSON.stringify(found);
    // What is being typed or read stays.
    if (now === shown) return;
    shown = now;
    fill(list, found.length ? found.map(card) : h('section', { class: 'card' }, h('div', { class: 'none' }, 'no handlers; clients set them with the miniq protocol, and the server then runs the jobs itself')));
  }
  return keepFresh({ load, events: null, every: 10_000 });
}
