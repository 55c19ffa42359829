/** The colours of the page: the system's, light or dark ones. `page/theme.js` sets them before anything is drawn. */

import { change, onChange, settings } from "./settings.js";

const dark = document.getElementById("dark");

applyColours();
onChange(applyColours);

/** Light becomes dark, and dark light. */
export function toggleTheme() {
  const isDark = settings.theme === "system" ? matchMedia("(prefers-color-scheme: dark)").matches : settings.theme === "dark";
  change({ theme: isDark ? "light" : "dark" });
}

function applyColours() {
  const { theme } = settings;
  const root = document.documentElement;
  if (theme === "system") {
    delete root.dataset.theme;
    dark.media = "(prefers-color-scheme: dark)";
  } else {
    root.dataset.theme = theme;
    dark.media = theme === "dark" ? "all" : "not all";
  }
  for (const meta of document.querySelectorAll("meta[name=theme-color]")) {
    meta.media = mediaOf(meta.content === "#141615" ? "dark" : "light", theme);
  }
}

function mediaOf(scheme, theme) {
  if (theme === "system") {
    return `(prefers-color-scheme: ${scheme})`;
  }
  return theme === scheme ? "all" : "not all";
}
