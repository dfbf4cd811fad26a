/* What `maps.packing.pack` packed: planes of the known pixels, and layers computed from them. Nothing here asks anybody. */
const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const floats32 = (text) => new Float32Array(bytesOf(text).buffer);
const floats64 = (text) => new Float64Array(bytesOf(text).buffer);
async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/* One pack: its header, and each plane as Float32Array (n), NaN where there is no value, when it is asked for. */
async function unpack(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset), length = view.getUint32(4, true);
  if (String.fromCharCode(...bytes.subarray(0, 4)) !== "GGP1") throw new Error("these are no planes of GeoGP");
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length))), body = bytes.subarray(8 + length);
  const chunk = ({ at, bytes: size }) => inflate(body.subarray(at, at + size));
  const decoded = new Map();
  async function plane(name) {
    const p = header.planes[name], raw = await chunk(p), n = header.n, out = new Float32Array(n), ratio = Math.log(p.high / p.low);
    for (let i = 0, code = 0; i < n; i++) {
      code = code + (raw[i] << 8 | raw[n + i]) & 65535;
      const t = (code - 1) / (p.steps - 1);
      out[i] = code === 0 ? NaN : p.kind === "log" ? p.low * Math.exp(t * ratio) : p.low + t * (p.high - p.low);
    }
    return out;
  }
  return {
    header,
    has: (name) => name in header.planes,
    known: () => chunk(header.known),
    get(name) {
      if (!decoded.has(name)) decoded.set(name, plane(name));
      return decoded.get(name);
    },
  };
}

/* How sure, as a factor either way: the interval lies between the median divided by it and the median times it. */
const factorOf = (median, lower, upper) => lower > 0 ? Math.max(upper / median, median / lower) : Number.isNaN(upper) ? NaN : Infinity;

/* From the working scale to values and back, through the table of the header. */
function scaleOf(table) {
  const values = floats64(table.values), n = values.length, { low, high } = table, log = values[0] > 0;
  const nodes = log ? values.map(Math.log) : values;
  const value = (u) => {
    const x = Math.min(n - 1, Math.max(0, (u - low) / (high - low) * (n - 1))), i = Math.min(n - 2, Math.floor(x));
    const v = nodes[i] + (x - i) * (nodes[i + 1] - nodes[i]);
    return log ? Math.exp(v) : v;
  };
  const working = (v) => { // the largest u whose value is at most v
    if (log && v <= 0) return -Infinity;
    const y = log ? Math.log(v) : v;
    if (y < nodes[0]) return low;
    let a = 0, b = n - 1;
    while (b - a > 1) { const c = a + b >> 1; if (nodes[c] <= y) a = c; else b = c; }
    return low + (a + Math.min(1, (y - nodes[a]) / (nodes[b] - nodes[a] || Infinity))) / (n - 1) * (high - low);
  };
  return { value, working };
}

/* A quarter in memory: `plane(layer, setting)` for a picture, `at(i, setting)` for one place, exactly. */
function atlasOf(packs) {
  const header = packs[0].header, n = header.n;
  const get = (name) => packs.find((p) => p.has(name)).get(name);
  const has = (name) => packs.some((p) => p.has(name));
  const kept = new Map(); // the latest layers computed
  const once = (key, make) => {
    if (!kept.has(key)) {
      kept.set(key, make());
      if (kept.size > 24) kept.delete(kept.keys().next().value);
    }
    return kept.get(key);
  };
  const each = (make) => { const out = new Float32Array(n); for (let i = 0; i < n; i++) out[i] = make(i); return out; };

  const given = { // planes as they are
    n, header, has,
    plane: (layer, s) => layer.planes ? get(layer.planes[short(s.threshold)] ?? Object.values(layer.planes)[0]) : get(layer.plane),
    async at(i, s, layers) {
      const out = {};
      for (const layer of layers) if (layer.plane || layer.planes) out[layer.id] = (await given.plane(layer, s))[i];
      return out;
    },
  };
  if (!header.table) return given;

  const scale = scaleOf(header.table);
  const mark = (s) => s.tests === null ? "" : "_" + short(s.tests);
  /* Of new measurements, whose scale may be bent where values pile up. */
  const bent = new Map();
  const scaleOfNew = (s) => {
    const values = packs.find((p) => p.has("location" + mark(s)))?.header.table.new?.[mark(s)];
    if (values === undefined) return scale;
    if (!bent.has(mark(s))) bent.set(mark(s), scaleOf({ ...header.table, values }));
    return bent.get(mark(s));
  };
  /* Of new measurements; with the planes of a second peak where there are any. */
  const PEAK = ["peak_share", "peak_offset", "peak_scale"];
  const parts = async (s) => Promise.all(["location", "scale", "inverse_df", "log_skewness", ...(has(PEAK[0] + mark(s)) ? PEAK : [])].map((name) => get(name + mark(s))));
  /* Of one place: tails, skewness; of a second peak the share, and location and scale in units of the first. */
  const shape = (i, [, width, tails, skews, shares, offsets, scales]) => [tails[i], skews[i], shares ? shares[i] : 0, shares ? offsets[i] / width[i] : 0, shares ? scales[i] / width[i] : 1];
  const tailsOf = (s, tails) => once("tails" + mark(s), () => tailTable(tails)), gaussian = () => once("gaussian", () => tailTable([0]));
  const end = (s, p) => once("end" + p + mark(s), async () => {
    const [location, width, tails, skews, shares, offsets, scales] = await parts(s), table = quantileTable(p, tails, skews);
    const { value } = scaleOfNew(s);
    if (!shares) return each((i) => value(location[i] + width[i] * table(tails[i], skews[i])));
    const tail = tailsOf(s, tails), bell = gaussian(), z = quantile(p, 0, 0);
    return each((i) => {
      const m = offsets[i] / width[i], r = scales[i] / width[i];
      return value(location[i] + width[i] * quantileOfBoth(p, tails[i], skews[i], shares[i], m, r, table(tails[i], skews[i]), m + r * z, tail, bell, 5e-4));
    });
  });
  const tail = (s) => 0.5 * (1 - s.level);
  const surface = (p) => once("surface" + p, async () => {
    const [mean, sd] = await Promise.all([get("surface"), get("surface_sd")]), z = quantile(p, 0, 0);
    return each((i) => scale.value(mean[i] + z * sd[i]));
  });
  const formulas = {
    median: (s) => end(s, 0.5),
    lower: (s) => end(s, tail(s)),
    upper: (s) => end(s, 1 - tail(s)),
    async pi_width(s) { const [a, b] = await Promise.all([end(s, tail(s)), end(s, 1 - tail(s))]); return each((i) => b[i] - a[i]); },
    async within(s) { const [m, a, b] = await Promise.all([end(s, 0.5), end(s, tail(s)), end(s, 1 - tail(s))]); return each((i) => factorOf(m[i], a[i], b[i])); },
    async exceedance(s) {
      const of = await parts(s), [location, width, tails, skews, shares] = of, u = scaleOfNew(s).working(s.threshold), table = tailsOf(s, tails);
      if (header.least !== null && s.threshold < header.least) return each(() => 1);
      if (!shares) return each((i) => beyond((u - location[i]) / width[i], tails[i], skews[i], table));
      const bell = gaussian();
      return each((i) => beyondBoth((u - location[i]) / width[i], ...shape(i, of), table, bell));
    },
    latent_median: () => surface(0.5),
    latent_lower: (s) => surface(tail(s)),
    latent_upper: (s) => surface(1 - tail(s)),
    latent_sd: () => get("surface_sd"),
    async noise_sd(s) {
      const of = await parts(s), [, width, tails, skews, shares] = of, latent = await get("latent_sd" + mark(s));
      const square = shares ? (i) => varianceOfBoth(...shape(i, of)) : (i) => variance(tails[i], skews[i]);
      return each((i) => Math.sqrt(Math.max(0, width[i] ** 2 * square(i) - latent[i] ** 2)));
    },
    async explained() { const [sd, prior] = await Promise.all([get("surface_sd"), get("prior_sd")]); return each((i) => Math.min(1, Math.max(0, 1 - (sd[i] / prior[i]) ** 2))); },
    async measured() { const away = await get("nearest_m"); return each((i) => away[i] / 1000); },
  };
  const part = (s) => [tail(s), mark(s), s.threshold].join();
  const atlas = {
    /* Of each place, in sds of the surface, how far its median lies below a value. */
    async below(v) { const [at, sd] = await Promise.all([get("surface"), get("surface_sd")]), u = scale.working(v); return (i) => (u - at[i]) / sd[i]; },
    n, header, has, knows: (s) => has("location" + mark(s)),
    plane: (layer, s) => layer.formula ? once(layer.formula + part(s), () => formulas[layer.formula](s)) : given.plane(layer, s),
    /* Of one place without a table: what is printed. */
    async at(i, s, layers) {
      const [told, mean, sd, prior] = await Promise.all([parts(s), get("surface"), get("surface_sd"), get("prior_sd")]), [location, width] = told, own = shape(i, told);
      const [tails, skew, share, m, r] = own, valueAt = (u) => scaleOfNew(s).value(location[i] + width[i] * u);
      const end = (p) => valueAt(quantileOfBoth(p, ...own));
      const of = (p) => scale.value(mean[i] + quantile(p, 0, 0) * sd[i]);
      const out = {
        median: end(0.5), lower: end(tail(s)), upper: end(1 - tail(s)), exceedance: atlas.chance(i, s, told),
        latent_median: of(0.5), latent_lower: of(tail(s)), latent_upper: of(1 - tail(s)), latent_sd: sd[i],
        noise_sd: Math.sqrt(Math.max(0, width[i] ** 2 * varianceOfBoth(...own) - (await get("latent_sd" + mark(s)))[i] ** 2)),
        explained: Math.min(1, Math.max(0, 1 - (sd[i] / prior[i]) ** 2)),
      };
      out.pi_width = out.upper - out.lower; out.within = factorOf(out.median, out.lower, out.upper);
      if (standApart(share, m, r)) out.kinds = { share, medians: [valueAt(quantile(0.5, tails, skew)), valueAt(m)] };
      if (has("nearest_m")) out.measured = (await get("nearest_m"))[i] / 1000;
      for (const layer of layers) if (layer.plane) out[layer.id] = (await get(layer.plane))[i];
      return out;
    },
    chance(i, s, of) {
      if (header.least !== null && s.threshold < header.least) return 1;
      const [location, width] = of;
      return beyondBoth((scaleOfNew(s).working(s.threshold) - location[i]) / width[i], ...shape(i, of));
    },
    /* Of numbers from elsewhere: a quarter of the same place. */
    of: ({ location, scale: width, inverse_df: a, log_skewness: skew, peak_share: w = 0, peak_offset: m = 0, peak_scale: r = width }, s) => Object.fromEntries(
      [["median", 0.5], ["lower", tail(s)], ["upper", 1 - tail(s)]].map(([name, p]) => [name, scaleOfNew(s).value(location + width * quantileOfBoth(p, a, skew, w, m / width, r / width))])),
  };
  return atlas;
}
