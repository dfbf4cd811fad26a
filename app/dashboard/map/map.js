/* The map of the dashboard: built once, then only pictures, legends and words change.
   Talks to this server only. Text from data is set through textContent. Inside Streamlit it takes the setting
   (quarter, tests, level, threshold) from the page and gives back the marked place; alone it takes all from its address. */
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const make = (tag, name, text) => {
    const node = document.createElement(tag);
    if (name) node.className = name;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const embedded = window.parent !== window;
  const outer = embedded ? window.parent : window; // same origin; its address holds the view
  const narrow = () => window.innerWidth <= 700;
  const degrees = (v, plus, minus) => Math.abs(v).toFixed(4) + "° " + (v < 0 ? minus : plus);
  const wrap = (lon) => ((lon + 180) % 360 + 360) % 360 - 180;

  // ---- the address ----------------------------------------------------------------------------------------------
  const SETTING = ["q", "n", "level", "t"];
  const given = new URLSearchParams(outer.location.search);
  const finite = (name) => { const v = given.get(name); return v && Number.isFinite(Number(v)) ? Number(v) : null; };
  const state = { setting: null, layer: given.get("layer") || "median", mark: null, far: given.get("far") !== "0" };
  const parsePair = (text) => {
    const pair = (text || "").split(",").map(Number);
    return pair.length === 2 && text.split(",").every((p) => p.trim() !== "") && pair.every(Number.isFinite)
      && Math.abs(pair[0]) <= 90 && Math.abs(pair[1]) <= 360 ? pair : null;
  };
  function remember() {
    if (!map || !state.setting) return;
    const url = new URL(outer.location.href), p = url.searchParams, c = map.getCenter();
    for (const name of SETTING) if (state.setting[name] !== undefined) p.set(name, state.setting[name]); else p.delete(name);
    p.set("layer", state.layer); p.set("z", String(Math.round(map.getZoom() * 100) / 100));
    p.set("lat", c.lat.toFixed(4)); p.set("lon", wrap(c.lng).toFixed(4));
    if (state.mark) p.set("at", state.mark.map((v) => v.toFixed(5)).join(",")); else p.delete("at");
    if (state.far) p.delete("far"); else p.set("far", "0");
    if (url.href !== outer.location.href) outer.history.replaceState(outer.history.state, "", url);
  }

  // ---- asking the server ----------------------------------------------------------------------------------------
  async function answer(path, params, options) {
    const response = await fetch("/geogp/" + path + "?" + new URLSearchParams(params), options);
    if (!response.ok) {
      let said = "The server answered " + response.status + ".";
      try { said = (await response.json()).error || said; } catch { /* not ours */ }
      throw Object.assign(new Error(said), { said: true });
    }
    return response;
  }
  const ask = async (path, params, options) => (await answer(path, params, options)).json();
  const words = (error) => error.said ? error.message
    : "The dashboard does not answer; is `geogp app` still running?";

  const pictures = new Map(); // address -> blob address, the latest 40
  async function picture(path, params) {
    const key = path + "?" + new URLSearchParams(params);
    if (!pictures.has(key)) {
      const blob = await (await answer(path, params)).blob();
      pictures.set(key, URL.createObjectURL(blob));
      if (pictures.size > 40) {
        const [old, url] = pictures.entries().next().value;
        URL.revokeObjectURL(url); pictures.delete(old);
      }
    }
    return pictures.get(key);
  }

  // ---- waiting and failing ----------------------------------------------------------------------------------------
  let waiting = 0;
  async function patiently(what, work) {
    waiting++;
    let over = false;
    const poll = async () => {
      if (over) return;
      let now = {};
      try { now = await (await fetch("/geogp/progress")).json(); } catch { /* the work itself will say */ }
      if (over) return;
      $("busy").hidden = false;
      $("busy-text").textContent = (now.what || what) + " …";
      if (now.total) $("busy-bar").value = now.done / now.total; else $("busy-bar").removeAttribute("value");
      setTimeout(poll, 250);
    };
    setTimeout(poll, 180); // quick work shows nothing
    try { return await work(); }
    finally { over = true; if (!--waiting) $("busy").hidden = true; }
  }
  let retry = null;
  function fail(error, again) {
    $("failed-text").textContent = words(error);
    $("failed").hidden = false; retry = again;
    document.documentElement.dataset.failed = "true";
  }
  $("again").addEventListener("click", () => {
    $("failed").hidden = true; delete document.documentElement.dataset.failed;
    if (retry) retry();
  });

  // ---- map: built once ----------------------------------------------------------------------------------------------
  let subtitle = "", fit = null, map = null, about = null, image = null, tiles = null, hatch = null, pin = null, lines = null, layers = [], similar = null;
  function build() {
    map = L.map("map", { zoomSnap: .25, zoomDelta: .5, minZoom: 1, maxZoom: 16, worldCopyJump: false, attributionControl: false });
    L.control.attribution({ prefix: false }).addAttribution("GeoGP · Leaflet").addTo(map);
    L.control.scale({ imperial: false }).addTo(map);
    [["lines", 300], ["picture", 350], ["region", 400], ["mark", 620]].forEach(([name, z]) => {
      const pane = map.createPane(name);
      pane.style.zIndex = z; pane.style.pointerEvents = "none"; pane.classList.add(name);
    });
    const [w, s, e, n] = about.bounds;
    const bounds = L.latLngBounds([s, w], [n, e]);
    image = L.imageOverlay("data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==", bounds,
      { pane: "picture", interactive: false, alt: "" }).addTo(map);
    if (about.outline) {
      L.geoJSON(about.outline, { pane: "region", renderer: L.svg({ pane: "region", padding: 1 }), interactive: false,
        style: { weight: 1.1, opacity: .8, fill: false } }).addTo(map);
    }
    lines = L.layerGroup().addTo(map);
    const [fw, fs, fe, fn] = about.focus;
    fit = () => map.fitBounds([[fs, fw], [fn, fe]], narrow()
      ? { paddingTopLeft: [10, $("panel").offsetHeight + 10], paddingBottomRight: [10, 100] }
      : { paddingTopLeft: [300, 20], paddingBottomRight: [20, 90] });
    const z = finite("z"), lat = finite("lat"), lon = finite("lon");
    if (z !== null && lat !== null && lon !== null && Math.abs(lat) <= 85) {
      const turn = 360 * Math.round(((w + e) / 2 - lon) / 360);
      map.setView([lat, lon + turn], Math.min(16, Math.max(1, z)));
      fit = null; // the address says where to look
    } else fit();
    const renderer = L.svg({ pane: "lines", padding: .5 });
    map.on("moveend resize", () => { graticule(renderer); remember(); });
    graticule(renderer);
    listen();
  }
  function graticule(renderer) {
    lines.clearLayers();
    const b = map.getBounds(), span = Math.max(b.getEast() - b.getWest(), b.getNorth() - b.getSouth());
    const step = [.01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 30].find((s) => span / s <= 8) || 45;
    const digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
    const style = { pane: "lines", renderer, interactive: false, weight: .7 };
    const size = map.getSize();
    const label = (latlng, text) => narrow() || L.marker(latlng, { pane: "lines", interactive: false, keyboard: false,
      icon: L.divIcon({ className: "degree", html: make("span", "", text), iconSize: null, iconAnchor: [-3, 14] }) }).addTo(lines);
    for (let k = Math.ceil(b.getWest() / step); k * step <= b.getEast(); k++) {
      L.polyline([[-85, k * step], [85, k * step]], style).addTo(lines);
      label([map.containerPointToLatLng([0, 16]).lat, k * step], Math.abs(wrap(k * step)).toFixed(digits) + "° " + (wrap(k * step) < 0 ? "W" : "E"));
    }
    for (let k = Math.ceil(b.getSouth() / step); k * step <= b.getNorth(); k++) {
      L.polyline([[k * step, b.getWest() - span], [k * step, b.getEast() + span]], style).addTo(lines);
      label([k * step, map.containerPointToLatLng([size.x - 56, 0]).lng], Math.abs(k * step).toFixed(digits) + "° " + (k < 0 ? "S" : "N"));
    }
  }

  // ---- list of layers and legend ---------------------------------------------------------------------------------------
  function drawList() {
    const groups = new Map();
    $("list").replaceChildren();
    for (const layer of [...layers, ...(similar ? [similar] : [])]) {
      if (!groups.has(layer.group)) {
        const field = make("fieldset");
        field.append(make("legend", "", layer.group));
        groups.set(layer.group, field); $("list").append(field);
      }
      const label = make("label"), radio = make("input");
      Object.assign(radio, { type: "radio", name: "layer", value: layer.id });
      radio.checked = layer.id === state.layer;
      radio.disabled = layer.id === "similar" && !state.mark;
      radio.addEventListener("change", () => choose(layer.id));
      label.append(radio, make("span", "", layer.short + (radio.disabled ? " (mark a place first)" : "")));
      label.title = layer.about;
      groups.get(layer.group).append(label);
    }
  }
  function ticks(marks) {
    const box = make("div", "ticks");
    for (const [at, text] of marks) {
      const line = make("i"), label = make("span", "", text);
      line.style.left = label.style.left = 100 * at + "%";
      box.append(line, label);
    }
    return box;
  }
  function drawLegend(layer, note) {
    const heading = make("h2", "", layer.title + " ");
    if (layer.unit) heading.append(make("span", "", "(" + layer.unit + ")"));
    $("legend").replaceChildren(heading);
    if (layer.grid) {
      const grid = make("div", "faded");
      layer.grid.forEach((row, i) => {
        const cells = make("div", "row");
        for (const colour of row) { const cell = make("b"); cell.style.background = colour; cells.append(cell); }
        grid.append(cells, make("span", "", layer.words[i]));
      });
      grid.append(ticks(layer.ticks), make("span", "", "interval"));
      $("legend").append(grid);
    } else {
      const ramp = make("div", "ramp");
      if (layer.ramp.length) ramp.style.background = "linear-gradient(to right," + layer.ramp.join() + ")";
      $("legend").append(ramp, ticks(layer.ticks));
    }
    $("legend").append(make("p", "of", subtitle), make("p", "", note || layer.about));
    $("layers").querySelector("summary").textContent = narrow() ? "Layer: " + layer.short : "Layers";
  }

  // ---- showing a layer ---------------------------------------------------------------------------------------------------
  let shown = 0;
  const layerNow = () => state.layer === "similar" && similar && state.mark ? similar
    : layers.find((l) => l.id === state.layer) || layers[0];
  async function show() {
    const mine = ++shown, layer = layerNow();
    state.layer = layer.id;
    const start = performance.now();
    for (const radio of $("list").querySelectorAll("input")) radio.checked = radio.value === layer.id;
    drawLegend(layer);
    remember();
    try {
      let url, note;
      if (layer.id === "similar") {
        image.setOpacity(0); // until this place's own slice is there
        const at = { ...state.setting, lat: state.mark[0], lon: state.mark[1], v: about.id };
        url = await patiently("Comparing every place with this one", () => picture("slice.png", at));
        const found = await ask("slice", at);
        Object.assign(layer, found.legend);
        note = found.words;
      } else {
        url = await patiently("Computing the map", () => picture("layer/" + layer.id + ".png", { ...state.setting, v: about.id }));
      }
      if (mine !== shown) return;
      image.setUrl(url); image.setOpacity(1);
      const element = image.getElement();
      element.alt = layer.title;
      await element.decode().catch(() => {});
      if (mine !== shown) return;
      if (note) drawLegend(layer, note);
      detail(layer.id === "similar" ? null : layer.id);
      const root = document.documentElement;
      root.dataset.layer = layer.id; root.dataset.ready = "true";
      root.dataset.took = String(Math.round(performance.now() - start));
      hatching().then(() => prefetch(mine));
    } catch (error) {
      if (mine === shown && layer.id === "similar" && error.said) { drawLegend(layer, error.message); detail(null); }
      else if (mine === shown) fail(error, show);
    }
    if (last) tell(last);
  }
  function detail(id) { // squares from the model itself where the picture's pixels would show
    if (tiles) { tiles.remove(); tiles = null; }
    if (!id) return;
    const query = new URLSearchParams({ ...state.setting, v: about.id });
    tiles = L.tileLayer("/geogp/tiles/" + id + "/{z}/{x}/{y}.png?" + query, { pane: "picture", minZoom: about.detail_from,
      maxZoom: 16, updateWhenIdle: true, keepBuffer: 1, zIndex: 1, noWrap: false }).addTo(map);
    tiles.on("load", () => { document.documentElement.dataset.detail = id; });
  }
  async function prefetch(mine) { // the layers people turn to next, one at a time
    for (const id of ["pi_width", "exceedance", "median"]) {
      if (mine !== shown) return;
      if (layers.some((l) => l.id === id)) {
        try { await picture("layer/" + id + ".png", { ...state.setting, v: about.id }); } catch { return; }
      }
    }
    document.documentElement.dataset.prefetched = "true";
  }
  function choose(id) {
    state.layer = id;
    if (narrow()) $("layers").open = false;
    show();
  }
  async function hatching() {
    $("far-line").hidden = !about.far_km;
    if (!about.far_km) return;
    $("far-text").textContent = "no test within " + about.far_km + " km";
    $("far").checked = state.far;
    if (state.far && !hatch) {
      try {
        const url = await picture("layer/far.png", { v: about.id });
        hatch = L.imageOverlay(url, image.getBounds(), { pane: "picture", interactive: false, alt: "", opacity: .35, zIndex: 2 });
      } catch { return; }
    }
    if (hatch) if (state.far) hatch.addTo(map); else hatch.remove();
  }
  $("far").addEventListener("change", () => { state.far = $("far").checked; hatching(); remember(); });

  // ---- value in words -----------------------------------------------------------------------------------------------------
  let last = null, asking = false, marked = null;
  async function tell(latlng) { // one question at a time; the latest place wins
    last = latlng;
    if (asking) return;
    asking = true;
    try {
      while (last) {
        const at = last, lon = wrap(at.lng);
        last = null;
        if (Math.abs(at.lat) > 90) continue;
        const found = await ask("value", { ...state.setting, lat: at.lat.toFixed(6), lon: lon.toFixed(6) });
        say(found, at);
      }
    } catch (error) { $("said").textContent = words(error); $("where-said").textContent = ""; }
    finally { asking = false; }
    last = marked;
  }
  function say(found, at) {
    const layer = layerNow(), parts = [degrees(at.lat, "N", "S") + ", " + degrees(wrap(at.lng), "E", "W")];
    if (found.inside && layer && found.texts[layer.id] && !["median", "lower", "upper", "exceedance"].includes(layer.id)) {
      parts.push(layer.short + " " + found.texts[layer.id]);
    }
    if (found.inside && found.nearest_km !== undefined && found.nearest_km !== null) {
      parts.push("nearest tests " + (found.nearest_km < 1 ? "within 1 km" : found.nearest_km.toFixed(found.nearest_km < 10 ? 1 : 0) + " km away"));
    }
    $("said").textContent = found.inside ? found.words : "Outside the mapped region";
    $("where-said").textContent = parts.join(" · ");
    document.documentElement.dataset.said = at.lat.toFixed(4) + "," + wrap(at.lng).toFixed(4);
  }
  function mark(latlng, quiet) {
    marked = latlng;
    state.mark = latlng ? [latlng.lat, wrap(latlng.lng)] : null;
    if (!latlng) { if (pin) pin.remove(); pin = null; }
    else if (pin) pin.setLatLng(latlng);
    else {
      pin = L.circleMarker(latlng, { pane: "mark", renderer: L.svg({ pane: "mark", padding: 1 }), interactive: false,
        radius: 7, color: "#fff", weight: 2.5, fillColor: "#b3261e", fillOpacity: 1 }).addTo(map);
    }
    drawList();
    if (latlng) tell(latlng);
    if (state.layer === "similar") show(); else remember();
    if (!quiet) report();
  }
  function listen() {
    let hovering = 0;
    map.on("mousemove", (e) => {
      if (marked) return;
      clearTimeout(hovering);
      hovering = setTimeout(() => tell(e.latlng), 25);
    });
    map.on("click", (e) => {
      if (pin && map.latLngToContainerPoint(pin.getLatLng()).distanceTo(e.containerPoint) < 11) { mark(null); return; }
      mark(e.latlng);
    });
    const root = $("map");
    root.addEventListener("keydown", (e) => {
      document.body.classList.add("keys");
      if (e.key === "Enter") mark(map.getCenter());
      if (e.key === "Escape") mark(null);
      if (!marked) tell(map.getCenter());
    });
    root.addEventListener("pointermove", () => document.body.classList.remove("keys"));
    root.addEventListener("blur", () => document.body.classList.remove("keys"));
    map.on("move", () => { if (document.body.classList.contains("keys") && !marked) tell(map.getCenter()); });
    L.DomEvent.disableClickPropagation($("panel")); L.DomEvent.disableScrollPropagation($("panel"));
  }

  // ---- search by coordinates ------------------------------------------------------------------------------------------------
  function coordinates(text) { // "21.31, -157.86", "21.31 N 157.86 W", "21 18 36 N, 157 51 30 W"
    const parts = text.toUpperCase().replace(/[°'"′″º]/g, " ").match(/[NSEW]|[-+]?\d+(?:\.\d+)?/g);
    if (!parts) return null;
    const groups = [];
    let now = { numbers: [], side: "" };
    const numbers = parts.filter((p) => !/[NSEW]/.test(p));
    if (numbers.length === parts.length) {
      if (numbers.length !== 2) return null;
      groups.push({ numbers: [numbers[0]], side: "" }, { numbers: [numbers[1]], side: "" });
    } else {
      for (const part of parts) {
        if (/[NSEW]/.test(part)) { now.side = part; groups.push(now); now = { numbers: [], side: "" }; } else now.numbers.push(part);
      }
      if (groups.length !== 2 || now.numbers.length) return null;
    }
    const value = ({ numbers: n, side }) => {
      const v = n.map(Number);
      if (!v.length || v.length > 3) return NaN;
      const size = Math.abs(v[0]) + (v[1] || 0) / 60 + (v[2] || 0) / 3600;
      return (String(n[0]).startsWith("-") ? -1 : 1) * size * (side === "S" || side === "W" ? -1 : 1);
    };
    if ("EW".includes(groups[0].side || "-") && groups[0].side) groups.reverse();
    if ("NS".includes(groups[1].side || "-") && groups[1].side) return null;
    const lat = value(groups[0]), lon = value(groups[1]);
    return Math.abs(lat) <= 90 && Math.abs(lon) <= 360 ? [lat, lon] : null;
  }
  $("search").addEventListener("submit", (e) => {
    e.preventDefault();
    const pair = coordinates($("where").value);
    $("search-said").textContent = pair ? "" : "Write latitude, longitude in degrees, as 34.05, -143.2";
    if (!pair) return;
    const [w, , east] = about.bounds, turn = 360 * Math.round(((w + east) / 2 - pair[1]) / 360);
    const latlng = L.latLng(pair[0], pair[1] + turn);
    map.setView(latlng, Math.max(map.getZoom(), 10), { animate: false });
    mark(latlng);
  });
  $("layers").addEventListener("toggle", () => $("panel").classList.toggle("open", $("layers").open));

  // ---- Streamlit ----------------------------------------------------------------------------------------------------------
  const send = (type, more) => window.parent.postMessage({ isStreamlitMessage: true, type, ...more }, location.origin);
  function report() {
    if (embedded) send("streamlit:setComponentValue", { dataType: "json", value: state.mark ? { at: state.mark } : { at: null } });
  }
  let height = 0;
  function size() {
    if (!embedded) return;
    const tall = outer.innerHeight, want = outer.innerWidth <= 700 ? Math.max(420, Math.round(.8 * tall)) : Math.max(460, tall - 150);
    if (want !== height) { height = want; send("streamlit:setFrameHeight", { height }); }
  }
  async function settle(setting) {
    const text = JSON.stringify(setting);
    if (state.setting && JSON.stringify(state.setting) === text) return;
    state.setting = setting;
    await refresh();
  }
  async function refresh() {
    const setting = state.setting;
    try {
      if (!about) {
        about = await patiently("Opening the run", () => ask("about", {}));
        if (!map) build();
      }
      const found = await patiently("Reading the legend", () => ask("layers", setting));
      if (state.setting !== setting) return;
      ({ layers, similar, subtitle } = found);
      state.setting = found.setting;
      if (found.id !== about.id) { // the run was fitted again behind this page
        outer.location.reload(); return;
      }
      const start = parsePair(given.get("at"));
      if (start && !state.begun) {
        const [w, , e] = about.bounds;
        mark(L.latLng(start[0], start[1] + 360 * Math.round(((w + e) / 2 - start[1]) / 360)), true);
      }
      if (!state.begun) {
        $("said").textContent = narrow() ? "Tap the map for the value" : "Point at the map, click to mark a place";
        $("where-said").textContent = narrow() ? "" : "Keyboard: Tab to the map, arrows and + −, Enter marks";
        state.begun = true;
      }
      drawList();
      drawLegend(layerNow());
      if (fit) { fit(); fit = null; } // again, now that the panel has its height
      await show();
      if (marked) tell(marked);
    } catch (error) { fail(error, () => refresh()); }
  }
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const theme = (base) => { document.documentElement.dataset.theme = base === "dark" ? "dark" : "light"; };
  theme(dark.matches ? "dark" : "light");
  if (narrow()) $("layers").open = false;
  if (embedded) {
    window.addEventListener("message", (event) => {
      if (event.source !== window.parent || event.origin !== location.origin || event.data?.type !== "streamlit:render") return;
      if (event.data.theme) theme(event.data.theme.base);
      size();
      settle(event.data.args.setting);
    });
    outer.addEventListener("resize", size);
    send("streamlit:componentReady", { apiVersion: 1 });
    size();
  } else {
    settle(Object.fromEntries(SETTING.filter((n) => given.get(n)).map((n) => [n, given.get(n)])));
  }
})();
