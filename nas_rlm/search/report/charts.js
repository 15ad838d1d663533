const SVG = "http://www.w3.org/2000/svg";
const get = id => document.getElementById(id);
const show = value => Math.abs(value) >= 1e6
  ? Number(value.toPrecision(4)).toExponential().replace("e+", "e")
  : Number(value.toPrecision(5)).toString();

function element(parent, name, attributes = {}, text = "") {
  const isSvg = parent.namespaceURI === SVG || name === "svg";
  const child = isSvg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) child.setAttribute(key, value);
  if (text !== "") child.textContent = text;
  return parent.appendChild(child);
}

function table(parent, rows) {
  rows.forEach((row, i) => {
    const line = element(parent, "tr");
    row.forEach(cell => element(line, i ? "td" : "th", {}, String(cell)));
  });
}

// Draws axes with round ticks; returns the scales from values to coordinates.
function axes(svg, box, xs, ys, xlabel, ylabel) {
  const scale = (values, low, high) => {
    const min = Math.min(...values), max = Math.max(...values), margin = (max - min || Math.abs(max) || 1) * 0.05;
    const from = min - margin, to = max + margin;
    const coordinate = value => low + (value - from) / (to - from) * (high - low);
    const step = 10 ** Math.floor(Math.log10((to - from) / 4));
    const spacing = [1, 2, 5, 10].map(k => k * step).find(k => (to - from) / k <= 6);
    const ticks = [];
    for (let k = Math.ceil(from / spacing); k * spacing <= to && ticks.length < 12; k++) ticks.push(k * spacing);
    return [coordinate, ticks];
  };
  const [left, top, right, bottom] = box;
  const [x, xticks] = scale(xs, left, right), [y, yticks] = scale(ys, bottom, top);
  for (const tick of xticks) {
    element(svg, "line", {class: "grid", x1: x(tick), x2: x(tick), y1: top, y2: bottom});
    element(svg, "text", {x: x(tick), y: bottom + 16, "text-anchor": "middle"}, show(tick));
  }
  for (const tick of yticks) {
    element(svg, "line", {class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick)});
    element(svg, "text", {x: left - 6, y: y(tick) + 4, "text-anchor": "end"}, show(tick));
  }
  element(svg, "text", {x: (left + right) / 2, y: bottom + 34, "text-anchor": "middle"}, xlabel);
  element(svg, "text", {x: 12, y: (top + bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(top + bottom) / 2})`}, ylabel);
  return [x, y];
}

// Draws nodes in layers by the length of their longest path from the input.
function graph(svg, body) {
  svg.replaceChildren();
  const depth = body.nodes.map(() => 0), rows = [];
  body.nodes.forEach((node, k) => {
    depth[k] = 1 + Math.max(0, ...node.reads.filter(r => r >= 0).map(r => depth[r]));
    (rows[depth[k]] ||= []).push(k);
  });
  rows[0] = [-1];
  const columns = Math.max(...rows.map(row => row.length)), width = Math.max(400, columns * 165), center = new Map();
  rows.forEach((row, d) => row.forEach((k, c) => center.set(k, [(c + 0.5) * width / row.length, 24 + d * 46])));
  svg.setAttribute("viewBox", `0 0 ${width} ${rows.length * 46 + 10}`);
  body.nodes.forEach((node, k) => node.reads.forEach(r => {
    const [x1, y1] = center.get(r), [x2, y2] = center.get(k), bend = depth[k] - (r < 0 ? 0 : depth[r]) > 1 ? 24 : 0;
    element(svg, "path", {class: "edge", d: `M${x1} ${y1 + 13} C${x1 + bend} ${y1 + 32} ${x2 + bend} ${y2 - 32} ${x2} ${y2 - 13}`});
  }));
  const box = (k, text, calls) => {
    const [x, y] = center.get(k), group = element(svg, "g", {class: calls ? "node calls" : "node"});
    element(group, "rect", {x: x - 76, y: y - 13, width: 152, height: 26});
    element(group, "text", {x, y: y + 4}, text.length > 23 ? `${text.slice(0, 22)}…` : text);
    element(group, "title", {}, text);
    return group;
  };
  box(-1, "input", false);
  body.nodes.forEach((node, k) => {
    const group = box(k, node.label, node.calls);
    if (node.calls) group.addEventListener("click", () => svg.dispatchEvent(new CustomEvent("open", {detail: node.calls})));
  });
}

// Shows a network, and on a click one of its functions.
function browse(parent, graphs) {
  const breadcrumb = element(parent, "p"), svg = element(parent, "svg", {id: "graph"}), path = [];
  const open = name => {
    path.push(name);
    breadcrumb.replaceChildren();
    path.forEach((step, k) => {
      if (k) breadcrumb.append(" › ");
      const button = element(breadcrumb, "button", {type: "button"}, step || "network");
      button.addEventListener("click", () => { path.length = k; open(step); });
    });
    graph(svg, graphs[name]);
  };
  svg.addEventListener("open", event => open(event.detail));
  open("");
}
