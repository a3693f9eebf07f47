// What plotly is to draw for each kind of figure: pure functions of the figure's values and the width.
import { color } from "neuralpath/theme.js";

const NARROW = 560; // pixels; below, legends and maps go below each other
const DASHES = ["solid", "dash", "dot", "dashdot"];
const N_COLORS = 8;

/** Traces and layout of a figure. */
export function layoutOf(data, width) {
  const kinds = { curves: curves, distribution: distribution, "heat-maps": heatMaps };
  return kinds[data.kind](data, width);
}

/** Pixels that a figure of that width takes, without drawing it. */
export function heightOf(data, width) {
  if (data.kind === "heat-maps") return mapSizes(data.maps.length, width).height;
  return plainHeight(width, data.kind === "curves" ? data.curves.map((curve) => curve.name) : []);
}

function plainHeight(width, names) {
  return (width < NARROW + 160 ? 320 : 400) + legendHeight(names, width - 90);
}

function mapSizes(count, width) {
  const stacked = width < NARROW;
  const side = stacked ? width - 150 : Math.min((width - 150) / count - 56, 420);
  return { stacked, height: stacked ? count * (side + 54) + 40 : side + 84 };
}

function base(width, names = []) {
  const legend = legendHeight(names, width - 90);
  const height = plainHeight(width, names);
  const axis = { gridcolor: color("line"), linecolor: color("line"), zerolinecolor: color("line"), automargin: true };
  return {
    height, axis,
    layout: {
      height, autosize: true, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: color("ink") },
      margin: { l: 60, r: 18, t: 26 + legend, b: 52 },
      hovermode: "closest", hoverlabel: { bgcolor: color("raised"), bordercolor: color("line"), font: { color: color("ink") } },
      modebar: { color: color("soft"), activecolor: color("accent"), bgcolor: "rgba(0,0,0,0)" },
      showlegend: true, legend: { orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom", tracegroupgap: 0, font: { size: 12 } },
    },
  };
}

function curves(data, width) {
  const { layout, axis } = base(width, data.curves.map((curve) => curve.name));
  const traces = [];
  data.curves.forEach((curve, index) => {
    const paint = color(`c${(curve.color % N_COLORS) + 1}`);
    const group = `g${index}`;
    if (curve.lower && curve.x.length > 1) {
      const edge = { x: curve.x, mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false, legendgroup: group };
      traces.push({ ...edge, y: curve.lower }, { ...edge, y: curve.upper, fill: "tonexty", fillcolor: faded(paint, 0.16) });
    }
    traces.push({
      x: curve.x, y: curve.y, name: curve.name, legendgroup: group,
      mode: curve.x.length <= 20 ? "lines+markers" : "lines",
      marker: { size: 5, color: paint }, line: { width: 2, color: paint, dash: DASHES[curve.dash % DASHES.length] },
      error_y: curve.lower && curve.x.length === 1 ? { array: [curve.upper[0] - curve.y[0]], color: paint } : undefined,
      hovertemplate: `%{y:.4g} at %{x}<extra>${escapeText(curve.name)}</extra>`,
    });
  });
  layout.xaxis = { ...axis, title: { text: data.xLabel, standoff: 12 }, type: data.logX ? "log" : "linear" };
  layout.yaxis = { ...axis, title: { text: data.yLabel, standoff: 10 }, type: data.logY ? "log" : "linear" };
  if (!data.logX && hasFewWholeNumbers(data.curves.flatMap((one) => one.x))) layout.xaxis.dtick = 1;
  if (data.logX) Object.assign(layout.xaxis, { dtick: spansDecades(data.curves.flatMap((one) => one.x)) ? 1 : undefined });
  if (data.logY) layout.yaxis.exponentformat = "power";
  addLines(layout, data);
  return { traces, layout };
}

function distribution(data, width) {
  const { layout, axis } = base(width);
  const traces = data.groups.map((group, index) => {
    const paint = color(`c${(index % N_COLORS) + 1}`);
    return {
      type: "box", name: group.name, y: group.values, boxpoints: "all", jitter: 0.5, pointpos: 0,
      marker: { color: paint, size: 4.5, opacity: 0.75 }, line: { color: paint, width: 1.2 }, fillcolor: faded(paint, 0.1),
      hovertemplate: `%{y:.4g}<extra>${escapeText(group.name)}</extra>`,
    };
  });
  layout.showlegend = false;
  layout.xaxis = { ...axis, tickangle: data.groups.length > 4 || width < NARROW ? -40 : 0 };
  layout.yaxis = { ...axis, title: { text: data.yLabel, standoff: 10 } };
  addLines(layout, data);
  return { traces, layout };
}

function heatMaps(data, width) {
  const count = data.maps.length;
  const { stacked, height } = mapSizes(count, width);
  const { layout, axis } = base(width);
  layout.height = height;
  layout.showlegend = false;
  layout.margin = { l: 64, r: 20, t: 34, b: 30 };
  layout.annotations = [];
  const ticks = classTicks(data.classes);
  const gap = stacked ? 54 / (layout.height - 64) : 70 / (width - 84);
  const share = (1 - gap * (count - 1)) / count;
  const traces = data.maps.map((map, index) => {
    const suffix = index ? String(index + 1) : "";
    const domain = [index * (share + gap), index * (share + gap) + share];
    const upright = [1 - domain[1], 1 - domain[0]];
    const scaled = { ...axis, showgrid: false, zeroline: false, ticks: "", automargin: false, ...ticks };
    layout[`xaxis${suffix}`] = { ...scaled, domain: stacked ? [0, 1] : domain, anchor: `y${suffix}`, constrain: "domain" };
    layout[`yaxis${suffix}`] = {
      ...scaled, domain: stacked ? upright : [0, 1], anchor: `x${suffix}`, autorange: "reversed", scaleanchor: `x${suffix}`,
      constrain: "domain",
    };
    layout.annotations.push({
      text: escapeText(map.name), showarrow: false, xref: `x${suffix} domain`, yref: `y${suffix} domain`, x: 0.5, y: 1,
      yanchor: "bottom", font: { size: 13 },
    });
    return {
      type: "heatmap", z: map.z, xaxis: `x${suffix}`, yaxis: `y${suffix}`, coloraxis: "coloraxis",
      hovertemplate: `row %{y}, column %{x}: %{z:.4g}<extra>${escapeText(map.name)}</extra>`,
    };
  });
  layout.coloraxis = {
    colorscale: "Viridis", cmin: data.range[0], cmax: data.range[1],
    colorbar: { thickness: 12, len: stacked ? 0.4 : 0.9, outlinewidth: 0, tickfont: { size: 11 } },
  };
  return { traces, layout };
}

/** Ticks in the middle of each class's rows. */
function classTicks(classes) {
  if (!classes) return { showticklabels: false };
  const labels = [...new Set(classes)];
  const middle = (label) => {
    const rows = classes.flatMap((one, row) => (one === label ? [row] : []));
    return rows.reduce((sum, row) => sum + row, 0) / rows.length;
  };
  return { tickmode: "array", tickvals: labels.map(middle), ticktext: labels.map((label) => `class ${label}`.slice(labels.length > 4 ? 6 : 0)) };
}

function addLines(layout, data) {
  const place = (value) => (data.logY ? Math.log10(value) : value);
  layout.shapes = data.lines.map((line) => ({
    type: "line", xref: "paper", x0: 0, x1: 1, y0: line.y, y1: line.y, line: { color: color("soft"), width: 1.3, dash: "dash" },
  }));
  layout.annotations = data.lines.map((line) => ({
    text: escapeText(line.name), xref: "paper", x: 1, xanchor: "right", y: place(line.y), yanchor: "bottom", showarrow: false,
    font: { size: 11, color: color("soft") },
  }));
}

/** Pixels that the legend takes, from the length of its words, which fill one row after the other. */
function legendHeight(names, width) {
  let [rows, filled] = [names.length ? 1 : 0, 0];
  for (const entry of names.map((name) => 46 + 7 * name.length)) {
    if (filled > 0 && filled + entry > width) [rows, filled] = [rows + 1, 0];
    filled += entry;
  }
  return rows ? 8 + 20 * rows : 0;
}

/** Epochs and layers have no halves between them. */
function hasFewWholeNumbers(values) {
  return values.every(Number.isInteger) && Math.max(...values) - Math.min(...values) <= 12;
}

function spansDecades(values) {
  const positive = values.filter((value) => value > 0);
  return Math.max(...positive) / Math.min(...positive) >= 100;
}

function faded(hex, alpha) {
  const part = (start) => parseInt(hex.slice(start, start + 2), 16);
  return `rgba(${part(1)},${part(3)},${part(5)},${alpha})`;
}

/** Plotly reads a little HTML in its texts. */
function escapeText(words) {
  return words.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}
