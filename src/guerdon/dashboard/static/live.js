// Keeps a page up to date: listens to the server's events, and fetches again what has changed.
const root = document.documentElement;
const pause = 700; // milliseconds between two refreshes at least
let shown = root.dataset.head;
let latest = shown;
let busy = false;
let offline = null;
let quiet = null;

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
  say("unverifiable", status.verification.state === "unverifiable", status.verification.problem ?? "");
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
      awaitQuiet();
      document.dispatchEvent(new CustomEvent("guerdon:changed"));
    }
  } catch {
    // The stream of events says when the server is back.
  }
  await new Promise((done) => setTimeout(done, Math.max(pause, 2 * (performance.now() - started))));
  busy = false;
  if (latest !== shown) refresh();
}

// Nothing is recorded when a run falls silent: the page is fetched again at the moment when that shows.
function awaitQuiet() {
  const left = [...document.querySelectorAll("[data-quiet-in]")].map((state) => Number(state.dataset.quietIn));
  clearTimeout(quiet);
  if (left.length > 0) quiet = setTimeout(refresh, Math.min(1000 * Math.min(...left) + 500, 2 ** 31 - 1));
}

// Without the server nobody knows whether the ledger is sound.
function lose() {
  const badge = document.getElementById("verification");
  badge.dataset.state = "none";
  badge.textContent = "not connected";
  say("offline", true);
}

function replaceParts(fresh) {
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(part.id);
    if (next && next.innerHTML !== part.innerHTML && !part.contains(document.activeElement)) part.replaceWith(next);
  }
}

awaitQuiet();
if (location.pathname !== "/login") {
  const source = new EventSource("/api/events");
  source.addEventListener("status", (message) => {
    clearTimeout(offline);
    offline = null;
    say("offline", false);
    follow(JSON.parse(message.data));
  });
  source.addEventListener("error", () => {
    offline ??= setTimeout(lose, 1500);
  });
  addEventListener("pagehide", () => source.close());
}
