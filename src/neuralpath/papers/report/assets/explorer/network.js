// A fully connected ReLU network: outputs and gates of an image. Weights are single precision, sums double.
import { bytes, floats } from "neuralpath/base64.js";

/** Layers with typed arrays, from those of the page. */
export function readLayers(layers) {
  return layers.map((layer) => ({
    inputs: layer.inputs, outputs: layer.outputs, weights: floats(layer.weights),
    bias: layer.bias === null ? null : floats(layer.bias),
  }));
}

/** Images as one array of pixels each, with exactly the values that the network was trained on. */
export function readImages(images) {
  const all = images.scale === null ? floats(images.pixels) : Float32Array.from(bytes(images.pixels), (v) => v / images.scale);
  const size = all.length / images.count;
  return Array.from({ length: images.count }, (_, index) => ({
    pixels: all.subarray(index * size, (index + 1) * size), label: images.labels[index],
  }));
}

/** Outputs of the last layer, and for every hidden layer its gates: 1 where the pre-activation is above 0. */
export function run(layers, pixels) {
  let values = Float64Array.from(pixels);
  const gates = [];
  for (const [index, layer] of layers.entries()) {
    values = preactivations(layer, values);
    if (index < layers.length - 1) {
      gates.push(Uint8Array.from(values, (value) => (value > 0 ? 1 : 0)));
      values = values.map((value) => Math.max(value, 0));
    }
  }
  return { outputs: values, gates };
}

function preactivations(layer, values) {
  const result = new Float64Array(layer.outputs);
  for (let unit = 0, at = 0; unit < layer.outputs; unit++) {
    let sum = layer.bias === null ? 0 : layer.bias[unit];
    for (let input = 0; input < layer.inputs; input++, at++) sum += layer.weights[at] * values[input];
    result[unit] = sum;
  }
  return result;
}

/** Shares of the classes: soft-max of the outputs. */
export function shares(outputs) {
  const largest = Math.max(...outputs);
  const sizes = Array.from(outputs, (output) => Math.exp(output - largest));
  const total = sizes.reduce((sum, size) => sum + size, 0);
  return sizes.map((size) => size / total);
}

/** The index of the largest output; the first of equal ones. */
export function largestIndex(values) {
  return values.reduce((best, value, index) => (value > values[best] ? index : best), 0);
}
