// Tables wider than the page are marked, so that a phone can say that they scroll.
(() => {
  const mark = () => {
    for (const frame of document.querySelectorAll(".evidence-scroll")) {
      frame.classList.toggle("wide", frame.scrollWidth > frame.clientWidth + 1);
    }
  };
  addEventListener("resize", mark);
  addEventListener("load", mark);
  mark();
})();
