// The training images that are most alike to an image. Of equally near ones the first comes first.
import { bothCounts, logPaths } from "neuralpath/explorer/paths.js";

/** By the number of active paths that both share; values are natural logarithms. */
export function nearestByPaths(layers, gates, trainGates, count) {
  return largest(trainGates.map((others) => logPaths(layers, bothCounts(gates, others))), count);
}

/** By the Euclidean distance of the pixels. */
export function nearestByPixels(pixels, images, count) {
  const distances = images.map((image) => distance(pixels, image.pixels));
  return largest(distances.map((value) => -value), count).map(({ index, value }) => ({ index, value: -value }));
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
