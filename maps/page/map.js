/* One self-contained map: decodes quantised layers, paints them into a canvas, reads values out in words.
   Every text from the data is set through textContent; nothing is fetched. */
"use strict";
async function geogpMap(map, spec) {
  const $ = (tag, name, text) => {
    const node = document.createElement(tag);
    if (name) node.className = name;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const MERC = 20037508.342789244, root = map.getContainer(), { width, height } = spec.grid;

  // ---- numbers in words -------------------------------------------------------------------------------------------
  const plain = (v) => Math.abs(v) >= 10 ? String(Math.round(v)) : v === 0 ? "0" : String(Number(v.toPrecision(2)));
  const percent = (p) => p < 0.005 ? "< 1%" : p > 0.995 ? "> 99%" : "= " + Math.round(100 * p) + "%";
  const degrees = (v, plus, minus) => Math.abs(v).toFixed(3) + "° " + (v < 0 ? minus : plus);

  // ---- data: base64 -> inflate -> row differences undone -> codes (0 = no value) ------------------------------------
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const floats = (text) => new Float32Array(bytes(text).buffer);
  const inflate = async (text) => {
    const stream = new Blob([bytes(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };
  const decoded = new Map();
  async function codes(name) {
    if (!decoded.has(name)) {
      const raw = await inflate(spec.planes[name].data), n = width * height, out = new Uint16Array(n);
      for (let y = 0, i = 0; y < height; y++) {
        for (let x = 0, last = 0; x < width; x++, i++) out[i] = last = (last + (raw[i] << 8 | raw[n + i])) & 65535;
      }
      decoded.set(name, out);
    }
    return decoded.get(name);
  }
  const valueOf = (plane, code) => {
    const t = (code - 1) / (plane.steps - 1);
    return plane.kind === "log" ? plane.low * (plane.high / plane.low) ** t : plane.low + t * (plane.high - plane.low);
  };
  const fraction = (scale, v) => {
    const t = scale.kind === "log"
      ? Math.log(Math.max(v, scale.low) / scale.low) / Math.log(scale.high / scale.low)
      : (v - scale.low) / (scale.high - scale.low);
    return Math.min(1, Math.max(0, t));
  };
  const inside = spec.inside ? await inflate(spec.inside) : null;

  // ---- Web Mercator <-> pixels of the grid, through a mesh that is bilinear between its nodes ------------------------
  const mesh = { n: spec.mesh.n, col: floats(spec.mesh.col), row: floats(spec.mesh.row) };
  const [left, top, right, bottom] = spec.mesh.bounds;
  function pixel(u, v) { // u, v in [0, 1] across the mesh -> index into the grid, or -1
    const n = mesh.n - 1, a = Math.min(n - 1, Math.floor(u * n)), b = Math.min(n - 1, Math.floor(v * n));
    if (!(u >= 0 && u <= 1 && v >= 0 && v <= 1)) return -1;
    const s = u * n - a, t = v * n - b, i = b * mesh.n + a, j = i + mesh.n;
    const mix = (p) => (p[i] * (1 - s) + p[i + 1] * s) * (1 - t) + (p[j] * (1 - s) + p[j + 1] * s) * t;
    const col = Math.floor(mix(mesh.col)), row = Math.floor(mix(mesh.row));
    return col >= 0 && col < width && row >= 0 && row < height ? row * width + col : -1;
  }
  const latOf = (y) => Math.atan(Math.sinh(y / MERC * Math.PI)) * 180 / Math.PI;
  const yOf = (lat) => Math.asinh(Math.tan(lat * Math.PI / 180)) / Math.PI * MERC;
  function at(latlng) {
    const middle = (left + right) / 2 / MERC * 180;
    const lon = latlng.lng + 360 * Math.round((middle - latlng.lng) / 360);
    return pixel((lon / 180 * MERC - left) / (right - left), (top - yOf(latlng.lat)) / (top - bottom));
  }
  const canvas = $("canvas");
  canvas.width = spec.mesh.width; canvas.height = spec.mesh.height;
  const lookup = new Int32Array(canvas.width * canvas.height);
  for (let y = 0, i = 0; y < canvas.height; y++) {
    for (let x = 0; x < canvas.width; x++, i++) lookup[i] = pixel((x + .5) / canvas.width, (y + .5) / canvas.height);
  }

  let coast = null;
  if (spec.region) {
    coast = new Path2D();
    for (const polygon of spec.region.type === "Polygon" ? [spec.region.coordinates] : spec.region.coordinates) {
      for (const ring of polygon) {
        ring.forEach(([lon, lat], k) => {
          const x = (lon / 180 * MERC - left) / (right - left) * canvas.width, y = (top - yOf(lat)) / (top - bottom) * canvas.height;
          if (k) coast.lineTo(x, y); else coast.moveTo(x, y);
        });
        coast.closePath();
      }
    }
  }

  // ---- map: hatch below, picture, outline above -----------------------------------------------------------------------
  const bounds = L.latLngBounds([latOf(bottom), left / MERC * 180], [latOf(top), right / MERC * 180]);
  ["gg-base", "gg-image", "gg-lines"].forEach((name, i) => {
    const pane = map.createPane(name);
    pane.style.zIndex = 300 + 50 * i; pane.style.pointerEvents = "none";
  });
  const renderers = { base: L.svg({ pane: "gg-base", padding: 1 }), lines: L.svg({ pane: "gg-lines", padding: 1 }) };
  const CanvasOverlay = L.ImageOverlay.extend({
    _initImage() {
      const image = this._image = this._url;
      image.classList.add("leaflet-image-layer", "leaflet-zoom-animated");
      image.setAttribute("role", "img");
    },
  });
  const focus = L.latLngBounds(spec.focus);
  if (spec.region) {
    L.geoJSON(spec.region, {
      pane: "gg-base", renderer: renderers.base, interactive: false,
      smoothFactor: .4, style: { stroke: false, fillColor: "url(#gg-hatch)", fillOpacity: 1 },
    }).addTo(map);
    L.geoJSON(spec.region, {
      pane: "gg-lines", renderer: renderers.lines, interactive: false,
      smoothFactor: .4, style: { color: "#1d2733", weight: 1.1, opacity: .75, fill: false },
    }).addTo(map);
  }
  new CanvasOverlay(canvas, bounds, { pane: "gg-image", interactive: false }).addTo(map);
  const narrow = () => root.clientWidth <= 700;
  const fit = () => map.fitBounds(focus, narrow()
    ? { paddingTopLeft: [20, panel.offsetHeight + 16], paddingBottomRight: [20, 96] }
    : { paddingTopLeft: [336, 24], paddingBottomRight: [24, 96] });

  // graticule: round steps, about four lines across
  const lines = L.layerGroup().addTo(map);
  function graticule() {
    lines.clearLayers();
    const b = map.getBounds(), span = Math.max(b.getEast() - b.getWest(), b.getNorth() - b.getSouth());
    const step = [.01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 30].find((s) => span / s <= 7) || 45;
    const digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
    const style = { pane: "gg-base", renderer: renderers.base, interactive: false, color: "#c6ced8", weight: .7 };
    const size = map.getSize(), edge = narrow() ? [6, size.y - 100] : [size.x - 58, 18];
    const mark = (latlng, text) => {
      L.marker(latlng, { pane: "gg-lines", interactive: false, keyboard: false,
        icon: L.divIcon({ className: "gg-degree", html: $("span", "", text), iconSize: null, iconAnchor: [-3, 14] }) }).addTo(lines);
    };
    for (let k = Math.ceil(b.getWest() / step); k * step <= b.getEast(); k++) {
      const lon = k * step, shown = ((lon + 180) % 360 + 360) % 360 - 180;
      L.polyline([[b.getSouth() - span, lon], [b.getNorth() + span, lon]].map(([a, c]) => [Math.max(-85, Math.min(85, a)), c]), style).addTo(lines);
      mark([map.containerPointToLatLng([0, edge[1]]).lat, lon], Math.abs(shown).toFixed(digits) + "°" + (shown % 180 === 0 ? "" : shown < 0 ? " W" : " E"));
    }
    for (let k = Math.ceil(b.getSouth() / step); k * step <= b.getNorth(); k++) {
      L.polyline([[k * step, b.getWest() - span], [k * step, b.getEast() + span]], style).addTo(lines);
      mark([k * step, map.containerPointToLatLng([edge[0], 0]).lng], Math.abs(k * step).toFixed(digits) + "°" + (k === 0 ? "" : k < 0 ? " S" : " N"));
    }
  }
  map.on("moveend resize", graticule);
  map.attributionControl.setPrefix("Leaflet");
  for (const place of spec.places) {
    L.marker([place.lat, place.lon], { pane: "gg-lines", interactive: false, keyboard: false,
      icon: L.divIcon({ className: "", html: $("span", "gg-place", place.name), iconSize: null, iconAnchor: [3, 9] }) }).addTo(map);
  }

  // ---- panel ----------------------------------------------------------------------------------------------------------
  const panel = $("section", "gg-card gg-panel");
  panel.setAttribute("aria-label", "Layers and legend");
  panel.append($("h1", "", spec.title), $("p", "", spec.subtitle));
  if (spec.note) panel.append($("p", "", spec.note));
  const legend = $("div", "gg-legend"), list = $("details", "gg-layers"), summary = $("summary", "", "Layers");
  list.append(summary); list.open = !narrow();
  const groups = new Map();
  for (const layer of spec.layers) {
    if (!groups.has(layer.group)) {
      const field = $("fieldset");
      field.append($("legend", "", layer.group));
      groups.set(layer.group, field); list.append(field);
    }
    const label = $("label"), radio = $("input");
    Object.assign(radio, { type: "radio", name: "gg-layer", value: layer.id });
    radio.addEventListener("change", () => show(layer.id));
    label.append(radio, $("span", "", layer.short)); label.title = layer.about;
    groups.get(layer.group).append(label);
  }
  const about = $("details", "gg-about"), facts = $("dl");
  about.append($("summary", "", "About this map"), facts);
  for (const [name, text] of spec.facts) facts.append($("dt", "", name), $("dd", "", text));
  panel.append(list, legend, about);
  const readout = $("section", "gg-card gg-readout"), said = $("strong"), where = $("small");
  readout.setAttribute("aria-live", "polite"); readout.append(said, where);
  new ResizeObserver(() => document.body.style.setProperty("--gg-readout", readout.offsetHeight + "px")).observe(readout);
  root.append($("div", "gg-cross"));
  root.parentNode.append(panel, readout);
  root.classList.add("gg-side");
  root.setAttribute("role", "application");
  root.setAttribute("aria-label", "Map. Arrow keys move, plus and minus zoom; the value under the cross is read out.");
  for (const card of [panel]) { L.DomEvent.disableClickPropagation(card); L.DomEvent.disableScrollPropagation(card); }

  function hatchSwatch() {
    const ns = "http://www.w3.org/2000/svg", svg = document.createElementNS(ns, "svg"), rect = document.createElementNS(ns, "rect");
    svg.setAttribute("width", 26); svg.setAttribute("height", 13);
    for (const [k, v] of [["width", 26], ["height", 13], ["fill", "url(#gg-hatch)"]]) rect.setAttribute(k, v);
    svg.append(rect);
    return svg;
  }
  function ticks(marks) {
    const box = $("div", "gg-ticks");
    for (const [where, text] of marks) {
      const line = $("i"), label = $("span", "", text);
      line.style.left = label.style.left = 100 * where + "%";
      box.append(line, label);
    }
    return box;
  }
  function drawLegend(layer) {
    const heading = $("h2", "", layer.title + " ");
    if (layer.unit) heading.append($("span", "", "(" + layer.unit + ")"));
    legend.replaceChildren(heading);
    if (layer.suppress) {
      const grid = $("div", "gg-grid");
      grid.append($("span", "", ""), $("span", "", "interval"));
      layer.suppress.palette.forEach((row, i) => {
        const cells = $("div", "gg-row");
        for (const rgb of row) { const cell = $("b"); cell.style.background = "rgb(" + rgb.join() + ")"; cells.append(cell); }
        grid.append(cells, $("span", "", layer.suppress.words[i]));
      });
      const axis = ticks(layer.ticks); axis.style.margin = "0";
      grid.append(axis, $("span"));
      legend.append(grid);
    } else {
      const ramp = $("div", "gg-ramp"), rgb = bytes(spec.palettes[layer.palette]), stops = [];
      for (let i = 0; i <= 32; i++) { const k = 3 * Math.round(i * 255 / 32); stops.push("rgb(" + rgb.slice(k, k + 3).join() + ")"); }
      ramp.style.background = "linear-gradient(to right," + stops.join() + ")";
      legend.append(ramp, ticks(layer.ticks));
    }
    const text = $("p", "", layer.about);
    legend.append(text);
    if (spec.hatched) { const key = $("div", "gg-hatchkey"); key.append(hatchSwatch(), $("span", "", "in the region, but no prediction")); legend.append(key); }
  }

  // ---- painting ---------------------------------------------------------------------------------------------------------
  const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
  const target = new Uint32Array(image.data.buffer);
  const pack = (r, g, b) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;
  async function paint(layer) {
    if (layer.suppress) {
      const s = layer.suppress, m = await codes("median"), lo = await codes("lower"), up = await codes("upper");
      const P = spec.planes, colours = s.palette.map((row) => row.map((c) => pack(...c)));
      const grid = new Uint32Array(width * height);
      for (let i = 0; i < grid.length; i++) {
        if (!m[i] || !lo[i] || !up[i]) continue;
        const a = valueOf(P.lower, lo[i]), b = valueOf(P.upper, up[i]), w = s.ratio ? b / a : b - a;
        const level = w < s.edges[0] ? 0 : w < s.edges[1] ? 1 : w < s.edges[2] ? 2 : 3, row = colours[level];
        grid[i] = row[Math.min(row.length - 1, Math.floor(fraction(layer.scale, valueOf(P.median, m[i])) * row.length))];
      }
      for (let i = 0; i < lookup.length; i++) target[i] = lookup[i] < 0 ? 0 : grid[lookup[i]];
    } else {
      const plane = spec.planes[layer.plane], values = await codes(layer.plane), rgb = bytes(spec.palettes[layer.palette]);
      const table = new Uint32Array(plane.steps + 1);
      for (let c = 1; c <= plane.steps; c++) {
        const k = 3 * Math.round(255 * fraction(layer.scale, valueOf(plane, c)));
        table[c] = pack(rgb[k], rgb[k + 1], rgb[k + 2]);
      }
      for (let i = 0; i < lookup.length; i++) target[i] = lookup[i] < 0 ? 0 : table[values[lookup[i]]];
    }
    context.putImageData(image, 0, 0);
    if (coast) { // the picture ends at the region's line, not at the pixels'
      context.globalCompositeOperation = "destination-in";
      context.fill(coast, "evenodd");
      context.globalCompositeOperation = "source-over";
    }
    canvas.setAttribute("aria-label", layer.title);
  }
  let current = null;
  async function show(id) {
    current = spec.layers.find((l) => l.id === id) || spec.layers[0];
    if (narrow()) list.open = false;
    for (const radio of list.querySelectorAll("input")) radio.checked = radio.value === current.id;
    summary.textContent = narrow() ? "Layer: " + current.short : "Layers";
    drawLegend(current);
    await paint(current);
    root.dataset.layer = current.id;
    remember(); if (last) await tell(last);
  }

  // ---- value in words -----------------------------------------------------------------------------------------------------
  let last = null, pin = null;
  async function value(name, i) {
    const code = (await codes(name))[i];
    return code ? valueOf(spec.planes[name], code) : NaN;
  }
  async function words(i) {
    const r = spec.readout, unit = r.unit ? " " + r.unit : "";
    if (!r.median) {
      const v = await value(current.plane, i);
      return Number.isNaN(v) ? [] : [current.short + ": " + plain(v) + (current.unit ? " " + current.unit : "")];
    }
    const middle = await value("median", i);
    if (Number.isNaN(middle)) return [];
    const parts = [plain(middle) + unit];
    if (r.interval) parts.push(r.level + " prediction interval " + plain(await value("lower", i)) + " to " + plain(await value("upper", i)));
    for (const [text, name] of r.exceedance) parts.push("P(> " + text + ") " + percent(await value(name, i)));
    return parts;
  }
  async function tell(latlng) {
    last = latlng;
    const i = at(latlng), lon = ((latlng.lng + 180) % 360 + 360) % 360 - 180;
    const place = degrees(latlng.lat, "N", "S") + ", " + degrees(lon, "E", "W");
    const parts = i < 0 ? [] : await words(i);
    let more = "";
    if (parts.length && spec.readout.median && current && !current.suppress && !["median", "lower", "upper"].includes(current.plane)
        && !current.plane.startsWith("exceedance")) {
      const v = await value(current.plane, i);
      if (!Number.isNaN(v)) more = " · " + current.short + " " + plain(v) + (current.unit ? " " + current.unit : "");
    }
    if (last !== latlng) return; // the pointer has moved on
    if (!parts.length) parts.push(i >= 0 && (inside ? inside[i] : !spec.region) ? "No prediction here" : "Outside the mapped region");
    said.replaceChildren(...parts.flatMap((part, k) => [k ? " " : "", $("span", "", part + (k < parts.length - 1 ? ";" : ""))]));
    where.textContent = place + more;
  }
  map.on("mousemove", (e) => { if (!pin) tell(e.latlng); });
  map.on("click", (e) => {
    if (pin && pin.getLatLng().distanceTo(e.latlng) < 12 * 156543 / 2 ** map.getZoom()) { pin.remove(); pin = null; return; }
    if (pin) pin.setLatLng(e.latlng);
    else pin = L.circleMarker(e.latlng, { pane: "gg-lines", renderer: renderers.lines, interactive: false, radius: 6, color: "#fff", weight: 2, fillColor: "#1d2733", fillOpacity: 1 }).addTo(map);
    tell(e.latlng);
  });
  root.addEventListener("keydown", (e) => {
    root.classList.add("gg-keys");
    if (e.key === "Escape" && pin) { pin.remove(); pin = null; }
    if (!pin) tell(map.getCenter());
  });
  root.addEventListener("pointermove", () => root.classList.remove("gg-keys"));
  root.addEventListener("blur", () => root.classList.remove("gg-keys"));
  map.on("move", () => { if (root.classList.contains("gg-keys") && !pin) tell(map.getCenter()); });

  // ---- the address holds the view ---------------------------------------------------------------------------------------
  let settled = false;
  function remember() {
    if (!settled || !current) return;
    const c = map.getCenter(), text = "#" + [map.getZoom(), c.lat.toFixed(4), c.lng.toFixed(4), current.id].join("/");
    try { history.replaceState(null, "", text); } catch { /* a page without an address, as in a notebook */ }
  }
  let asked = [];
  try { asked = decodeURIComponent(location.hash.slice(1)).split("/"); } catch { /* not an address of ours */ }
  await show(asked[3] || spec.layers[0].id);
  if (asked.length === 4 && asked.slice(0, 3).every((v) => v !== "" && Number.isFinite(Number(v)))) map.setView([+asked[1], +asked[2]], +asked[0]);
  else fit();
  graticule(); settled = true;
  map.on("moveend", remember);
  said.textContent = narrow() ? "Tap the map for the value" : "Point at the map, or click to pin";
  where.textContent = "Keyboard: Tab to the map, then arrows, + and −";
  if (narrow()) where.textContent = "";
  root.dataset.ready = "true";
}
