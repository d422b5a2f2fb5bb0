// Scales: where a number lies on an axis, which numbers to write beside it, and how.

const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

function powerOfTen(exponent) {
  const digits = [...String(Math.abs(exponent))].map((digit) => SUPERSCRIPTS[digit]).join("");
  return `10${exponent < 0 ? "⁻" : ""}${digits}`;
}

/** A number for people, with about four digits. */
function inWords(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e9) return value.toLocaleString("en-GB");
  if (size >= 1e-3 && size < 1e5) return String(Number(value.toPrecision(4)));
  const [mantissa, exponent] = value.toExponential(3).split("e");
  return `${Number(mantissa)} × ${powerOfTen(Number(exponent))}`;
}

/** A linear or logarithmic map from the numbers [low, high] to the pixels [from, to]. */
class Scale {
  constructor([low, high], [from, to], isLog) {
    Object.assign(this, { low, high, from, to, isLog });
    this.start = this.inner(low);
    this.slope = (to - from) / (this.inner(high) - this.start);
  }

  inner(value) {
    return this.isLog ? Math.log10(value) : value;
  }

  pixel(value) {
    return this.from + (this.inner(value) - this.start) * this.slope;
  }

  value(pixel) {
    const inner = this.start + (pixel - this.from) / this.slope;
    return this.isLog ? 10 ** inner : inner;
  }

  /** At most about `most` pairs of number and text. */
  ticks(most) {
    return this.isLog ? this.decades(most) : this.even(most);
  }

  even(most) {
    const rough = (this.high - this.low) / most;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
    const values = [];
    for (let k = Math.ceil(this.low / step); k * step <= this.high * (1 + 1e-12); k++) {
      values.push(k * step + 0); // + 0: no minus before a zero
    }
    const largest = Math.max(...values.map(Math.abs));
    const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    if (largest > 0 && (largest < 1e-3 || largest >= 1e7)) {
      const exponent = Math.floor(Math.log10(largest) + 1e-9);
      const digits = Math.max(0, Math.min(12, exponent + decimals));
      return values.map((value) => [
        value,
        value === 0 ? "0" : `${Number((value / 10 ** exponent).toFixed(digits))} × ${powerOfTen(exponent)}`,
      ]);
    }
    const format = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
    return values.map((value) => [value, value.toLocaleString("en-GB", format)]);
  }

  decades(most) {
    const first = Math.ceil(this.inner(this.low) - 1e-9);
    const last = Math.floor(this.inner(this.high) + 1e-9);
    // Less than a decade or two: even steps, or steps of 1, 2 and 5, tell more than powers of ten.
    if (this.inner(this.high) - this.inner(this.low) < 0.8) return this.even(most);
    if (last - first < 2) return this.oneTwoFive(first - 1, last);
    const every = Math.ceil((last - first + 1) / most);
    const plain = first >= -2 && last <= 4;
    const ticks = [];
    for (let n = Math.ceil(first / every) * every; n <= last; n += every) {
      ticks.push([10 ** n, plain ? inWords(10 ** n) : powerOfTen(n)]);
    }
    return ticks;
  }

  oneTwoFive(first, last) {
    const values = [];
    for (let n = first; n <= last; n++) values.push(...[1, 2, 5].map((factor) => Number(`${factor}e${n}`)));
    const shown = values.filter((value) => value >= this.low && value <= this.high);
    return shown.map((value) => [value, inWords(value)]);
  }

  /** Where grid lines without a number go: 2 to 9 times a power of ten, where there is room. */
  between() {
    const decades = this.inner(this.high) - this.inner(this.low);
    if (!this.isLog || decades > 5 || decades < 1) return [];
    const values = [];
    for (let n = Math.floor(this.inner(this.low)); n <= this.inner(this.high); n++) {
      for (let k = 2; k < 10; k++) values.push(k * 10 ** n);
    }
    return values.filter((value) => value > this.low && value < this.high);
  }
}
