// A list of images of which one is chosen, with the pointer or the keys.
import { paint } from "neuralpath/explorer/thumbnails.js";

/** Fills `place` with the images; `choose(index)` is called for each choice. Gives functions to fill and to select. */
export function makeImageList(place, label, shape, choose) {
  const list = document.createElement("div");
  list.className = "images";
  list.tabIndex = 0;
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", label);
  place.replaceChildren(list);
  let options = [];
  let selected = -1;

  function fill(images) {
    options = images.map((image, index) => {
      const option = document.createElement("div");
      option.id = `${place.id}-${index}`;
      option.setAttribute("role", "option");
      option.setAttribute("aria-label", `image ${index + 1}, class ${image.label}`);
      option.title = `class ${image.label}`;
      option.append(paint(document.createElement("canvas"), image.pixels, shape));
      option.addEventListener("click", () => pick(index));
      return option;
    });
    list.replaceChildren(...options);
    selected = -1;
  }

  function select(index) {
    options[selected]?.setAttribute("aria-selected", "false");
    selected = index;
    options[index].setAttribute("aria-selected", "true");
    list.setAttribute("aria-activedescendant", options[index].id);
    keepInView(options[index]);
  }

  function pick(index) {
    select(index);
    choose(index);
  }

  // Only the list scrolls, never the page.
  function keepInView(option) {
    const top = option.offsetTop - list.offsetTop;
    if (top < list.scrollTop) list.scrollTop = top;
    const below = top + option.offsetHeight - list.clientHeight;
    if (below > list.scrollTop) list.scrollTop = below;
  }

  function columns() {
    const first = options[0].offsetTop;
    const wrapped = options.findIndex((option) => option.offsetTop > first);
    return wrapped < 0 ? options.length : wrapped;
  }

  list.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns(), ArrowUp: -columns() };
    const last = options.length - 1;
    let target = event.key in steps ? selected + steps[event.key] : { Home: 0, End: last }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    if (target >= 0 && target <= last && target !== selected) pick(target);
  });

  return { fill, select };
}
