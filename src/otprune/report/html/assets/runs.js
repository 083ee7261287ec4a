// All runs of a network on its data, as points and as a table, with those of the paper.

function scatter(runs, chosen, papers) {
  const kinds = [{ kind: 'flops', called: 'FLOPs', log: false }, { kind: 'parameters', called: 'parameters', log: true }];
  return kinds.flatMap((axis) => {
    const ours = runs.flatMap((run) => runMarks(run, axis.kind, run === chosen));
    return ours.length ? [costChart([...papers.flatMap((point) => paperMark(point, axis.kind)), ...ours], axis)] : [];
  });
}

function costChart(marks, { called, log }) {
  const costs = marks.map(({ at }) => at[0]);
  const x = { domain: log ? roundly(costs) : [0, Math.max(...costs) * 1.05] };
  Object.assign(x, { log, label: called, text: (tick) => (tick ? short(tick).replace(/\.0+ /, ' ') : '0') });
  const y = { domain: around(marks.map(({ at }) => at[1])), text: inPercent };
  const place = element('div');
  keepDrawn(place, (width) => {
    const made = chart({ width, x: thinned(x, width), y, label: `Accuracy against ${called}, run by run` });
    marks.forEach(({ at, look, said, shape }) => dot(made, at, look, said, shape));
    marks.filter(({ label }) => label).forEach((mark) => writeName(made, mark));
    return made.svg;
  });
  return element('figure', {}, place, legend(scatterLegend(marks)));
}

const writeName = (made, { at: [x, y], label }) =>
  made.svg.append(drawn('text', { class: 'paper-name', x: made.x(x), y: made.y(y) - 10, 'text-anchor': 'middle' }, label));

// A span around costs for a logarithmic axis, from one round number to another.
function roundly(costs) {
  const ticks = decades(Math.min(...costs) / 10, Math.max(...costs) * 10);
  const low = ticks.findLast((tick) => tick <= Math.min(...costs) / 1.1);
  return [low, ticks.find((tick) => tick >= Math.max(...costs) * 1.1)];
}

// Where there is little room, whole decades alone are named, if there are some.
function thinned(x, width) {
  const isFew = !x.log || width > 620 || x.domain[1] / x.domain[0] <= 20;
  const isNamed = (tick) => isFew || /^10*$/.test(String(tick));
  return { ...x, text: (tick) => (isNamed(tick) ? x.text(tick) : '') };
}

function scatterLegend(marks) {
  const kinds = [
    [{ look: 'chosen', shape: 'circle' }, 'this run, pruned'],
    [{ look: 'run', shape: 'circle' }, 'other runs, pruned'],
    [{ look: 'unpruned', shape: 'square' }, 'unpruned'],
    [{ look: 'earlier', shape: 'square' }, 'as earlier rounds left it'],
    [{ look: 'paper', shape: 'diamond' }, 'the paper'],
  ];
  return kinds.filter(([{ look }]) => marks.some((mark) => mark.look === look));
}

function paperMark(point, kind) {
  if (point[kind] === null) return [];
  const said = `paper, ${point.label}: ${point.accuracy} % at ${short(point[kind])}`;
  const label = point.label === 'unpruned' ? '' : point.label;
  return [{ at: [point[kind], point.accuracy], look: 'paper', said, shape: 'diamond', label }];
}

function runMarks({ name, gained }, kind, isChosen) {
  const began = gained.before === 'unpruned' ? 'unpruned' : 'earlier';
  const looks = [[began, 'square', gained.before], [isChosen ? 'chosen' : 'run', 'circle', 'pruned']];
  return looks.flatMap(([look, shape, said], index) => {
    const [cost, accuracy] = [gained[kind][index], gained.accuracy[index]];
    if (cost === null || accuracy === null) return [];
    const text = `${name}, ${said}: ${percent(accuracy, 2)} at ${short(cost)}`;
    return [{ at: [cost, 100 * accuracy], look, shape, said: text }];
  });
}

function runTable(runs, chosen, papers) {
  const header = ['run', 'accuracy before', 'after', 'stage', 'FLOPs left', 'parameters left'];
  const rows = runs.map(({ name, gained }) => {
    const { accuracy, stage, flops, parameters } = gained;
    return [name, ...accuracy.map(shown), stage ?? '–', left(flops), left(parameters)];
  });
  const theirs = papers.map(({ label, accuracy, flops, parameters }) =>
    [`paper, ${label}`, '', shown(accuracy / 100), '', cost(flops), cost(parameters)]);
  return table('All runs of this network on this data', header, [...rows, ...theirs], runs.indexOf(chosen));
}

const shown = (accuracy) => (accuracy === null ? '–' : percent(accuracy, 2));
const cost = (value) => (value === null ? '–' : short(value));
const left = (pair) => (isPair(pair) ? `${short(pair[1])} (${percent(pair[1] / pair[0])})` : '–');
