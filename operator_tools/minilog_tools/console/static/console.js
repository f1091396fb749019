// What pages do by themselves: they ask again while somebody looks, draw lines, and obey keys. Without it they can be
// read and asked all the same. What the server sends is escaped there; here it is parsed, and never run.
"use strict";
(() => {
  const EVERY_MS = 5000;
  const LONGEST_MS = 30000; // an answer that comes later is not waited for
  const FIRST_MS = 2500; // until lines have begun
  const SLOWEST_MS = 15000; // between two attempts, where the console does not answer
  const main = document.getElementById("main");
  const pulse = document.getElementById("pulse");
  let isPaused = false;
  let failures = 0;
  let looks = 0;
  let timer = 0;
  let asking = null;

  // -- one document becomes another, so that focus, scrolling and what is open stay as they are

  function morph(old, wanted) {
    if (old.nodeType !== wanted.nodeType || old.nodeName !== wanted.nodeName || old.id !== wanted.id) {
      old.replaceWith(wanted);
      return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== wanted.nodeValue) old.nodeValue = wanted.nodeValue;
      return;
    }
    for (const { name, value } of [...wanted.attributes]) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      const isState = name === "open" || name === "class" || name.startsWith("data-drawn");
      if (!wanted.hasAttribute(name) && !isState) old.removeAttribute(name);
    }
    if (old === document.activeElement && ["INPUT", "SELECT", "TEXTAREA"].includes(old.nodeName)) return;
    if (old.dataset.chart !== undefined) {
      if (charts.has(old)) return; // drawn anew from its attribute
    }
    morphChildren(old, wanted);
  }

  const isThere = (node) => node.nodeType === Node.ELEMENT_NODE || node.nodeValue.trim() !== "";

  function morphChildren(old, wanted) {
    const now = [...old.childNodes].filter(isThere);
    const next = [...wanted.childNodes].filter(isThere);
    next.forEach((node, place) => (now[place] ? morph(now[place], node) : old.append(node)));
    now.slice(next.length).forEach((node) => node.remove());
  }

  // -- asking again

  function say(text, kind) {
    pulse.hidden = false;
    if (pulse.textContent !== text) pulse.textContent = text;
    pulse.className = `pulse ${kind}`;
  }

  function schedule() {
    clearTimeout(timer);
    if (main.dataset.live !== "yes" || document.hidden || isPaused) return;
    const pause = looks < 2 ? FIRST_MS : EVERY_MS;
    timer = setTimeout(ask, Math.min(SLOWEST_MS, pause * 2 ** Math.min(failures, 4)));
  }

  async function ask() {
    looks += 1;
    asking = new AbortController();
    const tooLate = setTimeout(() => asking.abort(), LONGEST_MS);
    try {
      const answer = await fetch(location.href, {
        headers: { "x-minilog-part": "1" },
        credentials: "same-origin",
        redirect: "error",
        signal: asking.signal,
      });
      if (answer.status === 401) {
        location.reload(); // the session has ended: the page of the login says so
        return;
      }
      if (!(answer.headers.get("content-type") || "").startsWith("text/html")) throw new Error(String(answer.status));
      const text = await answer.text();
      const parsed = new DOMParser().parseFromString(text, "text/html");
      morphChildren(main, parsed.body);
      draw();
      failures = answer.ok ? 0 : failures + 1;
      say(answer.ok ? "live" : "trouble", answer.ok ? "good" : "bad");
    } catch {
      failures += 1;
      say("the console does not answer", "bad");
    } finally {
      clearTimeout(tooLate);
      schedule();
    }
  }

  function pause() {
    if (main.dataset.live !== "yes") return;
    isPaused = !isPaused;
    say(isPaused ? "paused" : "live", isPaused ? "calm" : "good");
    schedule();
    if (!isPaused) ask();
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else if (main.dataset.live === "yes" && !isPaused) ask();
  });

  // -- lines

  const charts = new Map();

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function timeOfDay(seconds) {
    return new Date(seconds * 1000).toISOString().slice(11, 19);
  }

  function shortNumber(value) {
    for (const [least, unit] of [[1e9, " G"], [1e6, " M"], [1e3, " k"]]) {
      if (Math.abs(value) >= least) return `${+(value / least).toPrecision(3)}${unit}`;
    }
    return String(+value.toPrecision(3));
  }

  function drawOne(element) {
    const told = JSON.parse(element.dataset.chart);
    const drawn = charts.get(element);
    if (told.times.length < 2) return;
    const data = [told.times, told.values];
    if (drawn) {
      if (drawn.text !== element.dataset.chart) drawn.plot.setData(data);
      drawn.text = element.dataset.chart;
      return;
    }
    const readout = document.createElement("p");
    readout.className = "readout";
    element.replaceChildren(readout);
    const tell = (plot) => {
      const [times, values] = plot.data;
      const at = plot.cursor.idx ?? times.length - 1;
      readout.textContent = `${timeOfDay(times[at])} · ${shortNumber(values[at])} ${told.unit}`;
    };
    const axis = { stroke: color("--dim"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
    const numbers = { ...axis, size: 62, values: (_, values) => values.map(shortNumber) };
    const plot = new uPlot(
      {
        width: Math.max(200, element.clientWidth),
        height: 190,
        padding: [null, 34, null, null], // half of the last label of the time axis
        cursor: { y: false },
        legend: { show: false },
        hooks: { setCursor: [tell], setData: [tell], ready: [tell] },
        scales: { y: { range: (_, least, most) => [Math.min(0, least), most > 0 ? most * 1.1 : 1] } },
        axes: [{ ...axis, size: 30, space: 90, values: (_, times) => times.map(timeOfDay) }, numbers],
        series: [
          {},
          {
            label: told.label,
            stroke: color("--accent"),
            fill: color("--accent-faint"),
            width: 2,
            points: { show: false },
          },
        ],
      },
      data,
      element,
    );
    charts.set(element, { plot, text: element.dataset.chart });
  }

  function draw() {
    for (const [element, { plot }] of charts) {
      if (!element.isConnected) {
        plot.destroy();
        charts.delete(element);
      }
    }
    document.querySelectorAll("[data-chart]").forEach(drawOne);
  }

  function drawAnew() {
    for (const [element, { plot }] of charts) {
      plot.destroy();
      charts.delete(element);
      element.replaceChildren();
    }
    draw();
  }

  let resized = 0;
  addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(() => {
      for (const [element, { plot }] of charts) plot.setSize({ width: Math.max(200, element.clientWidth), height: 190 });
    }, 100);
  });

  // -- the theme

  const dark = matchMedia("(prefers-color-scheme: dark)");

  function turnTheme() {
    const root = document.documentElement;
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("minilog-theme", root.dataset.theme);
    } catch {
      // it holds for this page
    }
    drawAnew();
  }

  dark.addEventListener("change", drawAnew);
  document.getElementById("theme").addEventListener("click", turnTheme);

  // -- keys

  const help = document.getElementById("help");
  document.getElementById("keys").addEventListener("click", () => help.showModal());
  let goesTo = false;

  function moveRow(by) {
    const rows = [...main.querySelectorAll("tbody tr th a, .record, .card")];
    if (!rows.length) return;
    const here = rows.findIndex((row) => row === document.activeElement || row.contains(document.activeElement));
    const next = rows[Math.min(rows.length - 1, Math.max(0, here + by))];
    if (next.tabIndex < 0) next.tabIndex = -1;
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || help.open) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.nodeName)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (goesTo) {
      goesTo = false;
      const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) link.click();
      return;
    }
    switch (event.key) {
      case "g":
        goesTo = true;
        setTimeout(() => (goesTo = false), 1500);
        return;
      case "/": {
        const filter = main.querySelector("input[type=search], .ask input:not([type=hidden])");
        if (filter) {
          event.preventDefault();
          filter.focus();
          filter.select();
        }
        return;
      }
      case "j":
        return moveRow(1);
      case "k":
        return moveRow(-1);
      case "d":
        return turnTheme();
      case "p":
        return pause();
      case "?":
        return help.showModal();
    }
  });

  draw();
  if (main.dataset.live === "yes") {
    say("live", "good");
    schedule();
  }
  const first = document.querySelector("nav [aria-current=page]");
  if (first) first.parentElement.parentElement.scrollLeft = first.parentElement.offsetLeft - 40;
})();
