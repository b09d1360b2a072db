"use strict";
// One picture of all measurements: the reader chooses lines and axes; a reload keeps the choice.
const { axes, lines, renew } = JSON.parse(document.getElementById("measured").textContent);
const box = document.getElementById("watch");
const KEY = "fl " + location.pathname;
const scores = lines.flatMap((line, i) => (line.score ? [i] : []));
let choice = { x: 0, logX: false, logY: false, shown: scores.length ? scores : [0] };
// a browser may refuse storage; then a reload forgets the choice
try { choice = { ...choice, ...JSON.parse(sessionStorage.getItem(KEY)) }; } catch {}
if (!axes[choice.x]) choice.x = 0;

const SVG = "http://www.w3.org/2000/svg";
function add(parent, name, attributes, text) {
  const svg = parent.namespaceURI === SVG || name === "svg";
  const node = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  parent.appendChild(node);
  return node;
}
// as `tick` of text.rs
function short(v) {
  const size = Math.abs(v), plain = (v) => String(+v.toFixed(4));
  if (size >= 1e9) return plain(v / 1e9) + "G";
  if (size >= 1e6) return plain(v / 1e6) + "M";
  if (size >= 1e4) return plain(v / 1e3) + "k";
  return size > 0 && size < 1e-3 ? (+v.toPrecision(5)).toExponential() : plain(v);
}

function scale(values, log, from, to) {
  let low = Math.min(...values), high = Math.max(...values);
  if (!values.length) [low, high] = log ? [1, 10] : [0, 1];
  if (low === high) {
    const margin = Math.abs(low) / 10 || 1;
    [low, high] = log ? [low / 2, high * 2] : [low - margin, high + margin];
  }
  const of = log ? Math.log10 : (v) => v;
  const at = (v) => from + ((of(v) - of(low)) / (of(high) - of(low))) * (to - from);
  const marks = [];
  if (log) {
    const steps = of(high) - of(low) < 2 ? [1, 2, 5] : [1];
    for (let n = Math.floor(of(low)); n <= of(high); n++) {
      for (const s of steps) marks.push(s * 10 ** n);
    }
  } else {
    const rough = (high - low) / 6, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    for (let n = Math.ceil(low / step); n <= Math.floor(high / step); n++) marks.push(n * step);
  }
  return { at, marks: marks.filter((v) => v >= low && v <= high) };
}

function draw() {
  try { sessionStorage.setItem(KEY, JSON.stringify(choice)); } catch {}
  box.replaceChildren();
  const bar = add(box, "p", {});
  const select = add(add(bar, "label", {}, "over "), "select", {});
  axes.forEach((axis, i) => {
    add(select, "option", i === choice.x ? { value: i, selected: "" } : { value: i }, axis);
  });
  select.onchange = () => change({ x: +select.value });
  tick(bar, "logarithmic across", choice.logX, (logX) => change({ logX }));
  tick(bar, "logarithmic upwards", choice.logY, (logY) => change({ logY }));
  const fits = ([x, y]) =>
    x !== null && y !== null && (!choice.logX || x > 0) && (!choice.logY || y > 0);
  const points = (i) => lines[i].points.map((p) => [p[choice.x], p[axes.length]]).filter(fits);
  const drawn = choice.shown.filter((i) => lines[i]).map((i) => [i, points(i)]);
  const all = drawn.flatMap(([, points]) => points);
  const x = scale(all.map((p) => p[0]), choice.logX, 66, 702);
  const y = scale(all.map((p) => p[1]), choice.logY, 276, 14);
  const title = "measurements by " + axes[choice.x];
  const svg = add(box, "svg", { viewBox: "0 0 720 320", role: "img", "aria-label": title });
  for (const v of y.marks) {
    add(svg, "line", { class: "grid", x1: 60, x2: 708, y1: y.at(v), y2: y.at(v) });
    add(svg, "text", { class: "tick", x: 54, y: y.at(v) + 4, "text-anchor": "end" }, short(v));
  }
  for (const v of x.marks) {
    add(svg, "line", { class: "grid", x1: x.at(v), x2: x.at(v), y1: 10, y2: 280 });
    add(svg, "text", { class: "tick", x: x.at(v), y: 295, "text-anchor": "middle" }, short(v));
  }
  add(svg, "text", { class: "name", x: 384, y: 314, "text-anchor": "middle" }, axes[choice.x]);
  for (const [i, points] of drawn) {
    const group = add(svg, "g", { class: style(i) });
    const place = (p) => [x.at(p[0]).toFixed(1), y.at(p[1]).toFixed(1)];
    add(group, "polyline", { class: "line", points: points.map(place).join(" ") });
    for (const p of points.length > 60 ? [] : points) {
      const [cx, cy] = place(p);
      const dot = add(group, "circle", { class: "dot", cx, cy, r: 3 });
      add(dot, "title", {}, lines[i].name + ": " + p[1] + " at " + p[0]);
    }
  }
  const legend = add(box, "ul", { class: "legend" });
  lines.forEach((line, i) => {
    const item = add(legend, "li", {});
    const label = tick(item, "", choice.shown.includes(i), (on) => {
      const others = choice.shown.filter((of) => of !== i);
      change({ shown: on ? [...others, i] : others });
    });
    const sign = add(label, "svg", { class: style(i), viewBox: "0 0 26 10" });
    add(sign, "line", { class: "line", x1: 0, x2: 26, y1: 5, y2: 5 });
    add(label, "span", {}, line.name);
  });
}
const style = (i) => "s" + (i % 8) + " d" + (Math.floor(i / 8) % 3);
function tick(parent, text, on, change) {
  const label = add(parent, "label", {});
  const input = add(label, "input", on ? { type: "checkbox", checked: "" } : { type: "checkbox" });
  input.onchange = () => change(input.checked);
  add(label, "span", {}, text + " ");
  return label;
}
function change(part) {
  choice = { ...choice, ...part };
  draw();
}
draw();
if (renew) setTimeout(() => location.reload(), renew * 1000);
