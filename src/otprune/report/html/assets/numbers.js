// Numbers as people read them.
const SUPERSCRIPTS = '⁰¹²³⁴⁵⁶⁷⁸⁹';

const exact = (value) => value.toLocaleString('en-US');

function short(value) {
  const [unit, name] = [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']].find(([size]) => value >= size) ?? [1, ''];
  const digits = (value / unit).toPrecision(Math.max(3, String(Math.floor(value / unit)).length));
  return name ? `${digits} ${name}` : exact(value);
}

const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;

function scientific(value) {
  if (!Number.isFinite(value)) return '∞';
  if (value === 0 || (value >= 0.001 && value < 10000)) return String(Number(value.toPrecision(3)));
  const [digits, exponent] = value.toExponential(1).split('e');
  return `${Number(digits)}×10${raised(Number(exponent))}`;
}

function raised(exponent) {
  const digits = [...String(Math.abs(exponent))].map((digit) => SUPERSCRIPTS[digit]).join('');
  return exponent < 0 ? `⁻${digits}` : digits;
}

// A δ that is short enough to read, and the one that is computed with: 10**-3 is 0.001 and nothing near it.
const readable = (delta) => Number(delta.toPrecision(4));
