// Starts what the page has: the theme, the figures, and the explorer where there is a network.
import { startTheme } from "neuralpath/theme.js";
import { startFigures } from "neuralpath/figures.js";
import { startExplorer } from "neuralpath/explorer/explorer.js";

export function start() {
  startTheme();
  startFigures();
  const network = document.getElementById("explorer-network");
  if (network) startWhenNear(document.getElementById("explorer"), () => startExplorer(JSON.parse(network.textContent)));
  foldContentsOnSmallScreens();
  addEventListener("beforeprint", openReasons);
}

// Paper cannot be opened.
function openReasons() {
  document.querySelectorAll(".claims details").forEach((reason) => (reason.open = true));
}

function startWhenNear(element, begin) {
  const observer = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) {
      observer.disconnect();
      begin();
    }
  }, { rootMargin: "600px" });
  observer.observe(element);
}

function foldContentsOnSmallScreens() {
  const contents = document.querySelector("nav details");
  if (contents && matchMedia("(max-width: 68rem)").matches) contents.open = false;
}
