// Drawing functions for our programs' pages. Texts become markup only through escape().
const at = id => document.getElementById(id);
// Lists may have more items than a call can have arguments.
const lowest = (list, start = Infinity) => list.reduce((a, b) => b < a ? b : a, start), highest = (list, start = -Infinity) => list.reduce((a, b) => b > a ? b : a, start);
// Every nth item of a list and the last, so that about `most` remain.
const spacing = (count, most) => Math.max(1, Math.ceil(count / most));
const every = (list, n) => n === 1 ? list : list.filter((_, i) => i % n === 0 || i === list.length - 1);
const digits = value => value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2);
const duration = seconds => {
  const [value, unit] = seconds >= 1 ? [seconds, "s"] : seconds >= 1e-3 ? [seconds * 1e3, "ms"] : [seconds * 1e6, "µs"];
  return `${+digits(value)} ${unit}`;
};
const escape = text => String(text).replace(/[&<>"]/g, c => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

// A text beside the pointer or the finger, for elements with data-tip. The tables below the charts have the same values.
const tip = document.createElement("div");
tip.id = "tip";
tip.setAttribute("aria-hidden", "true");
document.body.append(tip);
for (const kind of ["pointermove", "pointerdown"]) document.addEventListener(kind, event => {
  const target = event.target.closest?.("[data-tip]");
  tip.style.opacity = target ? 1 : 0;
  if (!target) return;
  tip.textContent = target.dataset.tip;
  tip.style.left = Math.max(8, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = event.clientY + 16 + "px";
});

// An accessible picture, with its name and a description. A unit is a pixel, so that text keeps its size on a phone.
let pictures = 0;
function picture(width, height, name, desc, inner) {
  const id = `picture-${++pictures}`;
  return `<svg width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" aria-labelledby="${id}-title ${id}-desc">` +
    `<title id="${id}-title">${escape(name)}</title><desc id="${id}-desc">${escape(desc)}</desc>${inner}</svg>`;
}

// A picture in `element`, as wide as it, redrawn when the width changes, with a table of the figures below. draw(width)
// returns {height, inner} for picture(). The table is {head, rows, cells}; cells(row) makes the texts of a row, unless the row
// already is the texts.
const drawings = [];
const tableRows = 500;  // the results may have more
function place(element, name, desc, table, draw) {
  const n = spacing(table.rows.length, tableRows), rows = every(table.rows, n), about = n > 1 ? `${name}: one row in ${n}; the run's files have all` : name;
  const frame = document.createElement("div"), figures = document.createElement("details");
  figures.innerHTML = `<summary>Figures: ${escape(name)}</summary><div class="scroll" tabindex="0" role="region" aria-label="${escape(name)}">` +
    `<table><caption>${escape(about)}</caption><thead><tr>${table.head.map((h, i) => `<th scope="col" class="${i ? "n" : ""}">${escape(h)}</th>`).join("")}</tr></thead><tbody>` +
    rows.map(row => table.cells ? table.cells(row) : row).map(r => `<tr><th scope="row">${escape(r[0])}</th>${r.slice(1).map(v => `<td class="n">${escape(v)}</td>`).join("")}</tr>`).join("") + "</tbody></table></div>";
  element.append(frame, figures);
  let drawn = 0;
  drawings.push(() => {
    const width = Math.max(200, Math.floor(frame.clientWidth));
    if (width === drawn) return;
    drawn = width;
    const { height, inner } = draw(width);
    frame.innerHTML = picture(width, height, name, desc, inner);
  });
}
const drawAll = () => drawings.forEach(draw => draw());
addEventListener("resize", drawAll);
