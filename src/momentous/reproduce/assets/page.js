// The page: every figure gets its plot, buttons, legend and tooltip from the JSON in the page.

/** A new element: `make("button", {type: "button"}, "text", child)`. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** A button whose pressed state follows the plot. */
function toggle(text, isPressed, press, attributes = {}) {
  const button = make("button", { type: "button", ...attributes }, text);
  button.addEventListener("click", press);
  button.follow = () => button.setAttribute("aria-pressed", isPressed());
  return button;
}

function choice(label, ...buttons) {
  return make("div", { class: "choice", role: "group", "aria-label": label }, ...buttons);
}

function buildControls(plot) {
  const { data } = plot;
  const axis = (name, label) =>
    data[name].length < 2 ? [] : [
      choice(label, ...data[name].map(([key, , text]) =>
        toggle(text, () => plot[name] === key, () => plot.change({ [name]: key }), { [`data-${name}`]: key }))),
    ];
  const scale = (name) =>
    toggle(`log ${name}`, () => plot.isLog[name], () => plot.change({ flip: name }), { "data-log": name });
  const hasEvents = data.series.some((series) => series.events.length);
  const marks = toggle("events", () => plot.marksShown,
    () => plot.change({ marksShown: !plot.marksShown }), { "data-events": "" });
  const reset = toggle("reset zoom", () => false,
    () => plot.change({ view: { x: null, y: null } }), { "data-reset": "" });
  reset.follow = () => (reset.disabled = !plot.isZoomed);
  return make("div", { class: "controls" },
    ...axis("y", "vertical axis"), ...axis("x", "horizontal axis"),
    choice("scales", scale("x"), scale("y")),
    ...(hasEvents ? [choice("marks", marks)] : []),
    choice("zoom", reset));
}

/** A click shows or hides a method; a double click or Alt+Enter shows it alone, and again: all. */
function buildLegend(plot) {
  const { series, legend } = plot.data;
  const everyOther = (i) => new Set([...series.keys()].filter((k) => k !== i));
  const flipped = (i) => new Set(plot.hidden.has(i) ? [...plot.hidden].filter((k) => k !== i) : [...plot.hidden, i]);
  return make("div", { class: "legend", role: "group", "aria-label": legend }, ...series.map((one, i) => {
    const button = toggle("", () => !plot.hidden.has(i), () => plot.change({ hidden: flipped(i) }),
      { "aria-keyshortcuts": "Alt+Enter" });
    const isolate = () => {
      const alone = !plot.hidden.has(i) && plot.shown.length === 1;
      plot.change({ hidden: alone ? new Set() : everyOther(i) });
    };
    button.addEventListener("dblclick", isolate);
    button.addEventListener("keydown", (event) => {
      if (!event.altKey || event.key !== "Enter") return;
      event.preventDefault(); // or the key would be a click as well
      if (!event.repeat) isolate();
    });
    const light = (lit) => () => { plot.lit = lit; plot.draw(); };
    button.addEventListener("mouseenter", light(one));
    button.addEventListener("mouseleave", light(null));
    one.swatch = swatch(one);
    button.append(one.swatch, one.label);
    return button;
  }));
}

function swatch(series) {
  const line = make("span", { class: "swatch", "aria-hidden": "true" });
  line.style.setProperty("--light", series.light);
  line.style.setProperty("--dark", series.dark);
  line.innerHTML = `<svg width="26" height="10"><path d="M1 5H25" stroke="currentColor"
    stroke-width="3" stroke-dasharray="${series.dash.join(" ")}"/></svg>`;
  return line;
}

/** What the marks mean: those that this plot has. */
function buildSigns(plot) {
  const kinds = new Set(plot.data.series.flatMap((series) => series.events.map(([, kind]) => kind)));
  const signs = Object.entries(plot.data.signs).filter(([kind]) => kinds.has(kind));
  const row = make("p", { class: "signs" }, ...signs.map(([kind, words]) =>
    make("span", {}, make("canvas", { width: 32, height: 32, "data-kind": kind, "aria-hidden": "true" }), words)));
  row.follow = () => {
    row.hidden = !signs.length || !plot.marksShown;
    for (const canvas of row.querySelectorAll("canvas")) {
      const pen = canvas.getContext("2d");
      pen.setTransform(2, 0, 0, 2, 0, 0);
      pen.clearRect(0, 0, 16, 16);
      drawMark(pen, canvas.dataset.kind, 8, 8, { ...plot.colours, series: plot.colours.ink });
    }
  };
  return row;
}

function describe(tooltip, { series, row }, { facts, signs }) {
  const events = series.events.filter(([at]) => at === row).map(([, kind]) => signs[kind]);
  const entries = facts.flatMap(([key, words]) =>
    [make("dt", {}, words), make("dd", {}, inWords(series.columns[key][row]))]);
  tooltip.replaceChildren(
    make("b", {}, series.name), make("dl", {}, ...entries), ...events.map((words) => make("em", {}, words)));
}

function build(figure, data) {
  const canvas = make("canvas", {
    tabindex: 0, role: "img", "aria-describedby": `${figure.id}-hint`, "aria-keyshortcuts": KEYS,
  });
  const [box, dot, tooltip] = ["box", "dot", "tooltip"].map((name) => make("div", { class: name, hidden: "" }));
  const [xLabel, yLabel] = ["x-label", "y-label"].map((name) => make("p", { class: name }));
  const words = (axis) => data[axis].find(([key]) => key === plot[axis])[1];
  const repaint = () => {
    for (const series of data.series) series.colour = getComputedStyle(series.swatch).color;
    plot.draw();
    follow();
  };
  const follow = () => {
    figure.dataset.xAxis = plot.x;
    figure.dataset.yAxis = plot.y;
    figure.dataset.scale = ["x", "y"].map((axis) => (plot.isLog[axis] ? "log" : "linear")).join(" ");
    figure.dataset.hidden = JSON.stringify([...plot.hidden].sort((a, b) => a - b).map((i) => data.series[i].name));
    figure.dataset.events = plot.marksShown ? "shown" : "hidden";
    figure.dataset.zoom = JSON.stringify(plot.isZoomed ? plot.view : null);
    xLabel.textContent = words("x");
    yLabel.textContent = words("y");
    canvas.setAttribute("aria-label", `${data.title}: ${words("y")} against ${words("x")}`);
    for (const element of figure.querySelectorAll("button, .signs")) element.follow();
  };
  const leave = () => { dot.hidden = tooltip.hidden = true; };
  const ask = (x, y) => {
    const found = plot.nearest(x, y);
    if (!found) return leave();
    describe(tooltip, found, data);
    dot.hidden = tooltip.hidden = false;
    const [px, py] = found.place;
    Object.assign(dot.style, { left: `${px}px`, top: `${py}px`, background: found.series.colour });
    const toTheLeft = px + 16 + tooltip.offsetWidth > canvas.clientWidth;
    const left = toTheLeft ? Math.max(0, px - 16 - tooltip.offsetWidth) : px + 16;
    const top = Math.max(0, Math.min(py - 20, canvas.clientHeight - tooltip.offsetHeight));
    Object.assign(tooltip.style, { left: `${left}px`, top: `${top}px` });
  };
  const plot = new Plot(data, canvas, () => { leave(); follow(); });
  figure.append(
    buildControls(plot), yLabel, make("div", { class: "stage" }, canvas, box, dot, tooltip), xLabel,
    buildLegend(plot), buildSigns(plot));
  listen(plot, box, ask, leave);
  new ResizeObserver(repaint).observe(canvas);
  repaint();
  return repaint;
}

const everything = JSON.parse(document.getElementById("plots").textContent);
const repaints = [...document.querySelectorAll("figure.plot")].map((figure) => build(figure, everything[figure.id]));
const repaintAll = () => repaints.forEach((repaint) => repaint());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaintAll);
for (const [kind, printing] of [["beforeprint", true], ["afterprint", false]]) {
  window.addEventListener(kind, () => {
    document.documentElement.toggleAttribute("data-print", printing);
    repaintAll();
  });
}
