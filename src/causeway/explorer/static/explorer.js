// Takes in what is new without a reload: asks whether anything is, and then for the same page again.
(() => {
  "use strict";
  const SECONDS = 1;
  const LOST_AFTER = 3;
  let seen = document.body.dataset.serial;
  let tag = null;
  let busy = false;
  let missed = 0;
  const texts = new Map();
  const parts = (from) => [...from.querySelectorAll("[data-live][id]")];
  for (const part of parts(document)) texts.set(part.id, part.outerHTML);

  const FOCUS = "a[href], button, input, select, summary, [tabindex]";
  const kept = (part) => ({
    open: [...part.querySelectorAll("details")].map((each) => each.open),
    checked: [...part.querySelectorAll("input:checked")].map((each) => each.id),
    values: [...part.querySelectorAll("input[type=search], input[type=text], input[type=number]")].map((each) => each.value),
    scroll: [...part.querySelectorAll(".scroll, .canvas")].map((each) => [each.scrollLeft, each.scrollTop]),
    focus: part.contains(document.activeElement) ? [...part.querySelectorAll(FOCUS)].indexOf(document.activeElement) : -1,
  });
  const restore = (part, state) => {
    part.querySelectorAll("details").forEach((each, at) => { if (state.open[at] !== undefined) each.open = state.open[at]; });
    for (const id of state.checked) {
      const box = part.querySelector(`#${CSS.escape(id)}`);
      if (box) box.checked = true;
    }
    part.querySelectorAll("input[type=search], input[type=text], input[type=number]").forEach((each, at) => {
      if (state.values[at] !== undefined) each.value = state.values[at];
    });
    part.querySelectorAll(".scroll, .canvas").forEach((each, at) => {
      if (state.scroll[at]) [each.scrollLeft, each.scrollTop] = state.scroll[at];
    });
    if (state.focus >= 0) [...part.querySelectorAll(FOCUS)][state.focus]?.focus({ preventScroll: true });
  };
  const inUse = (part) => {
    const chosen = getSelection();
    if (chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode)) return true;
    const active = document.activeElement;
    return active instanceof HTMLInputElement && active.type !== "radio" && part.contains(active);
  };

  const take = (text) => {
    const page = new DOMParser().parseFromString(text, "text/html");
    const fresh = new Map(parts(page).map((part) => [part.id, part]));
    let whole = true;
    for (const part of parts(document)) {
      const next = fresh.get(part.id);
      if (!next) {
        part.remove();
        texts.delete(part.id);
      } else if (texts.get(part.id) !== next.outerHTML) {
        if (inUse(part)) {
          whole = false;
          continue;
        }
        texts.set(part.id, next.outerHTML);
        const state = kept(part);
        const placed = document.adoptNode(next);
        part.replaceWith(placed);
        restore(placed, state);
      }
    }
    const main = document.getElementById("content");
    for (const next of fresh.values()) {
      if (document.getElementById(next.id) || !next.matches("section")) continue;
      texts.set(next.id, next.outerHTML);
      main.append(document.adoptNode(next));
    }
    document.title = page.title;
    document.dispatchEvent(new Event("causeway:refreshed"));
    return whole;
  };

  const lost = (is) => {
    document.getElementById("lost").hidden = !is;
    document.querySelector("#live .pulse")?.classList.toggle("lost", is);
  };

  const look = async () => {
    if (busy || document.hidden) return;
    busy = true;
    try {
      const answer = await fetch("/live", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      missed = 0;
      lost(false);
      if (answer.status === 200) {
        const { serial } = await answer.json();
        if (serial !== seen) {
          const page = await fetch(location.pathname + location.search, { cache: "no-store" });
          if (page.headers.get("content-type")?.startsWith("text/html") && take(await page.text())) {
            seen = serial;
            tag = answer.headers.get("etag");
          }
        } else tag = answer.headers.get("etag");
      }
    } catch {
      missed += 1;
      if (missed >= LOST_AFTER) lost(true);
    } finally {
      busy = false;
    }
  };
  setInterval(look, SECONDS * 1000);
  const current = document.querySelector(".masthead nav [aria-current]");
  const bar = current?.closest("nav");
  if (bar) bar.scrollLeft = current.offsetLeft + current.offsetWidth - bar.clientWidth;
  document.addEventListener("visibilitychange", look);

  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement;
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const box = document.querySelector("header input[type=search]");
    box.focus();
    box.select();
  });
})();
