// The cluster: nodes, and pods with what is failing first.

import { age, ask, fill, h, milliseconds } from "/page/dom.js";
import { VirtualList } from "/page/virtual_list.js";

const LEVELS = ["failing", "waiting", "running", "done"];
const MARKS = ["✕", "…", "●", "✓"];

export class ClusterView {
  constructor({ store, about, detail, remember, query }) {
    this.store = store;
    this.about = about;
    this.detail = detail;
    this.remember = remember;
    this.query = query;
    this.nodes = h("div", { class: "cards" });
    this.counts = h("div", { class: "counts" });
    this.filter = h("input", { type: "search", placeholder: "filter: name, node, status, reason  ( / )", "aria-label": "filter",
      value: query.get("filter") || "", oninput: () => this.filtered() });
    this.level = query.get("level");
    this.list = new VirtualList(44, (pod) => this.row(pod));
    this.unseen = about.unseen?.length ? h("details", { class: "unseen" }, h("summary", {}, "what cannot be seen of this cluster"),
      h("ul", {}, ...about.unseen.map((line) => h("li", {}, line)))) : null;
    this.element = h("section", { class: "cluster" }, this.nodes, this.unseen,
      h("div", { class: "toolbar" }, this.counts, this.filter),
      h("div", { class: "pod-row pod-head" }, ...["", "pod", "status", "ready", "node", "address", "age", "started in", "why"].map(
        (name) => h("span", {}, name))), this.list.element);
    this.undo = store.subscribe(() => this.paint());
    this.paint();
  }

  close() { this.undo(); }

  key(event) {
    if (event.key === "/") this.filter.focus();
    else return false;
    return true;
  }

  filtered() {
    const query = new URLSearchParams();
    if (this.filter.value) query.set("filter", this.filter.value);
    if (this.level !== null) query.set("level", this.level);
    this.remember("cluster", "", query);
    this.paint();
  }

  paint() {
    const pods = [...this.store.pods.values()];
    const counts = [0, 0, 0, 0];
    const byNode = new Map();
    for (const pod of pods) {
      counts[pod.level]++;
      byNode.set(pod.node || "", (byNode.get(pod.node || "") || 0) + 1);
    }
    fill(this.nodes, [...this.store.nodes.values()].sort((a, b) => a.ready - b.ready || a.name.localeCompare(b.name)).map((node) =>
      h("a", { class: `card ${node.ready ? "" : "failing"}`, href: `#/node/${encodeURIComponent(node.name)}` },
        h("b", {}, node.name), h("span", { class: node.ready ? "ok" : "bad" }, node.ready ? "Ready" : "NotReady"),
        node.unschedulable ? h("span", { class: "bad" }, "cordoned") : null,
        h("small", {}, `${byNode.get(node.name) || 0} of ${node.pods} pods · ${node.addresses.join(", ")}`),
        h("small", {}, node.why || `${node.runtime} · kubelet ${node.kubelet}`))));
    fill(this.counts, LEVELS.map((name, number) => h("button", {
      class: `count ${name}`, "aria-pressed": String(this.level === String(number)),
      onclick: () => { this.level = this.level === String(number) ? null : String(number); this.filtered(); },
    }, `${counts[number]} ${name}`)));
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = pods.filter((pod) => (this.level === null || pod.level === Number(this.level))
      && words.every((word) => `${pod.key} ${pod.node || ""} ${pod.status} ${pod.why || ""}`.toLowerCase().includes(word)));
    shown.sort((a, b) => a.level - b.level || (a.key < b.key ? -1 : 1));
    this.list.show(shown);
    this.list.element.classList.toggle("empty", shown.length === 0);
    this.list.element.dataset.empty = this.store.synced ? (pods.length ? "no pod matches the filter" : "no pods yet") : "loading…";
  }

  /** @param {import("./store.js").Pod} pod */
  row(pod) {
    const name = pod.traced ? h("a", { href: `#/start/${pod.uid}` }, pod.key) : h("span", {}, pod.key);
    const retry = this.about.actions && pod.level < 2 ? h("button", { title: "let the kubelet retry now",
      onclick: (event) => this.retry(event.target, pod.key) }, "retry") : null;
    const row = h("div", { class: `pod-row ${LEVELS[pod.level]}`, role: "listitem", title: pod.why || "" },
      h("span", { class: "mark" }, MARKS[pod.level]), name, h("span", { class: "status" }, pod.status),
      h("span", {}, pod.ready + (pod.restarts ? ` (${pod.restarts}↻)` : "")), h("span", {}, pod.node || "–"),
      h("span", {}, pod.ip || ""), h("span", {}, age(pod.created || "")),
      h("span", {}, pod.took === undefined || pod.took === null ? "" : milliseconds(pod.took)),
      h("span", { class: "why" }, pod.why || "", retry));
    row.addEventListener("click", (event) => {
      if (!event.target.closest("a, button") && pod.why) {
        this.detail([h("h2", {}, pod.key), h("p", {}, pod.status), ...pod.why.split(" · ").map((line) => h("p", { class: "reason" }, line)),
          pod.traced ? h("p", {}, h("a", { href: `#/start/${pod.uid}` }, "see its start, call by call")) : null].filter(Boolean));
      }
    });
    return row;
  }

  async retry(button, key) {
    button.disabled = true;
    try {
      await ask(`/api/actions/retry?pod=${encodeURIComponent(key)}`, { method: "POST", headers: { "X-Podwire-Action": "retry" } });
      button.textContent = "asked";
    } catch (error) {
      button.textContent = "failed";
      button.title = error.message;
    }
  }
}
