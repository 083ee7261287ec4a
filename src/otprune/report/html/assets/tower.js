// The network as blocks, one below the other.

function tower(width, names, channels) {
  const tall = names.length > 60 ? 9 : 20;
  const labels = Math.min(190, width * 0.34);
  const room = width - labels - 96;
  const widest = Math.max(...channels);
  const svg = drawn('svg', { viewBox: `0 0 ${width} ${names.length * tall}`, role: 'img' });
  svg.setAttribute('aria-label', 'The network as blocks: the table of layers has the same in numbers.');
  const blocks = names.map((name, index) => {
    const full = (channels[index] / widest) * room;
    const made = { count: channels[index], full, middle: labels + room / 2, widest, room };
    svg.append(...block(made, name, index * tall, tall, labels, width));
    return made;
  });
  return { svg, blocks };
}

function block(made, name, top, tall, labels, width) {
  const size = { y: top + 1, height: tall - 3, rx: 2 };
  const outer = drawn('rect', { class: 'block', x: made.middle - made.full / 2, width: made.full, ...size });
  made.inner = drawn('rect', { class: 'block-left', ...size });
  made.text = drawn('text', { x: width, y: top + tall - 6, 'text-anchor': 'end' });
  const label = drawn('text', { x: 0, y: top + tall - 6 }, cut(name, labels));
  label.append(drawn('title', {}, name));
  return tall > 12 ? [outer, made.inner, label, made.text] : [outer, made.inner];
}

// The end of a name says more than its beginning.
const cut = (name, room) => {
  const most = Math.floor(room / 7);
  return name.length > most ? `…${name.slice(1 - most)}` : name;
};

function updateTower({ blocks }, kept) {
  blocks.forEach((made, index) => {
    const width = (kept[index] / made.widest) * made.room;
    made.inner.setAttribute('x', made.middle - width / 2);
    made.inner.setAttribute('width', width);
    made.text.textContent = `${exact(kept[index])} / ${exact(made.count)}`;
  });
}
