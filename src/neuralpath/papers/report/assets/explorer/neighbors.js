// The training images that are most alike to an image, by four measures. Of equally near ones the first comes first.
import { bothCounts, logPaths, openCounts, scaledKernel } from "neuralpath/explorer/paths.js";

/** What the measures need of an image: pixels, gates, and what it has in common with itself. */
export function portrait(layers, pixels, gates) {
  const open = openCounts(gates);
  return { pixels, gates, logActive: logPaths(layers, open), length: Math.sqrt(scaledKernel(layers, dot(pixels, pixels), open)) };
}

/**
 * The nearest by each measure, of portraits:
 * kernel, the cosine of path features; gates, shared paths over the geometric mean of both images' active paths;
 * paths, the natural logarithm of the number of shared paths; pixels, the Euclidean distance.
 */
export function nearest(layers, image, others, count) {
  const both = others.map((other) => bothCounts(image.gates, other.gates));
  const logShared = both.map((gates) => logPaths(layers, gates));
  const kernel = others.map((other, index) => {
    const value = scaledKernel(layers, dot(image.pixels, other.pixels), both[index]);
    return value / image.length / other.length || 0; // 0 without an active path
  });
  const gates = others.map((other, index) => Math.exp(logShared[index] - (image.logActive + other.logActive) / 2) || 0);
  const closeness = others.map((other) => -distance(image.pixels, other.pixels));
  return {
    byKernel: largest(kernel, count),
    byGates: largest(gates, count),
    byPaths: largest(logShared, count),
    byPixels: largest(closeness, count).map(({ index, value }) => ({ index, value: -value })),
  };
}

function dot(one, two) {
  let sum = 0;
  for (let index = 0; index < one.length; index++) sum += one[index] * two[index];
  return sum;
}

function distance(one, two) {
  let sum = 0;
  for (let index = 0; index < one.length; index++) sum += (one[index] - two[index]) ** 2;
  return Math.sqrt(sum);
}

function largest(values, count) {
  const order = values.map((_, index) => index).sort((a, b) => values[b] - values[a] || a - b);
  return order.slice(0, count).map((index) => ({ index, value: values[index] }));
}
