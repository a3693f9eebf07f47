// The units of each hidden layer as a grid of squares, colored by whose gate is open.
import { color } from "neuralpath/theme.js";

const CELL = 14; // pixels of a square, its gap included
const GAP = 2;

/** Draws one grid for each layer, with its counts. */
export function drawGateGrids(place, gates, others, overlaps) {
  place.replaceChildren(...gates.map((layer, index) => layerElement(layer, others[index], overlaps[index], index + 1)));
}

function layerElement(layer, other, overlap, number) {
  const element = document.createElement("div");
  element.className = "gate-layer";
  const title = document.createElement("h4");
  title.textContent = `Layer ${number}`;
  const canvas = document.createElement("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute(
    "aria-label",
    `Layer ${number} of ${layer.length} units: ${overlap.first} open for the first image, ${overlap.second} for the second, ${overlap.both} for both`,
  );
  paintUnits(canvas, layer, other);
  const share = (count) => `${count} (${((100 * count) / layer.length).toFixed(0)} %)`;
  const counts = document.createElement("dl");
  for (const [name, count] of [["first image", overlap.first], ["second image", overlap.second], ["both", overlap.both]]) {
    const term = document.createElement("dt");
    term.textContent = `open for ${name}`.replace("for both", "for both of them");
    const value = document.createElement("dd");
    value.textContent = share(count);
    counts.append(term, value);
  }
  element.append(title, canvas, counts);
  return element;
}

function paintUnits(canvas, layer, other) {
  const columns = Math.ceil(Math.sqrt(2 * layer.length));
  canvas.width = columns * CELL;
  canvas.height = Math.ceil(layer.length / columns) * CELL;
  const context = canvas.getContext("2d");
  const paints = [color("closed"), color("first"), color("second"), color("both")];
  layer.forEach((gate, unit) => {
    context.fillStyle = paints[gate + 2 * other[unit]];
    context.fillRect((unit % columns) * CELL, Math.floor(unit / columns) * CELL, CELL - GAP, CELL - GAP);
  });
}
