/* The list of layers and the legend of one, as nodes. Text from data is set through textContent. */
export const make = (tag, name, text) => {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text !== undefined) node.textContent = text;
  return node;
};

/* Layers by group, as radio buttons; `off` says why a layer cannot be chosen, or nothing. */
export function list(layers, chosen, off, choose) {
  const groups = new Map();
  for (const layer of layers) {
    if (!groups.has(layer.group)) {
      const field = make("fieldset");
      field.append(make("legend", "", layer.group));
      groups.set(layer.group, field);
    }
    const label = make("label"), radio = make("input"), why = off(layer);
    Object.assign(radio, { type: "radio", name: "layer", value: layer.id });
    radio.checked = layer.id === chosen;
    radio.disabled = Boolean(why);
    radio.addEventListener("change", () => choose(layer.id));
    label.append(radio, make("span", "", layer.short + (why ? " (" + why + ")" : "")));
    label.title = layer.about;
    groups.get(layer.group).append(label);
  }
  return [...groups.values()];
}

function ticks(marks) {
  const box = make("div", "ticks");
  for (const [at, text] of marks) {
    const line = make("i"), label = make("span", "", text);
    line.style.left = label.style.left = 100 * at + "%";
    box.append(line, label);
  }
  return box;
}

/* Heading, colours and words of a layer; one with a `grid` fades from row to row. */
export function legend(layer, subtitle, note) {
  const heading = make("h2", "", layer.title + " ");
  if (layer.unit) heading.append(make("span", "", "(" + layer.unit + ")"));
  const words = [make("p", "of", subtitle), make("p", "", note || layer.about)];
  if (!layer.grid) {
    const ramp = make("div", "ramp");
    if (layer.ramp.length) ramp.style.background = "linear-gradient(to right," + layer.ramp.join() + ")";
    return [heading, ramp, ticks(layer.ticks), ...words];
  }
  const grid = make("div", "faded");
  layer.grid.forEach((row, i) => {
    const cells = make("div", "row");
    for (const colour of row) { const cell = make("b"); cell.style.background = colour; cells.append(cell); }
    grid.append(cells, make("span", "", layer.words[i]));
  });
  grid.append(ticks(layer.ticks), make("span", "", "interval"));
  return [heading, grid, ...words];
}
