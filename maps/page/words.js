/* Numbers, places and sentences as people write them; the same words as `maps.words` and the command line use. */
const positional = (v) => v === 0 || Math.abs(v) >= 1e-6 && Math.abs(v) < 1e9; // without an exponent, as in maps.words
const plain = (v) => !Number.isFinite(v) ? "no value"
  : !positional(v) ? Number(v.toPrecision(3 - (Math.abs(v) < 1))).toExponential()
  : Math.abs(v) >= 10 ? Math.round(v).toLocaleString("en-US")
  : v === 0 ? "0" : String(Number(v.toPrecision(2)));
const percent = (p) => !Number.isFinite(p) ? "no value" : p < 0.005 ? "< 1%" : p > 0.995 ? "> 99%" : Math.round(100 * p) + "%";
const chance = (p) => { const said = percent(p); return /^[<>]/.test(said) ? said : "= " + said; };
const short = (v) => String(Number(Number(v).toPrecision(10)));
const exact = (v) => positional(Number(v)) ? short(v) : Number(Number(v).toPrecision(10)).toExponential();
const length = (km) => km < 1 ? short((1000 * km).toPrecision(3)) + " m" : short(km.toPrecision(3)) + " km";
const awayText = (km, near) => km < near ? "within " + length(near) : (km < 1 ? length(km) : km.toFixed(km < 10 ? 1 : 0) + " km") + " away";
const wrap = (lon) => ((lon + 180) % 360 + 360) % 360 - 180;
const side = (v, plus, minus) => Math.abs(v).toFixed(4) + "° " + (v < 0 ? minus : plus);
const written = (lat, lon) => side(lat, "N", "S") + ", " + side(wrap(lon), "E", "W");
const kindsText = ({ share, medians: [first, second] }, unit) => percent(1 - share) + " around " + plain(first) + ", " + percent(share) + " around " + plain(second) + unit;
const quarterText = (q) => q.replace("Q", " Q");
const testsText = (n, of = "test") => short(n) + " " + of + (Number(n) === 1 ? "" : "s");

/* Words of a layer: {level}, {tail}, {threshold} and {tests} are what is chosen. */
const fill = (text, s) => text
  .replaceAll("{level}", short(100 * s.level) + "%").replaceAll("{tail}", short(50 * (1 - s.level)) + "%")
  .replaceAll("{threshold}", exact(s.threshold)).replaceAll("{limit}", exact(s.limit ?? 0)).replaceAll("{tests}", testsText(s.tests));

/* "34.05,-143.2" of an address. */
function pair(text) {
  const parts = (text || "").split(","), [lat, lon] = parts.map(Number);
  return parts.length === 2 && parts.every((p) => p.trim() !== "") && Number.isFinite(lat) && Number.isFinite(lon)
    && Math.abs(lat) <= 90 && Math.abs(lon) <= 360 ? [lat, lon] : null;
}

/* "21.31, -157.86", "21,31 N 157,86 W", "N 21 18 36 W 157 51 30", "21°18'36\"N, 157°51'30\"W" -> [lat, lon], or null */
function coordinates(text) {
  let said = text.toUpperCase().replace(/[°º'"′″´`’”]/g, " ");
  said = said.replace(/NORTH/g, "N").replace(/SOUTH/g, "S").replace(/EAST/g, "E").replace(/WEST/g, "W")
    .replace(/−/g, "-").replace(/\bLAT(?:ITUDE)?\b|\bLON(?:G|GITUDE)?\b|[:=()]/g, " ");
  if (/[A-Z]/.test(said.replace(/\b[NSEW]\b|(?<=[\d\s])[NSEW]|[NSEW](?=[\d\s-])/g, ""))) return null;
  if (!said.includes(".") && /\d,\d/.test(said)) { // a decimal comma: "21,31 -157,86", "21,31; -157,86", "21,31, -157,86"
    const commas = (said.match(/\d,\d/g) || []).length;
    if (commas >= 2 || !/^\s*-?\d+\s*,\s*-?\d+\s*$/.test(said)) said = said.replace(/(\d),(\d)/g, "$1.$2");
  }
  const parts = said.match(/[NSEW]|[-+]?\d+(?:\.\d+)?/g);
  if (!parts || /[^NSEW\d\s.,;+\-/|]/.test(said)) return null;
  const letters = parts.filter((p) => /[NSEW]/.test(p)), groups = [];
  if (!letters.length) {
    if (![2, 4, 6].includes(parts.length)) return null;
    const half = parts.length / 2;
    groups.push({ numbers: parts.slice(0, half), side: "" }, { numbers: parts.slice(half), side: "" });
  } else {
    if (letters.length !== 2) return null;
    const before = /[NSEW]/.test(parts[0]);
    let now = { numbers: [], side: "" };
    for (const part of parts) {
      if (!/[NSEW]/.test(part)) { now.numbers.push(part); continue; }
      if (before) { now = { numbers: [], side: part }; groups.push(now); } else { now.side = part; groups.push(now); now = { numbers: [], side: "" }; }
    }
    if (!before && now.numbers.length) return null;
  }
  const value = ({ numbers, side }) => {
    const v = numbers.map(Number);
    if (!v.length || v.length > 3 || v.slice(1).some((x) => x < 0 || x >= 60)) return NaN;
    const size = Math.abs(v[0]) + (v[1] || 0) / 60 + (v[2] || 0) / 3600;
    return (String(numbers[0]).startsWith("-") ? -1 : 1) * size * (side === "S" || side === "W" ? -1 : 1);
  };
  if (groups[0].side && "EW".includes(groups[0].side)) groups.reverse();
  if (groups[0].side && "EW".includes(groups[0].side) || groups[1].side && "NS".includes(groups[1].side)) return null;
  let [lat, lon] = groups.map(value);
  if (!letters.length && Math.abs(lat) > 90 && Math.abs(lon) <= 90) [lat, lon] = [lon, lat];
  return Math.abs(lat) <= 90 && Math.abs(lon) <= 360 ? [lat, lon] : null;
}
