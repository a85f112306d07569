// Sorting, searching and paging of the tables: without this script they are plain tables, whole.
(function () {
  const PAGE = 25, SEARCHED = 9;

  // What is typed and what is shown, in one form: minus signs and hyphens, narrow and unbreakable spaces, case.
  function plain(text) {
    return text.toLowerCase().replace(/[\u2010-\u2015\u2212]/g, "-").replace(/[\u00a0\u2000-\u200a\u202f]/g, " ");
  }
  // Every word, anywhere in a row; one in quotes by itself: "gapo" leaves out gapo_matched.
  function search(typed) {
    const found = Array.from(plain(typed).matchAll(/"([^"]*)"?|\S+/g), function (part) {
      if (part[1] === undefined) return function (text) { return text.includes(part[0]); };
      const word = part[1].trim().replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
      const alone = new RegExp("(^|[^\\p{L}\\p{N}_-])" + word + "($|[^\\p{L}\\p{N}_-])", "u");
      return function (text) { return !word || alone.test(text); };
    });
    return function (text) { return found.every(function (one) { return one(text); }); };
  }

  function enhance(table) {
    const body = table.tBodies[0];
    const rows = Array.from(body.rows, function (row, place) {
      return { row: row, place: place, text: plain(Array.from(row.cells, function (cell) { return cell.textContent; }).join("\n")) };
    });
    if (rows.length < 2) return;
    let shown = rows, first = 0, all = false;
    const title = table.dataset.title;
    const tools = document.createElement("div");
    tools.className = "tools";
    const count = document.createElement("span");
    count.setAttribute("role", "status");

    function draw() {
      const last = all ? shown.length : Math.min(first + PAGE, shown.length);
      body.replaceChildren(...shown.slice(all ? 0 : first, last).map(function (entry) { return entry.row; }));
      const of = shown.length === rows.length ? "" : ", of " + rows.length;
      count.textContent = !shown.length ? "no row of " + rows.length
        : all || shown.length <= PAGE ? shown.length + " rows" + of
        : (first + 1) + " to " + last + " of " + shown.length + of;
      if (pager) {
        pager.hidden = shown.length <= PAGE;
        back.disabled = all || first === 0;
        on.disabled = all || last >= shown.length;
        whole.textContent = all ? "pages" : "show all";
      }
    }

    function onPaper() { // all pages of the table
      body.replaceChildren(...shown.map(function (entry) { return entry.row; }));
    }

    function button(text, name, act) {
      const made = document.createElement("button");
      made.type = "button";
      made.textContent = text;
      if (name) made.setAttribute("aria-label", name);
      made.addEventListener("click", act);
      return made;
    }

    let pager = null, back, on, whole;
    if (rows.length >= SEARCHED) {
      const field = document.createElement("input");
      field.type = "search";
      field.placeholder = "Search";
      field.title = "Words anywhere in a row; one in \"quotes\" by itself";
      field.setAttribute("aria-label", "Search " + title);
      field.addEventListener("input", function () {
        const fits = search(field.value);
        shown = rows.filter(function (entry) { return fits(entry.text); });
        first = 0;
        draw();
      });
      tools.append(field);
    }
    if (rows.length > PAGE) {
      pager = document.createElement("span");
      back = button("‹", "Page before", function () { first = Math.max(0, first - PAGE); draw(); });
      on = button("›", "Next page", function () { first += PAGE; draw(); });
      whole = button("show all", "", function () { all = !all; draw(); });
      pager.append(back, " ", on, " ", whole);
    }
    tools.append(count);
    if (pager) tools.append(pager);
    if (rows.length >= SEARCHED) table.parentElement.before(tools);

    // Numbers by data-v, all else as text with the numbers in it in their order; empty cells last, both ways.
    function sort(column, sign) {
      rows.forEach(function (entry) {
        const cell = entry.row.cells[column];
        entry.key = "v" in cell.dataset ? Number(cell.dataset.v) : cell.textContent.trim() || null;
      });
      const collator = new Intl.Collator(undefined, { numeric: true });
      rows.sort(function (a, b) {
        if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.place - b.place;
        const both = typeof a.key === "number" && typeof b.key === "number";
        const order = both ? a.key - b.key : collator.compare(String(a.key), String(b.key));
        return sign * order || a.place - b.place;
      });
      const kept = new Set(shown);
      shown = rows.filter(function (entry) { return kept.has(entry); });
      first = 0;
      draw();
    }

    Array.from(table.tHead.rows[0].cells).forEach(function (head, column, heads) {
      const text = head.textContent.trim();
      const act = button(text, "", function () {
        const now = head.getAttribute("aria-sort");
        // the largest number, the first text, at the first press
        const next = now === "descending" ? "ascending" : now === "ascending" ? "descending"
          : head.classList.contains("n") ? "descending" : "ascending";
        heads.forEach(function (other) { other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", next);
        sort(column, next === "ascending" ? 1 : -1);
      });
      head.replaceChildren(act);
    });
    draw();
    window.addEventListener("beforeprint", onPaper);
    window.addEventListener("afterprint", draw);
  }

  document.querySelectorAll("table[data-title]").forEach(enhance);
})();
