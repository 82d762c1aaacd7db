// What every page does by itself: theme, menu, search, and recorded frames that step.
"use strict";

const root = document.documentElement;

function applyTheme() {
  const dark = root.dataset.theme === "dark";
  document.body.dataset.jpThemeLight = String(!dark);
  const theme = document.getElementById("theme");
  theme.textContent = dark ? theme.dataset.light : theme.dataset.dark;
}

document.getElementById("theme").addEventListener("click", () => {
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  try {
    localStorage.setItem("theme", root.dataset.theme);
  } catch (error) {
    // Storage is disabled: the theme holds for this page.
  }
  applyTheme();
});
applyTheme();

const menu = document.getElementById("menu");
menu.addEventListener("click", () => {
  const open = document.getElementById("pages").classList.toggle("open");
  menu.setAttribute("aria-expanded", String(open));
});

// ------------------------------------------------------------------------------------------------ recorded frames

function text(control) {
  return control.dataset.values ? control.dataset.values.split("|")[control.value] : "";
}

function showFrame(frames, moved) {
  // One control at a time was recorded: the others go back to where they began.
  frames.querySelectorAll("[data-name]").forEach((control) => {
    if (control !== moved) control.value = control.dataset.start;
    const output = control.parentElement.querySelector("output");
    if (output) output.textContent = text(control);
  });
  const at = moved.value === moved.dataset.start ? "" : `${moved.dataset.name}=${moved.value}`;
  frames.querySelectorAll(":scope > .frame").forEach((frame) => {
    frame.hidden = frame.dataset.at !== at;
  });
}

document.querySelectorAll(".frames").forEach((frames) => {
  frames.addEventListener("input", (event) => {
    showFrame(frames, event.target);
    const both = frames.closest(".ladder-compare");
    if (!both) return;
    both.querySelectorAll(".frames").forEach((other) => {
      const same = other !== frames && other.querySelector(`[data-name="${event.target.dataset.name}"]`);
      if (!same) return;
      same.value = event.target.value;
      showFrame(other, same);
    });
  });
});

document.querySelectorAll(".choice").forEach((choice) => {
  const buttons = choice.querySelectorAll(":scope > .buttons > button");
  buttons.forEach((button) =>
    button.addEventListener("click", () => {
      buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      choice.querySelectorAll(":scope > .part").forEach((part, index) => {
        part.hidden = String(index) !== button.dataset.part;
      });
      reachable();
    }),
  );
});

// What scrolls sideways must be reached by a keyboard, too.
function reachable() {
  document.querySelectorAll("main pre, main div, main table, main math, .sheet section, #pages").forEach((part) => {
    const scrolls = /auto|scroll/.test(getComputedStyle(part).overflowX) && part.scrollWidth > part.clientWidth;
    if (scrolls || (part.id === "pages" && part.scrollHeight > part.clientHeight)) part.tabIndex = 0;
    else part.removeAttribute("tabindex");
  });
}
reachable();
addEventListener("resize", reachable);
addEventListener("load", reachable);

// ------------------------------------------------------------------------------------------------ search

const words = document.getElementById("words");
const found = document.getElementById("found");
let loading = null;

function index() {
  if (!loading) {
    loading = new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = root.dataset.index;
      script.onload = () => resolve(window.SEARCH_INDEX);
      script.onerror = () => reject(new Error("The list of words could not be loaded."));
      document.head.append(script);
    });
  }
  return loading;
}

function score(section, wanted) {
  const title = section.title.toLowerCase();
  const body = section.text.toLowerCase();
  let sum = 0;
  for (const word of wanted) {
    if (title.includes(word)) sum += title === word ? 30 : 10;
    else if (body.includes(word)) sum += 1 + Math.min(3, body.split(word).length - 1);
    else return 0;
  }
  return sum;
}

function excerpt(section, word) {
  const at = Math.max(0, section.text.toLowerCase().indexOf(word) - 40);
  return (at ? "…" : "") + section.text.slice(at, at + 140) + (at + 140 < section.text.length ? "…" : "");
}

async function search() {
  const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  found.hidden = !wanted.length;
  if (!wanted.length) return;
  let sections;
  try {
    sections = await index();
  } catch (error) {
    found.textContent = error.message;
    return;
  }
  const hits = sections.map((section) => [score(section, wanted), section]).filter(([points]) => points);
  hits.sort((a, b) => b[0] - a[0]);
  found.replaceChildren(
    ...hits.slice(0, 12).map(([, section]) => {
      const link = document.createElement("a");
      link.href = section.address;
      link.append(`${section.page}: ${section.title}`);
      const small = document.createElement("small");
      small.textContent = excerpt(section, wanted[0]);
      link.append(small);
      return link;
    }),
  );
  if (!hits.length) found.textContent = `Nothing about ${words.value}.`;
}

words.addEventListener("input", search);
words.addEventListener("focus", () => index().catch(() => {}));
document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const first = found.querySelector("a");
  if (first) first.click();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") found.hidden = true;
});
found.addEventListener("click", (event) => {
  if (event.target.closest("a")) found.hidden = true;
});
