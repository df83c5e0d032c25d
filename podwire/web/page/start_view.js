// A pod's start: the sequence diagram that grows while it happens, the waterfall, and what each call carried.

import { age, ask, fill, h, milliseconds, pictures, save, table } from "/page/dom.js";
import { VirtualList } from "/page/virtual_list.js";

const SHAPES = ["sequence", "waterfall", "critical path"];

export class StartView {
  constructor({ store, about, detail, remember, argument, query }) {
    this.store = store;
    this.about = about;
    this.detail = detail;
    this.remember = remember;
    this.list = new VirtualList(30, (start) => this.item(start));
    this.body = h("div", { class: "start-body" });
    this.filter = h("input", { type: "search", placeholder: "filter starts", "aria-label": "filter starts", oninput: () => this.paintList() });
    this.element = h("section", { class: "start" },
      h("div", { class: "start-list" }, h("div", { class: "toolbar" }, this.filter), this.list.element), this.body);
    this.undo = store.subscribe((changed) => this.changed(changed));
    this.move(argument, query);
    this.paintList();
  }

  close() { this.undo(); clearTimeout(this.later); }

  /** Shows another start; returns true because this view can. */
  move(argument, query) {
    const pod = argument.replaceAll("-", "").toLowerCase();
    const same = pod === this.pod && this.shown;
    this.pod = pod;
    this.hidden = new Set(query.getAll("hide"));
    this.shape = SHAPES.includes(query.get("as")) ? query.get("as") : "sequence";
    this.wanted = query.get("call");
    if (!same) {
      this.shown = null;
      this.follows = true;
    }
    if (this.pod) this.load();
    else fill(this.body, h("p", { class: "hint" }, "Choose a start at the left: each is the way of a pod from its request until it runs."));
    this.paintList();
    return true;
  }

  changed(changed) {
    if (changed.has("all")) this.paintList();
    if (this.pod && changed.has(this.pod) && this.later === undefined) {
      this.later = setTimeout(() => { this.later = undefined; this.load(); }, 120);
    }
  }

  paintList() {
    const words = this.filter.value.toLowerCase();
    const starts = [...this.store.starts.values()].filter((start) => start.key.toLowerCase().includes(words));
    starts.sort((a, b) => b.begin - a.begin);
    this.list.show(starts.map((start) => ({ ...start, key: `${start.pod}${start.took}${start.failures}${start.pod === this.pod}`, name: start.key })));
  }

  item(start) {
    const state = start.took === null ? (start.failures ? "failing" : "waiting") : "running";
    return h("a", { class: `start-item ${state}`, href: `#/start/${start.pod}`, title: start.failure,
      "aria-current": String(start.pod === this.pod) }, h("span", { class: "name" }, start.name),
    start.failures ? h("span", { class: "bad" }, `${start.failures}✕`) : null,
    h("span", { class: "took" }, start.took === null ? age(start.begin) : milliseconds(start.took)));
  }

  query(extra = {}) {
    const query = new URLSearchParams();
    for (const name of this.hidden) query.append("hide", name);
    for (const [name, value] of Object.entries(extra)) query.set(name, value);
    return query;
  }

  link() {
    this.remember("start", this.pod, this.query({ ...(this.shape === "sequence" ? {} : { as: this.shape }),
      ...(this.selected ? { call: this.selected.dataset.id } : {}) }));
  }

  async load() {
    const pod = this.pod;
    try {
      const start = await ask(`/api/starts/${pod}?${this.query()}`);
      if (pod !== this.pod) return;
      this.shown = start;
      this.paint();
    } catch (error) {
      if (pod === this.pod && !this.shown) fill(this.body, h("p", { class: "problem" }, error.message));
    }
  }

  paint() {
    const start = this.shown;
    const before = this.scroll;
    const top = before?.scrollTop ?? 0;
    const left = before?.scrollLeft ?? 0;
    const atEnd = before !== undefined && before.scrollTop + before.clientHeight > before.scrollHeight - 60;
    const whole = start.phases.reduce((sum, phase) => sum + phase.seconds, 0);
    const longest = start.phases.reduce((most, phase) => (most && most.seconds >= phase.seconds ? most : phase), null);
    this.scroll = h("div", { class: `scroll ${this.shape.replace(" ", "-")}`, tabindex: "-1" }, ...this.drawing());
    this.scroll.addEventListener("click", (event) => this.chosen(event.target.closest("[data-id]")));
    fill(this.body, h("div", { class: "start-head" }, h("h1", {}, start.headline), h("p", { class: "hint" }, start.about)),
      start.failures.length ? h("div", { class: "failures" }, ...start.failures.map((failure) => h("p", {}, h("b", {},
        `✕ ${failure.times > 1 ? `${failure.times} times ` : ""}`), `${failure.caller} → ${failure.callee} ${failure.call}: ${failure.error}`))) : null,
      whole ? h("div", { class: "phases", title: "phases of the start" }, ...start.phases.map((phase) => this.phase(phase, whole, longest))) : null,
      whole ? h("div", { class: "phase-names" }, ...start.phases.map((phase) =>
        h("span", { class: phase === longest ? "longest" : "" }, `${phase.name} ${milliseconds(phase.seconds)}`))) : null,
      h("div", { class: "toolbar" },
        ...SHAPES.map((name) => h("button", { "aria-pressed": String(name === this.shape), onclick: () => this.as(name) }, name)),
        h("span", { class: "space" }),
        h("button", { title: "previous failure (p)", onclick: () => this.failure(-1) }, "↑ ✕"),
        h("button", { title: "next failure (n)", onclick: () => this.failure(1) }, "↓ ✕"),
        this.menu(),
        h("a", { class: "button", href: `#/compare?b=${this.pod}` }, "compare")),
      this.shape === "sequence" ? h("div", { class: "lanes" }, "show: ", ...start.participants.map((name) => h("label", {},
        h("input", { type: "checkbox", checked: !this.hidden.has(name), onchange: () => this.toggle(name) }), name))) : null,
      this.scroll);
    this.fit();
    this.scroll.scrollTop = atEnd && !start.running && this.follows ? this.scroll.scrollHeight : top;
    this.scroll.scrollLeft = left;
    if (this.wanted) {
      const row = [...this.scroll.querySelectorAll("[data-id]")].find((element) => element.dataset.id === this.wanted);
      this.wanted = null;
      if (row) this.chosen(row);
    } else if (this.selected?.dataset.id) {
      const { id, n } = this.selected.dataset;
      const again = [...this.scroll.querySelectorAll("[data-id]")].find((element) => element.dataset.id === id && (n === undefined || element.dataset.n === n));
      this.selected = again ?? null;
      again?.classList.add("shown");
    }
  }

  phase(phase, whole, longest) {
    const part = h("span", { class: phase === longest ? "phase longest" : "phase", title: `${phase.name}: ${milliseconds(phase.seconds)}` });
    part.style.flexGrow = String(Math.max(0.02, phase.seconds / whole));
    return part;
  }

  drawing() {
    const start = this.shown;
    if (this.shape === "sequence") return pictures(start.head, ...start.pieces);
    if (this.shape === "waterfall") return pictures(start.waterfall);
    if (!start.path.length) return [h("p", { class: "hint" }, "The critical path is known when the pod runs.")];
    return [h("p", { class: "hint" }, "The chain of calls that decided when the pod ran: what each participant waited for last, followed backwards."),
      table(["at", "participant", "took", "until"], start.path.map((step) => {
        const row = h("tr", { "data-id": step.id, tabindex: "0" }, h("td", {}, `+${milliseconds(step.at)}`), h("td", {}, step.participant),
          h("td", { class: step.seconds > 0.05 ? "long" : "" }, milliseconds(step.seconds)), h("td", {}, step.then));
        return row;
      }), { class: "grid" })];
  }

  /** Makes the drawing as wide as the window, so that the lanes at the right are visible. */
  fit() {
    const drawings = [...this.scroll.querySelectorAll("svg")];
    if (!drawings.length) return;
    const scale = Math.max(0.62, Math.min(1, (this.scroll.clientWidth - 14) / drawings[0].viewBox.baseVal.width));
    for (const svg of drawings) {
      svg.setAttribute("width", svg.viewBox.baseVal.width * scale);
      svg.setAttribute("height", svg.viewBox.baseVal.height * scale);
    }
  }

  as(shape) {
    this.shape = shape;
    this.selected = null;
    this.link();
    this.scroll = undefined;
    this.paint();
  }

  toggle(name) {
    if (!this.hidden.delete(name)) this.hidden.add(name);
    this.selected = null;
    this.link();
    this.load();
  }

  async chosen(row) {
    if (!row || !row.dataset.id) return;
    this.selected?.classList.remove("shown");
    this.selected = row;
    row.classList.add("shown");
    this.link();
    const query = this.query({ id: row.dataset.id, ...(row.dataset.n === undefined ? {} : { row: row.dataset.n }) });
    const call = await ask(`/api/starts/${this.pod}/call?${query}`).catch((error) => ({ title: error.message, method: "" }));
    if (this.selected !== row && this.selected?.dataset.id !== row.dataset.id) return;
    const part = (name, value) => (value === null || value === undefined ? null
      : h("div", {}, h("h3", {}, name), h("pre", {}, JSON.stringify(value, null, 2))));
    const failed = call.reply && (call.reply.error || row.classList.contains("failed"));
    this.detail([h("h2", {}, call.title), h("p", {}, h("code", {}, call.method)),
      h("p", { class: failed ? "bad" : "hint" }, [call.outcome, call.took && `took ${call.took}`, call.node && `node ${call.node}`,
        call.at !== undefined && `at +${milliseconds(call.at)}`].filter(Boolean).join(" · ")),
      h("div", { class: "halves" }, part("request", call.request), part(failed ? "error" : "reply", call.reply), part("object", call.event))], () => {
      this.selected?.classList.remove("shown");
      this.selected = null;
      this.link();
    });
    this.selected?.scrollIntoView({ block: "nearest" });
  }

  /** Goes to the next or previous failure. */
  failure(step) {
    const rows = [...this.scroll.querySelectorAll("[data-id]")];
    const at = this.selected ? rows.indexOf(this.selected) : step > 0 ? -1 : rows.length;
    for (let number = at + step; number >= 0 && number < rows.length; number += step) {
      if (rows[number].classList.contains("failed")) {
        rows[number].scrollIntoView({ block: "center" });
        this.chosen(rows[number]);
        return;
      }
    }
  }

  step(by) {
    const rows = [...this.scroll.querySelectorAll("[data-id]")].filter((row) => row.dataset.id);
    const next = rows[(this.selected ? rows.indexOf(this.selected) : -1) + by];
    if (next) this.chosen(next);
  }

  key(event) {
    if (!this.shown) return false;
    const keys = { n: () => this.failure(1), p: () => this.failure(-1), ArrowDown: () => this.step(1), ArrowUp: () => this.step(-1),
      s: () => this.as("sequence"), w: () => this.as("waterfall"), c: () => this.as("critical path"),
      Enter: () => this.chosen(document.activeElement?.closest?.("[data-id]")) };
    if (!keys[event.key] || (event.key.startsWith("Arrow") && !this.selected)) return false;
    keys[event.key]();
    return true;
  }

  menu() {
    const choose = h("select", { title: "save this start as a file", onchange: () => { this.save(choose.value); choose.value = ""; } },
      h("option", { value: "" }, "save as…"), ...[...this.about.formats, "png"].map((form) => h("option", { value: form }, form)));
    return choose;
  }

  async save(form) {
    const name = this.shown.key.replaceAll(/[^A-Za-z0-9.-]+/g, "-");
    const text = await (await fetch(`/api/starts/${this.pod}/download?${this.query({ format: form === "png" ? "svg" : form })}`)).blob();
    save(form === "png" ? await png(text) : text, `${name}.${{ mermaid: "mmd" }[form] || form}`);
  }
}

/** Draws an SVG into a PNG. @param {Blob} svg @returns {Promise<Blob>} */
export async function png(svg) {
  const url = URL.createObjectURL(svg);
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement("canvas");
    const scale = Math.min(2, 16000 / image.height);
    [canvas.width, canvas.height] = [image.width * scale, image.height * scale];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("too large"))), "image/png"));
  } finally {
    URL.revokeObjectURL(url);
  }
}
