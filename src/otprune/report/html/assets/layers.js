// A card for each layer: how its |γ| are distributed, and where the thresholds fall.
const CARD = { width: 240, height: 92, left: 4, right: 4, floor: 74, zero: 10, first: 34, bins: 48 };

// Decades that hold all |γ| of the network but zeros.
function decadesOf(layers) {
  const smallest = Math.min(...layers.map(({ ordered }) => ordered[firstReaching(ordered, Number.MIN_VALUE)] ?? 1));
  const largest = Math.max(...layers.map(({ ordered }) => ordered[ordered.length - 1]));
  const high = Math.ceil(Math.log10(largest || 1));
  return [Math.min(Math.floor(Math.log10(smallest)), high - 1), high];
}

const cardX = ([low, high], value) => {
  const share = (Math.log10(value) - low) / (high - low);
  return CARD.first + Math.max(0, Math.min(1, share)) * (CARD.width - CARD.right - CARD.first);
};

function layerCard(name, layer, span) {
  const kept = element('span', { class: 'kept' });
  const limits = element('p');
  const verdictLine = element('p');
  const remark = element('p');
  const picture = histogram(name, layer, span);
  const head = element('header', {}, element('h3', {}, name), kept);
  const card = element('article', { class: 'card' }, head, picture.svg, limits, verdictLine, remark);
  return { card, kept, limits, verdict: verdictLine, remark, picture, span, count: layer.ordered.length };
}

function histogram(name, layer, span) {
  const svg = drawn('svg', { viewBox: `0 0 ${CARD.width} ${CARD.height}`, role: 'img' });
  const path = bars(layer, span);
  const clip = drawn('rect', { x: 0, y: 0, width: CARD.width, height: CARD.height });
  const id = `clip-${(histogram.made = (histogram.made ?? 0) + 1)}`;
  svg.append(drawn('clipPath', { id }, clip), drawn('path', { class: 'bars', d: path }));
  svg.append(drawn('path', { class: 'bars important', d: path, 'clip-path': `url(#${id})` }));
  svg.append(drawn('path', { class: 'axis', d: `M${CARD.left} ${CARD.floor + 0.5}H${CARD.width - CARD.right}` }));
  svg.append(...decadeMarks(span));
  const global = drawn('line', { class: 'global-line', y1: 4, y2: CARD.floor });
  const own = drawn('line', { class: 'threshold-line', y1: 0, y2: CARD.floor });
  svg.append(global, own);
  return { svg, clip, own, global, name };
}

// Counts by bins of equal width on the logarithmic axis, and one for zeros; heights by the square root, so that a
// few important channels are seen beside hundreds of negligible ones.
function bars(layer, span) {
  const counts = new Array(CARD.bins).fill(0);
  let zeros = 0;
  for (const value of layer.magnitudes) {
    const share = (Math.log10(value) - span[0]) / (span[1] - span[0]);
    if (value === 0) zeros += 1;
    else counts[Math.max(0, Math.min(CARD.bins - 1, Math.floor(share * CARD.bins)))] += 1;
  }
  const most = Math.sqrt(Math.max(zeros, ...counts));
  const tall = (count) => ((CARD.floor - 8) * Math.sqrt(count)) / most;
  const wide = (CARD.width - CARD.right - CARD.first) / CARD.bins;
  const boxes = counts.map((count, index) => box(CARD.first + index * wide + 0.4, wide - 0.8, tall(count)));
  return [box(CARD.left, CARD.zero, tall(zeros)), ...boxes].join('');
}

const box = (x, width, height) =>
  height ? `M${x.toFixed(1)} ${CARD.floor}v${(-height).toFixed(1)}h${width.toFixed(1)}V${CARD.floor}Z` : '';

function decadeMarks([low, high]) {
  const every = Math.ceil((high - low) / 4);
  const powers = Array.from({ length: high - low + 1 }, (_, index) => high - index).filter((_, i) => i % every === 0);
  const marks = powers.map((power) => mark(cardX([low, high], 10 ** power), power === 0 ? '1' : `10${raised(power)}`));
  return [mark(CARD.left + CARD.zero / 2, '0'), ...marks];
}

const mark = (x, text) => {
  const anchor = x > CARD.width - 16 ? 'end' : 'middle';
  return drawn('text', { x: anchor === 'end' ? CARD.width - 2 : x, y: CARD.height - 3, 'text-anchor': anchor }, text);
};

function updateCard(made, { delta, limits, branchLimit, separations, kept: left }, index) {
  const { picture, span } = made;
  const [limit, parted, kept] = [limits[index], separations[index], left[index]];
  const at = Number.isFinite(limit) ? cardX(span, limit) : CARD.width;
  picture.clip.setAttribute('x', at);
  setX(picture.own, at);
  if (branchLimit !== null) setX(picture.global, cardX(span, branchLimit));
  picture.global.setAttribute('visibility', branchLimit === null ? 'hidden' : 'visible');
  made.kept.textContent = `${exact(kept)} of ${exact(made.count)}`;
  const whole = element('sub', {}, 'g');
  const global = branchLimit === null ? [] : [' · γ', whole, ` ${scientific(branchLimit)}`];
  made.limits.replaceChildren(`threshold ${scientific(limit)}`, ...global);
  const judged = delta === null ? [] : [' · ', verdict(parted)];
  made.verdict.replaceChildren(`α ${ratio(parted.alpha)} · β ${ratio(parted.beta)}`, ...judged);
  made.remark.textContent = stuck(made.count - parted.negligible, kept);
  const said = `${parted.negligible} of ${made.count} channels lie below the threshold ${scientific(limit)}`;
  picture.svg.setAttribute('aria-label', `Histogram of the scaling factors of ${picture.name}: ${said}.`);
}

const ratio = (value) => (Number.isNaN(value) ? '–' : scientific(value));

function setX(lineDrawn, at) {
  lineDrawn.setAttribute('x1', at);
  lineDrawn.setAttribute('x2', at);
}

const verdict = (parted) =>
  element('span', { class: parted.safe ? 'safe' : 'unsafe' }, parted.safe ? 'δ is safe' : 'δ may not be safe');

// What stays though it is negligible, because of what it is tied to, or goes with what it is tied to.
function stuck(important, kept) {
  if (kept === important) return '';
  if (kept === 0) return 'the whole branch goes';
  return kept > important ? `${kept - important} negligible, needed elsewhere` : `${important - kept} more go with others`;
}

function layerTable(names, layers, found, recorded) {
  const header = ['layer', 'channels', 'kept', 'kept in the run', 'threshold', 'α', 'β', 'δ'];
  const rows = names.map((name, index) => {
    const parted = found.separations[index];
    const cells = [exact(layers[index].ordered.length), exact(found.kept[index]), recorded.get(name) ?? '–'];
    const numbers = [found.limits[index], parted.alpha, parted.beta].map(ratio);
    return [name, ...cells, ...numbers, found.delta === null ? '–' : parted.safe ? 'safe' : 'not sure'];
  });
  const caption = found.delta === null ? 'as the run pruned it' : `at δ = ${found.delta}`;
  return table(`Every layer ${caption}`, header, rows);
}
