/* Places: as numbers, as people write them, and as people type them. */
export const wrap = (lon) => ((lon + 180) % 360 + 360) % 360 - 180;
const side = (v, plus, minus) => Math.abs(v).toFixed(4) + "° " + (v < 0 ? minus : plus);
export const written = (lat, lon) => side(lat, "N", "S") + ", " + side(wrap(lon), "E", "W");

/* "34.05,-143.2" of an address. */
export function pair(text) {
  const parts = (text || "").split(","), [lat, lon] = parts.map(Number);
  return parts.length === 2 && parts.every((p) => p.trim() !== "") && Number.isFinite(lat) && Number.isFinite(lon)
    && Math.abs(lat) <= 90 && Math.abs(lon) <= 360 ? [lat, lon] : null;
}

/* "21.31, -157.86", "21.31 N 157.86 W", "21 18 36 N, 157 51 30 W" */
export function coordinates(text) {
  const parts = text.toUpperCase().replace(/[°'"′″º]/g, " ").match(/[NSEW]|[-+]?\d+(?:\.\d+)?/g);
  if (!parts) return null;
  const groups = [];
  let now = { numbers: [], side: "" };
  const numbers = parts.filter((p) => !/[NSEW]/.test(p));
  if (numbers.length === parts.length) {
    if (numbers.length !== 2) return null;
    groups.push({ numbers: [numbers[0]], side: "" }, { numbers: [numbers[1]], side: "" });
  } else {
    for (const part of parts) {
      if (/[NSEW]/.test(part)) { now.side = part; groups.push(now); now = { numbers: [], side: "" }; } else now.numbers.push(part);
    }
    if (groups.length !== 2 || now.numbers.length) return null;
  }
  const value = ({ numbers: n, side }) => {
    const v = n.map(Number);
    if (!v.length || v.length > 3) return NaN;
    const size = Math.abs(v[0]) + (v[1] || 0) / 60 + (v[2] || 0) / 3600;
    return (String(n[0]).startsWith("-") ? -1 : 1) * size * (side === "S" || side === "W" ? -1 : 1);
  };
  if ("EW".includes(groups[0].side || "-") && groups[0].side) groups.reverse();
  if ("NS".includes(groups[1].side || "-") && groups[1].side) return null;
  const lat = value(groups[0]), lon = value(groups[1]);
  return Math.abs(lat) <= 90 && Math.abs(lon) <= 360 ? [lat, lon] : null;
}
