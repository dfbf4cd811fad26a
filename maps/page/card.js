/* The card of a marked place: what to expect there, how sure, through time, how honest; charts as SVG. */
const SVG = "http://www.w3.org/2000/svg";
const draw = (tag, attributes, text) => {
  const node = document.createElementNS(SVG, tag);
  for (const [k, v] of Object.entries(attributes)) node.setAttribute(k, v);
  if (text !== undefined) node.textContent = text;
  return node;
};

/* "95 times in 100" of a level. */
const times = (level) => short(100 * level) + " times in 100";

/* Links and buttons, [{ text, href or press, pressed }]. One that is there already stays the same node: a click is of one node,
   pressed and let go, and would be lost if another took its place between. */
function keepIn(box, ways) {
  const there = new Map([...box.children].map((node) => [node.textContent, node]));
  const nodes = ways.map(({ text, href, press, pressed }) => {
    const node = there.get(text) ?? make(href ? "a" : "button", "", text);
    if (href) { if (node.getAttribute("href") !== href) node.href = href; } else { node.type = "button"; node.onclick = press; }
    if (pressed !== undefined) node.setAttribute("aria-pressed", String(pressed));
    return node;
  });
  for (const node of there.values()) if (!nodes.includes(node)) node.remove();
  nodes.forEach((node, k) => { if (box.children[k] !== node) box.insertBefore(node, box.children[k] ?? null); });
}

/* The interval as a bar on a scale, with the threshold in red. */
function intervalBar(v, setting, log) {
  const w = 288, h = 44, svg = draw("svg", { viewBox: `0 0 ${w} ${h}`, width: "100%", role: "img", "aria-label": "The interval and the threshold" });
  const on = log && v.lower > 0, f = on ? Math.log : (x) => x;
  const ends = [v.lower, v.upper, ...(setting.threshold > 0 || !on ? [setting.threshold] : [])].map(f);
  const low = Math.min(...ends), high = Math.max(...ends), pad = 0.12 * (high - low || 1);
  const x = (value) => 8 + (w - 16) * (f(value) - low + pad) / (high - low + 2 * pad);
  svg.append(draw("line", { x1: 4, x2: w - 4, y1: 18, y2: 18, class: "axis" }),
    draw("rect", { x: x(v.lower), width: Math.max(2, x(v.upper) - x(v.lower)), y: 12, height: 12, rx: 3, class: "band" }),
    draw("circle", { cx: x(v.median), cy: 18, r: 5, class: "dot" }),
    draw("line", { x1: x(setting.threshold), x2: x(setting.threshold), y1: 6, y2: 30, class: "rule" }));
  const marks = [[v.lower, "end"], [v.median, "middle"], [v.upper, "start"]];
  for (const [value, anchor] of marks) {
    const said = plain(value), room = Math.max(24, 6 * said.length + 2); // a long number would leave the card
    svg.append(draw("text", { x: Math.min(w - 2, Math.max(2, x(value))), y: 40, "text-anchor": x(value) < room && anchor !== "start" ? "start" : x(value) > w - room && anchor !== "end" ? "end" : anchor }, said));
  }
  return svg;
}

/* Median and interval of each quarter; the one on the map in red. From 0, or from the least where 0 is far below. */
function historyChart(rows, now, unit) {
  const top = Math.max(...rows.map((r) => r.upper)), least = Math.min(...rows.map((r) => r.lower)), low = least >= 0 && least < top / 2 ? 0 : least;
  const w = 288, h = 120, marks = [low, (low + top) / 2, top], l = Math.max(34, ...marks.map((v) => 7 * plain(v).length + 6)), b = 16, svg = draw("svg", { viewBox: `0 0 ${w} ${h}`, width: "100%", role: "img", "aria-label": "Median and interval by quarter" });
  const x = (i) => l + 6 + (w - l - 14) * i / Math.max(1, rows.length - 1), y = (v) => h - b - (h - b - 12) * (v - low) / (top - low || 1);
  const line = (key) => rows.map((r, i) => `${x(i).toFixed(1)},${y(r[key]).toFixed(1)}`);
  for (const v of marks) svg.append(draw("line", { x1: l, x2: w, y1: y(v), y2: y(v), class: "axis" }), draw("text", { x: l - 4, y: y(v) + 4, "text-anchor": "end" }, plain(v)));
  svg.append(draw("polygon", { points: [...line("upper"), ...line("lower").reverse()].join(" "), class: "band" }), draw("polyline", { points: line("median").join(" "), class: "line" }));
  rows.forEach((r, i) => {
    const dot = draw("circle", { cx: x(i), cy: y(r.median), r: r.quarter === now ? 5 : 2.5, class: r.quarter === now ? "now" : "dot" });
    dot.append(draw("title", {}, quarterText(r.quarter) + ": " + plain(r.median) + " " + unit + ", " + plain(r.lower) + " to " + plain(r.upper)));
    svg.append(dot);
  });
  svg.append(draw("text", { x: l + 2, y: h - 3 }, quarterText(rows[0].quarter)), draw("text", { x: w - 2, y: h - 3, "text-anchor": "end" }, quarterText(rows.at(-1).quarter)), draw("text", { x: l, y: 9 }, unit));
  return svg;
}

/* How often intervals of this place's own kind held: by how far the nearest test is, by the number of tests. */
function honesty(coverage, setting, awayKm) {
  if (!coverage) return [];
  const at = coverage.levels.indexOf(setting.level), found = [];
  if (at < 0) return [];
  const add = (name, words) => {
    const g = coverage.groups[name];
    if (g) found.push([words, (100 * g.achieved[at]).toFixed(1) + "% of " + g.n.toLocaleString("en-US") + (g.judged ? "" : ", too few to judge")]);
  };
  if (awayKm !== undefined) add(awayKm > coverage.far_km ? "far" : "near", "Intervals that held, " + (awayKm > coverage.far_km ? "beyond " : "within ") + length(coverage.far_km) + " of data");
  for (const [name, low, high] of coverage.counts) if (setting.tests !== null && setting.tests >= low && setting.tests <= high) add(name, "Intervals that held, " + name);
  if (!found.length) add("all", "Intervals that held");
  return found;
}
