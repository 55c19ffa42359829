/**
 * Sets the chosen colours before anything is drawn. It is no module, because modules run only after the document.
 * `page/colours.js` changes the colours later in the same way.
 */
{
  let theme;
  try {
    theme = JSON.parse(localStorage.getItem("tutti.settings"))?.theme;
  } catch {
    // The device keeps nothing for this page, or something else: the system's colours stay.
  }
  if (theme === "light" || theme === "dark") {
    document.documentElement.dataset.theme = theme;
    document.getElementById("dark").media = theme === "dark" ? "all" : "not all";
  }
}
