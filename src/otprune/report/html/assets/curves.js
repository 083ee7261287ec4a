// Training epoch by epoch, and accuracy at shifted thresholds.
const inPercent = (tick) => `${tick} %`;
const STAGES = [['pruned', 'as pruned', 'c'], ['recalibrated', 'recalibrated', 'a'], ['finetuned', 'fine-tuned', 'b']];

function trainingCharts({ name, epoch, loss, accuracy, flops }) {
  const share = { label: `${name}: training accuracy and FLOPs left, by epoch`, domain: [0, 100], text: inPercent };
  const shares = [['accuracy on training images', accuracy, 'a'], ['FLOPs that OT would keep', flops, 'b']];
  const losses = [['loss', loss, 'a']];
  const highest = Math.max(...loss.filter((value) => value !== null), 0);
  const series = shares.map(([said, values, look]) => [said, values.map((value) => value && 100 * value), look]);
  const figures = [
    curve(epoch, series.filter(([, values]) => values.some((value) => value !== null)), share),
    curve(epoch, losses, { label: `${name}: loss, by epoch`, domain: [0, highest * 1.05 || 1] }),
  ];
  const title = name[0].toUpperCase() + name.slice(1);
  return element('div', {}, element('h3', {}, title), element('div', { class: 'pair' }, ...figures));
}

function curve(epochs, series, y) {
  const place = element('div');
  const x = { domain: [0, epochs[epochs.length - 1]], integer: true, label: 'epoch' };
  keepDrawn(place, (width) => {
    const made = chart({ width, x, y, label: y.label, height: 210 });
    for (const [, values, look] of series) line(made, values.map((value, index) => [epochs[index], value]), look);
    return made.svg;
  });
  return element('figure', {}, place, legend(series.map(([said, , look]) => [{ look }, said])));
}

// Accuracy against the FLOPs left, and where what is shown falls on it.
function shiftsChart({ points: measured }, currentShare) {
  const shown = STAGES.filter(([stage]) => measured.some((one) => one[stage] !== undefined));
  const place = element('div');
  const accuracies = measured.flatMap((one) => shown.map(([stage]) => one[stage] ?? []));
  const y = { domain: around(accuracies.flat().map((value) => 100 * value)), text: inPercent };
  const x = { domain: [0, 100], label: 'FLOPs left', text: inPercent };
  const state = { update: () => {} };
  keepDrawn(place, (width) => {
    const made = chart({ width, x, y, label: 'Test accuracy at shifted thresholds, against the FLOPs left' });
    for (const [stage, said, look] of shown) drawShifts(made, measured, stage, said, look);
    state.update = marker(made, measured, shown[shown.length - 1][0]);
    state.update(currentShare());
    return made.svg;
  });
  const now = [{ look: 'now', shape: 'circle' }, 'what is shown, between what was measured'];
  const entries = shown.map(([, said, look]) => [{ look }, said]);
  return { figure: element('figure', {}, place, legend([...entries, now])), update: (share) => state.update(share) };
}

function drawShifts(made, measured, stage, said, look) {
  const there = measured.filter((one) => one[stage] !== undefined);
  const places = there.map((one) => [100 * one.flops, 100 * one[stage]]);
  line(made, places, look);
  const named = there.map((one) => `${said}, shift ${one.shift}: ${percent(one[stage], 2)}`);
  places.forEach((place, index) => dot(made, place, look, named[index]));
}

function marker(made, measured, stage) {
  const known = measured.filter((one) => one[stage] !== undefined).sort((one, other) => one.flops - other.flops);
  const upright = drawn('line', { class: 'now-line', y1: MARGIN.top, y2: made.height - MARGIN.bottom });
  const ring = drawn('path', { class: 'dot now' });
  made.svg.append(upright, ring);
  return (share) => {
    const at = made.x(100 * share);
    const accuracy = between(known, stage, share);
    setX(upright, at);
    ring.setAttribute('d', accuracy === null ? '' : outline('circle', at, made.y(100 * accuracy), 5.5));
  };
}

// On the straight line between the two that are nearest; nothing beyond the ends.
function between(known, stage, share) {
  const after = known.findIndex((one) => one.flops >= share);
  if (after < 0 || (after === 0 && known[0].flops > share)) return null;
  const [low, high] = [known[Math.max(after - 1, 0)], known[after]];
  const part = high.flops === low.flops ? 1 : (share - low.flops) / (high.flops - low.flops);
  return low[stage] + part * (high[stage] - low[stage]);
}
