// Where the reader is, in the contents; everything unfolded on paper; a link into a folded table opens it.
(function () {
  const links = new Map(Array.from(document.querySelectorAll(".contents a"), function (a) { return [a.hash.slice(1), a]; }));
  const seen = new Set();
  const watch = new IntersectionObserver(function (entries) {
    entries.forEach(function (entry) { if (entry.isIntersecting) seen.add(entry.target.id); else seen.delete(entry.target.id); });
    let current = null;
    links.forEach(function (a, id) { a.removeAttribute("aria-current"); if (seen.has(id) && !current) current = a; });
    if (current) current.setAttribute("aria-current", "true");
  }, { rootMargin: "0px 0px -60% 0px" });
  links.forEach(function (_, id) { const target = document.getElementById(id); if (target && target.tagName === "SECTION") watch.observe(target); });

  const opened = [];
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details:not([open])").forEach(function (d) { d.open = true; opened.push(d); });
  });
  window.addEventListener("afterprint", function () { opened.splice(0).forEach(function (d) { d.open = false; }); });

  function reveal() {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") target.open = true;
  }
  window.addEventListener("hashchange", reveal);
  reveal();
})();
