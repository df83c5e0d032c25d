// Two starts, or a start and a flow: what failed first, then what was slower, what was missing.

import { ask, fill, h, milliseconds, signed, table } from "/page/dom.js";

export class CompareView {
  constructor({ store, about, remember, query }) {
    this.store = store;
    this.about = about;
    this.remember = remember;
    this.first = h("select", { "aria-label": "first", onchange: () => this.chosen() });
    this.second = h("select", { "aria-label": "second", onchange: () => this.chosen() });
    this.body = h("div", { class: "compare-body" });
    this.element = h("section", { class: "compare" }, h("div", { class: "toolbar" }, "compare ", this.first, " with ", this.second), this.body);
    this.undo = store.subscribe(() => this.paintChoices());
    this.move("", query);
  }

  close() { this.undo(); }

  move(_argument, query) {
    this.a = query.get("a") || "";
    this.b = (query.get("b") || "").replaceAll("-", "");
    this.known = "";
    this.paintChoices();
    this.load();
    return true;
  }

  paintChoices() {
    const starts = [...this.store.starts.values()].sort((one, other) => other.begin - one.begin).slice(0, 500);
    const known = starts.map((start) => start.pod + start.took).join();
    if (known === this.known) return;
    this.known = known;
    const option = (start, chosen) => h("option", { value: start.pod, selected: start.pod === chosen },
      `${start.key}  ${start.took === null ? "not Running" : milliseconds(start.took)}${start.failures ? `  ${start.failures}✕` : ""}`);
    if (!this.b && starts[0]) this.b = starts[0].pod;
    if (!this.a && starts.length) this.a = starts[1] ? starts[1].pod : "flow:pod";
    fill(this.first, ...this.about.flows.map((name) => h("option", { value: `flow:${name}`, selected: this.a === `flow:${name}` }, `the ${name} flow`)),
      ...starts.map((start) => option(start, this.a)));
    fill(this.second, ...starts.map((start) => option(start, this.b)));
    if (!this.loaded) this.load();
  }

  chosen() {
    this.a = this.first.value;
    this.b = this.second.value;
    this.remember("compare", "", new URLSearchParams({ a: this.a, b: this.b }));
    this.load();
  }

  async load() {
    if (!this.a || !this.b) {
      fill(this.body, h("p", { class: "hint" }, "Two recorded starts are needed, or one and a flow."));
      return;
    }
    this.loaded = true;
    const found = await ask(`/api/compare?${new URLSearchParams({ a: this.a, b: this.b })}`).catch((error) => error);
    if (found instanceof Error) {
      fill(this.body, h("p", { class: "problem" }, found.message));
      return;
    }
    const side = (name, value) => h("p", {}, h("b", {}, `${name} `), value.pod ? h("a", { href: `#/start/${value.pod}` }, value.headline) : value.key);
    const bad = (line) => /^(failed|B waited|missing|swapped)/.test(line);
    fill(this.body, side("A", found.a), side("B", found.b),
      h("ul", { class: "verdict" }, ...found.verdict.map((line) => h("li", { class: bad(line) ? "bad" : "" }, line))),
      found.sums ? h("div", { class: "halves" },
        table(["phase", "A", "B", "B − A"], found.sums.map((sum) => this.sum(sum)), { class: "grid numbers" }),
        table(["of which", "A", "B", "B − A"], found.parts.map((sum) => this.sum(sum)), { class: "grid numbers" })) : null,
      found.rows ? table(["hop", "call", "A", "B", "B − A", ""], found.rows.map((row) => h("tr", { class: row.failed ? "failing" : "" },
        ...[row.hop, row.call, row.a, row.b, row.slower === null ? "" : signed(row.slower),
          row.kind === "missing" ? "missing in B" : row.kind === "extra" ? "only in B" : ""].map((cell) => h("td", {}, cell)))), { class: "grid" }) : null);
  }

  sum(sum) {
    return h("tr", { class: sum.slower > 0.001 ? "slower" : "" }, h("td", {}, sum.name), h("td", {}, milliseconds(sum.a)),
      h("td", {}, milliseconds(sum.b)), h("td", {}, signed(sum.slower)));
  }
}
