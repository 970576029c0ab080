// What pages gain with a script: results as one types, and lines to copy at a press. Without it, everything works.
"use strict";

// Results as one types: the form's own address is fetched, and the part that it names is replaced.
for (const form of document.querySelectorAll("form[data-live]")) {
  const id = form.dataset.live;
  let waiting, fetching;
  const address = () => {
    const fields = new URLSearchParams(new FormData(form));
    for (const [name, value] of [...fields]) {
      if (value === (form.elements[name].dataset.default ?? "")) fields.delete(name);
    }
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
      if (!results) return;
      document.getElementById(id).replaceWith(results);
      history.replaceState(null, "", target);
      copying(results);
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
  };
  form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(update, 200); });
  form.addEventListener("submit", event => { event.preventDefault(); clearTimeout(waiting); update(); });
}

// Lines to copy.
function copying(part) {
  if (!navigator.clipboard) return;
  for (const box of part.querySelectorAll(".copied")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(box.querySelector("code").textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    box.append(button);
  }
}
copying(document);
