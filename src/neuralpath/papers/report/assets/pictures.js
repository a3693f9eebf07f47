// Rows of small grey images.
import { bytes } from "neuralpath/base64.js";

export function drawPictures(place, rows) {
  place.classList.add("pictures");
  place.replaceChildren(...rows.map(rowElement));
}

function rowElement(row) {
  const element = document.createElement("div");
  element.className = "picture-row";
  const label = document.createElement("span");
  label.textContent = row.name;
  element.append(label, ...row.images.map((image, index) => imageElement(image, `${row.name}, image ${index + 1}`)));
  return element;
}

function imageElement(image, label) {
  const canvas = document.createElement("canvas");
  canvas.width = image.width;
  canvas.height = image.height;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  const pixels = new ImageData(image.width, image.height);
  bytes(image.pixels).forEach((value, index) => pixels.data.set([value, value, value, 255], 4 * index));
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}
