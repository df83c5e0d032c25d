// A list of any length: only the rows that are visible exist.

import { h } from "/page/dom.js";

export class VirtualList {
  /**
   * @param {number} height pixels of a row
   * @param {(item: any) => HTMLElement} draw
   */
  constructor(height, draw) {
    this.height = height;
    this.draw = draw;
    this.items = [];
    this.drawn = new Map();
    this.filler = h("div", { class: "filler" });
    this.element = h("div", { class: "virtual", tabindex: "0", role: "list" }, this.filler);
    this.element.addEventListener("scroll", () => this.paint(), { passive: true });
    new ResizeObserver(() => this.paint()).observe(this.element);
  }

  /** @param {any[]} items each with a `key` by which its row is kept, and compared by identity */
  show(items) {
    this.items = items;
    this.filler.style.height = `${items.length * this.height}px`;
    this.paint();
  }

  paint() {
    const first = Math.max(0, Math.floor(this.element.scrollTop / this.height) - 5);
    const last = Math.min(this.items.length, Math.ceil((this.element.scrollTop + this.element.clientHeight) / this.height) + 5);
    const kept = new Map();
    for (let number = first; number < last; number++) {
      const item = this.items[number];
      const before = this.drawn.get(item.key);
      const row = before?.item === item ? before.row : this.draw(item);
      if (before !== undefined && before.row !== row) before.row.remove();
      const top = `translateY(${number * this.height}px)`;
      if (row.style.transform !== top) row.style.transform = top;
      if (row.parentNode !== this.filler) this.filler.append(row);
      kept.set(item.key, { item, row });
    }
    for (const [key, { row }] of this.drawn) if (!kept.has(key)) row.remove();
    this.drawn = kept;
  }
}
