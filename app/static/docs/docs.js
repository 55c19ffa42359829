/** Shows the OpenAPI document of this server, in the colours of the user's system. */

const COLOURS = {
  light: { "bg-color": "#f6f5f2", "text-color": "#1c1b19", "primary-color": "#0b6b66", "secondary-color": "#0b6b66", "nav-bg-color": "#ffffff", "nav-text-color": "#1c1b19", "nav-hover-text-color": "#0b6b66" },
  dark: { "bg-color": "#141615", "text-color": "#ecebe7", "primary-color": "#58c9bf", "secondary-color": "#58c9bf", "nav-bg-color": "#1f2221", "nav-text-color": "#ecebe7", "nav-hover-text-color": "#58c9bf" },
};
const isDark = matchMedia("(prefers-color-scheme: dark)");

const viewer = document.createElement("openapi-explorer");
viewer.setAttribute("spec-url", "/openapi.json");
viewer.setAttribute("hide-server-selection", "");
const colour = () => {
  for (const [name, value] of Object.entries(COLOURS[isDark.matches ? "dark" : "light"])) {
    viewer.setAttribute(name, value);
  }
};
colour();
isDark.addEventListener("change", colour);
document.querySelector("main").append(viewer);
