/* Nodes with words; text from data is set through textContent. */
const make = (tag, name, text) => {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text !== undefined) node.textContent = text;
  return node;
};

/* Layers as radio buttons: those in plain words, the rest under More; `off` says why one cannot be chosen. */
let moreLayers = false; // whether the rest is unfolded
function layerList(layers, chosen, setting, off, choose) {
  const line = (layer) => {
    const label = make("label"), radio = make("input"), why = off(layer);
    Object.assign(radio, { type: "radio", name: "layer", value: layer.id, checked: layer.id === chosen, disabled: Boolean(why) });
    radio.addEventListener("change", () => choose(layer.id));
    label.append(radio, make("span", "", fill(layer.plain || layer.short, setting) + (why ? " (" + why + ")" : "")));
    label.title = fill(layer.about, setting);
    return label;
  };
  const first = make("div", "first"), more = make("details", "more"), groups = new Map();
  more.append(make("summary", "", "More layers"));
  for (const layer of layers) {
    if (layer.plain) { first.append(line(layer)); continue; }
    if (!groups.has(layer.group)) {
      const field = make("fieldset");
      field.append(make("legend", "", layer.group)); groups.set(layer.group, field); more.append(field);
    }
    groups.get(layer.group).append(line(layer));
    if (layer.id === chosen) moreLayers = true;
  }
  more.open = moreLayers;
  more.addEventListener("toggle", () => { moreLayers = more.open; });
  return groups.size ? [first, more] : [first];
}

function ticksOf(marks) {
  const box = make("div", "ticks");
  const inward = ([at, text]) => text.length < 5 ? "" : at === 0 ? "first" : at === 1 ? "last" : ""; // a long one at an end would leave the legend
  const middle = (mark) => 100 * mark[0] + ({ first: 1, last: -1 }[inward(mark)] || 0) * (1.7 * mark[1].length - 4); // in percent
  const kept = [], touch = (one, other) => Math.abs(middle(one) - middle(other)) < (inward(one) || inward(other) ? 2 : 2.2) * (one[1].length + other[1].length);
  for (const mark of marks) { // a label that would lie on its neighbour is left out, the last one never
    const last = mark === marks[marks.length - 1];
    while (last && kept.length && touch(kept[kept.length - 1], mark)) kept.pop();
    if (!kept.length || !touch(kept[kept.length - 1], mark)) kept.push(mark);
  }
  for (const [at, text] of kept) {
    const tick = make("i"), label = make("span", inward([at, text]), text);
    tick.style.left = label.style.left = 100 * at + "%";
    box.append(tick, label);
  }
  return box;
}

/* Heading, colours and words of a layer; one that fades has a row of colours for each width of the interval. */
function legendOf(spec, layer, setting, fade, subtitle, note) {
  const heading = make("h2", "", fill(layer.title, setting) + " ");
  if (layer.unit) heading.append(make("span", "", "(" + layer.unit + ")"));
  const about = note || fill(fade ? fade.about : layer.about, setting);
  const words = [make("p", "of", subtitle), ...(about === "for " + fill(layer.of, setting) ? [] : [make("p", "", about.slice(0, 1).toUpperCase() + about.slice(1))])];
  if (fade) {
    const grid = make("div", "faded");
    grid.append(make("span"), make("span", "", "how sure"));
    fade.palette.forEach((row, i) => {
      const cells = make("div", "row");
      for (const rgb of row) { const cell = make("b"); cell.style.background = "rgb(" + rgb.join() + ")"; cells.append(cell); }
      grid.append(cells, make("span", "", fade.words[i]));
    });
    grid.append(ticksOf(layer.ticks), make("span"));
    return [heading, grid, ...words];
  }
  const ramp = make("div", "ramp"), rgb = bytesOf(spec.palettes[layer.palette]), stops = [], half = layer.half || 0;
  for (let i = 0; i <= 32; i++) { const k = 3 * Math.round(half + i * (255 - half) / 32); stops.push("rgb(" + rgb.slice(k, k + 3).join() + ")"); }
  ramp.style.background = "linear-gradient(to right," + stops.join() + ")";
  return [heading, ramp, ticksOf(layer.ticks), ...words];
}
