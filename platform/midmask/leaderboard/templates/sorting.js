for (const head of document.querySelectorAll("thead th[data-key]")) head.addEventListener("click", () => {
  const body = document.querySelector("tbody"), up = head.dataset.up !== "true";
  const at = line => line.querySelector(`[data-key="${CSS.escape(head.dataset.key)}"]`).dataset.value;
  const order = (a, b) => a === "" ? 1 : b === "" ? -1 : isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
  const lines = [...body.rows].sort((a, b) => {
    const [x, y] = [at(a), at(b)];
    return x === "" || y === "" ? order(x, y) : (up ? 1 : -1) * order(x, y);
  });
  head.dataset.up = up;
  body.append(...lines);
});
