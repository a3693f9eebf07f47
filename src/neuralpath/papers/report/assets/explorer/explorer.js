// The gate explorer: what is chosen, and everything that follows from it.
import { onThemeChange } from "neuralpath/theme.js";
import { makePad } from "neuralpath/explorer/drawing_pad.js";
import { usualInk } from "neuralpath/explorer/fitting.js";
import { drawGateGrids } from "neuralpath/explorer/gate_grids.js";
import { makeImageList } from "neuralpath/explorer/image_list.js";
import { nearest, portrait } from "neuralpath/explorer/neighbors.js";
import { largestIndex, readImages, readLayers, run, shares } from "neuralpath/explorer/network.js";
import { bothCounts, logAllPaths, logPaths, openCounts } from "neuralpath/explorer/paths.js";
import { percent, showOutputs, showPaths } from "neuralpath/explorer/readout.js";
import { paint } from "neuralpath/explorer/thumbnails.js";

const N_NEIGHBORS = 8;
const at = (id) => document.getElementById(`x-${id}`);

export function startExplorer(network) {
  const images = { train: readImages(network.train), test: readImages(network.test) };
  const stages = Object.fromEntries(
    Object.entries(network.stages).map(([name, layers]) => [name, prepare(readLayers(layers), images.train)]),
  );
  const state = { stage: "after", source: "test", first: 0, drawn: null, hasInk: false, secondSource: "train", second: 0 };
  const firstList = makeImageList(at("first-list"), "Test images", network.shape, (index) => update({ first: index }));
  const secondList = makeImageList(at("second-list"), "Images to compare with", network.shape, (index) => update({ second: index }));
  firstList.fill(images.test);
  firstList.select(0);
  secondList.fill(images.train);
  secondList.select(0);
  preparePad();
  at("about").textContent = describe(network);
  onRadio("x-stage", (stage) => update({ stage }));
  onRadio("x-source", (source) => {
    at("first-list").hidden = source !== "test";
    at("pad").hidden = source !== "drawn";
    update({ source });
  });
  onRadio("x-second-source", (secondSource) => chooseSecond(secondSource, 0));
  onThemeChange(() => update());
  update();
  at("root").dataset.ready = "true";

  function preparePad() {
    const [channels, height, width] = network.shape;
    if (channels !== 1 || height !== width) {
      at("draw-choice").hidden = true; // a drawing is grey and square
      return;
    }
    state.drawn = new Float32Array(width * height);
    makePad(at("canvas"), width, usualInk(images.train, width), (pixels, hasInk) => update({ drawn: pixels, hasInk }));
  }

  function chooseSecond(source, index) {
    document.querySelector(`input[name="x-second-source"][value="${source}"]`).checked = true;
    secondList.fill(images[source]);
    secondList.select(index);
    update({ secondSource: source, second: index });
  }

  function firstImage() {
    return state.source === "drawn" ? { pixels: state.drawn, label: null } : images.test[state.first];
  }

  function update(changes = {}) {
    Object.assign(state, changes);
    const stage = stages[state.stage];
    const [first, second] = [firstImage(), images[state.secondSource][state.second]];
    const reading = read(stage, first.pixels, second.pixels);
    // For scripts and the curious: the same numbers as on the screen, in full.
    globalThis.gateExplorer = { ...reading, stage: state.stage, pixels: Array.from(first.pixels), secondPixels: Array.from(second.pixels) };
    show(reading, first);
  }

  function show(reading, first) {
    const isDrawn = first.label === null;
    paint(at("image"), first.pixels, network.shape);
    at("image").setAttribute("role", "img");
    at("image").setAttribute("aria-label", isDrawn ? "your drawing as the network sees it" : `a test image of class ${first.label}`);
    at("image-label").textContent = isDrawn ? "your drawing, as the network sees it" : `class ${first.label}`;
    const chances = shares(reading.outputs);
    showOutputs(at("outputs"), chances, reading.prediction);
    const verdict = isDrawn ? "" : reading.prediction === first.label ? " That is right." : ` It is a ${first.label}.`;
    at("prediction").textContent = isDrawn && !state.hasInk ? "Draw a digit: the network sees an empty image." : `The network says ${reading.prediction}, with a share of ${percent(chances[reading.prediction])}.${verdict}`;
    showPaths(at("paths"), reading);
    drawGateGrids(at("gates"), reading.gates, reading.secondGates, reading.layers);
    const share = ({ value }) => percent(Math.exp(value - reading.logActive) || 0);
    showNeighbors("near-kernel", reading.byKernel, ({ value }) => value.toFixed(3), reading.prediction);
    showNeighbors("near-gates", reading.byGates, ({ value }) => value.toFixed(3), reading.prediction);
    showNeighbors("near-paths", reading.byPaths, share, reading.prediction);
    showNeighbors("near-pixels", reading.byPixels, ({ value }) => value.toFixed(2), reading.prediction);
  }

  function showNeighbors(id, found, number, prediction) {
    const pressed = [...at(id).children].indexOf(document.activeElement);
    at(id).replaceChildren(...found.map((one) => {
      const image = images.train[one.index];
      const button = document.createElement("button");
      button.type = "button";
      button.className = image.label === prediction ? "" : "other";
      button.setAttribute("aria-pressed", String(state.secondSource === "train" && state.second === one.index));
      button.setAttribute("aria-label", `training image of class ${image.label}, ${number(one)}; compare with it`);
      button.append(paint(document.createElement("canvas"), image.pixels, network.shape), `class ${image.label}`, document.createElement("br"), number(one));
      button.addEventListener("click", () => chooseSecond("train", one.index));
      return button;
    }));
    if (pressed >= 0) at(id).children[pressed].focus({ preventScroll: true }); // the buttons are new ones
  }
}

/** A stage of the network with what does not depend on the image: all paths, and the training images' portraits. */
function prepare(layers, train) {
  let portraits = null;
  const portrayed = ({ pixels }) => portrait(layers, pixels, run(layers, pixels).gates);
  return { layers, logAll: logAllPaths(layers), trainPortraits: () => (portraits ??= train.map(portrayed)) };
}

/** All numbers for a pair of images. */
function read(stage, pixels, secondPixels) {
  const { layers, logAll } = stage;
  const { outputs, gates } = run(layers, pixels);
  const secondGates = run(layers, secondPixels).gates;
  const [open, secondOpen, both] = [openCounts(gates), openCounts(secondGates), bothCounts(gates, secondGates)];
  return {
    outputs: Array.from(outputs), prediction: largestIndex(outputs), gates: gates.map((layer) => Array.from(layer)),
    secondGates: secondGates.map((layer) => Array.from(layer)), logAll,
    logActive: logPaths(layers, open), logActiveSecond: logPaths(layers, secondOpen), logShared: logPaths(layers, both),
    layers: open.map((first, index) => ({ first, second: secondOpen[index], both: both[index] })),
    ...nearest(layers, portrait(layers, pixels, gates), stage.trainPortraits(), N_NEIGHBORS),
  };
}

function describe(network) {
  const accuracy = network.testAccuracy === null ? "" : ` Its test accuracy is ${(100 * network.testAccuracy).toFixed(1)} %.`;
  return `The network: ${network.about}.${accuracy} In the page are ${network.test.count} test images and ${network.train.count} of its training images.`;
}

function onRadio(name, listener) {
  for (const radio of document.querySelectorAll(`input[name="${name}"]`)) {
    radio.addEventListener("change", () => listener(radio.value));
  }
}
