// What was gained: a sentence and a small table.

function lead({ title: network, gained }) {
  const { before: began, accuracy, flops, parameters, stage } = gained;
  const title = began === 'unpruned' ? network : `${network}, ${began},`;
  const costs = [['FLOPs', flops], ['parameters', parameters]].filter(([, pair]) => isPair(pair));
  if (!costs.length) return isPair(accuracy) ? `${network}: ${points(accuracy)} (${stage}).` : `${network}: not pruned yet.`;
  if (costs.every(([, [before, after]]) => before === after)) return `${network}: nothing was pruned.`;
  const kept = costs.map(([name, [before, after]]) => `${percent(after / before)} of its ${name}`).join(' and ');
  const times = isPair(flops) ? `, ${(flops[0] / flops[1]).toPrecision(3)} times fewer FLOPs` : '';
  return `${title} keeps ${kept}${times}${isPair(accuracy) ? `, at ${points(accuracy)} (${stage})` : ''}.`;
}

const isPair = (pair) => pair.every((value) => value !== null);

function points([before, after]) {
  const change = 100 * (after - before);
  const moved = Math.abs(change) < 0.005 ? 'as before' : `${signed(change)} points`;
  return `${percent(after, 2)} accuracy, ${moved}`;
}

const signed = (value) => `${value < 0 ? '−' : '+'}${Math.abs(value).toFixed(2)}`;

function gainedTable({ gained, latencies }) {
  const rows = [accuracyRow(gained), costRow('FLOPs', gained.flops), costRow('parameters', gained.parameters)];
  const times = latencies.map(({ name, before, after }) => latencyRow(name, before, after));
  const caption = gained.stage ? `Before: ${gained.before}; after: ${gained.stage}` : 'Before and after pruning';
  return table(caption, ['', 'before', 'after', 'change'], [...rows, ...times]);
}

function stagesTable({ accuracies }) {
  const rows = accuracies.map(([name, value]) => [name, percent(value, 2)]);
  return rows.length ? table('Accuracy stage by stage', [], rows) : '';
}

function accuracyRow({ accuracy: [before, after] }) {
  const change = isPair([before, after]) ? `${signed(100 * (after - before))} points` : '–';
  return ['accuracy', ...[before, after].map(shown), change];
}

function costRow(name, [before, after]) {
  const cells = [before, after].map((value) => (value === null ? '–' : short(value)));
  return [name, ...cells, isPair([before, after]) ? less(before, after) : '–'];
}

const less = (before, after) => (after === before ? 'none' : `−${percent(1 - after / before)}`);

const latencyRow = (name, before, after) =>
  [`latency, ${name}`, milliseconds(before), milliseconds(after), `${(before / after).toFixed(2)}× as fast`];

const milliseconds = (value) => `${value.toPrecision(3)} ms`;
