// A pad to draw a digit on, with the pointer or the keys.
import { averaged, placement } from "neuralpath/explorer/fitting.js";

const PEN = 0.12; // of the pad's side, about as wide as in the digits
const AS_DRAWN = { scale: 1, x: 0, y: 0 };

/** Makes the canvas a pad; `changed(pixels)` gets the drawing as an image of `side` x `side`. */
export function makePad(canvas, side, usual, changed) {
  const fit = document.getElementById("x-fit");
  const note = document.getElementById("x-pad-note");
  const size = side * Math.floor(280 / side); // a whole number of pixels for each pixel of the image
  const cell = size / side;
  canvas.width = canvas.height = size;
  const screen = canvas.getContext("2d", { willReadFrequently: true });
  const hidden = new OffscreenCanvas(size, size).getContext("2d", { willReadFrequently: true });
  let marks = []; // strokes, as lists of points, and squares of one pixel of the image
  let stroke = null;
  let byKeys = false;
  let cursor = { x: Math.floor(side / 2), y: Math.floor(side / 2) };

  function draw(context, { scale, x, y }) {
    Object.assign(context, { lineCap: "round", lineJoin: "round", lineWidth: PEN * size, strokeStyle: "#fff", fillStyle: "#000" });
    context.fillRect(0, 0, size, size);
    context.fillStyle = "#fff";
    for (const { points, square } of marks) {
      if (square) {
        context.fillRect(scale * square[0] + x, scale * square[1] + y, scale * cell, scale * cell);
      } else {
        context.beginPath();
        points.forEach((point, index) => context[index ? "lineTo" : "moveTo"](scale * point[0] + x, scale * point[1] + y));
        if (points.length === 1) context.lineTo(scale * points[0][0] + x, scale * points[0][1] + y); // a dot
        context.stroke();
      }
    }
  }

  function ink(context) {
    const { data } = context.getImageData(0, 0, size, size);
    return Float32Array.from({ length: size * size }, (_, index) => data[4 * index] / 255);
  }

  /** The drawing as it is, and where the pen of the keys stands while they are used. */
  function showPad() {
    draw(screen, AS_DRAWN);
    if (document.activeElement !== canvas || !byKeys) return;
    Object.assign(screen, { strokeStyle: "#f0a95b", lineWidth: 2 });
    screen.strokeRect(cursor.x * cell + 1, cursor.y * cell + 1, cell - 2, cell - 2);
  }

  /** Shows the drawing, and gives it on as the network is to see it. */
  function update() {
    draw(screen, AS_DRAWN); // without the pen, which is no ink
    const pen = marks.some((mark) => mark.points) ? PEN * size : 0; // squares have none: they grow with the drawing
    const place = fit.checked ? placement(ink(screen), size, usual, pen, pen ? 1.5 * pen : cell) : null;
    draw(hidden, place ?? AS_DRAWN);
    showPad();
    changed(marks.length ? averaged(ink(hidden), size, side) : new Float32Array(side * side), marks.length > 0);
  }

  function extend(event) {
    const box = canvas.getBoundingClientRect();
    stroke.points.push([((event.clientX - box.left) / box.width) * size, ((event.clientY - box.top) / box.height) * size]);
    update();
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    byKeys = false;
    canvas.setPointerCapture(event.pointerId);
    stroke = { points: [] };
    marks.push(stroke);
    extend(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (stroke !== null) extend(event);
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (stroke = null));
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    const erases = event.key === "Backspace" || event.key === "Delete";
    if (step === undefined && event.key !== " " && !erases) return;
    event.preventDefault();
    byKeys = true;
    const here = [cursor.x * cell, cursor.y * cell];
    if (step) {
      cursor = { x: clamp(cursor.x + step[0]), y: clamp(cursor.y + step[1]) };
      showPad();
    } else {
      marks = marks.filter(({ square }) => !square || square[0] !== here[0] || square[1] !== here[1]);
      if (!erases) marks.push({ square: here });
      update();
    }
    note.textContent = `Pen at column ${cursor.x + 1}, row ${cursor.y + 1} of ${side}; the space bar sets ink, backspace takes it away.`;
  });
  canvas.addEventListener("blur", showPad);
  document.getElementById("x-clear").addEventListener("click", () => {
    marks = [];
    update();
  });
  fit.addEventListener("change", update);
  draw(screen, AS_DRAWN);

  function clamp(value) {
    return Math.min(Math.max(value, 0), side - 1);
  }
}
