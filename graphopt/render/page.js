"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const FIRST_ROWS = 400; // rows drawn at once in one list; the rest follow on demand
const LONG_RUN = 8; // neighbours that did not change are folded from this many on

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "class") element.className = value;
    else if (name === "style") element.style.cssText = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  for (const child of children) element.append(child);
  return element;
}
function time(seconds) {
  for (const [unit, scale] of [["s", 1], ["ms", 1e-3], ["us", 1e-6]])
    if (Math.abs(seconds) >= scale) return `${Number((seconds / scale).toPrecision(3))} ${unit}`;
  return `${Number((seconds / 1e-9).toPrecision(3))} ns`;
}
const color = (module, part) => `var(--${part.r === undefined ? module.units[part.u].kind : "native"})`;
const signature = (part) => `${part.o}|${part.n}|${part.u}|${part.r === undefined}|${part.s}`;

class ModuleView {
  constructor(module, number) {
    this.module = module;
    this.number = number;
    this.sides = [module.default.parts, module.chosen.parts];
    const chosen = new Set(this.sides[1].map(signature)), defaults = new Set(this.sides[0].map(signature));
    this.same = [this.sides[0].map((p) => chosen.has(signature(p))), this.sides[1].map((p) => defaults.has(signature(p)))];
    this.owners = this.sides.map((parts) => {
      const owner = new Map();
      parts.forEach((part, i) => part.n.forEach((node) => owner.set(node, (owner.get(node) || []).concat(i))));
      return owner;
    });
    this.rows = [new Map(), new Map()];
    this.lists = [];
    this.changed = new Set(module.nodes.changed);
    this.settled = new Map();
    for (const [node, rule] of module.nodes.settled) this.settled.set(node, (this.settled.get(node) || []).concat(rule));
    this.text = this.sides.map((parts) => parts.map((part) => this.searchText(part)));
  }
  searchText(part) {
    const nodes = this.module.nodes, words = [this.module.units[part.u].name];
    for (const node of part.n) {
      words.push(nodes.name[node], nodes.op[node], nodes.shape[node], nodes.path[node]);
      const line = nodes.line[node];
      if (line !== null) words.push(nodes.lines[line].at, nodes.lines[line].in, nodes.lines[line].text);
    }
    return words.join(" ").toLowerCase();
  }
  label(part) {
    const nodes = this.module.nodes, root = part.m, more = part.n.length - part.o.length;
    return `${nodes.op[root]} ${nodes.shape[root]}` + (part.o.length > 1 ? ` and ${part.o.length - 1} more outputs` : "") + (more > 0 ? ` (+${more})` : "");
  }
  visible(side, index, filter) {
    return (!filter.changes || !this.same[side][index]) && filter.words.every((word) => this.text[side][index].includes(word));
  }
  draw() {
    const module = this.module, faster = module.speedup >= 1;
    const root = make("section", { id: `module-${this.number}` },
      make("h2", {}, module.name),
      make("p", {}, `${module.nodes.name.length} nodes; default ${time(module.default.seconds)} in ${module.default.clusters} clusters; chosen ${time(module.chosen.seconds)} in ${module.chosen.clusters} clusters, ${module.chosen.regions} native regions: `,
        make("b", { class: faster ? "good" : "bad" }, `${module.speedup.toFixed(2)}x`), ` estimated by the ${module.clock}`));
    if (module.remark) root.append(make("p", { class: "soft" }, module.remark));
    for (const line of module.summary) root.append(make("p", { class: "mono" }, line));
    const overrides = Object.entries(module.overrides);
    if (overrides.length) root.append(make("p", { class: "soft" }, "Settled where decisions interact: " + overrides.map(([rule, count]) => `${rule} ${count}`).join(", ")));
    root.append(this.drawKey(), this.drawStrip(), this.drawMoves());
    root.append(make("h3", {}, "Clusters, computation by computation"));
    module.computations.map((_, i) => i).reverse().forEach((i) => { const c = this.drawComputation(i); if (c) root.append(c); });
    return root;
  }
  drawKey() {
    const kinds = [["loop", "loop kernel"], ["library", "kernel library"], ["runtime", "runtime call, control flow"], ["native", "native function"]];
    return make("p", { class: "key soft" }, ...kinds.map(([kind, text]) => make("span", {}, make("i", { style: `background: var(--${kind})` }), text)));
  }
  drawStrip() {
    const longest = Math.max(this.module.default.seconds, this.module.chosen.seconds) || 1;
    this.inner = make("div", { style: "width: 100%" });
    this.sides.forEach((parts, side) => {
      const bar = make("div", { class: "bar" });
      let start = 0;
      parts.forEach((part, index) => {
        const width = (100 * part.s) / longest;
        if (part.s > 0) bar.append(make("i", { class: width > 0.4 ? "wide" : "", style: `left:${start}%;width:${width}%;background:${color(this.module, part)};opacity:${this.same[side][index] ? 0.45 : 1}`, title: `${this.label(part)}, ${time(part.s)}`, onclick: () => this.select(side, index, true) }));
        start += width;
      });
      this.inner.append(make("b", {}, `${side ? "chosen" : "default"} ${time(parts.reduce((sum, p) => sum + p.s, 0))}`), bar);
    });
    return make("div", { class: "strip", tabindex: "0", "aria-label": "time by cluster" }, this.inner);
  }
  zoom(factor) { this.inner.style.width = `${100 * factor}%`; }
  drawMoves() {
    const moves = this.module.moves;
    if (!moves.length) return make("p", { class: "soft" }, "Every cluster is XLA's own.");
    const body = make("tbody", {});
    const box = make("details", { open: "" }, make("summary", {}, make("b", {}, `What moved: ${moves.length} groups of clusters, largest change of time first`)), make("table", {}, make("thead", {}, make("tr", {}, make("th", {}, "default"), make("th", {}, "chosen"), make("th", {}, "clusters"), make("th", {}, "why"))), body));
    const add = (count) => {
      for (const move of moves.slice(body.children.length, count)) {
        const better = move.after_s <= move.before_s;
        body.append(make("tr", { class: "move", onclick: () => move.after.length ? this.select(1, move.after[0], true) : this.select(0, move.before[0], true) },
          make("td", { class: "num" }, time(move.before_s)), make("td", { class: `num ${better ? "good" : "bad"}` }, time(move.after_s)),
          make("td", {}, this.sideText(0, move.before), make("br", {}), "→ ", this.sideText(1, move.after)),
          make("td", {}, ...(move.why.length ? move.why : ["its neighbours changed"]).map((line) => make("div", {}, line)))));
      }
    };
    add(12);
    if (moves.length > 12) { const more = make("button", { onclick: () => { add(moves.length); more.remove(); } }, `show all ${moves.length}`); box.append(more); }
    return box;
  }
  sideText(side, indices) {
    const parts = this.sides[side], longest = [...indices].sort((a, b) => parts[b].s - parts[a].s);
    const shown = longest.slice(0, 3).map((i) => this.label(parts[i]));
    return `${indices.length}: ${shown.join("; ")}${indices.length > 3 ? " ..." : ""}`;
  }
  drawComputation(index) {
    const computation = this.module.computations[index];
    const members = this.sides.map((parts) => parts.map((_, i) => i).filter((i) => parts[i].c === index));
    if (!members[0].length && !members[1].length) return null;
    const sums = members.map((list, side) => list.reduce((sum, i) => sum + this.sides[side][i].s, 0));
    const different = members.some((list, side) => list.some((i) => !this.same[side][i]));
    const pair = make("div", { class: "pair" });
    const summary = make("summary", {}, make("b", {}, computation.name), make("span", { class: "soft" }, ` ${computation.role}${computation.trips > 1 ? `, ${computation.trips} trips` : ""}, ${computation.nodes} nodes, ${members[0].length} → ${members[1].length} parts, ${time(sums[0])} → ${time(sums[1])}${different ? "" : ", unchanged"}`));
    const box = make("details", { class: "computation" }, summary, pair);
    const list = { box, pair, members, drawn: false, longest: Math.max(...members.flatMap((m, side) => m.map((i) => this.sides[side][i].s)), 1e-12) };
    list.draw = (filter, whole) => {
      list.drawn = true;
      pair.replaceChildren(...members.map((indices, side) => this.drawList(side, indices, list.longest, filter, whole)));
    };
    box.addEventListener("toggle", () => { if (box.open && !list.drawn) list.draw(FILTER, false); });
    if (different) box.open = true;
    this.lists[index] = list;
    return box;
  }
  drawList(side, indices, longest, filter, whole) {
    this.rows[side] = new Map([...this.rows[side]].filter(([i]) => this.sides[side][i].c !== this.sides[side][indices[0]]?.c));
    const shown = indices.filter((i) => this.visible(side, i, filter));
    const column = make("div", {}, make("h4", {}, `${side ? "chosen" : "default"} (${shown.length}${shown.length < indices.length ? ` of ${indices.length}` : ""})`));
    const draw = (i) => this.drawPart(side, i, longest);
    const fold = (run) => {
      const seconds = run.reduce((sum, i) => sum + this.sides[side][i].s, 0);
      const box = make("div", { class: "fold", role: "button", tabindex: "0" }, `${run.length} unchanged, ${time(seconds)}`);
      box.addEventListener("click", () => box.replaceWith(...run.map(draw)));
      return box;
    };
    const rows = []; // single parts, or runs of unchanged neighbours
    for (const i of shown) {
      const folding = !whole && !filter.words.length && this.same[side][i], last = rows[rows.length - 1];
      if (folding && Array.isArray(last)) last.push(i);
      else rows.push(folding ? [i] : i);
    }
    const add = (list) => list.forEach((row) => {
      if (!Array.isArray(row)) column.append(draw(row));
      else if (row.length < LONG_RUN) column.append(...row.map(draw));
      else column.append(fold(row));
    });
    const limit = whole ? rows.length : FIRST_ROWS;
    add(rows.slice(0, limit));
    if (rows.length > limit) { const more = make("button", { onclick: () => { more.remove(); add(rows.slice(limit)); } }, `show ${rows.length - limit} more`); column.append(more); }
    return column;
  }
  drawPart(side, index, longest) {
    const part = this.sides[side][index], tone = color(this.module, part);
    const row = make("div", { class: `part${this.same[side][index] ? " same" : ""}`, style: `border-color:${tone}`, title: this.module.nodes.name[part.o[0]], onclick: () => this.select(side, index, false), onmouseenter: () => this.twins(side, index, true), onmouseleave: () => this.twins(side, index, false) },
      make("span", { class: "fill", style: `width:${(100 * part.s) / longest}%;background:${tone}` }),
      make("span", { class: "what" }, this.label(part)),
      ...(part.r === undefined ? [] : [make("span", { class: "region" }, `region ${part.r + 1}`)]),
      make("span", { class: "soft" }, this.module.units[part.u].name),
      make("span", { class: "time" }, time(part.s)));
    this.rows[side].set(index, row);
    return row;
  }
  related(side, index) {
    const other = new Set();
    for (const node of this.sides[side][index].n) for (const i of this.owners[1 - side].get(node) || []) other.add(i);
    return other;
  }
  twins(side, index, on) { for (const i of this.related(side, index)) this.rows[1 - side].get(i)?.classList.toggle("twin", on); }
  select(side, index, jump) {
    const part = this.sides[side][index], list = this.lists[part.c];
    if (jump && list) {
      list.box.open = true;
      if (!list.drawn) list.draw(FILTER, false);
      if (!this.rows[side].has(index)) list.draw({ words: [], changes: false }, true);
      this.rows[side].get(index)?.scrollIntoView({ block: "center" });
    }
    document.querySelectorAll(".part.chosen").forEach((row) => row.classList.remove("chosen"));
    this.rows[side].get(index)?.classList.add("chosen");
    this.showDetails(side, part, index);
  }
  showDetails(side, part, index) {
    const nodes = this.module.nodes, other = [...this.related(side, index)];
    DETAILS.replaceChildren(
      make("h3", {}, `${side ? "Chosen" : "Default"}: ${this.label(part)}`),
      make("p", {}, `${this.module.units[part.u].name}, ${part.x} times, ${time(part.s)} in all, in ${this.module.computations[part.c].name}`),
      make("p", { class: "soft" }, this.same[side][index] ? "The same on both sides." : `Shares nodes with ${other.length} on the other side: ${other.slice(0, 6).map((i) => this.label(this.sides[1 - side][i])).join("; ")}${other.length > 6 ? " ..." : ""}`),
      make("h3", {}, `${part.n.length} operations`));
    const add = (list) => list.forEach((node) => DETAILS.append(this.drawNode(node)));
    add(part.n.slice(0, FIRST_ROWS));
    if (part.n.length > FIRST_ROWS) { const more = make("button", { onclick: () => { more.remove(); add(part.n.slice(FIRST_ROWS)); } }, "show all"); DETAILS.append(more); }
  }
  drawNode(node) {
    const nodes = this.module.nodes, changed = this.changed.has(node), line = nodes.line[node] === null ? null : nodes.lines[nodes.line[node]];
    const box = make("div", { class: `node${changed ? " changed" : ""}` }, make("code", {}, `${nodes.name[node]} ${nodes.shape[node]}`));
    if (line) box.append(make("code", { class: "source", title: line.file }, `${line.at}${line.in ? ` in ${line.in}` : ""}\n${line.text}`));
    else if (nodes.path[node]) box.append(make("code", { class: "source" }, nodes.path[node]));
    box.append(make("div", {}, changed ? `${nodes.default[node]} → ${nodes.chosen[node]}` : nodes.chosen[node]));
    if (this.settled.has(node)) box.append(make("div", { class: "bad" }, `settled by rule ${this.settled.get(node).join(", ")}`));
    if (nodes.forbidden[node]) box.append(make("div", { class: "soft" }, `not allowed: ${nodes.forbidden[node]}`));
    return box;
  }
  apply(filter, searching) {
    for (const list of this.lists) {
      if (!list) continue;
      const hits = list.members.some((indices, side) => indices.some((i) => this.visible(side, i, filter)));
      list.box.classList.toggle("hidden", !hits);
      if (searching && hits) list.box.open = true;
      list.drawn = false;
      if (list.box.open) list.draw(filter, false);
    }
  }
}

const FILTER = { words: [], changes: false };
const DETAILS = make("div", {}, make("p", { class: "soft" }, "Click a cluster: its operations, the source lines they come from, what was decided, and which rules forbid the rest."));
const VIEWS = DATA.modules.map((module, i) => new ModuleView(module, i));
let pending = 0;
function refresh(searching) { clearTimeout(pending); pending = setTimeout(() => VIEWS.forEach((view) => view.apply(FILTER, searching)), 80); }
const search = make("input", { type: "search", id: "search", placeholder: "operation, shape, unit, source line ...", oninput: () => { FILTER.words = search.value.toLowerCase().split(/\s+/).filter(Boolean); refresh(FILTER.words.length > 0); } });
const changes = make("input", { type: "checkbox", id: "changes", onchange: () => { FILTER.changes = changes.checked; refresh(false); } });
const zoom = make("input", { type: "range", id: "zoom", min: "0", max: "6", step: "0.25", value: "0", oninput: () => VIEWS.forEach((view) => view.zoom(2 ** Number(zoom.value))) });
const all = (open) => () => document.querySelectorAll("details.computation").forEach((box) => { box.open = open; });
document.getElementById("page").append(
  make("main", {}, make("h1", {}, DATA.title), make("p", { class: "soft" }, `${DATA.policy} against XLA's default`),
    ...(DATA.head.length ? [make("pre", { class: "measured" }, DATA.head.join("\n"))] : []),
    make("div", { class: "controls" }, search, make("label", {}, changes, " only what changed"), make("label", {}, "zoom ", zoom), make("button", { id: "expand", onclick: all(true) }, "expand all"), make("button", { id: "collapse", onclick: all(false) }, "collapse all")),
    ...VIEWS.map((view) => view.draw())),
  make("aside", {}, DETAILS));
document.documentElement.dataset.ready = "yes";
