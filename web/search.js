// The search bar: words with completion. What they mean is the server's business.
import { get } from './api.js';
import { h, fill, quoted } from './dom.js';

export const STATES = ['ready', 'delayed', 'retrying', 'running', 'waiting', 'suspended', 'completed', 'failed', 'cancelled', 'terminating', 'terminated'];
const FIELDS = [
  ['state:', 'failed, running, delayed, …'], ['name:', 'name or pattern: mail*'], ['queue:', 'queue'], ['tag:', 'tag'],
  ['error:', 'text in the class or message of the last error: error:timeout'], ['class:', 'class of the last error'], ['id:', 'id'], ['alias:', 'alias'],
  ['args.', 'value in the payload: args.user_id:42'], ['age>', 'older than: age>1h'], ['age<', 'younger than: age<5m'], ['ended<', 'whose last run ended less than this time ago: ended<1h'], ['ended>', 'whose last run ended longer ago: ended>1d'],
  ['worker:', 'worker that runs the job'], ['origin:', 'protocol by which the job was pushed'],
];

// Terms of a search; quotes keep words together.
const terms = (search) => search.match(/(?:[^\s"]|"(?:\\.|[^"\\])*"?)+/g) ?? [];
const isState = (term) => term.startsWith('state:');
export const statesOf = (search) => terms(search).filter(isState).flatMap((term) => term.slice(6).split(','));
// The search without its states, and with another one.
export const withoutState = (search) => terms(search).filter((term) => !isState(term)).join(' ');
export const withState = (search, state) => [state ? `state:${state}` : '', withoutState(search)].filter(Boolean).join(' ');

export function searchBar(text, go) {
  const list = h('ul', { class: 'suggest', role: 'listbox', id: 'suggestions', hidden: true });
  const input = h('input', {
    id: 'search', type: 'search', value: text, autocomplete: 'off', spellcheck: 'false', role: 'combobox', 'aria-expanded': 'false', 'aria-controls': 'suggestions',
    'aria-label': 'Search jobs', placeholder: 'id, alias, state:failed error:timeout name:mail* queue:default args.user_id:42 age>1h text',
    oninput: suggest, onfocus: suggest, onkeydown: keyed, onblur: () => setTimeout(close, 150),
  });
  let chosen = -1;
  let queues = null;

  const word = () => input.value.slice(0, input.selectionStart).match(/\S*$/)[0];

  async function suggest() {
    const typed = word();
    let found = [];
    if (typed.startsWith('state:')) {
      const done = typed.slice(6).split(',').slice(0, -1);
      const part = typed.slice(6).split(',').pop();
      found = STATES.filter((state) => state.startsWith(part) && !done.includes(state)).map((state) => [`state:${[...done, state].join(',')}`, '']);
    } else if (typed.startsWith('queue:')) {
      queues ??= get('queues').then((answer) => [...new Set(answer.queues.map((queue) => queue.queue))]).catch(() => []);
      found = (await queues).filter((queue) => queue.startsWith(typed.slice(6).replace(/^"/, ''))).map((queue) => [`queue:${quoted(queue)}`, '']);
    } else {
      found = FIELDS.filter(([field]) => field.startsWith(typed) && field !== typed);
    }
    chosen = -1;
    const same = found.length === 1 && found[0][0] === typed;
    fill(list, found.slice(0, 12).map(([value, what], index) => h('li', { role: 'option', id: `suggestion-${index}`, 'aria-selected': 'false', onmousedown: (event) => { event.preventDefault(); take(value); } }, h('code', {}, value), h('span', { class: 'soft' }, what))));
    list.hidden = found.length === 0 || same || document.activeElement !== input;
    input.setAttribute('aria-expanded', String(!list.hidden));
  }

  function close() { list.hidden = true; input.setAttribute('aria-expanded', 'false'); }

  function take(value) {
    const at = input.selectionStart;
    const start = at - word().length;
    const closed = !/[:.<>]$/.test(value);
    input.value = input.value.slice(0, start) + value + (closed ? ' ' : '') + input.value.slice(at).trimStart();
    const end = start + value.length + (closed ? 1 : 0);
    input.setSelectionRange(end, end);
    suggest();
  }

  function keyed(event) {
    const items = [...list.children];
    if (event.key === 'Escape' && !list.hidden) { close(); event.stopPropagation(); }
    else if ((event.key === 'ArrowDown' || event.key === 'ArrowUp') && !list.hidden && items.length) {
      event.preventDefault();
      chosen = (chosen + (event.key === 'ArrowDown' ? 1 : items.length - (chosen < 0 ? 0 : 1)) + items.length) % items.length;
      items.forEach((item, index) => item.setAttribute('aria-selected', String(index === chosen)));
      input.setAttribute('aria-activedescendant', `suggestion-${chosen}`);
      items[chosen].scrollIntoView({ block: 'nearest' });
    } else if ((event.key === 'Tab' || event.key === 'Enter') && chosen >= 0 && !list.hidden) {
      event.preventDefault();
      take(items[chosen].querySelector('code').textContent);
    } else if (event.key === 'Enter') {
      close();
      go(input.value.trim());
    }
  }

  const node = h('form', { class: 'search', role: 'search', onsubmit: (event) => { event.preventDefault(); } }, input, list);
  return { node, input };
}
