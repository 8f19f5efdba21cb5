(() => {
  "use strict";
  const root = document.documentElement;
  const wanted = matchMedia("(prefers-color-scheme: dark)");
  const KEY = "causeway-theme";
  const remember = (value) => { try { localStorage.setItem(KEY, value); } catch { /* a page from a file may have no storage */ } };
  const remembered = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
  const dark = () => (root.dataset.theme || (wanted.matches ? "dark" : "light")) === "dark";

  const kept = remembered();
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  for (const button of document.querySelectorAll("[data-toggle-theme]")) {
    const say = () => button.setAttribute("aria-label", dark() ? "Use light colours" : "Use dark colours");
    button.hidden = false;
    say();
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      remember(root.dataset.theme);
      say();
    });
  }

  // Tips of charts: what each interval says stands in its <title>, for those who have no script.
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "status");
  document.body.append(tip);
  let lit = null;
  const said = new WeakMap();
  const tipOf = (mark) => {
    if (!said.has(mark)) {
      const title = mark.querySelector("title");
      said.set(mark, title ? title.textContent : "");
      if (title) title.remove();
    }
    return said.get(mark);
  };
  const hide = () => {
    if (lit) lit.classList.remove("on");
    lit = null;
    tip.hidden = true;
  };
  const show = (mark, x) => {
    const text = tipOf(mark);
    if (!text) return hide();
    if (lit !== mark) {
      if (lit) lit.classList.remove("on");
      lit = mark;
      mark.classList.add("on");
      tip.replaceChildren(...text.split("\n").map((line) => {
        const part = document.createElement("p");
        part.textContent = line;
        return part;
      }));
    }
    tip.hidden = false;
    const box = mark.getBoundingClientRect();
    const own = tip.getBoundingClientRect();
    const middle = x === undefined ? box.left + box.width / 2 : x;
    const left = middle + 14 + own.width > innerWidth - 8 ? middle - own.width - 14 : middle + 14;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${Math.max(8, Math.min(box.top + 8, innerHeight - own.height - 8))}px`;
  };
  const marked = (target) => (target instanceof Element ? target.closest(".hits rect, .legs rect") : null);
  for (const kind of ["pointermove", "pointerdown"]) {
    document.addEventListener(kind, (event) => {
      const mark = marked(event.target);
      if (mark) show(mark, event.clientX);
      else if (lit) hide();
    }, { passive: true });
  }
  document.addEventListener("scroll", hide, { passive: true, capture: true });
  document.addEventListener("focusout", hide);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    const plot = event.target instanceof Element ? event.target.closest(".plot") : null;
    if (!plot || event.target !== plot) return;
    const marks = [...plot.querySelectorAll(".hits rect")];
    const at = marks.indexOf(lit);
    const step = { ArrowRight: at + 1, ArrowLeft: at < 0 ? marks.length - 1 : at - 1, Home: 0, End: marks.length - 1 }[event.key];
    if (step === undefined || !marks.length) return;
    event.preventDefault();
    show(marks[Math.max(0, Math.min(step, marks.length - 1))]);
  });

  // Rows of a long table by what they say.
  for (const box of document.querySelectorAll("[data-filter]")) {
    const rows = [...document.querySelectorAll(`#${CSS.escape(box.dataset.filter)} tbody tr`)];
    const texts = rows.map((row) => row.textContent.toLowerCase());
    box.hidden = false;
    box.addEventListener("input", () => {
      const sought = box.value.trim().toLowerCase();
      rows.forEach((row, place) => { row.hidden = !texts[place].includes(sought); });
    });
  }

  // What a link leads to may lie in something closed.
  const open = () => {
    const target = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    for (let above = target; above; above = above.parentElement) if (above instanceof HTMLDetailsElement) above.open = true;
    if (target) {
      if (target.closest("tr[hidden]")) target.closest("tr").hidden = false;
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", open);
  if (location.hash) open();

  // Which section is being read.
  const links = new Map([...document.querySelectorAll(".masthead nav a[href^='#']")].map((link) => [link.hash.slice(1), link]));
  if (links.size && "IntersectionObserver" in window) {
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        for (const link of links.values()) link.removeAttribute("aria-current");
        links.get(entry.target.id)?.setAttribute("aria-current", "true");
      }
    }, { rootMargin: "-20% 0px -70% 0px" });
    for (const ident of links.keys()) {
      const section = document.getElementById(ident);
      if (section) seen.observe(section);
    }
  }
})();
