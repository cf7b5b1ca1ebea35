// Lines over time.
import { h, svg, fill, short, exact, span } from './dom.js';

const HEIGHT = 180;
const PAD = { left: 44, right: 8, top: 10, bottom: 22 };

function ceiling(value) {
  if (value <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * size).find((step) => step >= value);
}

class Chart extends HTMLElement {
  connectedCallback() {
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this);
    this.addEventListener('pointermove', (event) => this.point(event));
    this.addEventListener('pointerleave', () => { this.at = undefined; this.draw(); });
  }
  disconnectedCallback() { this.watcher.disconnect(); }

  // { from, step, unit, series: [{ name, colour, dash, values }] }
  set data(data) { this.shown = data; this.draw(); }

  point(event) {
    if (!this.shown) return;
    const box = this.getBoundingClientRect();
    const inner = box.width - PAD.left - PAD.right;
    const count = this.shown.series[0].values.length;
    const at = Math.round(((event.clientX - box.left - PAD.left) / inner) * (count - 1));
    this.at = Math.max(0, Math.min(count - 1, at));
    this.draw();
  }

  draw() {
    const width = this.clientWidth;
    if (!this.shown || width === 0) return;
    const { series, from, step, unit } = this.shown;
    const count = series[0].values.length;
    const top = ceiling(Math.max(...series.flatMap((line) => line.values)));
    const inner = width - PAD.left - PAD.right;
    const x = (index) => PAD.left + (count < 2 ? inner : (index / (count - 1)) * inner);
    const y = (value) => PAD.top + (1 - value / top) * (HEIGHT - PAD.top - PAD.bottom);
    const lines = [0, 0.5, 1].map((share) => [
      svg('line', { class: 'gridline', x1: PAD.left, x2: width - PAD.right, y1: y(top * share), y2: y(top * share) }),
      svg('text', { class: 'axis', x: PAD.left - 8, y: y(top * share) + 4, 'text-anchor': 'end' }, top * share < 10 ? +(top * share).toFixed(2) : short(top * share)),
    ]);
    const marks = count < 2 ? [] : [0, 0.5, 1].map((share) => {
      const ago = (count - 1) * (1 - share) * step;
      return svg('text', { class: 'axis', x: x((count - 1) * share), y: HEIGHT - 5, 'text-anchor': share === 0 ? 'start' : share === 1 ? 'end' : 'middle' },
        ago === 0 ? 'now' : `${span(ago)} ago`);
    });
    const drawn = series.map((line) => {
      const path = line.values.map((value, index) => `${index ? 'L' : 'M'}${x(index).toFixed(1)} ${y(value).toFixed(1)}`).join('');
      const group = svg('g', { class: `c-${line.colour}` });
      if (count > 1) group.append(svg('path', { class: 'area', d: `${path}L${x(count - 1)} ${y(0)}L${x(0)} ${y(0)}Z` }));
      group.append(svg('path', { class: 'series', d: path, ...(line.dash ? { 'stroke-dasharray': '5 3' } : {}) }));
      return group;
    });
    const cursor = this.at === undefined || this.at >= count ? [] : [svg('line', { class: 'cursor', x1: x(this.at), x2: x(this.at), y1: PAD.top, y2: HEIGHT - PAD.bottom })];
    const index = this.at === undefined || this.at >= count ? count - 1 : this.at;
    const legend = h('div', { class: 'legend' },
      series.map((line) => h('span', { class: `c-${line.colour}${line.dash ? ' dash' : ''}` }, h('i'), `${line.name} `, h('b', {}, `${this.say(line.values[index])}${unit}`))),
      h('span', {}, this.at === undefined ? '' : exact(from + index * step).replace(/\.\d+/, '')));
    const summary = series.map((line) => `${line.name} ${this.say(line.values[count - 1])}${unit}`).join(', ');
    fill(this, legend, svg('svg', { role: 'img', 'aria-label': `${this.getAttribute('label') ?? 'chart'}: ${summary}`, viewBox: `0 0 ${width} ${HEIGHT}`, preserveAspectRatio: 'none' }, lines, marks, drawn, cursor));
  }

  say(value) { return value < 10 ? String(+value.toFixed(2)) : short(Math.round(value)); }
}
customElements.define('w-chart', Chart);

export const chart = (label) => h('w-chart', { label });
