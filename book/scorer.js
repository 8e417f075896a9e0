// What a search shows first: chapters, then reference pages, then those of versions; a page of that title before all.
const REFERENCE = ["claims", "versions", "method", "compare", "figure-index"];
const TITLE = 15;
var Scorer = {
  score: ([page, title, anchor, description, score]) => {
    if (score >= TITLE) return score;
    return score - (/\bversions\//.test(page) ? 40 : REFERENCE.includes(page.split("/").at(-1)) ? 20 : 0);
  },
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: TITLE, partialTitle: 7, term: 5, partialTerm: 2,
};
