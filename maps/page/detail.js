/* Detail beyond the planes, over the picture, where the planes' own pixels have grown large: the pixels in sight of an exported
   map, or of the model itself, first every few and then all. Nobody waits for them: until they are here, and where there are
   none, the planes are shown and read out. */
function detailOf({ spec, source, map, painted, grid, said }) {
  const LARGE = 2, MARGIN = .2, STILL = 150; // screen pixels along a plane's; of the view on each side; ms
  let now = null, asked = null, drawn = null;
  const [left, , right] = spec.mesh.bounds, side = (right - left) / spec.grid.width;
  const screen = () => 2 * MERCATOR / (256 * 2 ** map.getZoom()); // Mercator metres of a screen pixel
  const exportOf = (s, layer) => (spec.finer || []).find((e) => e.quarter === s.quarter && e.tests === s.tests && Math.abs(e.level - s.level) < 1e-9
    && e.thresholds.includes(s.threshold) && (layer.id === "within" || e.layers.includes(layer.id)));
  function sourceOf(s, layer) { // an export of all that is chosen; else the model, which knows every layer of a quarter
    const of = exportOf(s, layer), setting = { q: s.quarter ?? "", ...(s.tests === null ? {} : { n: short(s.tests) }) };
    if (of) return { key: [of.name, s.quarter, s.tests, s.level, s.threshold].join(), side_m: of.side_m, name: () => of.name, margin: MARGIN, looks: [{}],
      ask: (box, look, signal) => source.detail({ of: of.name, ...setting, level: short(100 * s.level), t: short(s.threshold), layer: layer.id, box }, signal) };
    if (!spec.window || !layer.formula) return null;
    const ask = async (box, look, signal) => source.window({ q: s.quarter ?? "", ...look, box }, signal);
    return { key: ["", s.quarter].join(), side_m: spec.window.side_m, name: (step) => spec.window.mark + step, margin: 0, looks: [{ look: "1" }, {}], ask,
      more: (box, look, signal) => ask(box, { ...look, counts: "all" }, signal) }; // other numbers of tests, which were worked out with it
  }
  function remove() {
    const had = Boolean(drawn);
    asked?.abort(); drawn?.remove(); now = drawn = null; said("");
    if (had) grid.uncover();
  }
  function boxInView(margin) { // of the map, in steps of an eighth of itself, so that a small move asks nobody
    const b = map.getBounds().pad(margin), step = 2 ** Math.floor(Math.log2(Math.max(b.getEast() - b.getWest(), b.getNorth() - b.getSouth()))) / 8;
    const down = (v) => Math.floor(v / step) * step, up = (v) => Math.ceil(v / step) * step, m = grid.bounds;
    const w = Math.max(m.getWest(), down(b.getWest())), e = Math.min(m.getEast(), up(b.getEast())), s = Math.max(m.getSouth(), down(b.getSouth())), n = Math.min(m.getNorth(), up(b.getNorth()));
    return e > w && n > s ? [w, s, e, n] : null;
  }
  const holds = (box, b) => box[0] <= Math.max(b.getWest(), grid.bounds.getWest()) && box[1] <= Math.max(b.getSouth(), grid.bounds.getSouth())
    && box[2] >= Math.min(b.getEast(), grid.bounds.getEast()) && box[3] >= Math.min(b.getNorth(), grid.bounds.getNorth());
  const meets = (box, b) => box[0] < b.getEast() && box[2] > b.getWest() && box[1] < b.getNorth() && box[3] > b.getSouth();
  async function follow(s, layer, fade, far, told) { // after the planes were painted, or the map has moved; told() when anything came of it
    const of = sourceOf(s, layer);
    if (!of || side < LARGE * screen()) { remove(); return; }
    const same = now && now.key === of.key && now.has(layer, s) && meets(now.box, map.getBounds());
    if (now && !same) remove();
    if (same && holds(now.box, map.getBounds()) && now.all && (now.step === 1 || of.side_m * now.step <= LARGE * screen())) { if (!asked?.done) asked?.abort(); asked = null; said(""); await paint(layer, s, fade, far); return; }
    const box = boxInView(of.margin);
    if (!box) { remove(); return; }
    asked?.abort();
    const mine = asked = new AbortController();
    try {
      if (of.looks.length > 1) { // the model works for it: not for a map on its way
        if (same) await paint(layer, s, fade, far);
        await new Promise((done) => setTimeout(done, STILL));
        if (mine.signal.aborted) return;
        said("Working out the detail here …"); told();
      }
      for (const look of of.looks) {
        const last = look === of.looks.at(-1);
        if (!last && same && holds(now.box, map.getBounds()) && now.step * of.side_m <= 4 * screen()) continue; // what is shown is a look
        const pack = await of.ask(box.map((v) => v.toFixed(6)).join(), look, mine.signal);
        if (mine.signal.aborted) return;
        if (!pack) { if (last) remove(); continue; }
        const packs = [pack];
        if (of.more && s.tests !== null && !atlasOf(packs).knows(s)) packs.push(await of.more(box.map((v) => v.toFixed(6)).join(), look, mine.signal));
        if (mine.signal.aborted) return;
        const whole = last || pack.header.step === 1;
        if (!await put(of, box, packs, whole, mine.signal, [layer, s, fade, far])) return;
        if (whole) break;
        told();
      }
      mine.done = true; said("");
    } catch (error) { if (error.name !== "AbortError" && !mine.signal.aborted) remove(); } // the planes are as good as without
  }
  async function put(of, box, packs, all, signal, how) {
    const [pack] = packs;
    const own = gridOf({ ...pack.header, region: pack.header.table ? pack.header.region : spec.region });
    own.place(await pack.known());
    const atlas = atlasOf(packs), given = pack.header.table ? null : Object.fromEntries(await Promise.all(Object.keys(pack.header.planes).map(async (id) => [id, await pack.get(id)])));
    if (signal.aborted) return false;
    const has = (layer, s) => given ? (layer.id === "within" ? "upper" : layer.id) in given : Boolean(layer.formula) && (s.tests === null || atlas.knows(s));
    const found = { key: of.key, name: of.name(pack.header.step), box, atlas, planes: given, step: pack.header.step, all, grid: own, has }, before = drawn;
    now = found;
    drawn = new painted(own.canvas, own.bounds, { pane: "picture", interactive: false });
    await paint(...how);
    if (now === found) { drawn.addTo(map); before?.remove(); if (!given) grid.uncover(own.rectangle); }
    return now === found;
  }
  async function paint(layer, s, fade, far) {
    const { planes, atlas, grid: own } = now, within = () => planes.upper.map((v, k) => factorOf(planes.median[k], planes.lower[k], v));
    const of = planes ? { plane: async (l) => l.id === "within" ? within() : planes[l.id] } : atlas;
    const colour = await colourOf(spec, of, layer, s, fade), away = far && !planes && atlas.has("nearest_m") ? await atlas.plane({ plane: "nearest_m" }, s) : null;
    own.paint(colour, !far ? null : away ? (k) => away[k] > 1000 * spec.far_km : own.at((latlng) => { const k = grid.number(latlng); return k >= 0 && far(k); }));
  }
  const shows = (s) => now && drawn && now.key === (now.planes ? [now.name, s.quarter, s.tests, s.level, s.threshold] : ["", s.quarter]).join() && (now.planes || s.tests === null || now.atlas.knows(s));
  return {
    follow, remove,
    /* What the finer pixel at a place holds, if it is shown for what is chosen; nothing where there is no such pixel; null where a
       window of the model has no value. */
    async at(latlng, s, layers) {
      if (!shows(s)) return {};
      const { grid: own, planes, atlas } = now, i = own.number(latlng);
      if (!planes) return i >= 0 ? atlas.at(i, s, layers.filter((l) => l.formula)) : own.holds(latlng) ? null : {};
      const v = Object.fromEntries(Object.entries(planes).map(([id, plane]) => [id, plane[i]]));
      return i < 0 || Number.isNaN(v.median) ? {} : { ...v, pi_width: v.upper - v.lower, within: factorOf(v.median, v.lower, v.upper) };
    },
    name: (s) => shows(s) ? now.name : "",
    whole: () => Boolean(now?.all) && (!asked || asked.done),
    grid: () => now && drawn ? now.grid : null,
  };
}
