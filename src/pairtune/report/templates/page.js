"use strict";

// plotly.js stands in the page as gzip in base64: less than half the size, and still nothing to fetch
async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

async function draw() {
  const script = document.createElement("script");
  script.textContent = await unpack(document.getElementById("plotly").textContent);
  document.head.append(script);
  const plots = [...document.querySelectorAll(".plot")];
  for (const plot of plots) {
    const { data, layout } = JSON.parse(plot.querySelector("script").textContent);
    plot.replaceChildren();
    await Plotly.newPlot(plot, data, layout, { responsive: true, displayModeBar: false });
  }
  // a printed page is narrower than the window
  window.addEventListener("beforeprint", () => plots.forEach((plot) => Plotly.relayout(plot, { width: 330 * (plot.closest(".single") ? 2 : 1) })));
  window.addEventListener("afterprint", () => plots.forEach((plot) => Plotly.relayout(plot, { autosize: true, width: null })));
  document.documentElement.dataset.drawn = plots.length;
}

draw().catch((problem) => {
  for (const plot of document.querySelectorAll(".plot")) plot.textContent = `This plot could not be drawn: ${problem.message}`;
});
