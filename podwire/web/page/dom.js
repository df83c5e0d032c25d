// Small helpers for elements. Text is always set as text, never as markup.

/**
 * Creates an element: h("a", {href: "#/x", class: "y", onclick: f}, "text", child).
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node|string|number|null|undefined|false)} children
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

/** Replaces the content of an element. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
}

/**
 * Returns drawings of the server as nodes. The server has escaped all text in them; the parser runs no script, and the
 * policy of the page would not let one run.
 * @param {...string} drawings
 */
export function pictures(...drawings) {
  const parsed = new DOMParser().parseFromString(drawings.join(""), "text/html");
  return [...parsed.body.children].map((node) => document.adoptNode(node));
}

/** @param {number|null|undefined} seconds */
export function milliseconds(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds >= 100) return `${seconds.toFixed(0)} s`;
  return seconds >= 1 ? `${seconds.toFixed(2)} s` : `${(seconds * 1000).toFixed(1)} ms`;
}

/** @param {number} seconds */
export function signed(seconds) {
  return `${seconds >= 0 ? "+" : "−"}${milliseconds(Math.abs(seconds))}`;
}

/** How long ago a time is, as kubectl shows it. @param {string|number} time */
export function age(time) {
  const then = typeof time === "number" ? time * 1000 : Date.parse(time);
  if (!Number.isFinite(then)) return "";
  const seconds = Math.max(0, Math.round((Date.now() - then) / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)}h` : `${Math.floor(seconds / 86400)}d`;
}

/** Asks the server; throws an Error with the server's own words. @param {string} path */
export async function ask(path, options = {}) {
  const answer = await fetch(path, options);
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.error || `the server answered ${answer.status}`);
  return body;
}

/** A table: head cells, then rows of cells (text or nodes). */
export function table(head, rows, attributes = {}) {
  return h("table", attributes, h("thead", {}, h("tr", {}, ...head.map((cell) => h("th", {}, cell)))),
    h("tbody", {}, ...rows.map((row) => (row instanceof Node ? row : h("tr", {}, ...row.map((cell) => h("td", {}, cell)))))));
}

/** Saves data as a file. @param {Blob} blob @param {string} name */
export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
