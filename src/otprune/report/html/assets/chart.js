// A chart: two axes with a grid, and scales to draw by.
const MARGIN = { left: 52, right: 14, top: 10, bottom: 40 };
const TALL = 250;

function chart({ width, x, y, label, height = TALL }) {
  const svg = drawn('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label });
  const across = scale(x, MARGIN.left, width - MARGIN.right);
  const up = scale(y, height - MARGIN.bottom, MARGIN.top);
  up.ticks.forEach((tick) => svg.append(...horizontal(tick, up(tick), width, y)));
  across.ticks.forEach((tick) => svg.append(...vertical(tick, across(tick), height, x)));
  const middle = (MARGIN.left + width - MARGIN.right) / 2;
  svg.append(drawn('text', { x: middle, y: height - 4, 'text-anchor': 'middle' }, x.label));
  return { svg, x: across, y: up, height, width };
}

function scale({ domain: [low, high], log = false, integer = false }, from, to) {
  const place = log ? Math.log10 : (value) => value;
  const [first, last] = [place(low), place(high)];
  const at = (value) => from + ((place(value) - first) / (last - first || 1)) * (to - from);
  at.ticks = log ? decades(low, high) : niceTicks(low, high, integer);
  return at;
}

function niceTicks(low, high, integer, wanted = 5) {
  const rough = (high - low) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(integer ? 1 : 0, [1, 2, 5, 10].find((factor) => factor * power >= rough) * power);
  const count = Math.floor((high - Math.ceil(low / step) * step) / step + 1e-9) + 1;
  return Array.from({ length: count }, (_, index) => Number(((Math.ceil(low / step) + index) * step).toPrecision(12)));
}

function decades(low, high) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
    for (const factor of [1, 2, 5]) ticks.push(factor * 10 ** power);
  }
  return ticks.filter((tick) => tick >= low && tick <= high);
}

function horizontal(tick, at, width, { text = String }) {
  return [
    drawn('line', { class: 'grid', x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at }),
    drawn('text', { x: MARGIN.left - 8, y: at + 4, 'text-anchor': 'end' }, text(tick)),
  ];
}

function vertical(tick, at, height, { text = String }) {
  return [
    drawn('line', { class: 'axis', x1: at, x2: at, y1: height - MARGIN.bottom, y2: height - MARGIN.bottom + 4 }),
    drawn('text', { x: at, y: height - MARGIN.bottom + 17, 'text-anchor': 'middle' }, text(tick)),
  ];
}

// A line through the points that are there; a single one is marked, since a line of one point is not seen.
function line(made, points, look) {
  const there = points.filter(([, value]) => value !== null && value !== undefined);
  if (there.length === 1) made.svg.append(spot(made, there[0], look));
  const path = there.map(([x, y], index) => `${index ? 'L' : 'M'}${made.x(x).toFixed(1)} ${made.y(y).toFixed(1)}`);
  made.svg.append(drawn('path', { class: `series ${look}`, d: path.join('') }));
}

function dot(made, point, look, name, shape = 'circle') {
  const marked = spot(made, point, look, shape);
  marked.append(drawn('title', {}, name));
  made.svg.append(marked);
}

const spot = (made, [x, y], look, shape = 'circle') =>
  drawn('path', { class: `dot ${look}`, d: outline(shape, made.x(x), made.y(y)) });

const SHAPES = {
  circle: (x, y, r) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`,
  diamond: (x, y, r) => `M${x} ${y - 1.35 * r}L${x + 1.35 * r} ${y}L${x} ${y + 1.35 * r}L${x - 1.35 * r} ${y}Z`,
  square: (x, y, r) => `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`,
};

const outline = (shape, x, y, radius = 4.5) => SHAPES[shape](x, y, radius);

// A legend below a chart: [what a sign looks like, what it means].
function legend(entries) {
  return element('ul', { class: 'legend' }, ...entries.map(([sign, text]) => element('li', {}, swatch(sign), text)));
}

function swatch({ look, shape }) {
  const svg = drawn('svg', { viewBox: '0 0 22 12', 'aria-hidden': 'true' });
  svg.append(
    shape
      ? drawn('path', { class: `dot ${look}`, d: outline(shape, 11, 6, 4) })
      : drawn('path', { class: `series ${look}`, d: 'M0 6H22' }),
  );
  return svg;
}

// A span around some values, a little wider than they are.
function around(values, padding = 0.08) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const more = (high - low || Math.abs(high) || 1) * padding;
  return [low - more, high + more];
}
