/* An area that is drawn corner by corner, or the county or hexagon around the marked place: what the surface comes to there.
   The server averages it; what is shown is of the setting on the screen. */
function drawingOf({ spec, source, map, $, svg, here, settingOf, either, opened, changed }) {
  let corners = null, preview = null, shape = null, asking = null; // corners: while one draws
  let wanted = null, found = null; // {ring} or {pick, lat, lon}, and what was answered
  const outline = { pane: "areas", interactive: false, weight: 2.5, color: "#b3261e", fill: false, className: "chosen" };
  const round = ([lat, lon]) => [Math.round(lat * 1e5) / 1e5, Math.round(wrap(lon) * 1e5) / 1e5];
  function sketch(pointer) {
    preview?.remove(); preview = null;
    if (!corners) return;
    const line = corners.map((c) => here(...c));
    preview = L.featureGroup([L.polyline(pointer && line.length ? [...line, pointer, line[0]] : [...line, ...line.slice(0, 1)], { ...outline, pane: "mark", renderer: svg("mark"), dashArray: "5 4" }),
      ...line.map((at) => L.circleMarker(at, { pane: "mark", renderer: svg("mark"), interactive: false, radius: 4, color: "#fff", weight: 1.5, fillColor: "#b3261e", fillOpacity: 1 }))]).addTo(map);
    $("draw-done").disabled = corners.length < 3; $("draw-undo").disabled = !corners.length;
    $("draw-said").textContent = corners.length < 3 ? "Click the corners of the area, three or more." : corners.length + " corners; Done, or the first corner again, closes the area.";
  }
  function state(on) { $("drawing").hidden = !on; $("frame").classList.toggle("drawing", on); map.doubleClickZoom[on ? "disable" : "enable"](); if (on) $("frame").dataset.drawing = "true"; else delete $("frame").dataset.drawing; }
  function begin() { close(); opened(); corners = []; state(true); sketch(); map.getContainer().focus({ preventScroll: true }); }
  function cancel() { corners = null; sketch(); state(false); }
  function done() { if (!corners || corners.length < 3) return; const ring = corners.map(round); cancel(); ask({ ring: ring.map(([lat, lon]) => lon + "," + lat).join(";") }); }
  function corner(latlng) {
    const first = corners.length > 2 && map.latLngToContainerPoint(here(...corners[0]));
    if (first && first.distanceTo(map.latLngToContainerPoint(latlng)) < 12) { done(); return; } // the first once more closes it
    const last = corners.length && map.latLngToContainerPoint(here(...corners.at(-1)));
    if (last && last.distanceTo(map.latLngToContainerPoint(latlng)) < 4) return; // the second half of a double click
    corners.push([latlng.lat, latlng.lng]); sketch();
  }
  function undo() { corners.pop(); sketch(); }
  function close() { asking?.abort(); asking = null; wanted = found = null; shape?.remove(); shape = null; $("area").hidden = true; delete $("frame").dataset.area; }
  async function ask(what) {
    opened(); asking?.abort();
    const mine = asking = new AbortController(), s = settingOf();
    wanted = what; $("area").hidden = false; $("area").setAttribute("aria-busy", "true"); delete $("frame").dataset.area;
    $("area-title").textContent = found ? found.name + " …" : "Averaging over the area …";
    $("area-where").textContent = "Joint draws of the surface: " + [s.quarter && quarterText(s.quarter), short(100 * s.level) + "% intervals"].filter(Boolean).join(", ") + ". A large area takes up to a minute.";
    changed();
    try {
      const params = { ...what, q: s.quarter ?? "", level: short(100 * s.level), t: short(s.threshold), ...either(s) };
      const told = await source.area(params, mine.signal);
      if (mine.signal.aborted) return;
      found = told; shape?.remove();
      shape = L.geoJSON(told.geometry, { ...outline, renderer: svg("areas"), coordsToLatLng: ([lon, lat]) => here(lat, lon) }).addTo(map);
      $("area-title").textContent = told.name + ": " + told.said;
      $("area-where").textContent = ["The surface" + (s.quarter ? " in " + quarterText(s.quarter) : ""), short(100 * s.level) + "% intervals; " + told.note].join(", ") + ".";
      $("area-facts").replaceChildren(...told.facts.flatMap(([name, text]) => [make("dt", "", name), make("dd", "", text)]));
      $("area-line").replaceChildren("The same from the command line, with the area as ", save(told), ": ", make("code", "", told.command));
      $("frame").dataset.area = told.name; changed(shape.getBounds());
    } catch (error) {
      if (error.name === "AbortError") return;
      $("area-title").textContent = wordsOf(error); $("area-where").textContent = ""; $("area-facts").replaceChildren(); $("area-line").replaceChildren(); $("frame").dataset.area = "";
    } finally { if (asking === mine) $("area").removeAttribute("aria-busy"); }
  }
  function save(told) {
    const button = make("button", "", "area.geojson");
    button.type = "button";
    button.addEventListener("click", () => {
      const a = make("a"), url = URL.createObjectURL(new Blob([told.file], { type: "application/geo+json" }));
      a.href = url; a.download = "area.geojson"; a.click(); setTimeout(() => URL.revokeObjectURL(url), 10000);
    });
    return button;
  }
  $("draw-open").addEventListener("click", begin); $("draw-done").addEventListener("click", done);
  $("draw-undo").addEventListener("click", undo); $("draw-cancel").addEventListener("click", cancel);
  $("area-close").addEventListener("click", () => { close(); changed(); });
  map.on("mousemove", (e) => { if (corners) sketch(e.latlng); });
  map.on("dblclick", () => { if (corners) done(); });
  return {
    active: () => Boolean(corners), corner, ask, close,
    key(e) { // Enter sets a corner under the cross
      if (e.key === "Enter") corner(map.getCenter());
      if (e.key === "Backspace") { e.preventDefault(); if (corners.length) undo(); }
      if (e.key === "Escape") cancel();
    },
    again: () => { if (wanted) ask(wanted); }, // of another setting
    put: (put) => put("area_of", !wanted ? null : wanted.ring ? wanted.ring : [wanted.pick, wanted.lat, wanted.lon].join()),
    read(text) { // of an address
      if (!text) return;
      const [pick, lat, lon] = text.split(",");
      ask(["county", "hexagon"].includes(pick) ? { pick, lat, lon } : { ring: text });
    },
  };
}
