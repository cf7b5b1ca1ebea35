import { get, post } from '../api.js';
import { ask, fill, h, int, jobsLink, short, time, toast } from '../dom.js';
import { keepFresh } from '../live.js';
import { table } from '../table.js';

const SHOWN = 200;
const size = (bytes) => (bytes < 10_000 ? `${int(bytes)} bytes` : `${short(bytes)}B`);

export default function blobs(root, where, { me }) {
  const rows = table({
    label: 'Blobs', key: (blob) => `${blob.tenant}/${blob.sha256}`, empty: 'no blobs',
    columns: [
      { title: 'SHA-256', class: 'name', cell: (blob) => h('code', { title: `SHA-1 ${blob.sha1}` }, blob.sha256) },
      { title: 'Tenant', class: 'wide', differs: (blob) => blob.tenant, cell: (blob) => blob.tenant },
      { title: 'Size', class: 'num', sort: (blob) => blob.bytes, cell: (blob) => size(blob.bytes) },
      { title: 'Uploaded', class: 'nowrap', sort: (blob) => blob.stored_at, cell: (blob) => time(blob.stored_at) },
      ...(me.payloads ? [{ title: 'Jobs', class: 'wide nowrap', cell: (blob) => [jobsLink(blob.sha1, 'by SHA-1'), ' ', jobsLink(blob.sha256, 'by SHA-256')] }] : []),
    ],
  });
  const summary = h('span', { class: 'soft', id: 'blob-sum' });
  fill(root, h('div', { class: 'head' }, h('h1', {}, 'Blobs'), summary, h('span', { class: 'fill' }), me.role === 'admin' ? h('button', { id: 'blob-gc', onclick: collect }, 'Delete unused…') : null),
    h('section', { class: 'card flush' }, rows.node));

  async function collect(event) {
    event.currentTarget.disabled = true;
    const button = event.currentTarget;
    try {
      const found = await post('blobs/gc', {});
      if (found.unnamed_count === 0) toast('no unused blobs older than a day');
      else if (await ask('Delete unused blobs', h('p', {}, `${int(found.unnamed_count)} of ${int(found.count)} blobs (${size(found.unnamed_bytes)}) are unused and older than a day. Delete them?`), 'Delete', true)) {
        toast(`${int((await post('blobs/gc', { remove: true })).removed)} deleted`);
      }
    } catch (error) { toast(error.message, true); }
    button.disabled = false;
    fresh.look();
  }

  async function load(signal) {
    const answer = await get('blobs', { limit: SHOWN }, signal);
    rows.set(answer.blobs);
    summary.textContent = `${int(answer.count)} ${answer.count === 1 ? 'blob' : 'blobs'}, ${size(answer.bytes)}${answer.count > SHOWN ? `; the newest ${SHOWN} are shown` : ''}`;
  }
  // Blobs come and go without telling: a look now and then.
  const fresh = keepFresh({ load, events: null, every: 10_000 });
  return fresh;
}
