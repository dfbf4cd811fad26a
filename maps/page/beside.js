/* Beside the map: another layer, quarter or run to the right of a line that one drags; the chance that either of two limits
   is missed. Other runs come on this run's own pixels. */
function othersOf(spec, source) { // runs by name, each asked for once
  const found = new Map([[spec.run ?? "", { spec, source }]]);
  return async (name) => {
    if (!found.has(name)) {
      const theirs = await source.beside(name);
      found.set(name, { spec: theirs, source: serverSource({ ...spec, settings: theirs.settings, other: name }) });
    }
    return found.get(name);
  };
}

/* Planes of a quarter at a number of tests. */
async function planesOf({ spec, source }, s, signal) {
  const packs = await source.quarter(s.quarter, signal);
  let atlas = atlasOf(packs);
  if (s.tests !== null && atlas.knows && !atlas.knows(s)) atlas = atlasOf([...packs, ...await source.more(s.quarter, signal)]);
  return { atlas, known: await packs[0].known() };
}

/* P(A misses its limit or B misses its own) of each pixel, from both surfaces. */
async function eitherOf(mine, theirs, s, pair) {
  const [h, k] = await Promise.all([mine.below(s.threshold), theirs.below(s.limit)]);
  const [a, b] = pair.higher.map((higher) => higher ? 1 : -1), both = bothBelow(a * b * pair.correlation);
  return (i) => { const x = a * h(i), y = b * k(i); return normal(x) + normal(y) - both(x, y); };
}

function besideOf({ waitingFor, spec, map, S, $, others, layerNow, settingOf, fadeOn, far, painted, changed, narrow }) {
  const pane = map.createPane("right"), runs = spec.runs?.length > 1 ? spec.runs : [];
  Object.assign(pane.style, { zIndex: 351, pointerEvents: "none" });
  const state = { on: false, run: spec.run ?? "", quarter: spec.start.q, layer: "", cut: 50 };
  let now = null, grid = null; // made when they are first wanted
  const x = () => map.getSize().x * state.cut / 100;
  function clip() {
    const left = map.getPane("picture");
    pane.style.display = state.on && now ? "" : "none"; $("divider").hidden = $("cut").hidden = !state.on;
    if (!state.on || !now) { left.style.clipPath = ""; return; }
    const size = map.getSize(), at = (u, v) => { const c = map.containerPointToLayerPoint([u, v]); return c.x + "px " + c.y + "px"; };
    const box = (u, v) => "polygon(" + [at(u, 0), at(v, 0), at(v, size.y), at(u, size.y)].join() + ")";
    left.style.clipPath = box(0, x()); pane.style.clipPath = box(x(), size.x);
    $("divider").style.left = state.cut + "%";
  }
  map.on("move zoom zoomend moveend resize", clip);
  const option = (select, value, text) => { const o = make("option", "", text); o.value = value; select.append(o); };
  for (const name of runs) option($("beside-run"), name, name);
  $("beside-run-line").hidden = runs.length < 2;
  function lists(theirs) {
    $("beside-quarter").replaceChildren(); $("beside-layer").replaceChildren();
    for (const q of theirs.settings.quarters) option($("beside-quarter"), q, quarterText(q));
    for (const l of theirs.layers) if (l.formula) option($("beside-layer"), l.id, fill(l.plain || l.short, settingOf()));
    $("beside-quarter-line").hidden = !theirs.settings.quarters.length;
    if (!theirs.settings.quarters.includes(state.quarter)) state.quarter = theirs.start.q;
    if (!theirs.layers.some((l) => l.id === state.layer && l.formula)) state.layer = theirs.layers.some((l) => l.id === layerNow().id && l.formula) ? layerNow().id : theirs.layers[0].id;
    $("beside-run").value = state.run; $("beside-quarter").value = state.quarter; $("beside-layer").value = state.layer;
  }
  const name = () => [state.run !== (spec.run ?? "") ? state.run : "", state.quarter ? quarterText(state.quarter) : ""].filter(Boolean).join(", ");
  async function paint(signal) {
    if (!state.on) { now = null; clip(); return; }
    const found = await others(state.run), theirs = found.spec, same = theirs.unit === spec.unit && theirs.target === spec.target;
    lists(theirs);
    const given = settingOf(), counts = theirs.settings.counts, tests = counts.length ? counts.reduce((a, b) => Math.abs(Math.log(b / (given.tests ?? b))) < Math.abs(Math.log(a / (given.tests ?? a))) ? b : a) : null;
    const s = { ...given, quarter: state.quarter, tests, threshold: same ? given.threshold : theirs.start.t };
    const own = theirs.layers.find((l) => l.id === state.layer), mine = same && spec.layers.find((l) => l.id === state.layer);
    const layer = mine ? { ...own, scale: mine.scale, ticks: mine.ticks, palette: mine.palette } : own, base = mine ? spec : theirs;
    const fade = fadeOn() && layer.fades ? base.fade : null;
    const { atlas, known } = await waitingFor(s.quarter, signal, found.source, () => planesOf(found, s, signal));
    const colour = await colourOf({ ...base, ends: base.ends }, atlas, layer, s, fade);
    const away = far() && theirs.far_km && atlas.has("nearest_m") && !layer.timeless ? await atlas.plane({ plane: "nearest_m" }, s) : null;
    if (signal.aborted) return;
    if (!grid) { grid = gridOf(spec); new painted(grid.canvas, grid.bounds, { pane: "right", interactive: false }).addTo(map); }
    grid.place(known);
    grid.paint(colour, away && ((k) => away[k] > 1000 * theirs.far_km));
    now = { atlas, s, layer, spec: theirs, name: name() };
    const words = [s.quarter && quarterText(s.quarter), fill(layer.of, s)].filter(Boolean).join(" · "), other = layer.id !== layerNow().id || !mine;
    $("legend-right").replaceChildren(...(other ? legendOf(base, layer, s, fade, words, "") : []));
    $("beside-said").textContent = "Left: " + [settingOf().quarter && quarterText(settingOf().quarter), fill(layerNow().plain || layerNow().short, settingOf())].filter(Boolean).join(", ") + ". Right: " + [now.name, fill(layer.plain || layer.short, s)].filter(Boolean).join(", ") + ".";
    const alike = s.quarter === settingOf().quarter && state.run === (spec.run ?? ""); // then the layers differ
    $("divider").firstElementChild.textContent = alike ? fill(layerNow().plain || layerNow().short, settingOf()) : [state.run === (spec.run ?? "") ? "" : spec.run, settingOf().quarter && quarterText(settingOf().quarter)].filter(Boolean).join(", ") || spec.run;
    $("divider").lastElementChild.textContent = alike ? fill(layer.plain || layer.short, s) : now.name;
    clip();
  }
  function change(part) { Object.assign(state, part); changed(); }
  $("beside-run").addEventListener("change", () => change({ run: $("beside-run").value }));
  $("beside-quarter").addEventListener("change", () => change({ quarter: $("beside-quarter").value }));
  $("beside-layer").addEventListener("change", () => change({ layer: $("beside-layer").value }));
  $("beside").addEventListener("toggle", () => { // it begins with the quarter before, or another run
    if ($("beside").open === state.on) return;
    const i = S.quarters.indexOf(settingOf().quarter);
    change({ on: $("beside").open, ...($("beside").open ? { layer: layerNow().formula ? layerNow().id : "", quarter: S.quarters[i - 1] || S.quarters[i + 1] || state.quarter } : {}) });
    if (!state.on) $("legend-right").replaceChildren();
  });
  $("cut").addEventListener("input", () => { state.cut = Number($("cut").value); clip(); });
  $("cut").addEventListener("change", () => changed(true));
  return {
    paint,
    at: (latlng) => now && state.on && map.latLngToContainerPoint(latlng).x > x() ? now : null,
    put: (put) => { const on = state.on; put("br", on && state.run ? state.run : null); put("bq", on ? state.quarter : null); put("bl", on ? state.layer : null); put("cut", on ? state.cut : null); },
    read(p) {
      if (!p.get("bl")) return;
      Object.assign(state, { on: true, layer: p.get("bl"), run: runs.includes(p.get("br")) ? p.get("br") : spec.run ?? "", quarter: p.get("bq") || spec.start.q });
      const cut = Number(p.get("cut"));
      if (cut >= 5 && cut <= 95) state.cut = cut;
      $("cut").value = state.cut; $("beside").open = true;
    },
  };
}
