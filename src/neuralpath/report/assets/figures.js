// Draws each figure when it comes near the screen, again when the theme changes, and all of them for the printer.
import { borrowLight, onThemeChange } from "neuralpath/theme.js";
import { layoutOf } from "neuralpath/layouts.js";
import { drawPictures } from "neuralpath/pictures.js";

// Not responsive by itself: plotly would forget the height that a figure has, and cut off what is below its axis.
const CONFIG = { responsive: false, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
const PAPER = 660; // pixels that fit between the margins of A4 and of letter paper
const PAUSE = 120; // milliseconds without a change of size, after which figures are drawn in the new one
const drawn = new Set();
let isPrinting = false;

export function startFigures() {
  const figures = [...document.querySelectorAll("figure.figure")];
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((one) => one.isIntersecting)) {
      observer.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "400px" });
  figures.forEach((figure) => observer.observe(figure));
  onThemeChange(() => drawn.forEach(draw));
  let timer = null;
  addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(() => drawn.forEach(draw), PAUSE);
  });
  let giveBack = () => {};
  addEventListener("beforeprint", () => {
    isPrinting = true;
    giveBack = borrowLight();
    figures.forEach(draw);
  });
  addEventListener("afterprint", () => {
    isPrinting = false;
    giveBack();
    figures.forEach(draw);
  });
}

// Five megabytes of script: the text of the page is on the screen before they run.
function loadPlotly() {
  if (globalThis.Plotly) return;
  const script = document.createElement("script");
  script.textContent = document.getElementById("plotly").textContent;
  document.head.append(script);
}

function draw(figure) {
  const place = figure.querySelector(".drawing");
  const data = JSON.parse(figure.querySelector("script").textContent);
  if (data.kind === "pictures") {
    drawPictures(place, data.rows);
  } else {
    loadPlotly();
    const width = isPrinting ? PAPER : contentWidth(place);
    const { traces, layout } = layoutOf(data, width);
    Object.assign(layout, { width, autosize: false });
    place.style.minHeight = `${layout.height}px`;
    Plotly.react(place, traces, layout, CONFIG);
  }
  drawn.add(figure);
  figure.dataset.drawn = "true";
}

function contentWidth(element) {
  const style = getComputedStyle(element);
  return element.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
}
