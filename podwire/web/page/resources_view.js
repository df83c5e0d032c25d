// Address pools, claims, slices, devices, and NRI plugins with their time budgets and last calls.

import { ask, fill, h, milliseconds, table } from "/page/dom.js";

// JSON numbers above 2^53 are not exact in a browser, and the pool of an IPv6 range has 2^64 addresses.
const count = (number) => number == null ? "" : Number.isSafeInteger(number) ? number : `about 2^${Math.round(Math.log2(number))}`;

export class ResourcesView {
  constructor() {
    this.body = h("div", {}, h("p", { class: "hint" }, "loading…"));
    this.element = h("section", { class: "resources" }, h("div", { class: "toolbar" }, h("button", { onclick: () => this.load() }, "↻ read again")), this.body);
    this.load();
  }

  async load() {
    const found = await ask("/api/resources").catch((error) => error);
    if (found instanceof Error) {
      fill(this.body, h("p", { class: "problem" }, found.message));
      return;
    }
    const part = (title, rows, none) => [h("h2", {}, title), rows.length ? none.draw(rows) : h("p", { class: "hint" }, none.text)];
    fill(this.body,
      ...part("Address pools (IPAM)", found.pools, { text: "no pools are known of this cluster", draw: (nodes) => h("div", {}, ...nodes.map((node) => h("div", {},
        node.error ? h("p", { class: "problem" }, `${node.node}: ${node.error}`) : null,
        table(["node", "network", "ranges", "used", "free", "dead"], node.pools.map((pool) =>
          [node.node, pool.network || pool.path || "", pool.ranges || pool.reason || "", count(pool.used), count(pool.free), count(pool.dead)]), { class: "grid" })))) }),
      ...part("Claims", found.claims, { text: "no ResourceClaims", draw: (claims) => table(["claim", "state", "devices", "reserved for"], claims.map((claim) =>
        [claim.key, claim.state, claim.devices.join(", "), claim.reserved.join(", ")]), { class: "grid" }) }),
      ...part("ResourceSlices", found.slices, { text: "no ResourceSlices", draw: (slices) => table(["driver", "node", "pool", "devices"], slices.map((slice) =>
        [slice.driver, slice.node, slice.pool, slice.devices.join(", ")]), { class: "grid" }) }),
      ...part("Devices of device plugins", found.devices, { text: "no extended resources", draw: (devices) => table(["node", "resource", "allocatable"], devices.map((device) =>
        [device.node, device.resource, device.allocatable]), { class: "grid" }) }),
      ...part("NRI plugins", found.plugins, { text: "no recorded calls of NRI plugins", draw: (plugins) => h("div", {}, ...plugins.map((plugin) => h("details", { open: true },
        h("summary", {}, `${plugin.plugin}: ${plugin.calls} calls, slowest ${milliseconds(plugin.slowest)} of ${milliseconds(plugin.budget)} that a call may take`),
        table(["call", "pod", "took"], plugin.last.map((call) => h("tr", { class: call.failed ? "failing" : "" },
          h("td", {}, h("a", { href: `#/start/${call.pod}?call=${encodeURIComponent(call.id)}` }, call.method)), h("td", {}, call.key), h("td", {}, milliseconds(call.took)))), { class: "grid" })))) }));
  }
}
