// Starts what the page has: the theme, the figures, and the explorer where there is a network.
import { startTheme } from "neuralpath/theme.js";
import { startFigures } from "neuralpath/figures.js";
import { startExplorer } from "neuralpath/explorer/explorer.js";

export function start() {
  startTheme();
  startFigures();
  const network = document.getElementById("explorer-network");
  foldContentsOnSmallScreens();
  openReasonsOnPaper();
  if (network) {
    // When the text is on the screen, and before a reader gets there: what lies below the explorer moves once only.
    whenIdle(() => {
      startExplorer(JSON.parse(network.textContent));
      goToAddress();
    });
  } else goToAddress();
}

// Paper cannot be opened. Afterwards the page is as it was.
function openReasonsOnPaper() {
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll(".claims details:not([open])")];
    opened.forEach((reason) => (reason.open = true));
  });
  addEventListener("afterprint", () => opened.forEach((reason) => (reason.open = false)));
}

function whenIdle(begin) {
  if (globalThis.requestIdleCallback) requestIdleCallback(begin, { timeout: 2000 });
  else setTimeout(begin, 200);
}

/** The browser went to the section of the address before figures and explorer had taken their room. */
function goToAddress() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target) target.scrollIntoView({ behavior: "instant" });
}

function foldContentsOnSmallScreens() {
  const contents = document.querySelector("nav details");
  if (contents && matchMedia("(max-width: 68rem)").matches) contents.open = false;
}
