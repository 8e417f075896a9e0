// The claims ledger: choose claims by verdict, family and document. Without it, the page shows all of them.
(() => {
  const rows = [...document.querySelectorAll("a[data-documents]")].map((claim) => {
    const row = claim.closest("tr");
    return {
      row,
      claim,
      section: row.closest("section"),
      verdict: [row.querySelector(".status").textContent],
      family: [row.closest("section").querySelector("h2").firstChild.textContent],
      document: claim.dataset.documents.split("|"),
    };
  });
  if (!rows.length) return;

  const asked = new URLSearchParams(location.search);
  const form = document.createElement("form");
  form.className = "ledger-filter";
  form.setAttribute("aria-label", "Choose claims");
  form.addEventListener("submit", (event) => event.preventDefault());
  const choices = ["verdict", "family", "document"].map((name) => {
    const label = form.appendChild(document.createElement("label"));
    label.append(name, " ");
    const select = label.appendChild(document.createElement("select"));
    select.name = name;
    select.append(new Option("all", ""));
    for (const value of new Set(rows.flatMap((one) => one[name]))) select.append(new Option(value, value));
    select.value = asked.get(name) ?? "";
    if (select.selectedIndex < 0) select.value = "";
    return select;
  });
  const count = form.appendChild(document.createElement("output"));
  count.setAttribute("aria-live", "polite");
  rows[0].section.before(form);

  const apply = () => {
    const chosen = choices.filter((select) => select.value);
    let shown = 0;
    for (const one of rows) {
      one.row.hidden = !chosen.every((select) => one[select.name].includes(select.value));
      shown += !one.row.hidden;
    }
    for (const section of new Set(rows.map((one) => one.section))) {
      section.hidden = rows.every((one) => one.section !== section || one.row.hidden);
    }
    count.value = `${shown} of ${rows.length} claims`;
  };

  // A link to a claim shows it whatever was chosen before.
  const goTo = () => {
    const target = rows.find((one) => `#${one.claim.id}` === location.hash);
    if (!target) return;
    if (target.row.hidden) {
      for (const select of choices) select.value = "";
      apply();
    }
    target.row.scrollIntoView({ block: "center" });
  };

  form.addEventListener("change", () => {
    const query = new URLSearchParams(choices.filter((select) => select.value).map(({ name, value }) => [name, value]));
    history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
    apply();
  });
  addEventListener("hashchange", goTo);
  apply();
  goTo();
})();
