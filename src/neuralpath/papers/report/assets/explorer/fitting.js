// From a drawing to an image like those the network was trained on: moved, scaled, and averaged over squares.

/** Side of the larger edge of the ink, and its middle, averaged over images; in shares of the frame. */
export function usualInk(images, side) {
  const boxes = images.map((image) => inkBox(image.pixels, side)).filter((box) => box !== null);
  const mean = (of) => boxes.reduce((sum, box) => sum + of(box), 0) / boxes.length / side;
  return {
    size: mean((box) => Math.max(box.right - box.left, box.bottom - box.top)),
    x: mean((box) => (box.left + box.right) / 2), y: mean((box) => (box.top + box.bottom) / 2),
  };
}

/** The box around all pixels above a quarter of full ink, its edges in pixels; null without ink. */
export function inkBox(pixels, side) {
  let box = null;
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < side; x++) {
      if (pixels[y * side + x] <= 0.25) continue;
      box ??= { left: x, right: x + 1, top: y, bottom: y + 1 };
      box.left = Math.min(box.left, x);
      box.right = Math.max(box.right, x + 1);
      box.top = Math.min(box.top, y);
      box.bottom = Math.max(box.bottom, y + 1);
    }
  }
  return box;
}

/** How to draw the ink anew so that its box has the usual size and place; null without ink.
 * The pen's width stays what it is, and so does ink that is no larger than a dot. */
export function placement(pixels, side, usual, pen, dot) {
  const box = inkBox(pixels, side);
  if (box === null) return null;
  const extent = Math.max(box.right - box.left, box.bottom - box.top);
  const scale = extent > dot ? (usual.size * side - pen) / (extent - pen) : 1;
  return {
    scale,
    x: usual.x * side - (scale * (box.left + box.right)) / 2,
    y: usual.y * side - (scale * (box.top + box.bottom)) / 2,
  };
}

/** Means over equal squares: from `from` x `from` pixels to `to` x `to`; `to` divides `from`. */
export function averaged(pixels, from, to) {
  const step = from / to;
  const result = new Float32Array(to * to);
  for (let y = 0; y < from; y++) {
    for (let x = 0; x < from; x++) result[Math.floor(y / step) * to + Math.floor(x / step)] += pixels[y * from + x];
  }
  return result.map((sum) => sum / (step * step));
}
