// Keeps a page fresh while somebody looks at it: a look when something happened, at most one a second, and one now and then
// for what changes with time alone. What takes long is looked at less often. A hidden tab and a paused page ask for nothing.
import { listen } from './api.js';

const KEY = 'windlass.paused';
// After a look, rest ten times as long as it took: an open page is to cost the server little.
const rest = (tookMs, gapMs) => Math.min(5000, Math.max(gapMs, 10 * tookMs));
const AGAIN_MS = [1000, 2000, 5000, 15000];
export const live = {
  get paused() { return localStorage.getItem(KEY) === 'yes'; },
  set paused(paused) {
    if (paused) localStorage.setItem(KEY, 'yes'); else localStorage.removeItem(KEY);
    dispatchEvent(new Event('windlass:live'));
  },
};

function tell(word) { dispatchEvent(new CustomEvent('windlass:status', { detail: word })); }

// `load(signal)` looks; `events` is the query of the stream; `heard(kind, data)` may answer true to say "no need to look".
// `gap` is the shortest rest after a look.
export function keepFresh({ load, events = { summary_ms: 1000 }, every = 10_000, gap = 300, heard }) {
  let running = null;
  let looked = false;
  let again = 0;

  function start() {
    const control = new AbortController();
    const state = { control, busy: false, dirty: false, timers: new Set() };
    const later = (ms, task) => {
      const timer = setTimeout(() => { state.timers.delete(timer); task(); }, ms);
      state.timers.add(timer);
    };
    state.look = async () => {
      if (state.busy) { state.dirty = true; return; }
      state.busy = true;
      const began = performance.now();
      try {
        await load(control.signal);
        looked = true;
        if (!control.signal.aborted) tell(live.paused ? 'paused' : 'live');
      } catch (error) {
        if (error.name !== 'AbortError' && !control.signal.aborted) {
          tell(error.status === 0 ? 'offline' : 'live');
          if (error.status !== 0) console.warn(error.message);
        }
      }
      later(rest(performance.now() - began, gap), () => {
        state.busy = false;
        if (state.dirty) { state.dirty = false; state.look(); }
      });
    };
    state.look();
    if (live.paused) return state;
    const beat = () => later(every, () => { state.look(); beat(); });
    beat();
    if (events) {
      const hear = async () => {
        try {
          await listen(events, control.signal, {
            opened: () => { if (again > 0) state.look(); again = 0; },
            heard: (kind, data) => { if (!heard?.(kind, data)) state.look(); },
          });
        } catch (error) {
          if (error.name === 'AbortError' || control.signal.aborted) return;
          tell('offline');
        }
        if (!control.signal.aborted) later(AGAIN_MS[Math.min(again++, AGAIN_MS.length - 1)], hear);
      };
      hear();
    }
    return state;
  }

  function stop() {
    running?.control.abort();
    running?.timers.forEach(clearTimeout);
    running = null;
  }

  function settle() {
    stop();
    const wanted = !document.hidden && !(live.paused && looked);
    if (wanted) running = start();
    else if (live.paused) tell('paused');
  }

  document.addEventListener('visibilitychange', settle);
  addEventListener('windlass:live', settle);
  settle();
  return {
    look() {
      if (!running) return load(new AbortController().signal).catch(() => {});
      running.busy = false;
      return running.look();
    },
    stop() {
      stop();
      document.removeEventListener('visibilitychange', settle);
      removeEventListener('windlass:live', settle);
    },
  };
}
