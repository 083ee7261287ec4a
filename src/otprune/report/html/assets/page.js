// The page: a run is chosen, δ is moved, and everything follows.
const data = JSON.parse(byId('data').textContent);
const SLIDER = { min: -8, max: -0.3, step: 0.02 };

function start() {
  byId('version').textContent = `otprune ${data.version}`;
  const alike = data.runs.every(({ title }) => title === data.runs[0].title);
  const called = ({ title, name }) => (alike ? name : `${title}: ${name}`);
  const options = data.runs.map((run, index) => element('option', { value: index }, called(run)));
  show('run', ...options);
  byId('choice').hidden = data.runs.length < 2;
  let view = viewOf(data.runs[0]);
  byId('run').addEventListener('change', (event) => { view = viewOf(data.runs[event.target.value]); });
  byId('delta').addEventListener('input', () => view.slid());
  byId('delta-number').addEventListener('change', () => view.typed());
  byId('delta-reset').addEventListener('click', () => view.reset());
}

function viewOf(run) {
  showRun(run);
  if (run.network === null) return { slid() {}, typed() {}, reset() {} };
  const view = deltaView(run, data.networks[run.network]);
  view.reset();
  return view;
}

function showRun(run) {
  byId('title').textContent = data.runs.length > 1 ? run.title : `${run.title}: ${run.name}`;
  byId('lead').textContent = lead(run);
  show('gained', gainedTable(run));
  show('stages', stagesTable(run));
  show('notes', ...run.notes.map((note) => element('li', {}, note)));
  const facts = [['run', run.name], ...run.facts];
  show('facts', ...facts.flatMap(([name, value]) => [element('dt', {}, name), element('dd', {}, value)]));
  show('training', ...run.trainings.map(trainingCharts));
  setSection('training-section', run.trainings.length);
  showOthers(run);
  setSection('layers-section', run.network !== null);
  setSection('tower-section', run.network !== null || run.layers.length);
  setSection('delta-panel', run.network !== null);
  setSection('shifts-section', run.shifts !== null);
  byId('left-out').hidden = !run.left_out;
  byId('how').hidden = run.network === null;
  byId('left-out').textContent = `δ cannot be moved for this run: ${run.left_out.replace(/\.$/, '')}.`;
  if (run.network === null) showRecorded(run);
}

function showOthers(run) {
  const alike = data.runs.filter((other) => other.title === run.title);
  const papers = data.paper.find(({ title }) => title === run.title)?.points ?? [];
  show('scatter', ...scatter(alike, run, papers));
  show('run-table', runTable(alike, run, papers));
}

// Without γ: what was kept, as it was recorded.
function showRecorded(run) {
  const column = (name) => run.layers.map((layer) => layer[name]);
  if (run.layers.length) drawTower(column('name'), column('channels'), () => column('kept'));
  byId('tower-shown').textContent = shownNow({ delta: null }, run);
  if (run.shifts !== null) showShifts(run, () => run.gained.flops[1] / run.gained.flops[0]);
}

function drawTower(names, channels, kept) {
  const place = element('div');
  const state = { made: null };
  show('tower', place);
  keepDrawn(place, (width) => {
    state.made = tower(width, names, channels);
    updateTower(state.made, kept());
    return state.made.svg;
  });
  return () => { if (state.made) updateTower(state.made, kept()); };
}

function showShifts(run, share) {
  const made = shiftsChart(run.shifts, share);
  byId('shifts-intro').textContent =
    `Accuracy on ${run.shifts.of}, when the thresholds of all layers are raised or lowered together, against the FLOPs `
    + 'that are left.';
  show('shifts', made.figure);
  return made.update;
}

function deltaView(run, network) {
  const names = run.gammas.map(({ layer }) => layer);
  const layers = run.gammas.map(({ values }) => prepared(values));
  const all = together(layers);
  const span = decadesOf(layers);
  const cards = layers.map((layer, index) => layerCard(names[index], layer, span));
  const recorded = new Map(run.layers.map(({ name, kept }) => [name, exact(kept)]));
  const plain = atDelta(network, layers, all, run.delta);
  const own = asPruned(run, names, layers, plain);
  let found = own ?? plain;
  show('cards', ...cards.map(({ card }) => card));
  const redrawTower = drawTower(names, layers.map(({ ordered }) => ordered.length), () => found.kept);
  const share = () => found.flops / (found.whole ?? network).flops;
  const markShift = run.shifts === null ? () => {} : showShifts(run, share);
  setSlider(network, otherwise(run, plain, own));

  function draw(now, from) {
    found = now;
    tell(found, network, run, from);
    const said = shownNow(found, run, isOwnNetwork(run, plain, own));
    for (const place of ['now-shown', 'tower-shown']) byId(place).textContent = said;
    cards.forEach((card, index) => updateCard(card, found, index));
    show('layer-table', layerTable(names, layers, found, recorded));
    redrawTower();
    markShift(share());
  }

  const move = (delta, from) => draw(delta === null ? own : atDelta(network, layers, all, delta), from);
  return {
    reset: () => draw(own ?? plain, 'reset'),
    slid: () => move(slidTo(network), 'slider'),
    typed: () => move(typedIn(network, found.delta), 'number'),
  };
}

function setSlider({ widths, stops }, remark) {
  const settings = widths ? SLIDER : { min: 0, max: stops.length - 1, step: 1 };
  for (const [name, value] of Object.entries(settings)) byId('delta').setAttribute(name, value);
  const how = widths
    ? 'Computed in this page, from γ and from how channels hang together; the planner, asked at several δ, said the same.'
    : `FLOPs, parameters and channels kept come from plans made at ${stops.length} values of δ; the nearest is taken.`;
  byId('how').textContent = how + remark;
}

function slidTo({ widths, stops }) {
  const value = Number(byId('delta').value);
  return widths ? readable(10 ** value) : stops[value].delta;
}

// Something that is no δ is put back to the one before.
function typedIn({ widths, stops }, before) {
  const delta = Number(byId('delta-number').value);
  if (!(delta > 0 && delta < 1)) return before;
  return widths ? delta : stops[nearestStop(stops, delta)].delta;
}

// The slider has no place for a network that no δ makes: it stands where the run's δ is.
function tell(found, network, run, from) {
  const { flops, parameters, kept, separations, channels: before, whole = network } = found;
  const delta = found.delta ?? run.delta;
  const channels = kept.reduce((sum, count) => sum + count, 0);
  const safe = separations.filter((parted) => parted.safe).length;
  if (from !== 'slider') byId('delta').value = network.widths ? Math.log10(delta) : nearestStop(network.stops, delta);
  byId('delta').setAttribute('aria-valuetext', found.delta === null ? 'as run' : `δ = ${delta}`);
  byId('delta-number').value = found.delta ?? '';
  tile('now-channels', exact(channels), percent(channels / before), `of ${exact(before)}`);
  tile('now-flops', short(flops), percent(flops / whole.flops), exact(flops));
  tile('now-parameters', short(parameters), percent(parameters / whole.parameters), exact(parameters));
  tile('now-safe', ...(found.delta === null ? ['–', ''] : [`${safe} of ${separations.length}`, 'layers']));
}

function tile(id, large, small, precise = '') {
  show(id, large, element('small', {}, small, element('span', { class: 'precise' }, precise && ` · ${precise}`)));
}

start();
