// What pages gain with a script: results as one types, ticks that last, and lines to copy. Without it, everything works.
"use strict";

// Results as one types: the form's own address is fetched, and the part that it names is replaced.
for (const form of document.querySelectorAll("form[data-live]")) {
  const id = form.dataset.live;
  let waiting, fetching;
  const address = () => {
    const fields = new URLSearchParams(new FormData(form));
    for (const [name, value] of [...fields]) if (!value) fields.delete(name);
    const query = fields.toString();
    return form.getAttribute("action") + (query ? "?" + query : "");
  };
  const update = async () => {
    fetching?.abort();
    fetching = new AbortController();
    const target = address();
    try {
      const answer = await fetch(target, { signal: fetching.signal, headers: { Accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const results = page.getElementById(id);
      // What is being dragged is left alone: its end asks again.
      if (!results || document.querySelector("[type=range]:active")) return;
      history.replaceState(null, "", target);
      replace(document.getElementById(id), results);
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
  };
  form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(update, 200); });
  form.addEventListener("submit", event => { event.preventDefault(); clearTimeout(waiting); update(); });
}

// Two sliders below a histogram, whose stops are the ends of its bars, type into the field below them.
function sliding(part) {
  for (const ends of part.querySelectorAll(".ends[data-typed]")) {
    const field = ends.nextElementSibling, typed = ends.dataset.typed.split("|"), last = typed.length - 1;
    const shown = ends.dataset.shown.split("|"), [low, high] = field.value.split("..").map(Number.parseFloat);
    const stops = [typed.findLastIndex(end => end && end <= low), typed.findIndex(end => end && end >= high)];
    const sides = ["from", "to"].map((side, at) => {
      const value = stops[at] < 0 ? at * last : stops[at];
      const slider = Object.assign(document.createElement("input"), { type: "range", max: last, value, id: `${field.id}-${side}` });
      slider.setAttribute("aria-label", field.getAttribute("aria-label").replace("from..to", side));
      return slider;
    });
    const say = () => sides.forEach(slider => slider.setAttribute("aria-valuetext", shown[slider.value]));
    const box = ends.previousElementSibling;
    box.addEventListener("input", ({ target }) => {
      // At least one bar stays between them: one pushes the other.
      const from = target === sides[0] ? Math.min(target.value, last - 1) : Math.min(sides[0].value, Math.max(target.value - 1, 0));
      [sides[0].value, sides[1].value] = [from, Math.max(sides[1].value, from + 1)];
      const range = sides.map(slider => typed[slider.value]).join("..");
      field.value = range === ".." ? "" : range;
      say();
    });
    box.addEventListener("change", () => field.form.requestSubmit());
    box.append(...sides);
    say();
  }
}
sliding(document);

function replace(part, now) {
  const { id, href } = document.activeElement, folded = part.querySelector(".facets:not([open])");
  part.replaceWith(now);
  now.querySelector(".facets")?.toggleAttribute("open", !folded);
  sliding(now);
  (document.getElementById(id) ?? [...now.querySelectorAll("a")].find(link => link.href === href))?.focus();
  ticking();
}

document.addEventListener("keydown", event => {
  const field = document.getElementById("text");
  if (event.key !== "/" || !field || event.target.matches("input:not([type=checkbox]), textarea, select")) return;
  event.preventDefault();
  field.focus();
});

// What is ticked stays ticked on other pages of the list, and is shown beside the button.
function ticking() {
  const form = document.querySelector(".comparing");
  if (!form) return;
  const ticked = new Set(JSON.parse(sessionStorage.getItem("ticked") ?? "[]"));
  const show = () => {
    sessionStorage.setItem("ticked", JSON.stringify([...ticked]));
    const boxes = [...form.querySelectorAll(".tick")];
    for (const box of boxes) box.checked = ticked.has(box.value);
    form.querySelector("output").replaceChildren(...[...ticked].flatMap(ref => {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: `${ref} ×` });
      button.setAttribute("aria-label", `Do not compare ${ref}`);
      button.addEventListener("click", () => { ticked.delete(ref); show(); });
      const field = Object.assign(document.createElement("input"), { type: "hidden", name: "ref", value: ref });
      return boxes.some(box => box.value === ref) ? [button] : [button, field];
    }));
  };
  form.addEventListener("change", event => { ticked[event.target.checked ? "add" : "delete"](event.target.value); show(); });
  show();
}
ticking();

// Lines to copy, and buttons that copy what they hold.
document.addEventListener("click", async ({ target: button }) => {
  if (!button.matches(".copied button, [data-copy]")) return;
  const text = button.dataset.copy ?? button.nextElementSibling.textContent;
  if (navigator.clipboard) await navigator.clipboard.writeText(text);
  else {
    // Without TLS there is no clipboard object, but a copy event sets what is copied.
    const say = event => { event.clipboardData.setData("text/plain", text); event.preventDefault(); };
    document.addEventListener("copy", say, { once: true });
    document.execCommand("copy");
  }
  const label = button.dataset.label ??= button.textContent;
  button.style.minWidth = `${button.offsetWidth}px`;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = label; }, 2000);
});

// A part that changes by itself is fetched again, for as long as it says so.
async function again(part) {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => null);
  const page = answer?.ok && new DOMParser().parseFromString(await answer.text(), "text/html");
  const now = page && page.getElementById(part.id);
  if (now && now.innerHTML !== part.innerHTML) {
    replace(part, now);
    part = now;
  }
  following(part);
}
function following(part) {
  if (part?.dataset.every) setTimeout(again, 1000 * part.dataset.every, part);
}
following(document.querySelector("[data-every]"));
