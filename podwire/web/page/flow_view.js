// The flows as pictures; each line is linked to the call that satisfied it in the last pod, or in a chosen one.

import { ask, fill, h, milliseconds, pictures, table } from "/page/dom.js";

export class FlowView {
  constructor({ store, about, remember, argument, query }) {
    this.store = store;
    this.about = about;
    this.remember = remember;
    this.body = h("div", { class: "flow-body" });
    this.element = h("section", { class: "flows" }, this.body);
    this.move(argument, query);
  }

  move(argument, query) {
    this.name = this.about.flows.includes(argument) ? argument : "pod";
    this.pod = query.get("pod") || "";
    this.load();
    return true;
  }

  async load() {
    const name = this.name;
    const flow = await ask(`/api/flows/${name}?${new URLSearchParams(this.pod ? { pod: this.pod } : {})}`).catch((error) => error);
    if (name !== this.name) return;
    const tabs = h("div", { class: "toolbar" }, ...this.about.flows.map((other) => h("a", { class: "button",
      "aria-pressed": String(other === name), href: `#/flows/${other}${this.pod ? `?pod=${this.pod}` : ""}` }, other)));
    if (flow instanceof Error) {
      fill(this.body, tabs, h("p", { class: "problem" }, flow.message));
      return;
    }
    const link = (row) => (row.id ? h("a", { href: `#/start/${flow.pod}?call=${encodeURIComponent(row.id)}` }, row.call) : h("span", { class: "hint" },
      row.state === "missing" ? "no such call" : row.state === "optional" ? "optional, not made" : ""));
    const picture = h("div", { class: "scroll flow" }, ...pictures(flow.head, ...flow.pieces));
    picture.addEventListener("click", (event) => {
      const row = event.target.closest("[data-id]");
      if (row?.dataset.id && flow.pod) location.hash = `#/start/${flow.pod}?call=${encodeURIComponent(row.dataset.id)}`;
    });
    fill(this.body, tabs, h("h1", {}, `the ${name} flow`),
      h("p", { class: "hint" }, flow.pod ? `as it happened for ${flow.key}: ${flow.findings.length || "no"} deviations; a dashed arrow did not happen` : "no pod was recorded yet"),
      flow.findings.length ? h("ul", { class: "failures" }, ...flow.findings.map((finding) => h("li", {}, finding))) : null,
      picture,
      table(["arrow of the flow", "at", "the call that satisfied it"], flow.rows.map((row) => h("tr", { class: row.state },
        h("td", {}, row.arrow, row.why ? h("small", {}, ` ${row.why}`) : null), h("td", {}, row.at === null ? "" : milliseconds(row.at)), h("td", {}, link(row)))), { class: "grid" }));
  }
}
