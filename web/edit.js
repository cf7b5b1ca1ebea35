// Forms that change a waiting job, push a copy of a job and send it a signal.
import { whenFields } from './actions.js';
import { call, post } from './api.js';
import { exact, field, fill, h, link, toast } from './dom.js';
import { NotJson, payloadOf } from './json.js';

const EDITABLE = ['json', 'text'];

// A text area for a payload, with the switch that says it is meant as text.
export function payloadInput(prefix, text = '', isText = false) {
  const input = h('textarea', { id: `${prefix}-payload`, rows: 8, spellcheck: 'false', placeholder: '{"to": "ann@example.org"}' });
  input.value = text;
  const asText = h('input', { type: 'checkbox', id: `${prefix}-text`, checked: isText });
  return {
    input,
    nodes: [field('Payload', input, 'JSON; text that does not begin like JSON is sent as text'), h('p', {}, h('label', {}, asText, ' Send as text, even if it looks like JSON'))],
    set(value, isMeantAsText) { input.value = value; asText.checked = isMeantAsText; },
    isChanged: () => input.value !== text || asText.checked !== isText,
    // Leads to the place of a mistake.
    read() {
      try {
        return payloadOf(input.value, asText.checked);
      } catch (error) {
        if (error instanceof NotJson) { input.focus(); input.setSelectionRange(error.at, Math.min(error.at + 1, input.value.length)); }
        throw error;
      }
    },
  };
}

export const payloadText = (job) => (job.payload === undefined || job.payload === null ? '' : job.format === 'text' ? job.payload : JSON.stringify(job.payload, null, 2));
export const tagList = (text) => text.split(',').map((tag) => tag.trim()).filter(Boolean);

// Shows a form in `place`. Only the fields that were changed are sent, so that nothing else is overwritten.
export function editForm(place, job, saved) {
  const format = job.format ?? 'json';
  const isEditable = EDITABLE.includes(format) && !job.hidden;
  const inputs = {
    name: h('input', { id: 'edit-name', required: true, value: job.name }), queue: h('input', { id: 'edit-queue', required: true, value: job.queue }),
    priority: h('input', { id: 'edit-priority', type: 'number', required: true, value: String(job.priority) }), tags: h('input', { id: 'edit-tags', value: (job.tags ?? []).join(', ') }),
    repeat: h('input', { id: 'edit-repeat', value: job.repeat ?? '' }),
  };
  const before = Object.fromEntries(Object.entries(inputs).map(([key, input]) => [key, input.value]));
  const isChanged = (key) => inputs[key].value.trim() !== before[key];
  const body = payloadInput('edit', payloadText(job), format === 'text');
  const when = whenFields('edit', false);
  const trouble = h('div', { class: 'notice bad', role: 'alert', hidden: true });

  async function save(event) {
    event.preventDefault();
    try {
      const changes = {
        ...Object.fromEntries(['name', 'queue'].filter(isChanged).map((key) => [key, inputs[key].value.trim()])),
        ...(isChanged('priority') ? { priority: Number(inputs.priority.value) } : {}), ...(isChanged('tags') ? { tags: tagList(inputs.tags.value) } : {}),
        ...(job.repeat && isChanged('repeat') ? { repeat: inputs.repeat.value.trim() || null } : {}), ...(isEditable && body.isChanged() ? { payload: null, ...body.read() } : {}), ...when.read(),
      };
      if (Object.keys(changes).length) {
        await call('PATCH', `jobs/${job.id}`, { body: changes });
        toast(`job ${job.id} changed`);
      }
      fill(place);
      saved();
    } catch (error) { trouble.textContent = error.message; trouble.hidden = false; }
  }

  fill(place, h('form', { class: 'card', id: 'edit', onsubmit: save }, h('h2', {}, `Edit job ${job.id}`), trouble,
    h('div', { class: 'grid' }, field('Name', inputs.name), field('Queue', inputs.queue), field('Priority', inputs.priority, 'smaller numbers run first'), field('Tags', inputs.tags), job.repeat ? field('Repeat rule', inputs.repeat, 'empty: it does not repeat any more') : null),
    h('div', { class: 'soft' }, `Runs at ${exact(job.run_at)}. Another time:`), when.nodes,
    isEditable ? body.nodes : h('p', { class: 'soft' }, `The payload (${format}) cannot be edited here.`),
    h('div', { class: 'tools' }, h('button', { class: 'main', type: 'submit', id: 'edit-save' }, 'Save'), h('button', { type: 'button', onclick: () => fill(place) }, 'Cancel'))));
  inputs.name.focus();
}

// Asks where and when the copy is to run; the copy has the payload and the rules of the job.
export function cloneForm(place, job) {
  const queue = h('input', { id: 'clone-queue', required: true, value: job.queue });
  const when = whenFields('clone', false);
  const trouble = h('div', { class: 'notice bad', role: 'alert', hidden: true });
  async function push(event) {
    event.preventDefault();
    try {
      const answer = await post(`jobs/${job.id}/clone`, { queue: queue.value.trim(), ...when.read() });
      toast(`job ${answer.id} pushed, a copy of job ${job.id}`);
      location.hash = `#/job/${answer.id}`;
    } catch (error) { trouble.textContent = error.message; trouble.hidden = false; }
  }
  fill(place, h('form', { class: 'card', id: 'clone', onsubmit: push }, h('h2', {}, `Push a copy of job ${job.id}`), trouble, field('Queue', queue), when.nodes,
    h('p', { class: 'soft' }, 'The copy has the same payload, priority, tags, retry and retention rules; it has no alias and does not repeat. To change more, ', link(`push?from=${job.id}`, 'fill the form with it'), '.'),
    h('div', { class: 'tools' }, h('button', { class: 'main', type: 'submit', id: 'clone-push' }, 'Push copy'), h('button', { type: 'button', onclick: () => fill(place) }, 'Cancel'))));
  queue.focus();
}

// Sends a signal; its name is the one that the job waits for, its payload becomes the result of the wait.
export function signalForm(place, job, sent) {
  const name = h('input', { id: 'signal-name', required: true, maxlength: '255', value: job.wait?.signal ?? '' });
  const body = payloadInput('signal');
  body.input.rows = 4;
  body.input.placeholder = '{"by": "ann"}';
  const trouble = h('div', { class: 'notice bad', role: 'alert', hidden: true });
  async function send(event) {
    event.preventDefault();
    try {
      const answer = await call('POST', `jobs/${job.id}/signal/${encodeURIComponent(name.value)}`, { body: body.read().payload });
      toast(answer.woken ? `job ${job.id} runs again: it waited for signal ${name.value}` : `signal ${name.value} is kept until job ${job.id} waits for it`);
      fill(place);
      sent();
    } catch (error) { trouble.textContent = error.message; trouble.hidden = false; }
  }
  fill(place, h('form', { class: 'sunk', id: 'signal-form', onsubmit: send }, trouble, field('Signal', name, 'a signal that comes before the wait for it is kept'), body.nodes,
    h('div', { class: 'tools' }, h('button', { class: 'main', type: 'submit', id: 'signal-send' }, 'Send'), h('button', { type: 'button', onclick: () => fill(place) }, 'Cancel'))));
  (name.value ? body.input : name).focus();
}
