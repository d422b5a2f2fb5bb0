// Marks: the signs that stand for events and points, on curves and in the legend alike.

const MARKS = {
  RESTART: { shape: "circle", radius: 3, fill: "ground", edge: "series" },
  ROLLBACK: { shape: "circle", radius: 5, fill: "#00b08a", edge: "ink" },
  RADIUS_REACHED: { shape: "circle", radius: 5.5, fill: "#f5e02a", edge: "ink" },
  NEGATIVE_CURVATURE: { shape: "triangle", radius: 6, fill: "#d92f7a", edge: "ink" },
  OTHER: { shape: "diamond", radius: 5, fill: "ground", edge: "ink" },
  POINT: { shape: "circle", radius: 3.5, fill: "series", edge: "series" },
};
const CORNERS = {
  triangle: [[0, -1], [0.95, 0.75], [-0.95, 0.75]],
  diamond: [[0, -1], [0.8, 0], [0, 1], [-0.8, 0]],
};

/** Draw the mark `kind` at (x, y); `colours` has ground, ink and series. */
function drawMark(pen, kind, x, y, colours) {
  const { shape, radius, fill, edge } = MARKS[kind] ?? MARKS.OTHER;
  pen.beginPath();
  if (shape === "circle") {
    pen.arc(x, y, radius, 0, 2 * Math.PI);
  } else {
    for (const [across, down] of CORNERS[shape]) pen.lineTo(x + radius * across, y + radius * down);
    pen.closePath();
  }
  pen.fillStyle = colours[fill] ?? fill;
  pen.fill();
  pen.lineWidth = 1.3;
  pen.strokeStyle = colours[edge] ?? edge;
  pen.stroke();
}
