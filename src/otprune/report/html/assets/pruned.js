// The network as the run pruned it, by its record: what is shown until δ is moved.

// Nothing where the record lacks something, or where OT at the run's δ makes the same network.
function asPruned(run, names, layers, plain) {
  const recorded = new Map(run.layers.map((layer) => [layer.name, layer]));
  const [flops, parameters] = [run.gained.flops, run.gained.parameters];
  const isKnown = (name) => Number.isFinite(recorded.get(name)?.threshold);
  if (!isPair(flops) || !isPair(parameters) || !names.every(isKnown)) return null;
  const kept = names.map((name) => recorded.get(name).kept);
  if (kept.every((count, index) => count === plain.kept[index])) return null;
  const limits = layers.map((layer, index) => (layer.total ? recorded.get(names[index]).threshold : Infinity));
  const separations = layers.map((layer, index) => separation(layer, smallestAbove(layer, limits[index]), run.delta));
  const whole = { flops: flops[0], parameters: parameters[0] };
  const costs = { flops: flops[1], parameters: parameters[1], whole };
  return { ...plain, delta: null, limits, branchLimit: run.branch, separations, kept, ...costs };
}

// A threshold of OT is a γ itself; one that was shifted lies somewhere between two of them.
const smallestAbove = ({ ordered }, limit) => ordered[firstReaching(ordered, limit)] ?? limit;

// Whether what OT makes at the run's δ is the network of the run, as far as its record tells.
const isOwnNetwork = ({ gained: { flops } }, plain, own) => own === null && flops[1] === plain.flops;

// `isOwn` says whether OT at the run's δ makes the network of the run.
function shownNow({ delta }, run, isOwn) {
  if (delta === null) return 'Shown: the network as the run pruned it.';
  if (delta === run.delta && isOwn) return `Shown: the network as the run pruned it, at δ = ${delta}.`;
  return `Shown: what OT would make of the trained network at δ = ${delta}.`;
}

// A run may have been pruned at thresholds that are not OT's own, as those that a budget asks for.
function otherwise(run, plain, own) {
  const [before, after] = run.gained.flops;
  if (after === null || isOwnNetwork(run, plain, own)) return '';
  const aim = new Map(run.facts).get('thresholds shifted to meet');
  const meeting = aim === undefined ? '' : `, but to meet ${aim}`;
  const kept = `it kept ${percent(after / before)} of the FLOPs`;
  const first = own === null ? '' : ' Its own network is shown until δ is moved, and after that what OT makes of it.';
  return ` The run was not pruned by OT at δ = ${run.delta}${meeting}: ${kept}.${first}`;
}
