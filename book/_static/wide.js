// What is wider than the page is marked, so that a reader sees that it scrolls. On a phone tables beside text are folded.
(() => {
  const mark = () => {
    for (const frame of document.querySelectorAll(".evidence-scroll, .pst-scrollable-table-container, .bd-article div.highlight > pre")) {
      frame.classList.toggle("wide", frame.scrollWidth > frame.clientWidth + 1);
    }
  };
  if (matchMedia("(max-width: 600px)").matches && !document.querySelector("div.find")) {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const SHORT = 7; // rows that a phone shows unfolded
    for (const table of document.querySelectorAll("details.evidence-table.shown")) {
      table.classList.toggle("short", table.querySelectorAll("tbody tr").length <= SHORT);
      table.open = table.contains(target) || table.classList.contains("short");
    }
  }
  addEventListener("resize", mark);
  addEventListener("load", mark);
  document.addEventListener("toggle", mark, true);
  mark();
})();

// What the theme leaves to be wished for: names that contain the words one sees, and a landmark around the title.
for (const one of document.querySelectorAll("summary[aria-label], .search-button__button")) one.removeAttribute("aria-label");
for (const one of document.querySelectorAll(".theme-switch-button")) {
  one.removeAttribute("aria-label");
  one.append(Object.assign(document.createElement("span"), { className: "visually-hidden", textContent: "Color mode" }));
}
for (const one of document.querySelectorAll(".citation-list, .citation-list [role]")) one.removeAttribute("role");
for (const one of document.querySelectorAll(".sidebar-primary-item:has(.navbar-brand)")) {
  one.setAttribute("role", "navigation");
  one.setAttribute("aria-label", "Home");
}
