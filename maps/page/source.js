/* Where planes come from: out of the page itself, or from the server that sent it. Whoever asks may change their mind. */
const GONE = "The dashboard does not answer; is `geogp app` still running? This page goes on trying.";
const wordsOf = (error) => error.said ? error.message : GONE;

function insideSource(spec) { // one file: everything is here
  return {
    server: false,
    quarter: async () => Promise.all(spec.data.map((text) => unpack(bytesOf(text)))),
    more: async () => [],
    ahead() {},
  };
}

function serverSource(spec) {
  const kept = new Map(), extra = new Map(); // quarter -> packs
  async function answer(path, params, signal) {
    let response;
    try { response = await fetch(spec.server + path + "?" + new URLSearchParams({ ...params, v: spec.id, ...(spec.run ? { run: spec.run } : {}), ...(spec.other ? { other: spec.other } : {}) }), { signal }); }
    catch (error) { if (error.name === "AbortError") throw error; throw Object.assign(new Error(GONE), { gone: true }); }
    if (!response.ok) {
      let said = "The server answered " + response.status + ".", changed = false;
      try { const told = await response.json(); said = told.error || said; changed = Boolean(told.changed); } catch { /* not ours */ }
      throw Object.assign(new Error(said), { said: true, changed });
    }
    return response;
  }
  const pack = async (path, params, signal) => unpack(new Uint8Array(await (await answer(path, params, signal)).arrayBuffer()));
  const remember = (store, key, value, most) => {
    store.delete(key); store.set(key, value);
    if (store.size > most) store.delete(store.keys().next().value);
  };
  return {
    server: true,
    ready: (q) => kept.has(q),
    async quarter(q, signal) {
      if (!kept.has(q)) remember(kept, q, await pack("planes", { q: q ?? "" }, signal), 12);
      return [kept.get(q), ...(extra.has(q) ? [extra.get(q)] : [])];
    },
    async more(q, signal) { // other numbers of tests
      if (spec.settings.counts.length < 2) return [];
      if (!extra.has(q)) remember(extra, q, await pack("planes", { q: q ?? "", counts: "all" }, signal), 4);
      return [extra.get(q)];
    },
    async ahead(q) { // before anybody asks; what is asked meanwhile comes first
      if (!kept.has(q)) { try { remember(kept, q, await pack("planes", { q, ahead: "1" }), 12); } catch { /* asked again when needed */ } }
    },
    progress: async (q) => (await answer("progress", { q: q ?? "" })).json(),
    beside: async (name) => (await answer("beside", { other: name })).json(),
    apart: async () => (await answer("apart", {})).json(),
    async detail(params, signal) { const found = await answer("detail", params, signal); return found.status === 204 ? null : unpack(new Uint8Array(await found.arrayBuffer())); },
    async window(params, signal) { const found = await answer("window", params, signal); return found.status === 204 ? null : unpack(new Uint8Array(await found.arrayBuffer())); },
    names: async (params, signal) => (await answer("names", params, signal)).json(),
    draws: (q, signal) => pack("planes", { q: q ?? "", draws: "1" }, signal),
    download: async (params) => (await answer("download", params)).json(),
    file: (job) => spec.server + "file?" + new URLSearchParams({ job, ...(spec.run ? { run: spec.run } : {}) }),
    area: async (params, signal) => (await answer("area", params, signal)).json(),
    areas: async (job) => (await answer("areas", { job })).json(),
    slice: (q, at, signal) => pack("slice", { q: q ?? "", lat: at[0], lon: at[1] }, signal),
    history: async (at, finer, signal) => (await answer("history", { lat: at[0], lon: at[1], ...(finer ? { finer } : {}) }, signal)).json(),
  };
}
