// Before the page is drawn: the theme that this browser chose last; without one the system's counts.
"use strict";
(() => {
  try {
    const theme = localStorage.getItem("minilog-theme");
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  } catch {
    // a browser that stores nothing has the system's theme
  }
})();
