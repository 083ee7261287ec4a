// Elements. Text is only ever set as text: a name with markup in it stays a name.
const SVG = 'http://www.w3.org/2000/svg';
const byId = (id) => document.getElementById(id);

const element = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
const drawn = (tag, attributes = {}, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function show(id, ...children) {
  byId(id).replaceChildren(...children);
}

function setSection(id, shown) {
  byId(id).hidden = !shown;
}

function table(caption, header, rows, chosen = -1) {
  const head = element('tr', {}, ...header.map((name) => element('th', { scope: 'col' }, name)));
  const body = rows.map((row, index) => tableRow(row, index === chosen));
  const parts = header.length ? [element('thead', {}, head)] : [];
  return element('table', {}, element('caption', {}, caption), ...parts, element('tbody', {}, ...body));
}

function tableRow([name, ...cells], isChosen) {
  const made = element('tr', isChosen ? { class: 'chosen', 'aria-current': 'true' } : {});
  made.append(element('th', { scope: 'row' }, name), ...cells.map((cell) => element('td', {}, cell)));
  return made;
}

// Draws again when the place gets wider or narrower, so that letters keep their size.
function keepDrawn(place, draw) {
  let width = 0;
  const observer = new ResizeObserver(() => {
    if (Math.abs(place.clientWidth - width) < 1 || !place.clientWidth) return;
    width = place.clientWidth;
    place.replaceChildren(draw(width));
  });
  observer.observe(place);
  return place;
}
