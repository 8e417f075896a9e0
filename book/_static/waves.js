// A slider of waves: SMs, heads and registers, and from them blocks at once, waves, and the ratio that they predict.
// Without this script the figure above it is all there is. A line of arithmetic is read by the tests as well, which
// compare it with analysis/models/waves.py and with the occupancy that the compiler reports.
const { ceil, floor, min } = Math;

// arithmetic: blocks of 256 threads, 64 queries a head; an SM has 65,536 registers in four parts
function held(registers, threads, sms) {
  const warpRegisters = ceil(registers * 32 / 256) * 256;
  const warps = floor(65536 / 4 / warpRegisters) * 4;
  const perSm = floor(min(threads / 32, warps) / 8);
  const atOnce = perSm * sms;
  return atOnce;
}
function wavesOf(heads, atOnce) {
  const waves = ceil(heads * 64 / atOnce);
  return waves;
}
// end of arithmetic

document.querySelectorAll("div.waves").forEach((place) => {
  const begins = JSON.parse(place.dataset.begins);
  const form = document.createElement("form");
  const slide = (words, least, most, value) => {
    const label = form.appendChild(document.createElement("label"));
    const input = Object.assign(document.createElement("input"), { type: "range", min: least, max: most });
    const shown = document.createElement("output");
    input.value = value;
    label.append(`${words} `, shown, input);
    return { input, shown };
  };
  const controls = {
    sms: slide("SMs of the card", 8, 170, begins.sms),
    heads: slide("heads of 64 queries", 1, 32, begins.heads),
    v7: slide("registers a thread, V7", 24, 96, begins.registers[0]),
    separate: slide("registers a thread, separate kernel", 24, 96, begins.registers[1]),
  };
  const kinds = form.appendChild(document.createElement("label"));
  const threads = document.createElement("select");
  threads.append(new Option("1,536 (RTX 30, 40, 50)", 1536), new Option("2,048 (A100, H100, B200)", 2048));
  kinds.append("threads an SM holds ", threads);
  const result = document.createElement("div");
  result.className = "waves-result";
  result.setAttribute("aria-live", "polite");
  const title = Object.assign(document.createElement("p"), { className: "figure-title", textContent: "Try it: how many waves?" });
  place.append(title, form, result);

  const bars = (name, heads, atOnce) => {
    const line = document.createElement("p");
    const count = wavesOf(heads, atOnce);
    line.append(`${name}: ${atOnce} blocks at once, ${count} wave${count > 1 ? "s" : ""} `);
    for (let wave = 0; wave < min(count, 12); wave += 1) {
      const bar = line.appendChild(document.createElement("span"));
      bar.className = wave ? "wave waits" : "wave";
      bar.style.setProperty("--filled", `${100 * min(1, (heads * 64 - wave * atOnce) / atOnce)}%`);
    }
    return line;
  };
  const draw = () => {
    for (const { input, shown } of Object.values(controls)) shown.value = input.value;
    const [sms, heads, own, other] = Object.values(controls).map(({ input }) => Number(input.value));
    const fits = [own, other].map((registers) => held(registers, Number(threads.value), sms));
    const [v7, separate] = fits.map((atOnce) => wavesOf(heads, atOnce));
    const asBuilt = own === begins.registers[0] && other === begins.registers[1];
    const measured = asBuilt ? begins.measured[`${sms} ${heads}`] : undefined;
    const told = document.createElement("p");
    const strong = told.appendChild(document.createElement("strong"));
    strong.textContent = `${heads * 64} blocks: by waves alone V7 is ${(separate / v7).toFixed(2)} times as fast`;
    told.append(measured === undefined ? "." : `; measured with so many SMs and heads: ${measured.toFixed(2)}.`);
    result.replaceChildren(bars("V7", heads, fits[0]), bars("separate", heads, fits[1]), told);
  };
  form.addEventListener("input", draw);
  form.addEventListener("submit", (event) => event.preventDefault());
  draw();
});
