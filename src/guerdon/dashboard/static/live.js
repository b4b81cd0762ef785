// Keeps a page up to date: listens to the server's events, and fetches again what has changed.
const root = document.documentElement;
const pause = 700; // milliseconds between two refreshes at least
let shown = root.dataset.head;
let latest = shown;
let busy = false;
let offline = null;

function say(id, visible, text) {
  const box = document.getElementById(id);
  if (text !== undefined) box.querySelector("span").textContent = text;
  box.hidden = !visible;
}

function follow(status) {
  const badge = document.getElementById("verification");
  badge.dataset.state = status.available ? status.verification.state : "none";
  badge.textContent = status.verification.summary;
  say("gone", !status.available, status.reason ?? "");
  say("broken", status.verification.state === "failed", status.verification.problem ?? "");
  if (status.available && status.head !== shown) {
    latest = status.head;
    refresh();
  }
}

// The page itself is fetched again and its live parts are put in place of the old ones, so there is one way to make them.
async function refresh() {
  if (busy) return;
  busy = true;
  const started = performance.now();
  const wanted = latest;
  try {
    if (document.querySelector("[data-reload]")) {
      location.reload();
      return;
    }
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.ok) {
      replaceParts(new DOMParser().parseFromString(await answer.text(), "text/html"));
      shown = wanted;
      document.dispatchEvent(new CustomEvent("guerdon:changed"));
    }
  } catch {
    // The stream of events says when the server is back.
  }
  await new Promise((done) => setTimeout(done, Math.max(pause, 2 * (performance.now() - started))));
  busy = false;
  if (latest !== shown) refresh();
}

function replaceParts(fresh) {
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(part.id);
    if (next && next.innerHTML !== part.innerHTML && !part.contains(document.activeElement)) part.replaceWith(next);
  }
}

if (location.pathname !== "/login") {
  const source = new EventSource("/api/events");
  source.addEventListener("status", (message) => {
    clearTimeout(offline);
    offline = null;
    say("offline", false);
    follow(JSON.parse(message.data));
  });
  source.addEventListener("error", () => {
    offline ??= setTimeout(() => say("offline", true), 1500);
  });
  addEventListener("pagehide", () => source.close());
}
