/* The map of the dashboard: built once, then only pictures, legends and words change.
   Talks to this server only. Streamlit gives it an element, the setting (quarter, tests, level, threshold) and a way to
   say which place is marked; the address of the page holds the rest. */
import { coordinates, pair, wrap, written } from "./coordinates.js";
import { legend, list, make } from "./legend.js";
import { ask, picture, words } from "./server.js";

const SETTING = ["q", "n", "level", "t"];
const BLANK = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==";
const mounted = new WeakMap(); // element -> its map

/* Called by Streamlit when the element is there and whenever the setting changes; what it returns, when it goes. */
export default function ({ parentElement, data, setStateValue }) {
  if (!mounted.has(parentElement)) mounted.set(parentElement, mount(parentElement));
  const { settle, remove } = mounted.get(parentElement);
  settle(data.setting, (place) => setStateValue("at", place));
  return () => { mounted.delete(parentElement); remove(); };
}

const loaded = (node, into) => new Promise((done, failed) => {
  node.addEventListener("load", done);
  node.addEventListener("error", () => failed(new Error("no answer")));
  into.prepend(node);
});
/* Leaflet's style belongs to the element, its script to the page, once. */
const leaflet = (element) => Promise.all([
  loaded(Object.assign(make("link"), { rel: "stylesheet", href: "/geogp/map/leaflet.css" }), element),
  window.L || loaded(Object.assign(make("script"), { src: "/geogp/map/leaflet.js" }), document.head),
]);

function mount(element) {
  const $ = (id) => element.querySelector("#" + id);
  const frame = $("frame"), root = $("map"), flags = frame.dataset;
  const narrow = () => frame.clientWidth <= 700;

  // ---- the address ----------------------------------------------------------------------------------------------
  const given = new URLSearchParams(window.location.search);
  const finite = (name) => { const v = given.get(name); return v && Number.isFinite(Number(v)) ? Number(v) : null; };
  const state = { setting: null, layer: given.get("layer") || "median", mark: null, far: given.get("far") !== "0" };
  function remember() {
    if (!map || !state.setting) return;
    const url = new URL(window.location.href), p = url.searchParams, c = map.getCenter();
    for (const name of SETTING) if (state.setting[name] !== undefined) p.set(name, state.setting[name]); else p.delete(name);
    p.set("layer", state.layer); p.set("z", String(Math.round(map.getZoom() * 100) / 100));
    p.set("lat", c.lat.toFixed(4)); p.set("lon", wrap(c.lng).toFixed(4));
    if (state.mark) p.set("at", state.mark.map((v) => v.toFixed(5)).join(",")); else p.delete("at");
    if (state.far) p.delete("far"); else p.set("far", "0");
    if (url.href !== window.location.href) window.history.replaceState(window.history.state, "", url);
  }
  const asked = (more) => ({ ...state.setting, ...more, v: about.id }); // the address of a picture names the run

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
    flags.failed = "true";
  }
  $("again").addEventListener("click", () => {
    $("failed").hidden = true; delete flags.failed;
    if (retry) retry();
  });

  // ---- map: built once ----------------------------------------------------------------------------------------------
  let subtitle = "", fit = null, map = null, about = null, image = null, tiles = null, hatch = null, pin = null, lines = null, layers = [], similar = null;
  const here = (lat, lon) => { // on the turn of the world where the map lies
    const [w, , e] = about.bounds;
    return L.latLng(lat, lon + 360 * Math.round(((w + e) / 2 - lon) / 360));
  };
  function build() {
    map = L.map(root, { zoomSnap: .25, zoomDelta: .5, minZoom: 1, maxZoom: 16, worldCopyJump: false, attributionControl: false });
    L.control.attribution({ prefix: false }).addAttribution("GeoGP · Leaflet").addTo(map);
    L.control.scale({ imperial: false }).addTo(map);
    [["lines", 300], ["picture", 350], ["region", 400], ["mark", 620]].forEach(([name, z]) => {
      const pane = map.createPane(name);
      pane.style.zIndex = z; pane.style.pointerEvents = "none"; pane.classList.add(name);
    });
    const [w, s, e, n] = about.bounds;
    image = L.imageOverlay(BLANK, [[s, w], [n, e]], { pane: "picture", interactive: false, alt: "" }).addTo(map);
    if (about.outline) {
      L.geoJSON(about.outline, { pane: "region", renderer: L.svg({ pane: "region", padding: 1 }), interactive: false,
        style: { weight: 1.1, opacity: .8, fill: false } }).addTo(map);
    }
    lines = L.layerGroup().addTo(map);
    look();
    const renderer = L.svg({ pane: "lines", padding: .5 });
    map.on("moveend resize", () => { graticule(renderer); remember(); });
    graticule(renderer);
    listen();
  }
  function look() { // where the address says, else where people live
    const [w, s, e, n] = about.focus, z = finite("z"), lat = finite("lat"), lon = finite("lon");
    if (z !== null && lat !== null && lon !== null && Math.abs(lat) <= 85) {
      map.setView(here(lat, lon), Math.min(16, Math.max(1, z)));
      return;
    }
    fit = () => map.fitBounds([[s, w], [n, e]], narrow()
      ? { paddingTopLeft: [10, $("panel").offsetHeight + 10], paddingBottomRight: [10, 100] }
      : { paddingTopLeft: [300, 20], paddingBottomRight: [20, 90] });
    fit();
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
    $("list").replaceChildren(...list([...layers, ...(similar ? [similar] : [])], state.layer,
      (layer) => layer.id === "similar" && !state.mark ? "mark a place first" : "", choose));
  }
  function drawLegend(layer, note) {
    $("legend").replaceChildren(...legend(layer, layer.of ?? subtitle, note));
    $("layers").querySelector("summary").textContent = narrow() ? "Layer: " + layer.short : "Layers";
  }

  // ---- showing a layer ---------------------------------------------------------------------------------------------------
  let shown = 0;
  const layerNow = () => state.layer === "similar" && similar && state.mark ? similar
    : layers.find((l) => l.id === state.layer) || layers[0];
  const pictureOf = (id) => picture("layer/" + id + ".png", asked());
  async function show() {
    const mine = ++shown, layer = layerNow();
    state.layer = layer.id;
    const start = performance.now();
    for (const radio of $("list").querySelectorAll("input")) radio.checked = radio.value === layer.id;
    drawLegend(layer);
    remember();
    try {
      const { url, note } = await (layer.id === "similar" ? likeness(layer)
        : patiently("Computing the map", async () => ({ url: await pictureOf(layer.id) })));
      if (mine !== shown) return;
      image.setUrl(url); image.setOpacity(1);
      const painted = image.getElement();
      painted.alt = layer.title;
      await painted.decode().catch(() => {});
      if (mine !== shown) return;
      if (note) drawLegend(layer, note);
      detail(layer.id === "similar" ? null : layer.id);
      flags.layer = layer.id; flags.ready = "true";
      flags.took = String(Math.round(performance.now() - start));
      hatching().then(() => prefetch(mine));
    } catch (error) {
      if (mine === shown && layer.id === "similar" && error.said) { drawLegend(layer, error.message); detail(null); }
      else if (mine === shown) fail(error, show);
    }
    if (last) tell(last);
  }
  async function likeness(layer) {
    image.setOpacity(0); // until this place's own slice is there
    const at = asked({ lat: state.mark[0], lon: state.mark[1] });
    const url = await patiently("Comparing every place with this one", () => picture("slice.png", at));
    const found = await ask("slice", at);
    Object.assign(layer, found.legend);
    return { url, note: found.words };
  }
  function detail(id) { // squares from the model itself where the picture's pixels would show
    if (tiles) { tiles.remove(); tiles = null; }
    if (!id) return;
    tiles = L.tileLayer("/geogp/tiles/" + id + "/{z}/{x}/{y}.png?" + new URLSearchParams(asked()), { pane: "picture",
      minZoom: about.detail_from, maxZoom: 16, updateWhenIdle: true, keepBuffer: 1, zIndex: 1, noWrap: false }).addTo(map);
    tiles.on("load", () => { flags.detail = id; });
  }
  async function prefetch(mine) { // the layers people turn to next, one at a time
    for (const id of ["pi_width", "exceedance", "median"]) {
      if (mine !== shown) return;
      if (layers.some((l) => l.id === id)) {
        try { await pictureOf(id); } catch { return; }
      }
    }
    flags.prefetched = "true";
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
    const layer = layerNow(), parts = [written(at.lat, at.lng)];
    if (found.inside && layer && found.texts[layer.id] && !["median", "lower", "upper", "exceedance"].includes(layer.id)) {
      parts.push(layer.short + " " + found.texts[layer.id]);
    }
    if (found.inside && found.nearest_km !== undefined && found.nearest_km !== null) {
      parts.push("nearest tests " + (found.nearest_km < 1 ? "within 1 km" : found.nearest_km.toFixed(found.nearest_km < 10 ? 1 : 0) + " km away"));
    }
    $("said").textContent = found.inside ? found.words : "Outside the mapped region";
    $("where-said").textContent = parts.join(" · ");
    flags.said = at.lat.toFixed(4) + "," + wrap(at.lng).toFixed(4);
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
    if (!quiet) report(state.mark);
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
    map.on("dragstart", () => frame.classList.add("dragging")).on("dragend", () => frame.classList.remove("dragging"));
    root.addEventListener("keydown", (e) => {
      frame.classList.add("keys");
      if (e.key === "Enter") mark(map.getCenter());
      if (e.key === "Escape") mark(null);
      if (!marked) tell(map.getCenter());
    });
    root.addEventListener("pointermove", () => frame.classList.remove("keys"));
    root.addEventListener("blur", () => frame.classList.remove("keys"));
    map.on("move", () => { if (frame.classList.contains("keys") && !marked) tell(map.getCenter()); });
    L.DomEvent.disableClickPropagation($("panel")); L.DomEvent.disableScrollPropagation($("panel"));
  }

  // ---- search by coordinates ------------------------------------------------------------------------------------------------
  $("search").addEventListener("submit", (e) => {
    e.preventDefault();
    const found = coordinates($("where").value);
    $("search-said").textContent = found ? "" : "Write latitude, longitude in degrees, as 34.05, -143.2";
    if (!found) return;
    const latlng = here(...found);
    map.setView(latlng, Math.max(map.getZoom(), 10), { animate: false });
    mark(latlng);
  });
  $("layers").addEventListener("toggle", () => $("panel").classList.toggle("open", $("layers").open));

  // ---- the setting, from Streamlit --------------------------------------------------------------------------------------------
  let report = null, opening = null;
  async function settle(setting, reporting) {
    report = reporting;
    if (JSON.stringify(state.setting) === JSON.stringify(setting)) return;
    state.setting = setting;
    await refresh();
  }
  async function refresh() {
    const setting = state.setting;
    try {
      if (!map) {
        opening = opening || Promise.all([patiently("Opening the run", () => ask("about", {})), leaflet(element)]);
        [about] = await opening;
        if (!map) build();
      }
      const found = await patiently("Reading the legend", () => ask("layers", setting));
      if (state.setting !== setting) return;
      ({ layers, similar, subtitle } = found);
      state.setting = found.setting;
      if (found.id !== about.id) { // the run was fitted again behind this page
        window.location.reload(); return;
      }
      if (!state.begun) begin();
      drawList();
      drawLegend(layerNow());
      if (fit) { fit(); fit = null; } // again, now that the panel has its height
      await show();
      if (marked) tell(marked);
    } catch (error) { opening = null; fail(error, refresh); }
  }
  function begin() {
    state.begun = true;
    $("said").textContent = narrow() ? "Tap the map for the value" : "Point at the map, click to mark a place";
    $("where-said").textContent = narrow() ? "" : "Keyboard: Tab to the map, arrows and + −, Enter marks";
    const start = pair(given.get("at"));
    if (start) mark(here(...start), true);
  }
  if (narrow()) $("layers").open = false;
  const resized = new ResizeObserver(() => { if (map) map.invalidateSize({ pan: false }); });
  resized.observe(frame);
  return { settle, remove: () => { resized.disconnect(); if (map) map.remove(); } };
}
