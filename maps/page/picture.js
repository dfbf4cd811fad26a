/* Web Mercator <-> pixels of the prediction's own grid, and the picture painted from its planes. */
const MERCATOR = 20037508.342789244;
const latOf = (y) => Math.atan(Math.sinh(y / MERCATOR * Math.PI)) * 180 / Math.PI;
const yOf = (lat) => Math.asinh(Math.tan(lat * Math.PI / 180)) / Math.PI * MERCATOR;
const fraction = (scale, v) => {
  const t = scale.kind === "log" ? Math.log(Math.max(v, scale.low) / scale.low) / Math.log(scale.high / scale.low)
    : (v - scale.low) / (scale.high - scale.low);
  return Math.min(1, Math.max(0, t));
};
const packed = (r, g, b) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;

function gridOf(spec) {
  const { width, height } = spec.grid, [left, top, right, bottom] = spec.mesh.bounds;
  const mesh = { n: spec.mesh.n, col: floats32(spec.mesh.col), row: floats32(spec.mesh.row) };
  const canvas = document.createElement("canvas");
  canvas.width = spec.mesh.width; canvas.height = spec.mesh.height;
  function cell(u, v) { // u, v in [0, 1] across the mesh -> [column, row], with fractions
    if (!(u >= 0 && u <= 1 && v >= 0 && v <= 1)) return null;
    const n = mesh.n - 1, a = Math.min(n - 1, Math.floor(u * n)), b = Math.min(n - 1, Math.floor(v * n));
    const s = u * n - a, t = v * n - b, i = b * mesh.n + a, j = i + mesh.n;
    const mix = (p) => (p[i] * (1 - s) + p[i + 1] * s) * (1 - t) + (p[j] * (1 - s) + p[j + 1] * s) * t;
    return [mix(mesh.col), mix(mesh.row)];
  }
  function pixel(u, v) { // -> index into the grid, or -1
    const at = cell(u, v);
    if (!at) return -1;
    const col = Math.floor(at[0]), row = Math.floor(at[1]);
    return col >= 0 && col < width && row >= 0 && row < height ? row * width + col : -1;
  }
  const uv = (latlng) => {
    const middle = (left + right) / 2 / MERCATOR * 180, lon = latlng.lng + 360 * Math.round((middle - latlng.lng) / 360);
    return [(lon / 180 * MERCATOR - left) / (right - left), (top - yOf(latlng.lat)) / (top - bottom)];
  };
  let coast = null;
  if (spec.region) {
    coast = new Path2D();
    for (const polygon of spec.region.type === "Polygon" ? [spec.region.coordinates] : spec.region.coordinates) {
      for (const ring of polygon) {
        ring.forEach(([lon, lat], k) => {
          const x = (lon / 180 * MERCATOR - left) / (right - left) * canvas.width, y = (top - yOf(lat)) / (top - bottom) * canvas.height;
          if (k) coast.lineTo(x, y); else coast.moveTo(x, y);
        });
        coast.closePath();
      }
    }
  }
  const context = canvas.getContext("2d");
  const inside = (latlng) => {
    const [u, v] = uv(latlng);
    return coast ? context.isPointInPath(coast, u * canvas.width, v * canvas.height, "evenodd") : false;
  };

  let placed = null, order = null, count = 0; // of a mask: numbers of known pixels, how many
  let hole = null, painting = null; // in canvas pixels, where finer pixels lie; what is painted
  let cells = null, owner = null, cover = null, image = null; // canvas pixels that show any: where, whose, how much is land
  function place(known) {
    if (placed && placed.length === known.length && placed.every((b, i) => b === known[i])) return;
    placed = known; order = new Int32Array(width * height).fill(-1);
    count = 0;
    for (let i = 0; i < order.length; i++) if (known[i >> 3] >> (7 - (i & 7)) & 1) order[i] = count++;
    if (spec.region) { // a pixel beside the region is its neighbour's, so that the coast has no teeth
      const rim = [];
      for (let i = 0; i < order.length; i++) {
        if (order[i] >= 0) continue;
        const x = i % width, y = (i - x) / width;
        for (const [dx, dy] of [[0, -1], [-1, 0], [1, 0], [0, 1], [-1, -1], [1, -1], [-1, 1], [1, 1]]) {
          const c = x + dx, r = y + dy;
          if (c >= 0 && r >= 0 && c < width && r < height && order[r * width + c] >= 0) { rim.push([i, order[r * width + c]]); break; }
        }
      }
      for (const [i, n] of rim) order[i] = n;
    }
    const land = coast ? landOf() : null, at = new Int32Array(canvas.width * canvas.height), whose = new Int32Array(at.length);
    let n = 0;
    for (let y = 0, i = 0; y < canvas.height; y++) {
      for (let x = 0; x < canvas.width; x++, i++) {
        if (land && !land[4 * i + 3]) continue;
        const p = pixel((x + .5) / canvas.width, (y + .5) / canvas.height);
        if (p >= 0 && order[p] >= 0) { at[n] = i; whose[n++] = order[p]; }
      }
    }
    cells = at.slice(0, n); owner = whose.slice(0, n);
    cover = Uint8Array.from(cells, (i) => land ? land[4 * i + 3] : 255);
    image = context.createImageData(canvas.width, canvas.height);
  }
  function landOf() { // the picture ends at the region's line, not at the pixels'
    const paper = document.createElement("canvas"), c = paper.getContext("2d", { willReadFrequently: true });
    paper.width = canvas.width; paper.height = canvas.height;
    c.fill(coast, "evenodd");
    return c.getImageData(0, 0, canvas.width, canvas.height).data;
  }
  return {
    canvas, inside, place, rectangle: [left, top, right, bottom],
    /* A yes or no for each known pixel by where it lies, asked once a pixel. */
    at(answer) {
      const out = new Uint8Array(order.length), w = canvas.width, h = canvas.height; // 0 not asked, 1 no, 2 yes
      owner.forEach((k, c) => { const i = cells[c]; if (!out[k]) out[k] = 1 + answer({ lat: latOf(top - (Math.floor(i / w) + .5) / h * (top - bottom)), lng: (left + (i % w + .5) / w * (right - left)) / MERCATOR * 180 }); });
      return (k) => out[k] === 2;
    },
    bounds: L.latLngBounds([latOf(bottom), left / MERCATOR * 180], [latOf(top), right / MERCATOR * 180]),
    /* Number of the known pixel at a place: on the map's own pixel, at the coast the one beside it; -1 for none. */
    number(latlng) {
      const [u, v] = uv(latlng), p = pixel(u, v);
      if (p < 0 || !order || order[p] < 0) return -1;
      return !spec.region || inside(latlng) || placed[p >> 3] >> (7 - (p & 7)) & 1 ? order[p] : -1;
    },
    /* Whether a place lies on the picture. */
    holds(latlng) { const [u, v] = uv(latlng); return u >= 0 && u < 1 && v >= 0 && v < 1; },
    /* Leaves the picture out where finer pixels lie, in a rectangle of Mercator metres, so that it does not show between them;
       shows all of it again. */
    uncover(rectangle = null) {
      const x = (m) => (m - left) / (right - left) * canvas.width, y = (m) => (top - m) / (top - bottom) * canvas.height;
      hole = rectangle && [Math.ceil(x(rectangle[0])), Math.ceil(y(rectangle[1])), Math.floor(x(rectangle[2])), Math.floor(y(rectangle[3]))];
      if (painting) this.paint(...painting);
    },
    clear() { painting = hole = null; context.clearRect(0, 0, canvas.width, canvas.height); }, // nothing is shown until it is painted again
    paint(colour, marked) { // colour(k) -> packed; marked(k): hatched
      painting = [colour, marked];
      const target = new Uint32Array(image.data.buffer), colours = new Uint32Array(count), hatch = new Uint8Array(colours.length);
      for (let k = 0; k < colours.length; k++) { colours[k] = colour(k); hatch[k] = marked && marked(k) ? 1 : 0; }
      const w = canvas.width, half = (c) => packed(0.55 * (c & 255) + 14, 0.55 * (c >> 8 & 255) + 16, 0.55 * (c >> 16 & 255) + 22);
      for (let c = 0; c < cells.length; c++) {
        const i = cells[c], k = owner[c], colour = hatch[k] && colours[k] && (i % w + (i - i % w) / w) % 9 < 1 ? half(colours[k]) : colours[k];
        target[i] = colour && (colour & 0xffffff | cover[c] << 24) >>> 0;
      }
      context.putImageData(image, 0, 0);
      if (hole && hole[2] > hole[0] && hole[3] > hole[1]) context.clearRect(hole[0], hole[1], hole[2] - hole[0], hole[3] - hole[1]);
    },
  };
}

/* How a layer is coloured: its ramp, or paler with fewer colours the wider the interval. */
async function colourOf(spec, atlas, layer, setting, fade) {
  const values = await atlas.plane(layer, setting);
  if (fade) {
    const [lo, up] = await Promise.all(["lower", "upper"].map((id) => atlas.plane(spec.ends[id], setting)));
    const rows = fade.palette.map((row) => row.map((c) => packed(...c))), [a, b, c] = fade.edges;
    return (k) => {
      const w = fade.ratio ? factorOf(values[k], lo[k], up[k]) : up[k] - lo[k];
      if (Number.isNaN(values[k]) || Number.isNaN(w)) return 0;
      const row = rows[w < a ? 0 : w < b ? 1 : w < c ? 2 : 3];
      return row[Math.min(row.length - 1, Math.floor(fraction(layer.scale, values[k]) * row.length))];
    };
  }
  const rgb = bytesOf(spec.palettes[layer.palette]), table = new Uint32Array(256);
  for (let k = 0; k < 256; k++) table[k] = packed(rgb[3 * k], rgb[3 * k + 1], rgb[3 * k + 2]);
  return (k) => Number.isNaN(values[k]) ? 0 : table[Math.round(255 * fraction(layer.scale, values[k]))];
}
