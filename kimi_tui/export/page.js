"use strict";
(() => {
  // Every frame says what differs from the one before it: [seconds, first block, blocks, past blocks, first point, points,
  // tokens, files]. Text is in the page already; this script only shows, hides and moves it.
  const data = JSON.parse(document.getElementById("data").textContent);
  const frames = data.frames;
  if (!frames.length) return;
  const KEYFRAME = 64;
  const SPEEDS = [1, 2, 4, 8, 16];
  const byId = (id) => document.getElementById(id);
  const chat = byId("chat");
  const articles = [...chat.querySelectorAll("article")];
  const ordinal = new Map(articles.map((element, place) => [element.id, place]));
  const rows = [...byId("points").children];
  const range = byId("at");
  const needle = byId("needle");

  const apply = (state, frame) => {
    state.blocks.splice(frame[1], Infinity, ...frame[2]);
    state.points.splice(frame[4], Infinity, ...frame[5]);
    for (const [path, number] of Object.entries(frame[7])) {
      if (number === null) state.files.delete(path);
      else {
        state.files.delete(path);
        state.files.set(path, number);
      }
    }
    for (const place of frame[5]) state.made = Math.max(state.made, place + 1);
  };
  const copy = (state) => ({
    blocks: [...state.blocks],
    points: [...state.points],
    files: new Map(state.files),
    made: state.made,
  });
  const keyframes = [];
  const firstFrame = new Map();
  let state = { blocks: [], points: [], files: new Map(), made: 0 };
  frames.forEach((frame, place) => {
    if (place % KEYFRAME === 0) keyframes.push(copy(state));
    apply(state, frame);
    for (const point of frame[5]) if (!firstFrame.has(point)) firstFrame.set(point, place);
  });
  const turns = [...new Set(data.turns.map((point) => firstFrame.get(point)))]
    .filter((place) => place !== undefined)
    .sort((one, other) => one - other);

  let at = -1;
  let speed = 0;
  let timer = 0;
  let isMoved = false;

  const order = (ids) => {
    const places = ids.map((id) => ordinal.get(id));
    const inOrder = places.every((place, n) => n === 0 || places[n - 1] < place);
    if (inOrder && !isMoved) return;
    for (const element of articles) chat.append(element);
    if (!inOrder) for (const id of ids) chat.append(byId(id));
    isMoved = !inOrder;
  };

  const draw = (follow) => {
    const frame = frames[at];
    const ids = state.blocks.map((key) => `b${key}`);
    const shown = new Map(ids.map((id, n) => [id, n]));
    for (const element of articles) {
      const place = shown.get(element.id);
      element.hidden = place === undefined;
      element.classList.toggle("past", place !== undefined && place < frame[3]);
    }
    order(ids);
    const live = new Set(state.points);
    const now = state.points[state.points.length - 1];
    rows.forEach((row, place) => {
      row.hidden = place >= state.made;
      row.classList.toggle("gone", !live.has(place));
      row.classList.toggle("now", place === now);
      if (place === now) row.setAttribute("aria-current", "step");
      else row.removeAttribute("aria-current");
    });
    const files = [...state.files].reverse().map(([path, number]) => {
      const item = document.createElement("li");
      item.textContent = (number >= 0 ? `#${number} ` : "") + path;
      return item;
    });
    byId("files").replaceChildren(...files);
    const tokens = frame[6].toLocaleString("en-US");
    const limit = data.limit ? ` of ${data.limit.toLocaleString("en-US")}` : "";
    byId("figures").textContent = `${tokens}${limit} tokens · ${at + 1} of ${frames.length}`;
    range.value = at;
    const x = frames.length > 1 ? (1000 * at) / (frames.length - 1) : 0;
    needle.setAttribute("x1", x);
    needle.setAttribute("x2", x);
    if (follow && ids.length) byId(ids[ids.length - 1]).scrollIntoView({ block: "nearest" });
    if (now !== undefined) {
      // `scrollIntoView` would move the whole page on a phone, where the timeline is not beside the chat.
      const list = byId("side");
      const row = rows[now];
      const top = row.offsetTop - list.offsetTop;
      if (top < list.scrollTop || top > list.scrollTop + list.clientHeight - row.offsetHeight)
        list.scrollTop = top - list.clientHeight / 2;
    }
  };

  const seek = (to, follow = true) => {
    const goal = Math.max(0, Math.min(frames.length - 1, to));
    if (goal === at) return;
    const key = Math.floor(goal / KEYFRAME);
    if (goal < at || key > Math.floor(at / KEYFRAME)) {
      state = copy(keyframes[key]);
      at = key * KEYFRAME - 1;
    }
    while (at < goal) apply(state, frames[++at]);
    draw(follow);
  };

  const stop = () => {
    clearTimeout(timer);
    timer = 0;
    byId("play").textContent = "Play";
  };
  const next = () => {
    if (at >= frames.length - 1) return stop();
    const wait = ((frames[at + 1][0] - frames[at][0]) * 1000) / SPEEDS[speed];
    timer = setTimeout(() => {
      seek(at + 1);
      next();
    }, Math.max(30, wait));
  };
  const play = () => {
    if (timer) return stop();
    if (at >= frames.length - 1) seek(0);
    byId("play").textContent = "Pause";
    next();
  };
  const faster = (by) => {
    speed = Math.max(0, Math.min(SPEEDS.length - 1, speed + by));
    byId("speed").textContent = `${SPEEDS[speed]}x`;
  };
  const turn = (by) => {
    const before = turns.filter((place) => place < at);
    const after = turns.filter((place) => place > at);
    if (by < 0) seek(before.length ? before[before.length - 1] : 0);
    else seek(after.length ? after[0] : frames.length - 1);
  };
  const showTimeline = () => {
    const isShown = document.body.classList.toggle("timeline");
    byId("timeline-button").setAttribute("aria-expanded", String(isShown));
  };
  const changeTheme = () => {
    const root = document.documentElement;
    const isLight = root.classList.contains("light")
      || (!root.classList.contains("dark") && matchMedia("(prefers-color-scheme: light)").matches);
    root.classList.toggle("light", !isLight);
    root.classList.toggle("dark", isLight);
  };
  const manual = (to) => {
    stop();
    seek(to);
  };

  byId("play").addEventListener("click", play);
  byId("speed").addEventListener("click", () => {
    if (speed === SPEEDS.length - 1) speed = -1;
    faster(1);
  });
  byId("theme").addEventListener("click", changeTheme);
  byId("timeline-button").addEventListener("click", showTimeline);
  range.addEventListener("input", () => manual(Number(range.value)));
  byId("curve").addEventListener("click", (event) => {
    const box = byId("curve").getBoundingClientRect();
    manual(Math.round(((event.clientX - box.left) / box.width) * (frames.length - 1)));
  });
  byId("points").addEventListener("click", (event) => {
    const row = event.target.closest("li");
    if (!row) return;
    event.preventDefault();
    const place = Number(row.id.slice(1));
    if (firstFrame.has(place)) manual(firstFrame.get(place));
    document.body.classList.remove("timeline");
  });
  chat.addEventListener("click", (event) => {
    if (!event.target.classList.contains("point")) return;
    event.preventDefault();
    const number = event.target.closest("article").dataset.n;
    const place = state.points.find((point) => rows[point].querySelector("i").textContent === `#${number}`);
    if (place !== undefined) manual(firstFrame.get(place));
  });
  const keys = {
    " ": play,
    ArrowLeft: () => manual(at - 1),
    ArrowRight: () => manual(at + 1),
    "[": () => { stop(); turn(-1); },
    "]": () => { stop(); turn(1); },
    Home: () => manual(0),
    End: () => manual(frames.length - 1),
    "+": () => faster(1),
    "=": () => faster(1),
    "-": () => faster(-1),
    t: showTimeline,
    l: changeTheme,
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isButton = event.target.closest("button, summary, a");
    if (isButton && (event.key === " " || event.key === "Enter")) return;
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });

  document.body.classList.add("plays");
  byId("player").hidden = byId("timeline-button").hidden = false;
  at = frames.length - 2;
  state = copy(keyframes[Math.floor(Math.max(at, 0) / KEYFRAME)]);
  at = Math.floor(Math.max(at, 0) / KEYFRAME) * KEYFRAME - 1;
  seek(frames.length - 1, false);
})();
