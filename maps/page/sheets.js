/* Sheets over the map: joint draws side by side; the picture that is downloaded, with its legend, date and caveat. */
async function drawsSheet(spec, source, layer, quarter, $, signal) {
  const pack = await source.draws(quarter, signal), grid = gridOf({ ...pack.header, region: spec.region });
  grid.place(await pack.known());
  const names = Object.keys(pack.header.planes), box = $("draws-list"), colours = { ...layer, scale: layer.scale };
  box.replaceChildren();
  for (const [k, name] of names.entries()) {
    const values = await pack.get(name), colour = await colourOf(spec, { plane: async () => values }, colours, {}, null);
    grid.paint(colour, null);
    const figure = make("figure"), canvas = make("canvas"), width = 420;
    canvas.width = width; canvas.height = Math.round(width * grid.canvas.height / grid.canvas.width);
    canvas.getContext("2d").drawImage(grid.canvas, 0, 0, canvas.width, canvas.height);
    canvas.setAttribute("role", "img"); canvas.setAttribute("aria-label", "Draw " + (k + 1) + " of the surface");
    figure.append(canvas, make("figcaption", "", "Draw " + (k + 1))); box.append(figure);
  }
  return names.length;
}

const wrapped = (c, text, width) => { // lines of at most a width
  const out = [];
  for (const word of text.split(" ")) {
    const last = out.length ? out[out.length - 1] + " " + word : null;
    if (last !== null && c.measureText(last).width <= width) out[out.length - 1] = last; else out.push(word);
  }
  return out;
};

/* What the map shows as a picture: the window in view with lines and names, and below it what a reader must know. */
function poster({ spec, map, grids, layer, setting, subtitle, caveat, fade, towns }) {
  const view = map.getBounds(), [left, top, right, bottom] = spec.mesh.bounds, middle = (left + right) / 2 / MERCATOR * 180;
  const metres = (lon) => lon / 180 * MERCATOR;
  const w = Math.max(left, metres(view.getWest())), e = Math.min(right, metres(view.getEast())), n = Math.min(top, yOf(view.getNorth())), s = Math.max(bottom, yOf(view.getSouth()));
  if (!(e > w && n > s)) throw Object.assign(new Error("The map lies outside the view; go back to it first."), { said: true });
  const width = 1200, pad = 40, height = Math.round(Math.min(1400, Math.max(300, (width - 2 * pad) * (n - s) / (e - w)))), inner = Math.min(width - 2 * pad, height * (e - w) / (n - s));
  const canvas = make("canvas"), c = canvas.getContext("2d"), font = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
  canvas.width = width; canvas.height = height + 370;
  c.fillStyle = "#fff"; c.fillRect(0, 0, width, canvas.height);
  c.fillStyle = "#1d2733"; c.font = "600 28px " + font; c.textBaseline = "top";
  c.fillText(fill(layer.title, setting) + (layer.unit ? " (" + layer.unit + ")" : ""), pad, 26, width - 2 * pad);
  c.font = "18px " + font; c.fillText(spec.title + " · " + subtitle, pad, 64, width - 2 * pad);
  const x0 = (width - inner) / 2, y0 = 104, at = (lon, lat) => [x0 + (metres(lon + 360 * Math.round((middle - lon) / 360)) - w) / (e - w) * inner, y0 + (n - yOf(lat)) / (n - s) * height];
  c.save(); c.beginPath(); c.rect(x0, y0, inner, height); c.clip();
  c.fillStyle = "#e9eef3"; c.fillRect(x0, y0, inner, height); c.imageSmoothingEnabled = false;
  for (const { canvas, rectangle: [a, b, r, d] } of grids) { // the map's, and over it the finer one in view
    const px = (m) => x0 + (m - w) / (e - w) * inner, py = (m) => y0 + (n - m) / (n - s) * height;
    c.drawImage(canvas, px(a), py(b), px(r) - px(a), py(d) - py(b));
  }
  for (const polygon of !spec.region ? [] : spec.region.type === "Polygon" ? [spec.region.coordinates] : spec.region.coordinates) {
    for (const ring of polygon) { c.beginPath(); ring.forEach(([lon, lat], k) => { const [x, y] = at(lon, lat); if (k) c.lineTo(x, y); else c.moveTo(x, y); }); c.closePath(); c.strokeStyle = "#1d2733"; c.lineWidth = 1.2; c.stroke(); }
  }
  c.strokeStyle = "rgba(29,39,51,.55)"; c.lineWidth = .9;
  for (const line of spec.lines) { c.beginPath(); line.forEach(([lon, lat], k) => { const [x, y] = at(lon, lat); if (k) c.lineTo(x, y); else c.moveTo(x, y); }); c.stroke(); }
  c.font = "600 15px " + font; c.textBaseline = "middle"; c.lineWidth = 4; c.strokeStyle = "rgba(255,255,255,.9)"; c.fillStyle = "#1d2733";
  for (const place of towns.filter((t) => t.kind === "area")) { const [x, y] = at(place.lon, place.lat); c.textAlign = "center"; c.strokeText(place.name, x, y); c.fillText(place.name, x, y); c.textAlign = "left"; }
  for (const place of towns.filter((t) => t.kind !== "area")) { const [x, y] = at(place.lon, place.lat); c.beginPath(); c.arc(x, y, 4, 0, 7); c.stroke(); c.fill(); c.strokeText(place.name, x + 9, y); c.fillText(place.name, x + 9, y); }
  c.restore();
  let y = y0 + height + 24;
  const bar = 520, rows = fade ? fade.palette : null, rgb = bytesOf(spec.palettes[layer.palette]), half = layer.half || 0;
  if (rows) rows.forEach((row, r) => { row.forEach((colour, k) => { c.fillStyle = "rgb(" + colour.join() + ")"; c.fillRect(pad + k * bar / row.length, y + 15 * r, bar / row.length - 1, 14); }); c.fillStyle = "#1d2733"; c.font = "13px " + font; c.textBaseline = "top"; c.fillText((r ? "" : "how sure ") + fade.words[r], pad + bar + 10, y + 15 * r); });
  else for (let k = 0; k < bar; k++) { const i = 3 * Math.round(half + k / bar * (255 - half)); c.fillStyle = "rgb(" + rgb.slice(i, i + 3).join() + ")"; c.fillRect(pad + k, y, 1.5, 22); }
  y += rows ? 15 * rows.length + 4 : 26;
  c.fillStyle = "#1d2733"; c.font = "14px " + font; c.textAlign = "center"; c.textBaseline = "top";
  for (const [share, text] of layer.ticks) c.fillText(text, pad + share * bar, y);
  c.textAlign = "left"; y += 30; c.font = "15px " + font; c.fillStyle = "#3a4552";
  for (const line of caveat.flatMap((text) => wrapped(c, text, width - 2 * pad))) { c.fillText(line, pad, y); y += 21; }
  const out = make("canvas");
  out.width = width; out.height = Math.min(canvas.height, y + 20); out.getContext("2d").drawImage(canvas, 0, 0);
  return new Promise((done) => out.toBlob(done, "image/png"));
}
