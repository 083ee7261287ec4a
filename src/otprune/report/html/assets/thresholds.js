// Optimal Thresholding, number for number as otprune.thresholds has it.

// Sorted |γ| as the 32-bit floats they are, and the cumulative sums of their squares.
function prepared(values) {
  const magnitudes = Float64Array.from(values, (value) => Math.abs(Math.fround(value)));
  const ordered = magnitudes.slice().sort();
  let total = 0;
  const cumulative = ordered.map((value) => (total += value * value));
  return { magnitudes, ordered, cumulative, total };
}

const together = (layers) => prepared(layers.flatMap((layer) => Array.from(layer.magnitudes)));

// The first |γ|, in ascending order, at which the cumulative sum of squares reaches δ of the whole.
function threshold(layer, delta) {
  if (layer.total === 0) return Infinity;
  return layer.ordered[firstReaching(layer.cumulative, delta * layer.total)];
}

function firstReaching(ascending, value) {
  let [low, high] = [0, ascending.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ascending[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The paper's α and β, and the interval in which every δ is sure to find this threshold.
function separation(layer, limit, delta) {
  const count = layer.ordered.length;
  const negligible = firstReaching(layer.ordered, limit);
  if (negligible === count) return { negligible, alpha: Infinity, beta: NaN, safe: false };
  const largest = negligible ? layer.ordered[negligible - 1] : 0;
  const alpha = largest ? limit / largest : Infinity;
  const beta = layer.ordered[count - 1] / limit;
  const lowest = (negligible / (count - negligible)) * alpha ** -2;
  return { negligible, alpha, beta, safe: lowest <= delta && delta <= beta ** -2 / count };
}
