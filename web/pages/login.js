import { token } from '../api.js';
import { h } from '../dom.js';

export default function login(enter, trouble) {
  const input = h('input', { id: 'token', type: 'password', autocomplete: 'current-password', placeholder: 'wl_…', required: true, spellcheck: 'false' });
  const remember = h('input', { type: 'checkbox', id: 'remember' });
  const form = h('form', {
    class: 'card', onsubmit(event) {
      event.preventDefault();
      token.set(input.value.trim(), remember.checked);
      enter();
    },
  },
  h('h1', {}, 'Sign in'),
  h('p', { class: 'soft' }, 'This server requires an access token. Its administrator can create one with ', h('code', {}, 'windlass token'), '.'),
  trouble ? h('div', { class: 'notice bad', role: 'alert' }, trouble) : null,
  h('label', { class: 'field' }, h('span', {}, 'Token'), input),
  h('p', {}, h('label', {}, remember, ' Stay signed in on this computer')),
  h('button', { class: 'main', type: 'submit' }, 'Sign in'));
  setTimeout(() => input.focus());
  return h('div', { class: 'login' }, form);
}
