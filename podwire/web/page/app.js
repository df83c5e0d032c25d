// Chooses the view by the part of the address after #, which is also the permalink.

import { ask, fill, h } from "/page/dom.js";
import { Store } from "/page/store.js";
import { ClusterView } from "/page/cluster_view.js";
import { StartView } from "/page/start_view.js";
import { FlowView } from "/page/flow_view.js";
import { CompareView } from "/page/compare_view.js";
import { NodeView } from "/page/node_view.js";
import { PathView } from "/page/path_view.js";
import { ResourcesView } from "/page/resources_view.js";

/** @type {Record<string, {title: string, view: any, tab: boolean}>} */
const VIEWS = {
  cluster: { title: "Cluster", view: ClusterView, tab: true },
  start: { title: "Start", view: StartView, tab: true },
  flows: { title: "Flows", view: FlowView, tab: true },
  compare: { title: "Compare", view: CompareView, tab: true },
  node: { title: "Node", view: NodeView, tab: true },
  path: { title: "Packet path", view: PathView, tab: true },
  resources: { title: "Resources", view: ResourcesView, tab: true },
};

const store = new Store();
const page = document.getElementById("view");
let current = null;
let about = { cluster: "", actions: false, flows: [], unseen: [] };

/** Reads `#/start/UID?hide=Kubelet` into its parts. */
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/").map(decodeURIComponent);
  return { name: VIEWS[name] ? name : "cluster", argument: rest.join("/"), query: new URLSearchParams(query || "") };
}

/** Writes the permalink without a new entry of the history. */
export function remember(name, argument, query) {
  const words = query.toString();
  const path = argument ? `${name}/${encodeURIComponent(argument)}` : name;
  history.replaceState(null, "", `#/${path}${words ? `?${words}` : ""}`);
}

function route() {
  const { name, argument, query } = place();
  for (const tab of document.querySelectorAll("#tabs a")) tab.setAttribute("aria-current", String(tab.dataset.name === name));
  closeDetail();
  if (current?.name === name && current.view.move?.(argument, query)) return;
  current?.view.close?.();
  document.title = `podwire · ${VIEWS[name].title}`;
  const view = new VIEWS[name].view({ store, about, remember, detail: showDetail, argument, query });
  current = { name, view };
  fill(page, view.element);
}

const panel = document.getElementById("detail");

/** Shows the detail panel, which takes its own part of the window. @param {Node[]} children */
function showDetail(children, onclose = () => {}) {
  const close = h("button", { class: "close", title: "close (Esc)", onclick: () => { closeDetail(); onclose(); } }, "×");
  fill(panel, close, ...children);
  panel.hidden = false;
  document.body.classList.add("with-detail");
  panel.scrollTop = 0;
}

function closeDetail() {
  panel.hidden = true;
  document.body.classList.remove("with-detail");
}

function theme(next) {
  if (next) localStorage.setItem("podwire-theme", next);
  const chosen = localStorage.getItem("podwire-theme");
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  return dark;
}

document.getElementById("theme").addEventListener("click", () => theme(theme() ? "light" : "dark"));
document.addEventListener("keydown", (event) => {
  if (event.target.matches?.("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && !panel.hidden) panel.querySelector(".close").click();
  else if (event.key === "t") theme(theme() ? "light" : "dark");
  else if (/^[1-9]$/.test(event.key)) document.querySelectorAll("#tabs a")[Number(event.key) - 1]?.click();
  else if (!current?.view.key?.(event)) return;
  event.preventDefault();
});

function status() {
  const dot = document.getElementById("connection");
  dot.textContent = store.connected ? (store.synced ? "live" : "loading…") : "not connected";
  dot.className = store.connected ? "ok" : "bad";
  const troubles = [...Object.values(store.troubles), about.records].filter(Boolean);
  const box = document.getElementById("troubles");
  box.hidden = troubles.length === 0;
  box.textContent = troubles.join(" · ");
}

async function begin() {
  if (new URLSearchParams(location.search).has("token")) history.replaceState(null, "", `/${location.hash}`);
  theme();
  about = await ask("/api/about");
  document.getElementById("cluster-name").textContent = about.cluster;
  fill(document.getElementById("tabs"), Object.entries(VIEWS).filter(([, view]) => view.tab).map(([name, view], number) =>
    h("a", { href: `#/${name}`, "data-name": name, title: `key ${number + 1}` }, view.title)));
  store.subscribe(status);
  store.run();
  addEventListener("hashchange", route);
  route();
}

begin().catch((error) => fill(page, h("p", { class: "problem" }, String(error.message || error))));
