// Draws the figures, in the page's colours, and again in black on white for paper.
"use strict";
const figures = JSON.parse(document.getElementById("figures").textContent);
const PAPER_WIDTH = 680;

function coloured(layout, text, line, size) {
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line };
  return {
    ...layout,
    ...size,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: text, family: "system-ui, sans-serif", size: 13 },
    margin: { l: 10, r: 20, t: 30, b: 50, ...layout.margin },
    xaxis: { automargin: true, ...axis, ...layout.xaxis },
    yaxis: { ...axis, ...layout.yaxis },
    shapes: (layout.shapes || []).map((s) => ({ ...s, line: { ...s.line, color: text } })),
  };
}

function draw(text, line, size) {
  for (const [name, figure] of Object.entries(figures)) {
    const layout = coloured(figure.layout, text, line, size);
    for (const trace of figure.data) {
      if (trace.error_x) trace.error_x.color = text;
    }
    Plotly.react(name, figure.data, layout, { responsive: true, displayModeBar: false });
  }
}

function drawOnScreen() {
  const style = getComputedStyle(document.documentElement);
  draw(style.getPropertyValue("--text"), style.getPropertyValue("--line"), { autosize: true });
}

const base = document.getElementById("base");
if (base) {
  base.addEventListener("change", () => {
    figures.speedup.data = figures.speedup.bases[base.value];
    drawOnScreen();
  });
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawOnScreen);
addEventListener("beforeprint", () => draw("#000000", "#bbbbbb", { width: PAPER_WIDTH }));
addEventListener("afterprint", drawOnScreen);
drawOnScreen();
