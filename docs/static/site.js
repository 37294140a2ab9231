// A region that scrolls sideways can be reached with the keyboard.
function reachable() {
  for (const region of document.querySelectorAll("pre, .table-wrapper, .katex-display, .output.text_html")) {
    if (region.scrollWidth > region.clientWidth) region.tabIndex = 0;
    else region.removeAttribute("tabindex");
  }
}
addEventListener("load", reachable);
addEventListener("resize", reachable);
addEventListener("toggle", reachable, true); // a folded answer was opened
// A page that was opened as a file may not read other files, so results have no excerpt there.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
