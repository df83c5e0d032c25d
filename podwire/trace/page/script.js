// The picture needs none of this: it shows what a call carried, and makes the picture larger and smaller.
(() => {
  "use strict";
  const records = JSON.parse(document.getElementById("records").textContent);
  const panel = document.getElementById("detail");
  const rows = [...document.querySelectorAll("g.row")];
  const drawings = [...document.querySelectorAll("svg.head, svg.piece")].map((svg) => ({
    svg, width: svg.width.baseVal.value, height: svg.height.baseVal.value,
  }));
  let shown = null;
  let scale = 1;

  const show = (row) => {
    shown?.classList.remove("shown");
    shown = row;
    panel.hidden = row === null;
    document.documentElement.classList.toggle("detail", row !== null);  // the panel takes its own part of the window
    if (row === null) return;
    row.classList.add("shown");
    panel.querySelector("h2").textContent = row.querySelector("title").textContent;
    const told = records[row.dataset.n];
    panel.querySelector("pre").textContent = told === undefined ? "" : JSON.stringify(told, null, 2);
    panel.scrollTop = 0;
    row.scrollIntoView({ block: "nearest" });
  };

  const fitting = () => (document.querySelector(".scroll").clientWidth - 16) / drawings[0].width;
  const zoom = (to) => {
    scale = Math.min(4, Math.max(0.2, to));
    for (const { svg, width, height } of drawings) {
      svg.setAttribute("width", width * scale);
      svg.setAttribute("height", height * scale);
    }
  };

  const step = (by) => {
    const next = rows[(shown === null ? -1 : rows.indexOf(shown)) + by];
    if (next === undefined) return;
    show(next);
    next.focus({ preventScroll: true });
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) {
      const todo = { larger: () => zoom(scale * 1.25), smaller: () => zoom(scale / 1.25), whole: () => zoom(1),
        fit: () => zoom(fitting()), close: () => show(null) };
      todo[button.dataset.does]?.();
      return;
    }
    const row = event.target.closest("g.row");
    if (row) show(row);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") show(null);
    else if (event.key === "Enter" && document.activeElement?.matches("g.row")) show(document.activeElement);
    else if (event.key === "ArrowDown" && shown) step(1);
    else if (event.key === "ArrowUp" && shown) step(-1);
    else return;
    event.preventDefault();
  });
  document.querySelector(".scroll").addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(scale * (event.deltaY < 0 ? 1.1 : 1 / 1.1));
  }, { passive: false });
  for (const each of document.querySelectorAll(".tools")) each.hidden = false;
  if (fitting() < 1) zoom(Math.max(0.7, fitting()));  // lanes at the right are visible from the beginning
})();
