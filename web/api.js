// The native API and its event stream. All addresses are relative to this page, so any path in front of it will do.
import { parse } from './dom.js';

const API = new URL('../api/v1/', document.baseURI);
export const server = new URL('../', document.baseURI).href.replace(/\/$/, '');
const KEY = 'windlass.token';

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY),
  set(value, remember) {
    this.clear();
    (remember ? localStorage : sessionStorage).setItem(KEY, value);
  },
  clear() {
    sessionStorage.removeItem(KEY);
    localStorage.removeItem(KEY);
  },
};

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    Object.assign(this, { status, code });
  }
}

function address(path, query) {
  const url = new URL(path, API);
  for (const [key, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== null && value !== '') url.searchParams.set(key, value);
  }
  return url;
}

function headers() {
  const held = token.get();
  return { accept: 'application/json', ...(held ? { authorization: `Bearer ${held}` } : {}) };
}

export async function call(method, path, { query, body, signal } = {}) {
  const sent = headers();
  if (body !== undefined) sent['content-type'] = 'application/json';
  let response;
  try {
    response = await fetch(address(path, query), {
      method, signal, headers: sent, body: body === undefined ? undefined : JSON.stringify(body), cache: 'no-store',
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, 'unreachable', 'the server is unreachable');
  }
  const text = await response.text();
  let answer;
  try { answer = parse(text); } catch { answer = undefined; }
  if (response.ok) return answer;
  if (response.status === 401) dispatchEvent(new Event('windlass:login'));
  throw new ApiError(response.status, answer?.error?.code ?? 'error', answer?.error?.message ?? `HTTP ${response.status}`);
}

export const get = (path, query, signal) => call('GET', path, { query, signal });
export const post = (path, body, query) => call('POST', path, { body, query });

// Server-sent events by hand: the browser's own reader cannot send a token.
export async function listen(query, signal, { opened, heard }) {
  const response = await fetch(address('events', query), { headers: { ...headers(), accept: 'text/event-stream' }, signal, cache: 'no-store' });
  if (!response.ok) throw new ApiError(response.status, 'error', `HTTP ${response.status}`);
  opened();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const pieces = (rest + value).split('\n\n');
    rest = pieces.pop();
    for (const piece of pieces) {
      const lines = piece.split('\n');
      const kind = lines.find((line) => line.startsWith('event: '))?.slice(7);
      const data = lines.filter((line) => line.startsWith('data: ')).map((line) => line.slice(6)).join('\n');
      if (kind) heard(kind, parse(data || 'null'));
    }
  }
}
