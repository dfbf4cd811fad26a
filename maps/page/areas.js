/* Areas of a table on the map: their outlines, which one a place lies in, and one that is chosen. */
function inRings(rings, lon, lat) { // even-odd
  let inside = false;
  for (const ring of rings) {
    for (let i = 0, j = ring.length - 1; i < ring.length; j = i++) {
      const [x, y] = ring[i], [u, v] = ring[j];
      if ((y > lat) !== (v > lat) && lon < (u - x) * (lat - y) / (v - y) + x) inside = !inside;
    }
  }
  return inside;
}

function areasOf(collection) {
  const rings = (g) => g.type === "Polygon" ? g.coordinates : g.coordinates.flat();
  const rows = collection.features.map((f) => ({ ...f.properties, rings: rings(f.geometry), feature: f }));
  for (const row of rows) {
    const lon = row.rings.flat().map((c) => c[0]), lat = row.rings.flat().map((c) => c[1]);
    const least = (v) => v.reduce((a, b) => Math.min(a, b)), most = (v) => v.reduce((a, b) => Math.max(a, b));
    row.box = [least(lon), least(lat), most(lon), most(lat)];
  }
  const holds = (row, lon, lat) => lon >= row.box[0] && lon <= row.box[2] && lat >= row.box[1] && lat <= row.box[3] && inRings(row.rings, lon, lat);
  return {
    rows,
    of: (key) => rows.find((row) => row.key === key),
    at: (lat, lon) => rows.find((row) => [lon, lon + 360, lon - 360].some((x) => holds(row, x, lat))),
  };
}
