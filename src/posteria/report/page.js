// Sorting: headings of the score tables become buttons. Rows without a number stay last, whichever way.
document.documentElement.classList.add("script");
for (const table of document.querySelectorAll("table.scores")) {
  const headings = [...table.querySelectorAll("tr.names th")];
  headings.forEach((heading, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    button.title = heading.title;
    heading.append(button);
    button.addEventListener("click", () => {
      const first = heading.dataset.better === "higher" ? "descending" : "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      const order = heading.getAttribute("aria-sort") === first ? other : first;
      headings.forEach((one) => one.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", order);
      const goal = heading.dataset.better === "near" ? Number(heading.dataset.goal || 0) : null;
      const key = (row) => {
        if (place === 0) return row.cells[0].querySelector(".label").textContent.toLowerCase();
        const value = row.cells.length > place ? row.cells[place].dataset.value : undefined;
        if (value === undefined || Number.isNaN(Number(value))) return null;
        return goal === null ? Number(value) : Math.abs(Number(value) - goal);
      };
      const sign = order === "ascending" ? 1 : -1;
      const body = table.tBodies[0];
      const rows = [...body.rows].map((row) => [key(row), row]);
      rows.sort(([a], [b]) => (a === null) - (b === null) || (a === null ? 0 : sign * (a < b ? -1 : a > b ? 1 : 0)));
      body.append(...rows.map(([, row]) => row));
    });
  });
}
// On paper nothing can be unfolded.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => (one.open = true)));
// While rows are still to come the page renews itself where it is read, unless someone is at work in it.
if ("running" in document.body.dataset) {
  let touched = 0;
  for (const kind of ["click", "keydown", "wheel", "touchstart"]) addEventListener(kind, () => (touched = Date.now()), { passive: true });
  setInterval(() => Date.now() - touched > 20000 && location.reload(), 5000);
}
