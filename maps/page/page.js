/* The map page: one script for the dashboard and for the file that is mailed. One state is wanted, one is shown; what is
   shown is of one quarter, and grey while another is on its way. */
async function geogpPage(spec, map) {
  const $ = (id) => document.getElementById(id), frame = $("frame"), flags = frame.dataset;
  const source = spec.server ? serverSource(spec) : insideSource(spec);
  const runs = source.server && spec.runs || [], others = othersOf(spec, source);
  spec.layers = spec.layers.filter((l) => l.id !== "either" || runs.length > 1);
  const narrow = () => frame.clientWidth <= 760, S = spec.settings;
  const root = map.getContainer();
  for (const name of ["role", "aria-label"]) root.setAttribute(name, $("map").getAttribute(name));
  $("map").replaceWith(root);
  map.invalidateSize({ pan: false });

  // ---- the address -----------------------------------------------------------------------------------------------
  const address = () => new URLSearchParams(source.server ? location.search : location.hash.slice(1));
  const p = address(), number = (name) => { const v = p.get(name); return v && Number.isFinite(Number(v)) ? Number(v) : null; };
  const own = (name) => p.has("of") && p.get("of") !== spec.of ? null : number(name); // a limit of other values means nothing here
  const nearest = (list, v) => list.reduce((a, b) => Math.abs(Math.log(b / v)) < Math.abs(Math.log(a / v)) ? b : a);
  const bounded = (t) => t !== null && Number.isFinite(t) && t <= S.most && (S.positive ? t >= S.least : t >= -S.most);
  const wanted = {
    quarter: S.quarters.includes(p.get("q")) ? p.get("q") : spec.start.q,
    tests: S.counts.length && own("n") > 0 ? nearest(S.counts, own("n")) : spec.start.n,
    level: S.levels.find((l) => Math.abs(100 * l - number("level")) < 1e-6) ?? spec.start.level,
    threshold: bounded(own("t")) && (S.free || S.thresholds.includes(own("t"))) ? own("t") : spec.start.t,
    other: runs.includes(p.get("other")) && p.get("other") !== spec.run ? p.get("other") : runs.find((name) => name !== spec.run) ?? null,
    limit: own("ot") > 0 ? own("ot") : null,
  };
  const state = { layer: p.get("layer") || "", fade: p.get("fade") !== "0", far: p.get("far") !== "0", mark: null };
  let atlas = null, shown = null, settled = false, beside = null, drawing = null, detail = null, far = null;
  function remember() {
    if (!settled) return;
    const q = address(), c = map.getCenter();
    const put = (name, value) => value === null || value === undefined ? q.delete(name) : q.set(name, value);
    put("q", wanted.quarter || null); put("n", wanted.tests); put("level", short(100 * wanted.level)); put("t", short(wanted.threshold)); put("of", spec.of);
    put("layer", state.layer); put("z", String(Math.round(map.getZoom() * 100) / 100)); put("lat", c.lat.toFixed(4)); put("lon", wrap(c.lng).toFixed(4));
    const pair = state.layer === "either";
    put("other", pair ? wanted.other : null); put("ot", pair ? wanted.limit : null); beside?.put(put); drawing?.put(put);
    put("at", state.mark ? state.mark.map((v) => v.toFixed(5)).join(",") : null); put("fade", state.fade ? null : "0"); put("far", state.far ? null : "0");
    try { history.replaceState(null, "", (source.server ? "?" : "#") + q); } catch { /* a page without an address, as in a notebook */ }
    for (const a of $("pages").querySelectorAll("a")) a.search = "?" + q;
  }

  // ---- map: region, picture, lines, names ------------------------------------------------------------------------------
  map.attributionControl.setPrefix(false); map.attributionControl.addAttribution("GeoGP · Leaflet");
  const grid = gridOf(spec);
  [["lines", 300], ["picture", 350], ["borders", 390], ["region", 400], ["areas", 410], ["names", 450], ["mark", 620]].forEach(([name, z]) => {
    const pane = map.createPane(name);
    pane.style.zIndex = z; pane.style.pointerEvents = "none"; pane.classList.add(name);
  });
  const Painted = L.ImageOverlay.extend({
    _initImage() {
      const image = this._image = this._url;
      image.classList.add("leaflet-image-layer", "leaflet-zoom-animated"); image.setAttribute("role", "img");
    },
  });
  const svg = (pane) => L.svg({ pane, padding: 1 });
  map.setView(grid.bounds.getCenter(), 7, { animate: false });
  new Painted(grid.canvas, grid.bounds, { pane: "picture", interactive: false }).addTo(map);
  if (spec.region) L.geoJSON(spec.region, { pane: "region", renderer: svg("region"), interactive: false, smoothFactor: .4, style: { weight: 1.1, opacity: .8, fill: false } }).addTo(map);
  const home = () => map.fitBounds(spec.focus, { animate: false, ...(narrow() ? { paddingTopLeft: [12, $("panel").offsetHeight + 12], paddingBottomRight: [12, 90] }
    : { paddingTopLeft: [300, 24], paddingBottomRight: [state.mark ? 346 : 24, 90] }) });
  const here = (lat, lon) => {
    const middle = grid.bounds.getCenter().lng;
    return L.latLng(lat, lon + 360 * Math.round((middle - lon) / 360));
  };
  const lines = L.layerGroup().addTo(map), renderer = svg("lines"), names = L.layerGroup().addTo(map);
  const borders = L.layerGroup().addTo(map), onBorders = svg("borders");
  function outline(found, middle) { // lines of counties, around the middle of the map
    borders.clearLayers();
    if (found.length) L.polyline(found.map((line) => line.map(([lon, lat]) => [lat, lon + 360 * Math.round((middle - lon) / 360)])), { pane: "borders", renderer: onBorders, interactive: false, weight: .8, opacity: .55, smoothFactor: .5, fill: false }).addTo(borders);
  }
  outline(spec.lines, grid.bounds.getCenter().lng);
  const label = (group, pane, latlng, name, text, anchor) => L.marker(latlng, { pane, interactive: false, keyboard: false,
    icon: L.divIcon({ className: "", html: make("span", name, text), iconSize: null, iconAnchor: anchor }) }).addTo(group);
  const covered = () => { // what stands on the map: [left, top, right, bottom] each, in its pixels
    const o = root.getBoundingClientRect();
    return [$("panel"), $("place"), $("area"), $("readout"), root.querySelector(".leaflet-control-zoom")].filter(Boolean).map((node) => node.getBoundingClientRect()).filter((r) => r.width).map((r) => [r.left - o.left, r.top - o.top, r.right - o.left, r.bottom - o.top]);
  };
  let degrees = []; // where their labels stand
  const overlap = (a, b) => a[0] < b[2] && a[2] > b[0] && a[1] < b[3] && a[3] > b[1];
  function graticule() {
    lines.clearLayers(); degrees = [];
    const taken = covered(), free = (x, y) => !taken.some((o) => overlap([x - 4, y - 9, x + 52, y + 9], o));
    const b = map.getBounds(), span = Math.max(b.getEast() - b.getWest(), b.getNorth() - b.getSouth());
    const step = [.01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 30].find((s) => span / s <= 8) || 45, digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
    const style = { pane: "lines", renderer, interactive: false, weight: .7 }, size = map.getSize();
    for (let k = Math.ceil(b.getWest() / step); k * step <= b.getEast(); k++) {
      const lon = k * step, w = wrap(lon);
      L.polyline([[-85, lon], [85, lon]], style).addTo(lines);
      const x = map.latLngToContainerPoint([0, lon]).x;
      if (!narrow() && free(x, 8)) degrees.push([x - 4, -1, x + 48, 17]) && label(lines, "names", [map.containerPointToLatLng([0, 16]).lat, lon], "degree", Math.abs(w).toFixed(digits) + "°" + (w % 180 === 0 ? "" : w < 0 ? " W" : " E"), [-3, 14]);
    }
    for (let k = Math.ceil(b.getSouth() / step); k * step <= b.getNorth(); k++) {
      L.polyline([[k * step, b.getWest() - span], [k * step, b.getEast() + span]], style).addTo(lines);
      const y = map.latLngToContainerPoint([k * step, 0]).y - 5, x = [size.x - 56, size.x - 390].find((at) => free(at, y));
      if (!narrow() && x) degrees.push([x - 4, y - 9, x + 48, y + 9]) && label(lines, "names", [k * step, map.containerPointToLatLng([x, 0]).lng], "degree", Math.abs(k * step).toFixed(digits) + "°" + (k === 0 ? "" : k < 0 ? " S" : " N"), [-3, 14]);
    }
  }
  const areaNames = spec.places.filter((place) => place.kind === "area");
  let townNames = spec.places.filter((place) => place.kind !== "area");
  const same = (a, b) => a.name === b.name && Math.abs(a.lat - b.lat) + Math.abs(a.lon - b.lon) < .01;
  const largest = townNames, met = [...townNames]; // all that were ever in sight: the place marked may be elsewhere
  const meet = (places) => { for (const place of places) if (place.kind !== "area" && !met.some((o) => same(o, place))) met.push(place); };
  function towns() { // the largest that do not stand in each other's way; islands and counties where their names have room
    names.clearLayers();
    const taken = [...covered(), ...degrees], b = map.getBounds().pad(.02), most = taken.length + (narrow() ? 8 : 16), size = map.getSize();
    const put = (place, latlng, box, name, anchor) => {
      if (taken.length >= most || !b.contains(latlng) || taken.some((o) => overlap(box, o))) return;
      taken.push(box);
      Object.assign(label(names, "names", latlng, name, place.name, anchor), { place });
    };
    const town = (place) => {
      const latlng = here(place.lat, place.lon), at = map.latLngToContainerPoint(latlng), wide = 14 + 7 * place.name.length, west = at.x + wide > size.x && at.x > wide;
      put(place, latlng, west ? [at.x - wide, at.y - 9, at.x + 4, at.y + 9] : [at.x - 4, at.y - 9, at.x + wide, at.y + 9], west ? "town west" : "town", [3, 9]);
    };
    const near = townNames.filter((place) => b.contains(here(place.lat, place.lon))), first = spec.closer ? 8 : 3; // of a nation's counties there is no end
    near.slice(0, first).forEach(town);
    for (const place of areaNames) {
      const latlng = here(place.lat, place.lon), at = map.latLngToContainerPoint(latlng), half = 4 + 4 * place.name.length, [w, s, e, n] = place.bounds;
      const a = map.latLngToContainerPoint(here(n, w)), z = map.latLngToContainerPoint(here(s, e)), wide = z.x - a.x;
      if (wide > 1.2 * half && wide < 1.5 * size.x) put(place, latlng, [at.x - half, at.y - 8, at.x + half, at.y + 8], "area", [0, 8]);
    }
    near.slice(first).forEach(town);
  }

  let closeBy = null, namesAsked = null; // names and lines of the part in sight, of a region that has too many
  async function closer() {
    if (!spec.closer || !source.server) return;
    const b = map.getBounds(), within = closeBy && L.latLngBounds(closeBy.bounds).contains(b), whole = grid.bounds.getEast() - grid.bounds.getWest(), wide = b.getEast() - b.getWest();
    if (wide > whole / 4) {
      namesAsked?.abort();
      if (closeBy) { closeBy = null; townNames = largest; outline(spec.lines, grid.bounds.getCenter().lng); towns(); flags.names = ""; }
      return;
    }
    if (within && closeBy.wide < 3 * wide) return;
    namesAsked?.abort();
    const mine = namesAsked = new AbortController(), box = b.pad(.3);
    try {
      await new Promise((done) => setTimeout(done, 100));
      if (mine.signal.aborted) return;
      const found = await source.names({ box: [wrap(box.getWest()), box.getSouth(), wrap(box.getWest()) + box.getEast() - box.getWest(), box.getNorth()].map((v) => v.toFixed(4)).join() }, mine.signal);
      if (mine.signal.aborted) return;
      closeBy = { bounds: box, wide };
      townNames = [...found.places, ...largest.filter((place) => !found.places.some((o) => same(o, place)))].sort((a, c) => (c.people || 0) - (a.people || 0));
      meet(found.places);
      outline(found.lines, grid.bounds.getCenter().lng); towns(); flags.names = String(found.places.length);
      if (last) tell(last);
    } catch (error) { if (error.name !== "AbortError") closeBy = null; } // those of the whole region are there
  }

  // ---- words ----------------------------------------------------------------------------------------------------------
  $("title").textContent = spec.title; document.title = spec.title; $("note").textContent = spec.note;
  for (const [name, text] of spec.facts) $("facts").append(make("dt", "", name), make("dd", "", text));
  if (runs.length > 1) {
    for (const name of runs) { const o = make("option", "", name); o.value = name; $("run").append(o); }
    $("run").value = spec.run; $("run-line").hidden = false;
    $("run").addEventListener("change", () => {
      const q = address();
      for (const name of ["areas", "area", "area_of", "other", "ot", "br", "bq", "bl"]) q.delete(name); // of this run
      q.set("run", $("run").value); location.search = "?" + q;
    });
  }
  $("ways").hidden = !spec.pages.length; $("ways").open = frame.clientWidth > 1200; // for browsers without ::details-content
  for (const page of spec.pages) {
    const link = make("a", "", page.name);
    link.href = page.href;
    if (page.here) link.setAttribute("aria-current", "page");
    $("pages").append(link);
  }
  const layerOf = (id) => spec.layers.find((l) => l.id === id);
  const layerNow = () => layerOf(state.layer) || spec.layers[0];
  const fadeOf = (layer) => state.fade && layer.fades ? spec.fade : null;
  const settingOf = () => ({ quarter: wanted.quarter, tests: wanted.tests, level: wanted.level, threshold: wanted.threshold, limit: wanted.limit });
  function subtitle(layer, s) {
    const parts = [], fade = fadeOf(layer);
    if (s.quarter) parts.push(quarterText(s.quarter));
    if (layer.of) parts.push(fill(layer.of, s));
    if ((layer.by_level || fade) && !layer.timeless) parts.push(short(100 * s.level) + "% intervals");
    return parts.join(" · ");
  }
  function nearTown(lat, lon) { // "Near Honolulu", of towns within 25 km: the nearest, a large one before its own quarters
    let best = null, least = Infinity, away = Infinity;
    for (const place of met) {
      const dx = (wrap(place.lon - lon)) * Math.cos(lat * Math.PI / 180), dy = place.lat - lat, d = Math.hypot(dx, dy) * 111.3;
      const felt = d - 2.5 * Math.log10(Math.max(1, (place.people || 1) / 1000));
      if (felt < least) { least = felt; away = d; best = place; }
    }
    return best && away <= 25 ? "Near " + best.name : "";
  }

  // ---- areas of a table -----------------------------------------------------------------------------------------------
  let areas = null, outlined = null, chosenArea = null;
  async function showAreas() {
    const job = p.get("areas");
    if (!job || !source.server) return;
    try { areas = areasOf(await source.areas(job)); }
    catch (error) { $("area-said").textContent = wordsOf(error); $("area-said").hidden = false; return; }
    $("areas-line").hidden = false;
    chooseArea(p.get("area"));
    flags.areas = String(areas.rows.length);
  }
  function chooseArea(key) {
    outlined?.remove();
    chosenArea = areas.of(key) || null;
    if (!last) hint();
    $("area-said").hidden = !chosenArea; $("area-said").textContent = chosenArea ? chosenArea.name + ": " + chosenArea.said : "";
    const style = (feature) => ({ weight: feature.properties.key === key ? 3.5 : 1, opacity: .9, fill: false, className: feature.properties.key === key ? "chosen" : "" });
    const features = areas.rows.filter((row) => row !== chosenArea).concat(chosenArea || []).map((row) => row.feature);
    outlined = L.geoJSON(features, { pane: "areas", renderer: svg("areas"), interactive: false, smoothFactor: .4, style });
    if ($("areas").checked) outlined.addTo(map);
    if (source.server) { const q = address(); chosenArea ? q.set("area", key) : q.delete("area"); try { history.replaceState(null, "", "?" + q); } catch { /* no address */ } remember(); }
  }
  $("areas").addEventListener("change", () => { if ($("areas").checked) outlined.addTo(map); else outlined.remove(); });
  const goArea = () => { const [w, s, e, n] = chosenArea.box; map.fitBounds([[s, w], [n, e]], { animate: false, maxZoom: 12, ...(narrow() ? { paddingTopLeft: [12, $("panel").offsetHeight + 12], paddingBottomRight: [12, 90] } : { paddingTopLeft: [310, 40], paddingBottomRight: [40, 100] }) }); };

  // ---- waiting and failing ------------------------------------------------------------------------------------------------
  let retry = null, asking = 0;
  function busy(text, share) {
    $("busy").hidden = !text;
    $("busy-text").textContent = text || "";
    if (share === undefined) $("busy-bar").removeAttribute("value"); else $("busy-bar").value = share;
  }
  async function follow(quarter, signal, of = source) { // how far the server is
    while (!signal.aborted) {
      try {
        const now = await of.progress(quarter);
        const old = shown && shown.quarter !== quarter ? ` The grey map is still ${quarterText(shown.quarter)}.` : "";
        if (signal.aborted) return;
        busy((now.what || "Computing the map") + (quarter ? " of " + quarterText(quarter) : "") + " …" + old, now.total ? now.done / now.total : undefined);
      } catch { return; }
      await new Promise((done) => setTimeout(done, 300));
    }
  }
  function fail(error, again) {
    if (error.name === "AbortError") return;
    if (error.changed) { location.reload(); return; }
    $("failed-text").textContent = error.said || error.gone ? wordsOf(error) : "This browser cannot draw the map (" + error.message + ").";
    $("failed").hidden = false; flags.failed = "true"; retry = again;
    if (error.gone) setTimeout(() => { if (retry === again) recover(); }, 3000);
  }
  function recover() {
    const again = retry;
    retry = null; $("failed").hidden = true; delete flags.failed;
    if (again) again();
  }
  $("again").addEventListener("click", recover);

  async function waitingFor(quarter, signal, of, make) { // what takes longer than a moment says so
    const over = new AbortController(), end = () => over.abort();
    signal.addEventListener("abort", end);
    const waiting = setTimeout(() => { if (of.server) follow(quarter, over.signal, of); }, 150);
    try { return await make(); } finally { clearTimeout(waiting); end(); signal.removeEventListener("abort", end); }
  }

  // ---- one state -------------------------------------------------------------------------------------------------------
  let controller = null, likeness = null, told = "", pictured = "";
  const impossible = new Map(); // runs that this one cannot be told together with, and why
  const adrift = () => Boolean(state.mark && atlas) && grid.number(where()) < 0; // the mark lies where no pixel has a value
  const offOf = (l) => {
    if (l.id === "similar") return !state.mark ? "mark a place first" : adrift() ? "the marked place has no value" : "";
    return l.id === "either" && runs.every((name) => name === spec.run || impossible.has(name)) ? impossible.get(wanted.other) : "";
  };
  function blank(words) { // no former picture under a new layer's name
    detail.remove(); grid.clear(); missed = null; pictured = ""; frame.classList.remove("old"); delete flags.layer;
    grid.canvas.removeAttribute("aria-label"); $("legend").replaceChildren(...(words ? [make("p", "", words)] : []));
  }
  async function show() {
    controller?.abort();
    const mine = controller = new AbortController(), s = settingOf(), layer = layerNow(), started = performance.now();
    state.layer = layer.id;
    controls();
    remember();
    try {
      if (!shown || shown.quarter !== s.quarter || !atlas || (s.tests !== null && atlas.knows && !atlas.knows(s))) {
        if (shown && shown.quarter !== s.quarter) frame.classList.add("old");
        const waiting = setTimeout(() => { if (source.server) follow(s.quarter, mine.signal); }, 150);
        let packs;
        try {
          packs = await source.quarter(s.quarter, mine.signal);
          let found = atlasOf(packs);
          if (s.tests !== null && found.knows && !found.knows(s)) found = atlasOf([...packs, ...await source.more(s.quarter, mine.signal)]);
          const known = await packs[0].known();
          if (mine.signal.aborted) return;
          atlas = found; grid.place(known);
        } finally { clearTimeout(waiting); }
      }
      if (layer.id === "similar" && adrift()) { state.layer = ""; await show(); return; }
      let colour, note = "";
      if (layer.id === "similar") {
        const found = await similar(s, mine.signal);
        if (mine.signal.aborted) return;
        colour = found.colour; note = found.note;
      } else if (layer.id === "either") {
        const found = await either(s, mine.signal);
        if (mine.signal.aborted) return;
        colour = found.colour; note = found.note;
      } else colour = await colourOf(spec, atlas, layer, s, fadeOf(layer));
      const away = state.far && spec.far_km && atlas.has("nearest_m") && !layer.timeless ? await atlas.plane({ plane: "nearest_m" }, s) : null;
      if (mine.signal.aborted) return;
      grid.paint(colour, far = away && away.some((v) => v > 1000 * spec.far_km) ? (k) => away[k] > 1000 * spec.far_km : null);
      await beside.paint(mine.signal);
      if (mine.signal.aborted) return;
      shown = s; pictured = layer.id; frame.classList.remove("old"); busy("");
      $("note").textContent = [notLearned(s.quarter), spec.note].filter(Boolean).join(" ");
      grid.canvas.setAttribute("aria-label", fill(layer.title, s));
      $("legend").replaceChildren(...legendOf(spec, layer, s, fadeOf(layer), subtitle(layer, s), note));
      flags.layer = layer.id; flags.quarter = s.quarter || ""; flags.level = short(100 * s.level); flags.threshold = short(s.threshold); flags.tests = short(s.tests ?? 0);
      flags.ready = "true"; flags.took = String(Math.round(performance.now() - started));
      if (last) tell(last);
      if (state.mark) card();
      const asks = JSON.stringify([s, layer.id === "either"]);
      if (settled && told !== asks) drawing.again();
      told = asks;
      mine.abort();
      flags.whole = "false"; ahead(); if (settled) finer();
    } catch (error) {
      if (mine.signal.aborted && error.name === "AbortError") return;
      mine.abort(); busy("");
      const alone = ["similar", "either"].includes(layer.id) && error.said;
      if (alone || pictured !== layer.id) { blank(alone ? error.message : ""); controls(); if (alone) await askApart(); }
      if (!alone) fail(error, show);
    }
  }
  async function finer() { // the pixels of an export, when the planes' own are large; what is said says theirs
    if (!shown) return;
    const layer = layerNow();
    let before = detail.name(shown);
    const told = () => { // what is said says the pixels that are shown
      const name = shown ? detail.name(shown) : "";
      flags.detail = name; flags.whole = String(detail.whole());
      if (!name && !before) return;
      before = name;
      if (last) tell(last);
      if (state.mark) card();
    };
    await detail.follow(shown, layer, fadeOf(layer), far, told);
    told();
  }
  async function ahead() { // the quarters beside this one, and other numbers of tests, while nobody waits
    if (!source.server || !shown) return;
    const i = S.quarters.indexOf(shown.quarter);
    for (const q of [S.quarters[i + 1], S.quarters[i - 1]]) if (q && i >= 0) await source.ahead(q);
    await askApart();
    try {
      const of = shown.quarter, more = await source.more(of);
      if (shown.quarter === of && more.length) { const packs = await source.quarter(of); if (shown.quarter === of) { atlas = atlasOf([...packs, ...more].filter((v, k, all) => all.indexOf(v) === k)); flags.counts = "true"; } }
    } catch { /* asked again when it is needed */ }
  }
  let apart = false;
  async function askApart() { // which runs are of other places: once
    if (!source.server || runs.length < 2 || apart) return;
    apart = true;
    try { for (const [name, why] of Object.entries(await source.apart())) if (!impossible.has(name)) impossible.set(name, why); } catch { apart = false; }
    controls();
  }
  const notLearned = (q) => spec.unlearned?.quarters.includes(q) ? "All rows of " + quarterText(q) + " were held out: what is shown of it rests on " + spec.unlearned.rests + "." : "";
  let missed = null; // of a pixel, the chance that either limit is missed
  async function either(s, signal) {
    busy("Asking how " + spec.run + " and " + wanted.other + " go together …");
    const found = await others(wanted.other), { pair, settings, unit, start } = found.spec, layer = layerOf("either");
    if (pair.problem) {
      impossible.set(wanted.other, "nothing is known of both runs");
      throw Object.assign(new Error(pair.problem), { said: true });
    }
    if (wanted.limit === null) s.limit = wanted.limit = pair.limits.at(-1)[1];
    const quarter = settings.quarters.includes(s.quarter) ? s.quarter : start.q;
    const theirs = await waitingFor(quarter, signal, found.source, () => planesOf(found, { quarter, tests: null }, signal)), side = (k) => pair.higher[k] ? " below " : " above ";
    layer.title = layer.plain = layer.short = "Chance of " + pair.words[0] + side(0) + "{threshold}" + (spec.unit ? " " + spec.unit : "") + " or " + pair.words[1] + side(1) + "{limit}" + (unit ? " " + unit : "");
    layer.of = "of the surface of " + spec.run + " and of " + wanted.other;
    missed = await eitherOf(atlas, theirs.atlas, s, pair);
    const values = new Float32Array(atlas.n);
    for (let i = 0; i < values.length; i++) values[i] = missed(i);
    $("limit").value = short(s.limit); $("limit-name").textContent = pair.words[1][0].toUpperCase() + pair.words[1].slice(1); $("limit-unit").textContent = unit; $("limit-line").hidden = $("pairs").hidden = false;
    keepIn($("pairs"), pair.limits.map(([a, b]) => ({
      text: exact(a) + " / " + exact(b), pressed: a === s.threshold && b === s.limit,
      press: () => { wanted.threshold = a; wanted.limit = b; show(); },
    })));
    return { colour: await colourOf(spec, { plane: async () => values }, layer, s, null), note: pair.said };
  }
  async function similar(s, signal) {
    const key = s.quarter + state.mark.join();
    if (!likeness || likeness.key !== key) {
      const pack = await source.slice(s.quarter, state.mark, signal), values = await pack.get("correlation");
      likeness = { key, values, header: pack.header };
    }
    const { values, header } = likeness, layer = layerOf("similar");
    Object.assign(layer, header.legend);
    const colour = await colourOf(spec, { plane: async () => values }, layer, s, null);
    return { colour, note: header.words };
  }
  function controls() {
    if (state.layer !== "either" && impossible.has(wanted.other)) wanted.other = runs.find((name) => name !== spec.run && !impossible.has(name)) ?? wanted.other;
    const s = settingOf(), layer = layerNow();
    $("list").replaceChildren(...layerList(spec.layers, layer.id, s, offOf, (id) => {
      state.layer = id;
      if (narrow()) $("layers").open = false;
      show();
    }));
    $("layers").querySelector("summary").textContent = narrow() ? "Layer: " + fill(layer.plain || layer.short, s) : "Layers";
    if (wanted.quarter) $("quarter").value = wanted.quarter;
    const i = S.quarters.indexOf(wanted.quarter);
    $("earlier").disabled = i <= 0; $("later").disabled = i >= S.quarters.length - 1;
    $("level").value = short(100 * wanted.level); $("tests").value = short(wanted.tests ?? 0);
    if (document.activeElement !== $("threshold")) $("threshold").value = short(wanted.threshold);
    for (const b of $("usual").children) b.setAttribute("aria-pressed", String(b.value === short(wanted.threshold)));
    const pair = layer.id === "either";
    $("limit-line").hidden = $("pairs").hidden = !pair || !$("limit-name").textContent; $("usual").hidden = pair; $("threshold-line").firstElementChild.textContent = pair ? layerOf("median")?.plain || "Limit" : "More than";
    $("fade-line").hidden = !spec.fade || !layer.fades; $("fade").checked = state.fade; $("far").checked = state.far;
  }
  function set(name, value) { wanted[name] = value; show(); }
  const option = (select, value, text) => { const o = make("option", "", text); o.value = value; select.append(o); };
  for (const q of S.quarters) option($("quarter"), q, quarterText(q));
  $("quarter-line").hidden = !S.quarters.length;
  $("quarter").addEventListener("change", () => set("quarter", $("quarter").value));
  const step = (by) => { const q = S.quarters[S.quarters.indexOf(wanted.quarter) + by]; if (q) set("quarter", q); };
  $("earlier").addEventListener("click", (e) => { e.preventDefault(); step(-1); });
  $("later").addEventListener("click", (e) => { e.preventDefault(); step(1); });
  for (const l of S.levels) option($("level"), short(100 * l), short(100 * l) + "%");
  $("level-line").hidden = !S.levels.length; $("level").disabled = S.levels.length < 2;
  $("level").addEventListener("change", () => set("level", Number($("level").value) / 100));
  for (const n of S.counts) option($("tests"), short(n), testsText(n, spec.counted));
  $("tests-line").hidden = !S.counts.length; $("tests").disabled = S.counts.length < 2;
  $("tests").addEventListener("change", () => set("tests", Number($("tests").value)));
  $("threshold-unit").textContent = spec.unit; $("threshold-line").hidden = !S.thresholds.length; $("threshold").readOnly = !S.free;
  $("threshold").min = S.positive ? S.least : -S.most; $("threshold").max = S.most;
  let typing = 0;
  $("threshold").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => { const t = $("threshold").valueAsNumber; if (bounded(t) && S.free) set("threshold", t); }, 60);
  });
  $("limit").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => { const t = $("limit").valueAsNumber; if (Number.isFinite(t) && Math.abs(t) <= S.most) set("limit", t); }, 60);
  });
  for (const t of S.thresholds) {
    const button = make("button", "", exact(t));
    Object.assign(button, { type: "button", value: short(t) });
    button.addEventListener("click", () => set("threshold", t));
    $("usual").append(button);
  }
  $("fade").addEventListener("change", () => { state.fade = $("fade").checked; show(); });
  $("far-line").hidden = !spec.far_km; $("far-text").textContent = (spec.place === "tile" ? "no test within " : "nothing measured within ") + length(spec.far_km || 0);
  $("far").addEventListener("change", () => { state.far = $("far").checked; show(); });
  if (spec.hatched) { const key = make("p"); key.append(make("i", "hatch"), " in the region, but no prediction"); key.style.cssText = "display:flex;gap:8px;align-items:center"; $("note").before(key); }

  // ---- value in words ------------------------------------------------------------------------------------------------------
  let last = null;
  const unit = spec.unit ? " " + spec.unit : "";
  function wordsOfValues(v, s, layer, of = spec) {
    const unit = of.unit ? " " + of.unit : "";
    const parts = [];
    if (v.median === undefined) return v[layer.id] === undefined || Number.isNaN(v[layer.id]) ? [] : [fill(layer.short, s) + ": " + plain(v[layer.id]) + (layer.unit ? " " + layer.unit : "")];
    if (Number.isNaN(v.median)) return [];
    parts.push(plain(v.median) + unit);
    if (v.lower !== undefined) parts.push(short(100 * s.level) + "% prediction interval " + plain(v.lower) + " to " + plain(v.upper));
    if (v.exceedance !== undefined) parts.push("P(> " + exact(s.threshold) + ") " + chance(v.exceedance));
    return parts;
  }
  function hint() { // while no place is read out
    last = null;
    if (chosenArea) { $("said").textContent = chosenArea.name; $("where-said").textContent = chosenArea.said; return; }
    $("said").textContent = narrow() ? "Tap the map for the value" : "Point at the map, click to mark a place";
    $("where-said").textContent = narrow() ? "" : "Keyboard: Tab to the map, arrows and + −, Enter marks";
  }
  async function tell(latlng) {
    last = latlng;
    if (!atlas || !shown) return;
    const right = beside.at(latlng), i = grid.number(latlng), s = right ? right.s : shown, layer = right ? right.layer : layerNow(), more = [written(latlng.lat, latlng.lng)], town = nearTown(latlng.lat, latlng.lng);
    if (town) more.unshift(town);
    if (right) more.unshift(right.name);
    const values = right ? i < 0 ? null : await right.atlas.at(i, s, right.spec.layers) : await valuesAt(i, s, latlng);
    if (last !== latlng) return; // the pointer has moved on
    const parts = values ? wordsOfValues(values, s, layer, right ? right.spec : spec) : [];
    if (!parts.length) parts.push((i >= 0 && values) || grid.inside(latlng) ? "No prediction here" : "Outside the mapped region");
    else {
      if (!["median", "lower", "upper", "exceedance", "pi_width"].includes(layer.id) && values.median !== undefined && values[layer.id] !== undefined) more.push(fill(layer.short, s) + " " + textOf(layer, values[layer.id]));
      if (values.measured !== undefined) more.push((spec.place === "tile" ? "nearest tests " : "nearest measurement ") + awayText(values.measured, spec.far_km || 1));
    }
    $("said").textContent = parts.join("; "); $("where-said").textContent = more.join(" · ");
    flags.said = latlng.lat.toFixed(4) + "," + wrap(latlng.lng).toFixed(4);
    if (state.mark && !$("place").hidden) standing(); // the read-out is as wide as its words
  }
  const textOf = (layer, v) => layer.factor ? "×" + plain(v) : layer.scale.high === 1 && layer.scale.low === 0 ? percent(v) : plain(v) + (layer.unit ? " " + layer.unit : "");
  async function valuesAt(i, s, latlng) { // of the page's pixel, or of the finer one that is shown; null outside
    const fine = await detail.at(latlng, s, spec.layers);
    if (fine === null || (i < 0 && fine.median === undefined)) return null;
    return { ...(i < 0 ? {} : await atlas.at(i, s, [...spec.layers, ...Object.values(spec.hidden)])), ...(missed && state.layer === "either" && i >= 0 ? { either: missed(i) } : {}), ...fine };
  }

  // ---- the marked place ------------------------------------------------------------------------------------------------------
  let pin = null, asked = null;
  const where = () => here(...state.mark);
  function mark(latlng) {
    state.mark = latlng ? [latlng.lat, wrap(latlng.lng)] : null;
    frame.classList.toggle("marked", Boolean(latlng));
    if (!latlng) { pin?.remove(); pin = null; asked?.abort(); $("place").hidden = true; hint(); standing(); if (state.layer === "similar") state.layer = ""; }
    else if (pin) pin.setLatLng(latlng);
    else pin = L.circleMarker(latlng, { pane: "mark", renderer: svg("mark"), interactive: false, radius: 7, color: "#fff", weight: 2.5, fillColor: "#b3261e", fillOpacity: 1 }).addTo(map);
    if (latlng) { drawing.close(); tell(latlng); card(); }
    if (!latlng || state.layer === "similar" || source.server) { if (state.layer === "similar" || !latlng) show(); else controls(); } // of no pixel nothing is similar: see show
    remember();
  }
  async function card() {
    if (!state.mark || !atlas || !shown) return;
    const latlng = where(), i = grid.number(latlng), s = shown, v = await valuesAt(i, s, latlng), town = nearTown(...state.mark);
    if (!state.mark || shown !== s) return;
    $("place").hidden = false;
    if (!v) asked?.abort(); // of the place before
    const facts = [];
    if (!v || v.median === undefined || Number.isNaN(v.median)) {
      $("place-said").textContent = !v && !grid.inside(latlng) ? "Outside the mapped region" : wordsOfValues(v || {}, s, layerNow())[0] || "No prediction here";
      $("place-bar").replaceChildren(); $("place-history").replaceChildren();
    } else {
      const sure = v.lower === undefined ? "" : "; " + times(s.level) + " between " + plain(v.lower) + " and " + plain(v.upper);
      $("place-said").textContent = (town ? town + ": " : "") + plain(v.median) + unit + sure;
      $("place-bar").replaceChildren(...(v.lower === undefined ? [] : [intervalBar(v, s, spec.log)]));
      if (v.kinds) facts.push(["Two kinds of values", kindsText(v.kinds, unit)]);
      if (v.exceedance !== undefined) facts.push(["Chance of more than " + exact(s.threshold) + unit, percent(v.exceedance)]);
      if (v.either !== undefined) facts.push([fill(layerNow().short, s), percent(v.either)]);
      if ((spec.fade ? spec.fade.ratio : layerOf("within")) && Number.isFinite(v.within)) facts.push(["How sure", "within ×" + plain(v.within)]);
      else if (v.within !== undefined) facts.push(["How sure", plain(v.pi_width) + unit + ", upper less lower end"]);
      if (v.measured !== undefined) facts.push(["Nearest measured " + spec.place, awayText(v.measured, spec.far_km || 1)]);
      if (v.explained !== undefined) facts.push(["Known from data", percent(v.explained)]);
      facts.push(...honesty(spec.coverage, s, v.measured));
    }
    $("place-where").textContent = [s.quarter && quarterText(s.quarter), spec.averages && s.tests ? "a new tile average of " + testsText(s.tests) : "", written(...state.mark)].filter(Boolean).join(" · ");
    $("place-facts").replaceChildren(...facts.flatMap(([name, text]) => [make("dt", "", name), make("dd", "", text)]));
    const area = areas && $("areas").checked ? areas.at(...state.mark) : null, ways = [], having = (name, value) => { const q = address(); if (value) q.set(name, value); return "?" + q; };
    if (area) { if (area !== chosenArea) chooseArea(area.key); $("place-facts").append(make("dt", "", area.name), make("dd", "", area.said)); }
    if (spec.details && v) ways.push({ text: "Chances, and what is similar to here", href: spec.details + having("finer", detail.name(s)) });
    if (area) ways.push({ text: "Its row in the table", href: "/pages/areas" + having("area", area.key) });
    if (v && source.server) for (const [pick, text] of [...(spec.area ? [["county", "The " + spec.area + " around it"]] : []), ["hexagon", "The hexagon around it"]]) {
      ways.push({ text, press: () => drawing.ask({ pick, lat: state.mark?.[0], lon: state.mark?.[1] }) });
    }
    keepIn($("place-more"), ways);
    const due = Boolean(v && source.server && S.quarters.length > 1);
    $("place-history").classList.toggle("due", due);
    if (due) history_(s);
    flags.card = state.mark.map((x) => x.toFixed(4)).join();
    standing();
  }
  let stood = "";
  function standing() { // names and degrees keep clear of the card, the mark too
    const now = covered().join();
    if (now === stood) return;
    stood = now; graticule(); towns();
    if (state.mark) map.panInside(where(), narrow() ? { paddingTopLeft: [24, $("panel").offsetHeight + 24], paddingBottomRight: [24, $("place").offsetHeight + 24] } : { paddingTopLeft: [304, 24], paddingBottomRight: [352, 24] });
  }
  const past = new Map();
  async function history_(s) { // the quarters of this place; level and tests change without asking
    const finer = detail.name(s), key = finer + state.mark.map((x) => x.toFixed(5)).join();
    asked?.abort();
    const mine = asked = new AbortController();
    try {
      if (!past.has(key)) { const found = await source.history(state.mark, finer, mine.signal); if (past.size > 50) past.clear(); past.set(key, found); }
      if (mine.signal.aborted || !state.mark || key !== detail.name(s) + state.mark.map((x) => x.toFixed(5)).join()) return;
      const rows = past.get(key).map((r) => ({ quarter: r.quarter, ...atlas.of(r.counts[s.tests === null ? "" : short(s.tests)], s) }));
      $("place-history").replaceChildren(historyChart(rows, s.quarter, spec.unit)); standing(); flags.history = key;
    } catch (error) { if (error.name !== "AbortError") $("place-history").replaceChildren(make("p", "", wordsOf(error))); }
  }
  $("close").addEventListener("click", () => mark(null));

  // ---- side by side, draws, download ------------------------------------------------------------------------------------------
  drawing = drawingOf({ spec, source, map, $, svg, here, settingOf, opened: () => mark(null), 
    changed: (bounds) => { // the area in sight, beside its card
      remember(); standing();
      if (bounds && (narrow() || !map.getBounds().contains(bounds))) map.fitBounds(bounds, { animate: false, maxZoom: Math.max(9, map.getZoom()), ...(narrow() ? { paddingTopLeft: [12, $("panel").offsetHeight + 12], paddingBottomRight: [12, $("area").offsetHeight + 12] } : { paddingTopLeft: [310, 40], paddingBottomRight: [352, 100] }) });
    },
    either: (s) => state.layer === "either" && s.limit !== null ? { other: wanted.other, ot: short(s.limit) } : {} });
  $("draw-open").hidden = !source.server;
  detail = detailOf({ spec, source, map, painted: Painted, grid, said: (text) => { if (text || $("busy-text").textContent.startsWith("Working out")) busy(text); } });
  beside = besideOf({ waitingFor, spec, map, S, $, others, layerNow, settingOf, narrow, painted: Painted, fadeOn: () => state.fade, far: () => state.far,
    changed: (only) => only ? remember() : show() });
  $("beside").hidden = !source.server;
  beside.read(p);
  let drawn = null;
  $("draws-open").hidden = !source.server;
  $("draws-open").addEventListener("click", async () => {
    const layer = layerOf("median") || spec.layers[0];
    $("draws").showModal(); $("draws-list").replaceChildren();
    $("draws-said").textContent = "Drawing maps of the surface that fit the data as well as each other …";
    drawn = new AbortController();
    try {
      const n = await drawsSheet(spec, source, layer, wanted.quarter, $, drawn.signal);
      $("draws-said").textContent = n + " maps of the surface" + (wanted.quarter ? " in " + quarterText(wanted.quarter) : "") + ", each as likely as the others: where they differ, the map is not known. Colours are those of the map of the median.";
      flags.draws = String(n);
    } catch (error) { if (error.name !== "AbortError") $("draws-said").textContent = wordsOf(error); }
  });
  $("draws-close").addEventListener("click", () => $("draws").close());
  $("draws").addEventListener("close", () => { drawn?.abort(); delete flags.draws; });
  for (const [kind, text] of source.server ? [["cog", "GeoTIFF, window in view"], ["gpkg", "GeoPackage, a row a pixel"], ["csv", "CSV, a row a pixel"]] : []) option($("take-kind"), kind, text);
  const save = (name, href) => { const a = make("a"); a.href = href; a.download = name; a.click(); };
  const inView = () => names.getLayers().map((m) => m.place);
  function window_() { // W,S,E,N of the view, or nothing where it holds all
    const b = map.getBounds();
    return b.contains(spec.focus) ? "" : [wrap(b.getWest()), b.getSouth(), wrap(b.getWest()) + b.getEast() - b.getWest(), b.getNorth()].map((v) => v.toFixed(4)).join();
  }
  async function take() {
    const layer = layerNow(), s = shown, kind = $("take-kind").value;
    if (kind === "png") {
      const facts = spec.facts.filter(([name]) => ["Source", "Licence", "Calibration", "Names and lines"].includes(name)).map(([name, text]) => name + ": " + text + ".");
      const about = fadeOf(layer) ? fill(spec.fade.about, s) : fill(layer.about, s);
      const caveat = [about[0].toUpperCase() + about.slice(1) + ".", (spec.place === "tile" ? "It maps measured averages, not service on offer. " : "") + "Made " + new Date().toISOString().slice(0, 10) + " with GeoGP.", ...facts];
      const blob = await poster({ spec, map, grids: [grid, detail.grid()].filter(Boolean), layer, setting: s, subtitle: subtitle(layer, s), caveat, fade: fadeOf(layer), towns: inView() }), url = URL.createObjectURL(blob);
      save(layer.id + (s.quarter ? "_" + s.quarter : "") + ".png", url);
      setTimeout(() => URL.revokeObjectURL(url), 10000);
      return "";
    }
    const params = { format: kind, layer: layer.id, q: s.quarter ?? "", level: short(100 * s.level), t: short(s.threshold), box: window_() };
    if (s.tests !== null) params.n = short(s.tests);
    if (layer.id === "either") Object.assign(params, { other: wanted.other, ot: short(s.limit) });
    if (state.mark) Object.assign(params, { lat: state.mark[0], lon: state.mark[1] });
    for (;;) {
      const job = await source.download(params);
      if (job.state === "done") { save("maps.zip", source.file(job.job)); return job.command; }
      if (job.error) throw Object.assign(new Error(job.error), { said: true });
      $("take-said").textContent = job.state === "waiting" ? "Waits for the one before …" : "Writing" + (job.share ? " " + Math.round(100 * job.share) + "%" : "") + " …";
      await new Promise((done) => setTimeout(done, 500));
    }
  }
  $("take-go").addEventListener("click", async () => {
    $("take-go").disabled = true; delete flags.taken;
    try {
      const command = await take();
      $("take-said").replaceChildren(...(command ? ["The command that makes it: ", make("code", "", command)] : ["Done."])); flags.taken = "true";
    } catch (error) { $("take-said").textContent = wordsOf(error); }
    $("take-go").disabled = false;
  });

  // ---- pointer, keys -----------------------------------------------------------------------------------------------------------
  map.on("mousemove", (e) => { if (!state.mark) tell(e.latlng); });
  map.on("click", (e) => {
    if (drawing.active()) { drawing.corner(e.latlng); return; }
    if (pin && map.latLngToContainerPoint(pin.getLatLng()).distanceTo(e.containerPoint) < 11) { mark(null); return; }
    mark(e.latlng);
  });
  root.addEventListener("keydown", (e) => {
    frame.classList.add("keys");
    if (drawing.active()) { drawing.key(e); return; }
    if (e.key === "Enter") mark(map.getCenter());
    if (e.key === "Escape") { drawing.close(); if (state.mark) mark(null); remember(); }
    if (!state.mark) tell(map.getCenter());
  });
  root.addEventListener("pointermove", () => frame.classList.remove("keys"));
  root.addEventListener("blur", () => frame.classList.remove("keys"));
  map.on("move", () => { if (frame.classList.contains("keys") && !state.mark) tell(map.getCenter()); });
  map.on("moveend resize", () => { graticule(); towns(); remember(); if (settled) { finer(); closer(); } });
  $("home").addEventListener("click", home);
  for (const id of ["panel", "place", "bar", "area", "drawing"]) { L.DomEvent.disableClickPropagation($(id)); L.DomEvent.disableScrollPropagation($(id)); }

  // ---- search -----------------------------------------------------------------------------------------------------------------
  const folded = (text) => text.normalize("NFD").replace(/[\u0300-\u036f'ʻ‘’`]/g, "").toLowerCase().trim();
  const index = spec.places.map((place) => [folded(place.name), place, (place.also || []).map(folded)]);
  const county = (place) => place.kind === "area" && place.about !== "island" ? 1 : 0; // after the town that it is named for
  function matches(text) {
    const t = folded(text);
    if (t.length < 2) return [];
    const rank = ([name, , also]) => name === t ? 0 : also.includes(t) ? .5 : name.startsWith(t) || also.some((o) => o.startsWith(t)) ? 1 : name.includes(" " + t) ? 2 : 3;
    const tabled = (areas?.rows || []).map((row) => [folded(row.name), { name: row.name, kind: "area", about: row.key === row.name ? "of the table" : row.key, bounds: row.box, key: row.key }, [folded(row.key)]]);
    return [...tabled, ...index].map((row) => [rank(row), row[1]]).filter(([r]) => r < 3).sort((a, b) => a[0] - b[0] || county(a[1]) - county(b[1]) || (b[1].people || 0) - (a[1].people || 0)).slice(0, 7).map(([, place]) => place);
  }
  let chosen = -1, offered = [], finding = null;
  async function beyond(text, signal) { // of a region with more towns than the page brings
    if (!spec.closer || folded(text).length < 2 || coordinates(text)) return [];
    try { return (await source.names({ name: text }, signal)).places; } catch { return []; } // the page's own are there
  }
  async function offer() {
    const text = $("where").value, own = coordinates(text) ? [] : matches(text);
    finding?.abort();
    propose(own);
    if (own.length > 4) return;
    const mine = finding = new AbortController();
    await new Promise((done) => setTimeout(done, 120));
    if (mine.signal.aborted) return;
    const more = (await beyond(text, mine.signal)).filter((place) => !own.some((o) => same(o, place)));
    if (!mine.signal.aborted && more.length && document.activeElement === $("where")) propose([...own, ...more].slice(0, 7));
  }
  function propose(places) {
    offered = places; chosen = -1;
    $("found").hidden = !offered.length; $("where").setAttribute("aria-expanded", String(offered.length > 0)); $("search-said").textContent = "";
    $("found").replaceChildren(...offered.map((place) => {
      const line = make("li", "", place.name + " ");
      line.setAttribute("role", "option"); line.append(make("small", "", [place.about, place.of].filter(Boolean).join(", ")));
      line.addEventListener("pointerdown", (e) => { e.preventDefault(); go(place); });
      return line;
    }));
  }
  function go(place) {
    if (place.name && !place.bounds) meet([place]);
    if (place.key) chooseArea(place.key);
    $("where").value = place.name || $("where").value; $("found").hidden = true; $("where").setAttribute("aria-expanded", "false");
    if (place.bounds) { const [w, s, e, n] = place.bounds; map.fitBounds([here(s, w), here(n, e)], { animate: false, paddingTopLeft: narrow() ? [0, 60] : [290, 0] }); }
    else map.setView(here(place.lat, place.lon), Math.max(map.getZoom(), 11), { animate: false });
    if (place.kind !== "area") mark(here(place.lat, place.lon));
  }
  $("where").addEventListener("input", offer);
  $("where").addEventListener("blur", () => { $("found").hidden = true; });
  $("where").addEventListener("keydown", (e) => {
    if (!["ArrowDown", "ArrowUp"].includes(e.key) || !offered.length) return;
    e.preventDefault();
    chosen = (chosen + (e.key === "ArrowDown" ? 1 : -1) + offered.length) % offered.length;
    [...$("found").children].forEach((line, k) => line.setAttribute("aria-selected", String(k === chosen)));
  });
  $("search").addEventListener("submit", async (e) => {
    e.preventDefault();
    finding?.abort();
    const text = $("where").value, at = coordinates(text), place = at ? { lat: at[0], lon: at[1] } : offered[Math.max(0, chosen)] || matches(text)[0] || (await beyond(text))[0];
    $("search-said").textContent = place ? "" : "Nothing of that name here. Coordinates are written as 34.05, -143.2 or 34° 3' N 143° 12' W.";
    if (place) go(place);
  });

  // ---- begin --------------------------------------------------------------------------------------------------------------------
  if (narrow()) $("layers").open = false;
  new ResizeObserver(() => map.invalidateSize({ pan: false })).observe(frame);
  const z = number("z"), lat = number("lat"), lon = number("lon"), looked = z !== null && lat !== null && lon !== null && Math.abs(lat) <= 85;
  if (looked) map.setView(here(lat, lon), Math.min(16, Math.max(1, z)), { animate: false });
  const viewed = looked && map.getBounds().intersects(grid.bounds), at = pair(p.get("at")); // a view of another run's region shows nothing of this one's
  const start = at && (viewed || !looked || grid.bounds.contains(here(...at))) ? at : null;
  if (state.layer === "similar" && !start) state.layer = "";
  if (start) { state.mark = start; }
  controls();
  if (!viewed) home();
  hint();
  await show();
  await showAreas();
  if (chosenArea && !viewed) goArea(); else if (!viewed) home(); // again, now that the panel has its height
  settled = true; graticule(); towns(); finer(); closer();
  if (start) mark(here(...start)); else if (source.server) drawing.read(p.get("area_of"));
  remember();
  return { map, state, wanted };
}
