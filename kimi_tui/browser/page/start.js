// Runs before the terminal: gives it the address with the token, and keeps what is typed before the connection stands.
"use strict";

let connection = null;
// With `?watch` the tab looks on at the newest other one.
const watches = new URLSearchParams(window.location.search).has("watch");

class PatientSocket extends WebSocket {
  constructor(address, protocols) {
    super(watches ? `${address}&watch=1` : address, protocols);
    connection = this;
  }

  send(data) {
    if (this.readyState === WebSocket.CONNECTING) {
      this.addEventListener("open", () => super.send(data), { once: true });
    } else if (this.readyState === WebSocket.OPEN) {
      super.send(data);
    }
  }
}
window.WebSocket = PatientSocket;

document.addEventListener("DOMContentLoaded", () => {
  // What stands behind the # is never sent by the browser itself, so it is in no log and no referrer.
  const token = window.location.hash.slice(1);
  const terminal = document.querySelector("#terminal");
  const scheme = window.location.protocol === "https:" ? "wss:" : "ws:";
  terminal.dataset.sessionWebsocketUrl = `${scheme}//${window.location.host}/ws/${encodeURIComponent(token)}`;
  document.querySelector("#again").addEventListener("click", () => window.location.reload());
  if (watches) {
    document.title = "kimi-tui (read-only)";
    document.body.classList.add("-watching");
    document.querySelector("#words").textContent = "The tab that this one shows was closed, or none is open.";
  }
  if (!token) {
    document.querySelector("#words").textContent =
      "The address has no token. Copy the whole address that kimi-tui serve printed.";
    document.body.classList.add("-closed");
  }
});

// Letters that are pressed while the page still loads are typed once the terminal is there.
let early = "";

function keepEarly(event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if ([...event.key].length === 1) early += event.key;
  else if (event.key === "Enter") early += "\r";
  else if (event.key === "Backspace") early += "\x7f";
}
if (!watches) document.addEventListener("keydown", keepEarly, true);

function begin() {
  const field = document.querySelector(".xterm-helper-textarea");
  if (!field || !connection) {
    requestAnimationFrame(begin);
    return;
  }
  document.removeEventListener("keydown", keepEarly, true);
  field.focus();
  if (early) connection.send(JSON.stringify(["stdin", early]));
}
window.addEventListener("load", begin);
