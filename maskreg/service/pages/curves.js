// Curves of a run: makes its pictures charts to zoom and to read, all over the same versions.
"use strict";
{
  const data = JSON.parse(document.getElementById("figures").textContent), { number, step, minute } = data, count = number.length;
  const size = bytes => {
    let unit = 0;
    for (; bytes >= 1023.95; unit++) bytes /= 1024;
    return `${bytes.toFixed(unit && 1)}\u00a0${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
  };
  const texts = { moved: share => `${share && (100 * share).toPrecision(3)}\u00a0%`, size };
  const tools = document.querySelector(".zoom"), slider = tools.querySelector("input"), reading = document.querySelector(".reading");
  const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const soft = () => color("--soft"), faint = { stroke: () => color("--faint"), width: 1 };

  // A version is a step from its index to the next one; deleted versions have none.
  const plots = [...document.querySelectorAll(".plot")].map(box => {
    const text = texts[box.dataset.key], { paddingLeft, paddingBottom, fontFamily } = getComputedStyle(box), font = `12px ${fontFamily}`;
    const axis = { stroke: soft, font, grid: faint, ticks: faint };
    const plot = new uPlot({
      width: box.clientWidth, height: box.clientHeight, padding: [8, 16, 0, 0], legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { setScale: false }, bind: { dblclick: () => () => zoom(0, count) } },
      scales: { x: { time: false, range: (_, min, max) => [min ?? 0, max ?? count] }, y: { range: (_, min, max) => [0, 1.05 * max || 1] } },
      axes: [
        { ...axis, size: parseFloat(paddingBottom), space: 70, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000], grid: { show: false },
          splits: (_, at, min, max, by) => {
            const first = Math.ceil((min + number[0]) / by) * by - number[0] + .5;
            return Array.from({ length: Math.ceil((max - first) / by) }, (_, tick) => first + tick * by);
          },
          values: (_, ticks) => ticks.map(tick => number[tick - .5]?.toLocaleString("en")) },
        { ...axis, size: parseFloat(paddingLeft), space: 25, values: (_, ticks) => ticks.map(text),
          ...(text === size && { incrs: Array.from({ length: 50 }, (_, power) => 2 ** power) }) },
      ],
      series: [{}, { stroke: () => color("--observed"), fill: () => `${color("--observed")}29`, width: 1.5, points: { show: false },
        paths: uPlot.paths.stepped({ align: 1, extend: true }) }],
      hooks: {
        setCursor: [({ cursor, bbox }) => point(bbox.width && cursor.left >= 0 ? Math.min(Math.floor(plot.posToVal(cursor.left, "x")), count - 1) : +slider.value)],
        setSelect: [({ select: { left, width } }) => {
          zoom(Math.floor(plot.posToVal(left, "x")), Math.ceil(plot.posToVal(left + width, "x")));
          plot.setSelect({ width: 0, height: 0 }, false);
        }],
      },
    }, [number.map((_, index) => index), data[box.dataset.key]], box);
    plot.root.setAttribute("role", "img");
    plot.root.setAttribute("aria-label", box.querySelector("svg").getAttribute("aria-label"));
    return plot;
  });

  function point(index) {
    const day = new Date(60000 * minute[index]).toISOString().slice(0, 16).replace("T", " ");
    reading.textContent = `Version ${number[index].toLocaleString("en")}${step[index] && `, step ${step[index]}`}, ${day} UTC: moved ${texts.moved(data.moved[index])}, ${size(data.size[index])}`;
    slider.value = index;
    slider.setAttribute("aria-valuetext", reading.textContent);
    for (const plot of plots) plot.setCursor({ left: plot.valToPos(index + .5, "x"), top: 0 }, false);
  }

  function zoom(from, to) {
    const width = Math.min(Math.max(Math.round(to - from), 2), count), min = Math.min(Math.max(Math.round(from), 0), count - width);
    for (const plot of plots) plot.batch(() => plot.setScale("x", { min, max: min + width }));
    point(+slider.value);
  }

  tools.addEventListener("click", ({ target: { dataset } }) => {
    if (!dataset.by) return;
    const { min, max } = plots[0].scales.x, middle = Math.min(Math.max(+slider.value + .5, min), max), half = dataset.by * (max - min) / 2;
    zoom(middle - half, middle + half);
  });
  slider.addEventListener("input", () => {
    const { min, max } = plots[0].scales.x, index = +slider.value, half = (max - min) / 2;
    if (index < min || index >= max) zoom(index - half, index + half);
    point(index);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.forEach(plot => plot.redraw()));
  const sizes = new ResizeObserver(() => {
    for (const plot of plots) {
      const { clientWidth: width, clientHeight: height } = plot.root.parentElement;
      plot.setSize({ width, height });
    }
    point(+slider.value);
  });
  for (const { root } of plots) sizes.observe(root.parentElement);
  zoom(0, count);
}
