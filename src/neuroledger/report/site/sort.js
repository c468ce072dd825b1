// Sort a table by the column whose heading is pressed; keep only the rows that contain the text typed above it.
"use strict";
document.querySelectorAll("table[data-sortable]").forEach((table) => {
  const body = table.tBodies[0];
  const headings = Array.from(table.querySelectorAll("th[data-column]"));
  headings.forEach((heading) => {
    heading.querySelector("button").addEventListener("click", () => {
      const column = Number(heading.dataset.column);
      const descending = heading.getAttribute("aria-sort") === null
        ? heading.dataset.first === "descending"
        : heading.getAttribute("aria-sort") === "ascending";
      const sign = descending ? -1 : 1;
      const value = (row) => row.cells[column].dataset.value ?? "";
      const rows = Array.from(body.rows);
      rows.sort((a, b) => {
        const x = value(a), y = value(b);
        if (x === "" || y === "") return (x === "") - (y === ""); // what has no value stays last
        const numbers = !Number.isNaN(Number(x)) && !Number.isNaN(Number(y));
        return sign * (numbers ? Number(x) - Number(y) : x.localeCompare(y));
      });
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
      body.append(...rows);
    });
  });
});
document.querySelectorAll("input[data-filter]").forEach((input) => {
  const table = document.getElementById(input.dataset.filter);
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    Array.from(table.tBodies[0].rows).forEach((row) => {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
  });
});
