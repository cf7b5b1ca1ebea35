import { fill, h, link } from '../dom.js';

// For an address that leads nowhere.
export default function missing(root) {
  document.title = 'Not found · Windlass';
  fill(root, notFound('Page not found', h('p', {}, 'There is no page ', h('code', {}, location.hash), ' here. The link is mistyped, or from another version of the server.')));
}

export function notFound(title, ...body) {
  return h('div', { class: 'lone', id: 'missing' }, h('h1', {}, title), body, h('p', {}, link('', 'Overview'), ' · ', link('jobs', 'All jobs'), ' · ', link('failures', 'Failures'), ' · ', link('queues', 'Queues')));
}
