// The way of a packet from a pod to a pod, an address or a Service, with the rule that decides at each hop.

import { ask, fill, h } from "/page/dom.js";

export class PathView {
  constructor({ store, remember, query }) {
    this.store = store;
    this.remember = remember;
    const field = (name, placeholder, size) => h("input", { type: "text", name, placeholder, size, list: "ends", "aria-label": placeholder, value: query.get(name) || "",
      onkeydown: (event) => event.key === "Enter" && this.ask() });
    this.from = field("from", "from: NAMESPACE/POD", 28);
    this.to = field("to", "to: NAMESPACE/POD, address or service:NAMESPACE/NAME", 44);
    this.port = field("port", "port", 6);
    this.protocol = h("select", { "aria-label": "protocol" }, ...["TCP", "UDP", "SCTP"].map((name) => h("option", { selected: query.get("protocol") === name }, name)));
    this.ends = h("datalist", { id: "ends" });
    this.body = h("div", {});
    this.element = h("section", { class: "path" }, h("div", { class: "toolbar" }, this.from, "→", this.to, this.port, this.protocol,
      h("button", { onclick: () => this.ask() }, "follow")), this.ends, this.body);
    this.undo = store.subscribe(() => this.paintEnds());
    this.paintEnds();
    if (this.from.value && this.to.value) this.ask();
    else fill(this.body, h("p", { class: "hint" }, "Choose a pod and a destination. Links, routes, rules of Services and NetworkPolicies are read now; nothing is sent."));
  }

  close() { this.undo(); }

  paintEnds() {
    const names = [...this.store.pods.values()].filter((pod) => pod.ip).slice(0, 2000).map((pod) => pod.key);
    if (names.length !== this.ends.children.length) fill(this.ends, ...names.map((name) => h("option", { value: name })));
  }

  async ask() {
    const query = new URLSearchParams({ from: this.from.value, to: this.to.value, port: this.port.value, protocol: this.protocol.value });
    this.remember("path", "", query);
    const found = await ask(`/api/path?${query}`).catch((error) => error);
    if (found instanceof Error) {
      fill(this.body, h("p", { class: "problem" }, found.message));
      return;
    }
    fill(this.body, h("h1", {}, `${found.from} → ${found.to}`), h("p", { class: found.reachable ? "ok verdict-line" : "bad verdict-line" },
      `${found.reachable ? "passes" : "does not pass"}: ${found.connection}`), hops(found.hops),
    ...(found.endpoints || []).map((branch) => h("div", { class: "branch" }, h("h2", {}, `endpoint ${branch.endpoint}`,
      h("span", { class: branch.reachable ? "ok" : "bad" }, branch.reachable ? "  passes" : "  does not pass")), hops(branch.hops))));
  }
}

const hops = (list) => h("ol", { class: "hops" }, ...list.map((hop) => h("li", { class: hop.passes ? "" : "dropped" },
  h("b", {}, hop.where), h("span", {}, hop.what), h("code", {}, hop.rule), hop.passes ? null : h("em", {}, "dropped here"))));
