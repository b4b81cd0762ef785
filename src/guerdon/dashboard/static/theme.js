// Before the first paint: the theme that was chosen here, or else what the system prefers.
const chosen = localStorage.getItem("guerdon-theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
document.addEventListener("DOMContentLoaded", () => {
  document.getElementById("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).getPropertyValue("--scheme").trim() === "dark";
    const next = dark ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    localStorage.setItem("guerdon-theme", next);
    document.dispatchEvent(new CustomEvent("guerdon:theme"));
  });
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new CustomEvent("guerdon:theme")));
