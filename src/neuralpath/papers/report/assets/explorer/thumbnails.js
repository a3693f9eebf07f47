// An image on a canvas: grey, or three colors. Ink is white on black, as the network sees it.

export function paint(canvas, pixels, [channels, height, width]) {
  canvas.width = width;
  canvas.height = height;
  const data = new ImageData(width, height);
  const area = width * height;
  for (let place = 0; place < area; place++) {
    for (let part = 0; part < 3; part++) {
      data.data[4 * place + part] = 255 * pixels[(channels === 3 ? part * area : 0) + place];
    }
    data.data[4 * place + 3] = 255;
  }
  canvas.getContext("2d").putImageData(data, 0, 0);
  return canvas;
}
