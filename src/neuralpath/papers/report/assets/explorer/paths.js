// Numbers of paths as natural logarithms, by dynamic programming over the layers.
//
// Let m(l) be the number of active paths into one unit of layer l, before its gate. All units of a layer have the same,
// since every unit of a dense layer is reached from every unit of the layer below:
//   m(1) = inputs + b,   m(l + 1) = a(l) m(l) + b,
// where a(l) is the number of open gates of layer l, and b = 1 where the layer has biases, from which paths start too.
// The number of active paths into each output is m(d).

/** Logarithm of the number of paths for given numbers of open gates, one for each hidden layer. */
export function logPaths(layers, open) {
  let count = logSum(Math.log(layers[0].inputs), Math.log(starts(layers[0])));
  for (let index = 1; index < layers.length; index++) {
    count = logSum(Math.log(open[index - 1]) + count, Math.log(starts(layers[index])));
  }
  return count;
}

/** Logarithm of the number of all paths into one output. */
export function logAllPaths(layers) {
  return logPaths(layers, layers.slice(0, -1).map((layer) => layer.outputs));
}

/**
 * The path kernel of two images over its size for open gates: the sum over paths active for both of the products of
 * what they start from. It follows the recursion above, with the inner product of the pixels in place of the number of
 * inputs. Every step is divided by the layer's width, since the sums soon pass the range of numbers; the factor is the
 * same for all pairs.
 */
export function scaledKernel(layers, product, both) {
  let [kernel, scale] = [product + starts(layers[0]), 1];
  for (let index = 1; index < layers.length; index++) {
    const width = layers[index].inputs;
    scale *= width;
    kernel = (both[index - 1] / width) * kernel + starts(layers[index]) / scale;
  }
  return kernel;
}

/** Open gates of each layer. */
export function openCounts(gates) {
  return gates.map((layer) => layer.reduce((sum, gate) => sum + gate, 0));
}

/** Gates of each layer that are open for both. */
export function bothCounts(gates, others) {
  return gates.map((layer, index) => {
    const other = others[index];
    let sum = 0;
    for (let unit = 0; unit < layer.length; unit++) sum += layer[unit] & other[unit];
    return sum;
  });
}

/** Paths that start at a bias of a unit: none or one. */
function starts(layer) {
  return layer.bias === null ? 0 : 1;
}

function logSum(one, two) {
  const larger = Math.max(one, two);
  return larger === -Infinity ? larger : larger + Math.log1p(Math.exp(Math.min(one, two) - larger));
}
