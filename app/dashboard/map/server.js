/* Questions to this server, and pictures it has answered. */
async function answer(path, params) {
  const response = await fetch("/geogp/" + path + "?" + new URLSearchParams(params));
  if (!response.ok) {
    let said = "The server answered " + response.status + ".";
    try { said = (await response.json()).error || said; } catch { /* not ours */ }
    throw Object.assign(new Error(said), { said: true });
  }
  return response;
}
export const ask = async (path, params) => (await answer(path, params)).json();
export const words = (error) => error.said ? error.message
  : "The dashboard does not answer; is `geogp app` still running?";

const pictures = new Map(); // address -> blob address, the latest 40
export async function picture(path, params) {
  const key = path + "?" + new URLSearchParams(params);
  if (!pictures.has(key)) {
    const blob = await (await answer(path, params)).blob();
    pictures.set(key, URL.createObjectURL(blob));
    if (pictures.size > 40) {
      const [old, url] = pictures.entries().next().value;
      URL.revokeObjectURL(url); pictures.delete(old);
    }
  }
  return pictures.get(key);
}
