// The family of a job as a list and as a graph. The server bounds how much of it is told; the graph draws at most so many boxes.
import { chip, fill, h, int, link, stateWord, svg } from './dom.js';

const KEY = 'windlass.family';
const BOXES_MAX = 150;
const BOX = { width: 168, height: 38, right: 44, below: 10 };
const COLOURS = { ready: 'blue', delayed: 'amber', retrying: 'amber', running: 'violet', waiting: 'amber', suspended: 'amber', completed: 'green', failed: 'red', terminating: 'red' };

const moreText = (count) => `${int(count)} more`;

// Above: its ancestors, the oldest first. Below: its children and theirs.
function list(job, kin) {
  const place = (other, isHere) => h('span', { class: 'kin' }, isHere ? h('b', {}, `${other.name} #${other.id}`) : link(`job/${other.id}`, `${other.name} #${other.id}`), ' ', chip(stateWord(other)),
    other.child_name ? h('span', { class: 'soft' }, ` ${other.child_name}`) : null);
  const more = (count) => (count ? h('li', { class: 'soft' }, moreText(count)) : null);
  const branch = (nodes, rest) => (nodes.length || rest ? h('ul', { class: 'kin-list' }, nodes.map((node) => h('li', {}, place(node), branch(node.children, node.more))), more(rest)) : null);
  let tree = h('ul', { class: 'kin-list', id: 'family' }, h('li', {}, place(job, true), branch(kin.children, kin.more)));
  for (const parent of [...kin.ancestors].reverse()) tree = h('ul', { class: 'kin-list', id: 'family' }, h('li', {}, place(parent), tree));
  return tree;
}

// The members that get a box: the nearest generations first.
function nearest(children) {
  const chosen = new Set();
  let generation = children;
  while (generation.length && chosen.size < BOXES_MAX) {
    for (const member of generation.slice(0, BOXES_MAX - chosen.size)) chosen.add(member);
    generation = generation.flatMap((member) => member.children);
  }
  return chosen;
}

// Places boxes column by column: a parent stands in the middle of its children, leaves below each other.
function layout(job, kin) {
  const boxes = [];
  const edges = [];
  const chosen = nearest(kin.children);
  let rows = 0;
  const put = (member, column, children, rest) => {
    const box = { member, column, row: 0 };
    boxes.push(box);
    const below = [];
    for (const child of children) {
      if (!chosen.has(child)) { rest += 1; continue; }
      below.push(put(child, column + 1, child.children, child.more));
    }
    if (rest) {
      const box = { more: rest, column: column + 1, row: rows };
      rows += 1;
      boxes.push(box);
      below.push(box);
    }
    for (const child of below) edges.push([box, child]);
    box.row = below.length ? (below[0].row + below.at(-1).row) / 2 : rows;
    if (!below.length) rows += 1;
    return box;
  };
  let last = put(job, kin.ancestors.length, kin.children, kin.more);
  [...kin.ancestors].reverse().forEach((member, index) => {
    const box = { member, column: kin.ancestors.length - 1 - index, row: last.row };
    boxes.push(box);
    edges.push([box, last]);
    last = box;
  });
  return { boxes, edges, rows };
}

const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

function graph(job, kin) {
  const { boxes, edges, rows } = layout(job, kin);
  const x = (box) => 2 + box.column * (BOX.width + BOX.right);
  const y = (box) => 2 + box.row * (BOX.height + BOX.below);
  const columns = Math.max(...boxes.map((box) => box.column)) + 1;
  const [width, height] = [columns * (BOX.width + BOX.right) - BOX.right + 4, Math.max(1, rows) * (BOX.height + BOX.below) - BOX.below + 4];
  const line = ([from, to]) => {
    const [x1, y1, x2, y2] = [x(from) + BOX.width, y(from) + BOX.height / 2, x(to), y(to) + BOX.height / 2];
    return svg('path', { class: 'edge', d: `M${x1} ${y1}C${x1 + BOX.right / 2} ${y1} ${x2 - BOX.right / 2} ${y2} ${x2} ${y2}` });
  };
  const box = (one) => {
    const frame = svg('rect', { x: x(one), y: y(one), width: BOX.width, height: BOX.height, rx: 6 });
    const text = (dy, style, words) => svg('text', { class: style, x: x(one) + 10, y: y(one) + dy }, words);
    if (one.more) return svg('g', { class: 'c-grey' }, frame, text(24, 'second', moreText(one.more)));
    const { member } = one;
    const word = stateWord(member);
    const parts = [svg('title', {}, `${member.name} #${member.id}, ${word}`), frame, text(16, 'first', cut(member.name, 22)), text(31, 'second', cut(`#${member.id} ${word}${member.child_name ? ` ${member.child_name}` : ''}`, 26))];
    const style = `c-${COLOURS[word] ?? 'grey'}`;
    return member === job ? svg('g', { class: `${style} here` }, parts) : svg('a', { class: style, href: `#/job/${member.id}` }, parts);
  };
  return h('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'Graph of the family' },
    svg('svg', { class: 'family-graph', id: 'family-graph', width, height, viewBox: `0 0 ${width} ${height}` }, edges.map(line), boxes.map(box)));
}

export function family(job, kin) {
  const place = h('div');
  const views = [['List', list], ['Graph', graph]];
  const buttons = views.map(([name, draw]) => h('button', { class: 'small', 'data-view': name, onclick: () => { localStorage.setItem(KEY, name); show(name, draw); } }, name));
  function show(name, draw) {
    buttons.forEach((button) => button.setAttribute('aria-pressed', String(button.dataset.view === name)));
    fill(place, draw(job, kin));
  }
  show(...(views.find(([name]) => name === localStorage.getItem(KEY)) ?? views[0]));
  return h('section', { class: 'card', id: 'kin' }, h('div', { class: 'head' }, h('h2', {}, 'Parents and children'), h('span', { class: 'fill' }), h('div', { class: 'group', role: 'group', 'aria-label': 'View' }, buttons)), place);
}
