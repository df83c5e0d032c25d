// The node as a map: bridges, wires and pods as they are in the kernel; below, links, routes and rules.

import { ask, fill, h, table } from "/page/dom.js";

const SVG = "http://www.w3.org/2000/svg";

/** Creates an element of a drawing. */
function s(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

export class NodeView {
  constructor({ store, argument }) {
    this.store = store;
    this.body = h("div", {});
    this.choice = h("div", { class: "toolbar" });
    this.element = h("section", { class: "node" }, this.choice, this.body);
    this.undo = store.subscribe(() => this.paintChoice());
    this.move(argument);
  }

  close() { this.undo(); }

  move(argument) {
    this.name = argument;
    this.paintChoice();
    if (this.name) this.load();
    return true;
  }

  paintChoice() {
    const names = [...this.store.nodes.keys()].sort();
    if (!this.name && names.length) {
      this.name = names[0];
      this.load();
    }
    fill(this.choice, ...names.map((name) => h("a", { class: "button", "aria-pressed": String(name === this.name), href: `#/node/${encodeURIComponent(name)}` }, name)),
      h("button", { title: "read the kernel again", onclick: () => this.load() }, "↻"));
  }

  async load() {
    const name = this.name;
    const map = await ask(`/api/nodes/${encodeURIComponent(name)}`).catch((error) => error);
    if (name !== this.name) return;
    if (map instanceof Error) {
      fill(this.body, h("p", { class: "problem" }, map.message));
      return;
    }
    fill(this.body, h("h1", {}, `node ${map.node}, ${map.where}`), ...map.notes.map((note) => h("p", { class: "problem" }, note)),
      h("div", { class: "map" }, this.drawing(map)),
      this.links("links of the node", map.namespace.links),
      h("details", {}, h("summary", {}, `${map.namespace.routes.length} routes of the node`), h("pre", {}, map.namespace.routes.join("\n"))),
      ...map.pods.map((pod) => h("details", {}, h("summary", {}, `${pod.pod || pod.name}: ${pod.links.length} links, ${pod.routes.length} routes`),
        this.links("", pod.links), h("pre", {}, pod.routes.join("\n")))),
      ...map.rules.map((rules) => h("details", {}, h("summary", {}, `rules: table ${rules.table}`), h("pre", {}, rules.text))));
  }

  links(title, links) {
    return h("div", {}, title ? h("h3", {}, title) : null, table(["link", "kind", "state", "addresses", "port of", "MAC", "MTU", "owner"], links.map((link) =>
      [link.name, link.kind, link.state, link.addresses.join(", "), link.master, link.mac, link.mtu, link.owner]), { class: "grid links" }));
  }

  /** Uplinks at the left, bridges in the middle, pods at the right; a line is a wire, a dashed one a way that is routed. */
  drawing(map) {
    const ports = new Map(map.wires.map((wire) => [wire.outer, wire]));
    const bridges = map.namespace.links.filter((link) => link.kind === "bridge");
    const uplinks = map.namespace.links.filter((link) => link.kind !== "bridge" && link.name !== "lo" && !ports.has(link.name));
    const spaces = map.pods.map((pod) => ({ ...pod, wires: map.wires.filter((wire) => wire.space === pod.name) }));
    const height = Math.max(spaces.length * 58, uplinks.length * 50, bridges.length * 90, 80) + 20;
    const svg = s("svg", { class: "node-map", width: 1240, height, viewBox: `0 0 1240 ${height}` });
    const box = (x, y, width, kind, lines, title = "") => {
      const most = Math.floor((width - 20) / 6.7);
      const group = s("g", { class: `box ${kind}` }, s("title", {}, title), s("rect", { x, y, width, height: 14 + 16 * lines.length, rx: 7 }));
      lines.forEach((line, number) => group.append(s("text", { x: x + 10, y: y + 18 + 16 * number, class: number ? "faint" : "strong" }, line.length > most ? `${line.slice(0, most - 1)}…` : line)));
      return group;
    };
    const at = new Map();
    bridges.forEach((bridge, number) => at.set(bridge.name, 14 + (height - 20) * (number + 0.5) / bridges.length - 24));
    const draw = [];
    uplinks.forEach((link, number) => {
      const y = (height - uplinks.length * 50) / 2 + number * 50;
      draw.push(box(10, y, 300, "uplink", [`${link.name}  ${link.kind}`, link.addresses.join(", ") || link.state], link.owner));
      const routed = link.master || link.state === "down" || !link.addresses.length ? [] : bridges.filter((bridge) => bridge.addresses.length);
      for (const bridge of routed) {
        const to = at.get(bridge.name) + 22;
        svg.append(s("path", { class: "routed", d: `M310 ${y + 20} C390 ${y + 20} 390 ${to} 470 ${to}` }, s("title", {}, "by the routes of the node")));
      }
      if (at.has(link.master)) svg.append(s("path", { class: "wire", d: `M310 ${y + 20} C400 ${y + 20} 400 ${at.get(link.master) + 22} 470 ${at.get(link.master) + 22}` }));
    });
    for (const bridge of bridges) draw.push(box(470, at.get(bridge.name), 270, "bridge", [`${bridge.name}  bridge`, bridge.addresses.join(", ")], bridge.owner));
    spaces.forEach((space, number) => {
      const y = 10 + number * 58;
      const inner = space.links.filter((link) => link.name !== "lo").map((link) => `${link.name} ${link.addresses[0] || link.state}`).join("  ");
      draw.push(box(900, y, 330, "pod", [space.pod || space.name, inner], space.name));
      for (const wire of space.wires) {
        const outer = map.namespace.links.find((link) => link.name === wire.outer);
        const from = at.has(outer.master) ? [740, at.get(outer.master) + 22] : [470, y + 20];
        svg.append(s("path", { class: "wire", d: `M${from[0]} ${from[1]} C820 ${from[1]} 820 ${y + 22} 900 ${y + 22}` }, s("title", {}, `${wire.outer} ↔ ${wire.inner}`)));
        draw.push(s("text", { x: 892, y: y + 16, class: "faint", "text-anchor": "end" }, wire.outer));
      }
    });
    svg.append(...draw);
    return svg;
  }
}
