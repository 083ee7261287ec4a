// What a δ leaves of a whole network, and what that costs: see otprune.report.html.widths, whose twin this is.

function atDelta(network, layers, all, delta) {
  const limits = layers.map((layer) => threshold(layer, delta));
  const branchLimit = threshold(all, delta);
  const separations = layers.map((layer, index) => separation(layer, limits[index], delta));
  const found = { delta, limits, branchLimit, separations, channels: all.ordered.length };
  return { ...found, ...(network.widths ? summed(network.widths, layers, found) : planned(network.stops, delta)) };
}

// A table of plans has its own δ: the nearest is taken.
function planned(stops, delta) {
  const { flops, parameters, kept } = stops[nearestStop(stops, delta)];
  return { flops, parameters, kept };
}

function nearestStop(stops, delta) {
  const away = stops.map((stop) => Math.abs(Math.log(stop.delta / delta)));
  return away.indexOf(Math.min(...away));
}

function summed(widths, layers, { limits, branchLimit }) {
  const below = widths.norms.filter((_, index) => isBelow(layers[index], branchLimit));
  const ends = new Set(below.map((norm) => norm.layer));
  const gone = firstOfEachSum(widths.branches.filter((branch) => ends.has(branch.end)));
  const removed = new Set(gone.flatMap((branch) => branch.layers));
  const left = widths.terms.filter((term) => !removed.has(term.layer));
  const sums = runningSums(liveChannels(widths, layers, limits, gone, left));
  const sizes = left.map((term) => term.axes.reduce((size, axis) => size * along(axis, sums), 1));
  const total = (kind) => left.reduce((sum, term, index) => sum + term[kind] * sizes[index], 0);
  const kept = widths.norms.map((norm) => (removed.has(norm.layer) ? 0 : along(norm.writes, sums)));
  return { flops: total('flops'), parameters: total('parameters'), kept };
}

const firstOfEachSum = (branches) =>
  branches.filter(({ sum }, index) => branches.findIndex((other) => other.sum === sum) === index);

const isBelow = (layer, limit) => layer.ordered[layer.ordered.length - 1] < limit;

function liveChannels(widths, layers, limits, gone, left) {
  const read = left.filter(({ axes }) => axes.length === 2).flatMap(({ axes }) => axes[0]);
  const [written, wanted] = [widths.written, [...widths.read, ...read]].map((axis) => flagged(widths, axis));
  const fixed = flagged(widths, widths.fixed);
  const absent = flagged(widths, gone.flatMap((branch) => branch.channels));
  const ends = new Set(gone.map((branch) => branch.end));
  const isLive = (channel) => fixed[channel] || (written[channel] && wanted[channel] && !absent[channel]);
  widths.norms.forEach((norm, index) => {
    const small = ends.has(norm.layer) ? Infinity : limits[index];
    write(norm, layers[index].magnitudes, small, written);
  });
  for (const norm of [...widths.norms].reverse()) {
    eachPair(norm, (read, handedOn) => { if (isLive(handedOn)) wanted[read] = 1; });
  }
  return written.map((_, channel) => (isLive(channel) ? 1 : 0));
}

// What is read is looked at before anything is written, as a batch norm may write what it reads.
function write(norm, magnitudes, limit, written) {
  const kept = [];
  eachPair(norm, (read, handedOn, index) => { if (magnitudes[index] >= limit && written[read]) kept.push(handedOn); });
  for (const channel of kept) written[channel] = 1;
}

function eachPair(norm, visit) {
  const [reads, writes] = [listed(norm.reads), listed(norm.writes)];
  for (let index = 0; index < writes.length; index += 1) visit(reads[index], writes[index], index);
}

const axisLists = new WeakMap();

function listed(axis) {
  if (!axisLists.has(axis)) {
    axisLists.set(axis, axis.flatMap(([first, count]) => Array.from({ length: count }, (_, index) => first + index)));
  }
  return axisLists.get(axis);
}

function flagged(widths, axis) {
  const flags = new Uint8Array(widths.channels);
  for (const [first, count] of axis) flags.fill(1, first, first + count);
  return flags;
}

function runningSums(live) {
  const sums = new Float64Array(live.length + 1);
  live.forEach((one, index) => { sums[index + 1] = sums[index] + one; });
  return sums;
}

const along = (axis, sums) => axis.reduce((count, [first, size]) => count + sums[first + size] - sums[first], 0);
