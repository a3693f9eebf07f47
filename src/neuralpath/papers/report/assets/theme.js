// Light and dark: as the system says until the reader chooses. Colors are those of the style sheet.
const KEY = "neuralpath-theme";
const NEXT = { system: "light", light: "dark", dark: "system" };
const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set();
let choice = "system";

export function startTheme() {
  choice = stored();
  const button = document.getElementById("theme");
  button.addEventListener("click", () => {
    choice = NEXT[choice];
    store(choice);
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}

/** Calls back whenever the colors have changed. */
export function onThemeChange(listener) {
  listeners.add(listener);
}

/** The color with that name in the style sheet, such as "ink" or "c1". */
export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Shows the light theme, whatever was chosen, until the returned function is called: paper is white. */
export function borrowLight() {
  const shown = document.documentElement.dataset.theme;
  show("light");
  return () => show(shown);
}

function apply() {
  show(choice === "system" ? (system.matches ? "dark" : "light") : choice);
  const button = document.getElementById("theme");
  button.textContent = `Theme: ${choice}`;
}

function show(theme) {
  if (document.documentElement.dataset.theme === theme) return;
  document.documentElement.dataset.theme = theme;
  listeners.forEach((listener) => listener());
}

// A page opened from disk may be refused storage; the choice then lasts as long as the page.
function stored() {
  try {
    const kept = localStorage.getItem(KEY);
    return kept in NEXT ? kept : "system";
  } catch {
    return "system";
  }
}

function store(value) {
  try {
    localStorage.setItem(KEY, value);
  } catch {
    // see above
  }
}
