// SPDX-License-Identifier: Apache-2.0
// Light or dark, as the system says or as the reader chose. The page may not be allowed to remember
// it (a file opened from disk); then it lasts as long as the page.
{
  const root = document.documentElement;
  const group = document.getElementById("theme");
  let chosen = "auto";
  try { chosen = localStorage.getItem("headroom-theme") || "auto"; } catch { /* not allowed */ }

  const apply = () => {
    if (chosen === "auto") delete root.dataset.theme;
    else root.dataset.theme = chosen;
    for (const button of group.children) {
      button.setAttribute("aria-pressed", button.dataset.theme === chosen);
    }
  };
  group.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    chosen = button.dataset.theme;
    try { localStorage.setItem("headroom-theme", chosen); } catch { /* not allowed */ }
    apply();
  });
  group.hidden = false;
  apply();
}
