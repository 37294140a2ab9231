// A region that scrolls sideways can be reached with the keyboard.
function reachable() {
  const kinds = "pre, .table-wrapper, .katex-display, .output.text_html, article p:has(> img)";
  for (const region of document.querySelectorAll(kinds)) {
    if (region.scrollWidth > region.clientWidth) region.tabIndex = 0;
    else region.removeAttribute("tabindex");
  }
}
addEventListener("load", reachable);
addEventListener("resize", reachable);
addEventListener("toggle", reachable, true); // a folded answer was opened
// A page that was opened as a file may not read other files, so results have no excerpt there.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

// Sliders that need no kernel. A frame lies over the one at the start, and is transparent where both are equal.
for (const figure of document.querySelectorAll("figure.sliders")) {
  const { sliders, start, titles, frames, alt } = JSON.parse(figure.dataset.state);
  const names = Object.keys(sliders), picture = figure.querySelector("img");
  const inputs = [...figure.querySelectorAll("input")];
  function show() {
    const values = inputs.map((input, i) => sliders[names[i]][input.value]);
    const at = inputs.reduce((sum, input) => sum * (+input.max + 1) + +input.value, 0);
    inputs.forEach((input, i) => {
      input.setAttribute("aria-valuetext", values[i]);
      input.parentNode.nextElementSibling.textContent = values[i];
    });
    picture.src = "data:image/png;base64," + frames[at];
    picture.alt = at === start ? alt : titles[at] + " (" + names.map((name, i) => name + " = " + values[i]).join(", ") + ")";
  }
  picture.style.background = `white url(${picture.src}) 0 0 / 100% 100%`;
  figure.addEventListener("input", show);
  show();
  figure.querySelector("div").hidden = false;
}
