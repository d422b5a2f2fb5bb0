// A plot: curves of one set of runs on axes that the reader chooses.

const DECADES = 16; // at most, on a logarithmic axis: what lies below is rounding
const APART = 12; // pixels between restarts that can be told apart
const CLOSE = 45; // pixels from the pointer to the point that the tooltip describes

class Plot {
  /** `data` as the page's JSON has it; `onChange` is called after every change of state. */
  constructor(data, canvas, onChange) {
    Object.assign(this, { data, canvas, onChange });
    this.x = data.x[0][0];
    this.y = data.y[0][0];
    this.isLog = { x: data.logs[0], y: data.logs[1] };
    this.view = { x: null, y: null }; // null: all that there is
    this.hidden = new Set();
    this.marksShown = true;
    this.lit = null; // the curve that stands out
  }

  get shown() {
    return this.data.series.filter((_, i) => !this.hidden.has(i));
  }

  get isZoomed() {
    return this.view.x !== null || this.view.y !== null;
  }

  /** Change the state and draw; an axis that means something else shows all of it again. */
  change(changes) {
    for (const axis of ["x", "y"]) if (axis in changes) this.view[axis] = null;
    if (changes.flip) {
      this.isLog[changes.flip] = !this.isLog[changes.flip];
      this.view[changes.flip] = null;
      delete changes.flip;
    }
    Object.assign(this, changes);
    this.draw();
    this.onChange();
  }

  /** Show these ranges of numbers; those that are empty or hold everything are not a zoom. */
  zoom(ranges) {
    for (const axis of ["x", "y"]) {
      const [low, high] = ranges[axis];
      const whole = new Scale(this.range(axis), [0, 1], this.isLog[axis]);
      if (!(high - low > 1e-9 * (Math.abs(high) + Math.abs(low)))) return;
      if (this.isLog[axis] && !(low > 0 && high < Infinity)) return;
      const holdsAll = whole.pixel(low) < 1e-3 && whole.pixel(high) > 1 - 1e-3;
      ranges[axis] = holdsAll ? null : [low, high];
    }
    this.change({ view: ranges });
  }

  /** The range of the visible curves, with a little air around them. */
  range(axis) {
    const isLog = this.isLog[axis];
    let low = Infinity;
    let high = -Infinity;
    for (const { columns } of this.shown) {
      for (const value of columns[this[axis]]) {
        if (value === null || (isLog && value <= 0)) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
    if (low > high) return isLog ? [1, 10] : [0, 1]; // nothing to see
    if (isLog) low = Math.max(low, high / 10 ** DECADES);
    if (low === high) return isLog ? [low / 2, high * 2] : [low - 1, high + 1];
    if (axis === "x") return [low, high];
    const air = isLog ? (high / low) ** 0.04 : (high - low) * 0.04;
    return isLog ? [low / air, high * air] : [low - air, high + air];
  }

  // --- drawing ---

  draw() {
    const pen = this.canvas.getContext("2d");
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width) return;
    const ratio = Math.max(window.devicePixelRatio || 1, 1.5); // paper is finer than screens
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    pen.scale(ratio, ratio);
    const style = getComputedStyle(this.canvas);
    this.colours = Object.fromEntries(
      ["ground", "ink", "faint", "line", "grid"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]),
    );
    pen.font = `12px ${style.fontFamily}`;
    this.layOut(pen, width, height);
    this.drawAxes(pen);
    const { left, top, right, bottom } = this.frame;
    pen.save();
    pen.beginPath();
    pen.rect(left - 1, top - 1, right - left + 2, bottom - top + 2);
    pen.clip();
    // From the last to the first: the methods that are named first lie on top.
    const series = [...this.shown].reverse();
    for (const one of series) this.drawCurve(pen, one);
    pen.restore();
    for (const one of series) this.drawMarks(pen, one);
  }

  layOut(pen, width, height) {
    const [top, bottom] = [8, height - 24];
    const ranges = { x: this.view.x ?? this.range("x"), y: this.view.y ?? this.range("y") };
    const vertical = new Scale(ranges.y, [bottom, top], this.isLog.y);
    this.ticks = { y: vertical.ticks(Math.max(3, Math.floor(height / 50))) };
    const widest = Math.max(20, ...this.ticks.y.map(([, text]) => pen.measureText(text).width));
    const [left, right] = [Math.ceil(widest) + 12, width - 14];
    const horizontal = new Scale(ranges.x, [left, right], this.isLog.x);
    this.ticks.x = horizontal.ticks(Math.max(3, Math.floor((right - left) / 90)));
    this.frame = { left, right, top, bottom };
    this.scales = { x: horizontal, y: vertical };
  }

  drawAxes(pen) {
    const { left, right, top, bottom } = this.frame;
    const { x, y } = this.scales;
    const lines = (colour, across, up) => {
      pen.beginPath();
      for (const value of across) pen.rect(x.pixel(value), top, 0, bottom - top);
      for (const value of up) pen.rect(left, y.pixel(value), right - left, 0);
      pen.strokeStyle = colour;
      pen.stroke();
    };
    pen.lineWidth = 0.5;
    lines(this.colours.grid, x.between(), y.between());
    pen.lineWidth = 1;
    lines(this.colours.grid, this.ticks.x.map(([value]) => value), this.ticks.y.map(([value]) => value));
    lines(this.colours.line, [x.low], [y.low]);
    pen.fillStyle = this.colours.faint;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (const [value, text] of this.ticks.y) pen.fillText(text, left - 7, y.pixel(value));
    pen.textAlign = "center";
    for (const [value, text] of this.ticks.x) {
      const half = pen.measureText(text).width / 2;
      pen.fillText(text, Math.min(x.pixel(value), right + 13 - half), bottom + 14);
    }
  }

  /** Pixels of row `i`, or null where the row has no place on these axes. */
  place({ columns }, i) {
    const x = columns[this.x][i];
    const y = columns[this.y][i];
    if (x === null || y === null) return null;
    if ((this.isLog.x && x <= 0) || (this.isLog.y && y <= 0)) return null;
    return [this.scales.x.pixel(x), this.scales.y.pixel(y)];
  }

  isInside([x, y]) {
    const { left, right, top, bottom } = this.frame;
    return x > left - 1 && x < right + 1 && y > top - 1 && y < bottom + 1;
  }

  drawCurve(pen, series) {
    pen.beginPath();
    for (let i = 0; i < series.columns[this.x].length; i++) {
      const place = this.place(series, i);
      if (place) pen.lineTo(...place);
    }
    pen.globalAlpha = this.lit === null || this.lit === series ? 1 : 0.15;
    pen.lineWidth = series.width + (this.lit === series ? 1 : 0);
    pen.lineJoin = "round";
    pen.setLineDash(series.dash);
    pen.strokeStyle = series.colour;
    pen.stroke();
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }

  drawMarks(pen, series) {
    if (this.lit !== null && this.lit !== series) return;
    const colours = { ...this.colours, series: series.colour };
    if (series.points) {
      series.columns[this.x].forEach((_, i) => {
        const place = this.place(series, i);
        if (place && this.isInside(place)) drawMark(pen, "POINT", ...place, colours);
      });
    }
    if (!this.marksShown) return;
    let last = [-Infinity, 0];
    const special = [];
    for (const [row, kind] of series.events) {
      const place = this.nearestPlace(series, row);
      if (!place || !this.isInside(place)) continue;
      if (kind !== "RESTART") {
        special.push([kind, place]);
      } else if (Math.hypot(place[0] - last[0], place[1] - last[1]) >= APART) {
        drawMark(pen, kind, ...place, colours);
        last = place;
      }
    }
    for (const [kind, place] of special) drawMark(pen, kind, ...place, colours);
  }

  /** The place of the row, or of the last one before it that has one. */
  nearestPlace(series, row) {
    for (let i = row; i >= 0; i--) {
      const place = this.place(series, i);
      if (place) return place;
    }
    return null;
  }

  // --- asking ---

  /** The visible point nearest to the pixel: its series, row and place; null where none is close. */
  nearest(x, y) {
    let best = null;
    let least = CLOSE ** 2;
    for (const series of this.shown) {
      for (let row = 0; row < series.columns[this.x].length; row++) {
        const place = this.place(series, row);
        if (!place || !this.isInside(place)) continue;
        const distance = (place[0] - x) ** 2 + (place[1] - y) ** 2;
        if (distance < least) [least, best] = [distance, { series, row, place }];
      }
    }
    return best;
  }
}
