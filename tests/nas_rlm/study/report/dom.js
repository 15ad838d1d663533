// Runs the script of a page in Node with the few parts of a DOM that it uses; prints what it drew, as JSON.
"use strict";
const fs = require("fs");
const page = fs.readFileSync(process.argv[2], "utf8");
const SVG_ELEMENTS = new Set(["svg"]);

class Element {
  constructor(name, namespaceURI) {
    Object.assign(this, {name, namespaceURI, attributes: {}, children: [], listeners: {}, dataset: {}, style: {}});
    this.own = "";
    this.value = "";
    this.classList = {add: c => { this.attributes.class = `${this.attributes.class || ""} ${c}`; }};
  }
  set textContent(text) { this.own = String(text); this.children = []; }
  get textContent() { return this.own + this.children.map(c => c.textContent ?? c).join(""); }
  setAttribute(key, value) { this.attributes[key] = String(value); }
  appendChild(child) { this.children.push(child); return child; }
  append(text) { this.children.push(text); }
  replaceChildren() { this.children = []; this.own = ""; }
  remove() { this.isRemoved = true; }
  addEventListener(type, f) { (this.listeners[type] ||= []).push(f); }
  dispatchEvent(event) { (this.listeners[event.type] || []).forEach(f => f(event)); }
  all(name) { return this.children.flatMap(c => c.all ? [...(c.name === name ? [c] : []), ...c.all(name)] : []); }
}

const ids = {};
for (const [, name, id] of page.matchAll(/<(\w+)[^>]*\sid="(\w+)"/g))
  ids[id] = new Element(name, SVG_ELEMENTS.has(name) ? "http://www.w3.org/2000/svg" : "html");
ids.data.own = page.match(/type="application\/json">(.*?)<\/script>/s)[1];
global.document = {
  getElementById: id => ids[id],
  createElement: name => new Element(name, "html"),
  createElementNS: (uri, name) => new Element(name, uri),
};
global.innerWidth = 1000;
global.CustomEvent = class { constructor(type, options) { this.type = type; this.detail = options.detail; } };
const scripts = [...page.matchAll(/<script>(.*?)<\/script>/gs)].map(m => m[1]);
new Function(scripts.join("\n"))();

const circles = ids.front.all("circle");
circles.forEach(c => c.dispatchEvent({type: "mousemove", clientX: 1, clientY: 1}));
circles[0].dispatchEvent({type: "click"});
const calls = ids.details.all("g").filter(g => (g.attributes.class || "").includes("calls"));
calls[0].dispatchEvent({type: "click"});
ids.objective.value = "1";
ids.objective.dispatchEvent({type: "change"});
const failedLinks = ids.failed ? ids.failed.all("a") : [];
failedLinks.forEach(link => link.dispatchEvent({type: "click"}));
const shownAfterFailed = failedLinks.length ? ids.details.textContent : "";
ids.front.all("circle")[0].dispatchEvent({type: "click"});
const count = (id, name) => ids[id].all(name).length;
console.log(JSON.stringify({
  title: ids.title.textContent, tip: ids.tip.textContent, details: ids.details.textContent,
  front: circles.length, selected: ids.front.all("circle").filter(c => c.attributes.class.includes("selected")).length,
  trials: count("trials", "circle"), volume: count("volume", "polyline"),
  curves: count("curves", "polyline"), genes: count("genes", "polyline"),
  ticks: ["front", "trials", "volume"].flatMap(id => ids[id].all("text").map(t => t.textContent)),
  failed: ids.failed ? ids.failed.textContent : "", shown: shownAfterFailed,
  running: ids.running ? ids.running.textContent : "",
  nan: [...page.matchAll(/id="(\w+)"/g)].some(m => ids[m[1]] && JSON.stringify(ids[m[1]].all("polyline").map(p => p.attributes)).includes("NaN")),
}));
