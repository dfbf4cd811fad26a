/* Detail beyond the planes: the pixels of an exported map that are in sight, over the picture, where the planes' own have
   grown large. Nobody waits for them: until they are here, and where there are none, the planes are shown and read out. */
function detailOf({ spec, source, map, painted, grid }) {
  const LARGE = 2, MARGIN = .2; // screen pixels along a plane's; of the view on each side
  let now = null, asked = null, drawn = null;
  const [left, , right] = spec.mesh.bounds, side = (right - left) / spec.grid.width;
  const screen = () => 2 * MERCATOR / (256 * 2 ** map.getZoom()); // Mercator metres of a screen pixel
  const exportOf = (s, layer) => (spec.finer || []).find((e) => e.quarter === s.quarter && e.tests === s.tests && Math.abs(e.level - s.level) < 1e-9
    && e.thresholds.includes(s.threshold) && (layer.id === "within" || e.layers.includes(layer.id)));
  const keyOf = (s, of) => [of.name, s.quarter, s.tests, s.level, s.threshold].join();
  function remove() { asked?.abort(); drawn?.remove(); now = drawn = null; }
  function boxInView() { // of the map, in steps of an eighth of itself, so that a small move asks nobody
    const b = map.getBounds().pad(MARGIN), step = 2 ** Math.floor(Math.log2(Math.max(b.getEast() - b.getWest(), b.getNorth() - b.getSouth()))) / 8;
    const down = (v) => Math.floor(v / step) * step, up = (v) => Math.ceil(v / step) * step, m = grid.bounds;
    const w = Math.max(m.getWest(), down(b.getWest())), e = Math.min(m.getEast(), up(b.getEast())), s = Math.max(m.getSouth(), down(b.getSouth())), n = Math.min(m.getNorth(), up(b.getNorth()));
    return e > w && n > s ? [w, s, e, n] : null;
  }
  const holds = (box, b) => box[0] <= Math.max(b.getWest(), grid.bounds.getWest()) && box[1] <= Math.max(b.getSouth(), grid.bounds.getSouth())
    && box[2] >= Math.min(b.getEast(), grid.bounds.getEast()) && box[3] >= Math.min(b.getNorth(), grid.bounds.getNorth());
  async function follow(s, layer, fade, away) { // after the planes were painted, or the map has moved
    const of = exportOf(s, layer);
    if (!of || side < LARGE * screen()) { remove(); return; }
    const key = keyOf(s, of), same = now && now.key === key && now.pack.has(layer.id === "within" ? "upper" : layer.id);
    if (now && !same) remove();
    if (same && holds(now.box, map.getBounds()) && (now.step === 1 || of.side_m * now.step <= LARGE * screen())) { asked?.abort(); await paint(layer, s, fade, away); return; }
    const box = boxInView();
    if (!box) { remove(); return; }
    asked?.abort();
    const mine = asked = new AbortController();
    try {
      const pack = await source.detail({ of: of.name, q: s.quarter ?? "", ...(s.tests === null ? {} : { n: short(s.tests) }), level: short(100 * s.level), t: short(s.threshold), layer: layer.id, box: box.map((v) => v.toFixed(6)).join() }, mine.signal);
      if (mine.signal.aborted) return;
      if (!pack) { remove(); return; }
      const own = gridOf({ ...pack.header, region: spec.region });
      own.place(await pack.known());
      const planes = Object.fromEntries(await Promise.all(Object.keys(pack.header.planes).map(async (id) => [id, await pack.get(id)])));
      if (mine.signal.aborted) return;
      const found = { key, of, box, pack, planes, step: pack.header.step, grid: own };
      if (same) drawn?.remove();
      now = found;
      drawn = new painted(own.canvas, own.bounds, { pane: "picture", interactive: false });
      await paint(layer, s, fade, away);
      if (now === found) drawn.addTo(map);
    } catch (error) { if (error.name !== "AbortError" && !mine.signal.aborted) remove(); } // the planes are as good as without
  }
  async function paint(layer, s, fade, away) {
    const { planes, grid: own } = now, within = () => planes.upper.map((v, k) => Math.sqrt(v / planes.lower[k]));
    const colour = await colourOf(spec, { plane: async (l) => l.id === "within" ? within() : planes[l.id] }, layer, s, fade);
    own.paint(colour, away && own.at((latlng) => { const k = grid.number(latlng); return k >= 0 && away(k); }));
  }
  return {
    follow, remove,
    /* What the finer pixel at a place holds, if it is shown for what is chosen; else nothing. */
    at(latlng, s) {
      if (!now || !drawn || now.key !== keyOf(s, now.of)) return {};
      const i = now.grid.number(latlng), v = Object.fromEntries(Object.entries(now.planes).map(([id, plane]) => [id, plane[i]]));
      return i < 0 || Number.isNaN(v.median) ? {} : { ...v, pi_width: v.upper - v.lower, within: Math.sqrt(v.upper / v.lower) };
    },
    name: (s) => now && drawn && now.key === keyOf(s, now.of) ? now.of.name : "",
    grid: () => now && drawn ? now.grid : null,
  };
}
