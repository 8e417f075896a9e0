// Search and filter the rows of the tables of a section: that of <div class="find" data-what="claims" data-by="verdict">.
// Without this script all rows are shown.
document.querySelectorAll("div.find").forEach((place) => {
  const scope = place.closest("section");
  // Rows that share a first cell stay together.
  const rows = [...scope.querySelectorAll("table.evidence tbody tr.group")]
    .filter((first) => place.compareDocumentPosition(first) & Node.DOCUMENT_POSITION_FOLLOWING)
    .map((first) => {
      const all = [first];
      while (all.at(-1).nextElementSibling && !all.at(-1).nextElementSibling.classList.contains("group")) {
        all.push(all.at(-1).nextElementSibling);
      }
      const section = first.closest("section");
      const within = (selector) => all.flatMap((row) => [...row.querySelectorAll(selector)]);
      return {
        all,
        section,
        text: all.map((row) => row.textContent).join(" ").toLowerCase(),
        ids: within("[id]").map((one) => one.id),
        status: within(".status, [data-status]").map((one) => one.dataset.status ?? one.textContent),
        part: section === scope ? [] : [section.querySelector("h2, h3").firstChild.textContent],
        document: within("[data-documents]").flatMap((one) => one.dataset.documents.split("|")),
      };
    });
  if (!rows.length) return;

  const asked = new URLSearchParams(location.search);
  const form = document.createElement("form");
  form.setAttribute("role", "search");
  form.addEventListener("submit", (event) => event.preventDefault());
  const field = (name, control) => {
    const label = form.appendChild(document.createElement("label"));
    label.append(`${name} `, control);
    control.name = name;
    return control;
  };
  const search = field("search", Object.assign(document.createElement("input"), { type: "search", value: asked.get("search") ?? "" }));
  const choices = [[place.dataset.by ?? "status", "status"], ["part", "part"], ["document", "document"]].flatMap(([name, key]) => {
    const values = [...new Set(rows.flatMap((row) => row[key]))];
    if (values.length < 2) return [];
    const select = field(name, document.createElement("select"));
    select.append(new Option("all", ""), ...values.map((value) => new Option(value, value)));
    select.value = asked.get(name) ?? "";
    if (select.selectedIndex < 0) select.value = "";
    return [{ select, key }];
  });
  const count = form.appendChild(document.createElement("output"));
  count.setAttribute("aria-live", "polite");
  place.append(form);

  const apply = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const fits =
        words.every((word) => row.text.includes(word)) &&
        choices.every(({ select, key }) => !select.value || row[key].includes(select.value));
      for (const one of row.all) one.hidden = !fits;
      shown += fits;
    }
    for (const part of scope.querySelectorAll("table.evidence tr.part")) {
      let row = part.nextElementSibling;
      while (row?.hidden && !row.classList.contains("part")) row = row.nextElementSibling;
      part.hidden = !row || row.classList.contains("part");
    }
    for (const section of new Set(rows.map((row) => row.section))) {
      if (section !== scope) section.hidden = rows.every((row) => row.section !== section || row.all[0].hidden);
    }
    count.value = `${shown} of ${rows.length} ${place.dataset.what}`;
  };
  // A link to a row shows it whatever was chosen before.
  const goTo = () => {
    const target = rows.find((row) => row.ids.includes(location.hash.slice(1)));
    if (!target) return;
    if (target.all[0].hidden) {
      search.value = "";
      for (const { select } of choices) select.value = "";
      apply();
    }
    target.all[0].scrollIntoView({ block: "center" });
  };
  form.addEventListener("input", () => {
    const chosen = [search, ...choices.map(({ select }) => select)].filter((control) => control.value);
    const query = new URLSearchParams(chosen.map(({ name, value }) => [name, value]));
    history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
    apply();
  });
  addEventListener("hashchange", goTo);
  apply();
  goTo();
});
