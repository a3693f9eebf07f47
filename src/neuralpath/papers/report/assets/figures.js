// Draws each figure when it comes near the screen, again when the theme changes, and all of them for the printer.
import { borrowLight, onThemeChange } from "neuralpath/theme.js";
import { heightOf, layoutOf } from "neuralpath/layouts.js";
import { drawPictures } from "neuralpath/pictures.js";

// Not responsive by itself: plotly would forget the height that a figure has, and cut off what is below its axis.
// Its button that uploads a figure is gone: nothing leaves the page.
const CONFIG = {
  responsive: false, displaylogo: false, showSendToCloud: false,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
};
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
  figures.forEach(reserve);
  figures.forEach(leaveFingersAlone);
  figures.forEach((figure) => observer.observe(figure));
  onThemeChange(() => drawn.forEach(draw));
  let timer = null;
  let width = innerWidth; // the height alone changes whenever a phone folds its address bar
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(timer);
    timer = setTimeout(() => {
      figures.forEach(reserve);
      drawn.forEach(draw);
    }, PAUSE);
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

/**
 * A finger that drags over a figure scrolls the page. Plotly would take every touch for itself; without it the browser
 * scrolls, and tells plotly of a tap as of a mouse, so that the values under it are shown.
 */
function leaveFingersAlone(figure) {
  const keep = (event) => {
    if (event.target.closest(".draglayer")) event.stopPropagation();
  };
  figure.querySelector(".drawing").addEventListener("touchstart", keep, { capture: true, passive: true });
}

/** Takes the room that the figure will need, so that nothing below it moves when it is drawn. */
function reserve(figure) {
  const [place, data] = [figure.querySelector(".drawing"), dataOf(figure)];
  if (data.kind === "pictures") draw(figure);
  else keepRoom(place, heightOf(data, contentWidth(place)));
}

function keepRoom(place, height) {
  const style = getComputedStyle(place);
  const around = ["paddingTop", "paddingBottom", "borderTopWidth", "borderBottomWidth"];
  place.style.minHeight = `${around.reduce((sum, name) => sum + parseFloat(style[name]), height)}px`;
}

function dataOf(figure) {
  return JSON.parse(figure.querySelector("script").textContent);
}

function draw(figure) {
  const place = figure.querySelector(".drawing");
  const data = dataOf(figure);
  if (data.kind === "pictures") {
    drawPictures(place, data.rows);
  } else {
    loadPlotly();
    const width = isPrinting ? PAPER : contentWidth(place);
    const { traces, layout } = layoutOf(data, width);
    // The same revision every time: what a reader has zoomed or hidden stays so in another size or theme.
    Object.assign(layout, { width, autosize: false, uirevision: "kept" });
    keepRoom(place, layout.height);
    Plotly.react(place, traces, layout, { ...CONFIG, toImageButtonOptions: { filename: figure.id } });
  }
  drawn.add(figure);
  figure.dataset.drawn = "true";
}

function contentWidth(element) {
  const style = getComputedStyle(element);
  return element.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
}
