// Gestures: dragging, wheel, fingers and keys move a plot's view; hovering asks it for a point.

const RESTING = 300; // ms without scrolling after which the wheel means the plot, not the page
const SMALLEST = 8; // pixels: a shorter drag is a click
const KEYS = "Plus - ArrowLeft ArrowRight ArrowUp ArrowDown Escape"; // as aria-keyshortcuts has them

let scrolledAt = -Infinity;
window.addEventListener("scroll", () => (scrolledAt = performance.now()), { passive: true });

/** Listen on the plot's canvas; `box` shows the rectangle, `ask(x, y)` and `leave()` the tooltip. */
function listen(plot, box, ask, leave) {
  const { canvas } = plot;
  const at = (event) => {
    const { left, top } = canvas.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  };
  const within = ([x, y]) => {
    const { left, right, top, bottom } = plot.frame;
    return [Math.min(Math.max(x, left), right), Math.min(Math.max(y, top), bottom)];
  };
  /** Zoom to what lies between these pixels. */
  const show = ([left, right], [top, bottom]) => {
    const { x, y } = plot.scales;
    plot.zoom({ x: [x.value(left), x.value(right)], y: [y.value(bottom), y.value(top)] });
  };
  /** `factor` times as much of each axis, with (x, y) where it is; then moved by (dx, dy). */
  const stretch = ([x, y], factor, [dx, dy] = [0, 0]) => {
    const { left, right, top, bottom } = plot.frame;
    show(
      [x + (left - x) * factor - dx, x + (right - x) * factor - dx],
      [y + (top - y) * factor - dy, y + (bottom - y) * factor - dy],
    );
  };

  // --- mouse and pen: a rectangle, or with shift a move ---

  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "touch" || event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    drag = { from: within(at(event)), last: at(event), moves: event.shiftKey };
    leave();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (event.pointerType === "touch") return;
    const here = at(event);
    if (drag === null) {
      ask(...here);
    } else if (drag.moves) {
      stretch(here, 1, [here[0] - drag.last[0], here[1] - drag.last[1]]);
      drag.last = here;
    } else {
      drag.to = rectangle(drag.from, within(here));
      box.hidden = false;
      const [[left, right], [top, bottom]] = drag.to;
      Object.assign(box.style, {
        left: `${left}px`, top: `${top}px`, width: `${right - left}px`, height: `${bottom - top}px`,
      });
    }
  });
  /** A drag along one axis alone takes all of the other. */
  const rectangle = (from, to) => {
    const { left, right, top, bottom } = plot.frame;
    const whole = [[left, right], [top, bottom]];
    const sides = [0, 1].map((i) => [Math.min(from[i], to[i]), Math.max(from[i], to[i])]);
    const short = sides.map(([low, high]) => high - low < SMALLEST);
    return sides.map((side, i) => (short[i] && !short[1 - i] ? whole[i] : side));
  };
  const finish = (event) => {
    const sides = drag?.to;
    drag = null;
    box.hidden = true;
    const large = sides?.every(([low, high]) => high - low >= SMALLEST);
    if (large && event.type === "pointerup") show(...sides);
  };
  canvas.addEventListener("pointerup", finish);
  canvas.addEventListener("pointercancel", finish);
  canvas.addEventListener("pointerleave", (event) => event.pointerType === "touch" || leave());

  canvas.addEventListener("wheel", (event) => {
    // Who scrolls the page across the plot goes on scrolling; so does who has zoomed all out.
    if (performance.now() - scrolledAt < RESTING) return;
    if (event.deltaY > 0 && !plot.isZoomed) return;
    event.preventDefault();
    leave();
    stretch(within(at(event)), Math.exp(Math.max(-0.5, Math.min(0.5, event.deltaY / 300))));
  }, { passive: false });

  // --- fingers: one scrolls the page or asks, two zoom and move ---

  let pinch = null;
  const fingers = (touches) => {
    const [one, other] = [at(touches[0]), at(touches[1])];
    const middle = [(one[0] + other[0]) / 2, (one[1] + other[1]) / 2];
    return { middle, span: Math.max(20, Math.hypot(one[0] - other[0], one[1] - other[1])) };
  };
  const touched = (event) => {
    if (event.touches.length === 2) {
      event.preventDefault();
      leave();
      const now = fingers(event.touches);
      if (pinch) {
        const moved = [0, 1].map((i) => now.middle[i] - pinch.middle[i]);
        stretch(pinch.middle, pinch.span / now.span, moved.map((by) => (by * pinch.span) / now.span));
      }
      pinch = now;
    } else {
      pinch = null;
      if (event.touches.length === 1) ask(...at(event.touches[0]));
    }
  };
  for (const kind of ["touchstart", "touchmove"]) canvas.addEventListener(kind, touched, { passive: false });
  canvas.addEventListener("touchend", () => (pinch = null));

  // --- keys ---

  canvas.addEventListener("keydown", (event) => {
    const { left, right, top, bottom } = plot.frame;
    const middle = [(left + right) / 2, (top + bottom) / 2];
    const step = (right - left) / 10;
    const done = {
      "+": () => stretch(middle, 0.8),
      "=": () => stretch(middle, 0.8),
      "-": () => stretch(middle, 1.25),
      ArrowLeft: () => stretch(middle, 1, [step, 0]),
      ArrowRight: () => stretch(middle, 1, [-step, 0]),
      ArrowUp: () => stretch(middle, 1, [0, step]),
      ArrowDown: () => stretch(middle, 1, [0, -step]),
      Escape: () => plot.change({ view: { x: null, y: null } }),
    }[event.key];
    // Arrows scroll the page as long as there is nothing to move.
    if (!done || (event.key.startsWith("Arrow") && !plot.isZoomed)) return;
    event.preventDefault();
    leave();
    done();
  });
}
