"use strict";
// The controls of the page: colours, sorted and filtered tables, the block map. All text is set as text, never as markup.
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const redraws = [];
  const redraw = () => redraws.forEach((draw) => draw());

  // Colours.
  const theme = document.getElementById("theme");
  const setTheme = (name) => {
    if (name === "auto") delete root.dataset.theme;
    else root.dataset.theme = name;
    redraw();
  };
  theme.addEventListener("change", () => setTheme(theme.value));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  // Paper is white, and everything is on it.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = all("details:not([open])");
    closed.forEach((one) => (one.open = true));
    setTheme("light");
  });
  addEventListener("afterprint", () => {
    closed.forEach((one) => (one.open = false));
    setTheme(theme.value);
  });

  // Tables: a column's heading sorts by it. What is not known comes last.
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
  };
  const compare = (a, b) => {
    const texts = [typeof a === "string", typeof b === "string"];
    if (texts[0] !== texts[1]) return texts[0] ? 1 : -1;
    return texts[0] ? a.localeCompare(b) : a - b;
  };
  const sort = (heading) => {
    const table = heading.closest("table");
    const isNumber = heading.classList.contains("number");
    const first = isNumber ? "descending" : "ascending";
    const other = first === "ascending" ? "descending" : "ascending";
    const order = heading.ariaSort === first ? other : first;
    all("th", table.tHead).forEach((one) => (one.ariaSort = null));
    heading.ariaSort = order;
    const column = heading.cellIndex;
    const sign = order === "ascending" ? 1 : -1;
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      const [left, right] = [valueOf(a, column), valueOf(b, column)];
      return typeof left === typeof right ? sign * compare(left, right) : compare(left, right);
    });
    table.tBodies[0].append(...rows);
  };
  all("thead button").forEach((button) => button.addEventListener("click", () => sort(button.closest("th"))));

  all("input.filter").forEach((input) => {
    const controls = input.closest(".controls");
    const rows = all("tbody tr", controls.nextElementSibling);
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase();
      rows.forEach((row) => (row.hidden = !row.textContent.toLowerCase().includes(wanted)));
      const shown = rows.filter((row) => !row.hidden).length;
      controls.querySelector("output").textContent = `${shown} of ${rows.length} rows`;
    });
  });

  // The block map: each state has a colour and a shape.
  const VARIABLES = ["--free", "--metadata", "--used", "--fragmented", "--to-move", "--moved", "--unknown"];
  const paint = (context, palette, state, x, y, size) => {
    const inner = size > 3 ? size - 1 : size;
    context.fillStyle = palette.states[state];
    context.fillRect(x, y, inner, inner);
    // Too small for a shape.
    if (size < 5) return;
    context.strokeStyle = context.fillStyle = state === 0 || state === 6 ? palette.line : palette.background;
    context.lineWidth = Math.max(1, size / 8);
    const middle = inner / 2;
    context.beginPath();
    if (state === 0) {
      context.lineWidth = 1;
      context.rect(x + 0.5, y + 0.5, inner - 1, inner - 1);
    } else if (state === 1) {
      context.moveTo(x, y + middle);
      context.lineTo(x + inner, y + middle);
    } else if (state === 3) {
      context.moveTo(x, y + inner);
      context.lineTo(x + inner, y);
    } else if (state === 4) {
      context.arc(x + middle, y + middle, inner / 4, 0, 7);
      context.fill();
    } else if (state === 5) {
      context.moveTo(x + middle, y + inner * 0.2);
      context.lineTo(x + middle, y + inner * 0.8);
      context.moveTo(x + inner * 0.2, y + middle);
      context.lineTo(x + inner * 0.8, y + middle);
    } else if (state === 6) {
      context.fillRect(x + middle - 0.5, y + middle - 0.5, 1, 1);
    }
    context.stroke();
  };
  const palette = () => {
    const style = getComputedStyle(root);
    const colour = (name) => style.getPropertyValue(name).trim();
    return {
      states: VARIABLES.map(colour), line: colour("--line"), background: colour("--bg"), text: colour("--fg"),
    };
  };
  const swatches = () => {
    const colours = palette();
    all("canvas.swatch").forEach((one) => {
      const context = one.getContext("2d");
      context.clearRect(0, 0, one.width, one.height);
      paint(context, colours, Number(one.dataset.state), 0, 0, one.width);
    });
  };
  redraws.push(swatches);

  // The place of a cell on a Hilbert curve that fills a square of `side` cells.
  const hilbert = (side, at) => {
    let [x, y] = [0, 0];
    for (let size = 1; size < side; size *= 2) {
      const right = 1 & (at >> 1);
      const up = 1 & (at ^ right);
      if (up === 0) {
        if (right === 1) [x, y] = [size - 1 - x, size - 1 - y];
        [x, y] = [y, x];
      }
      x += size * right;
      y += size * up;
      at >>= 2;
    }
    return [x, y];
  };

  const blockMap = (figure) => {
    const data = JSON.parse(figure.querySelector("script").textContent);
    const count = data.cells.length;
    let side = 1;
    while (side * side < count) side *= 2;
    const canvas = figure.querySelector(":scope > canvas");
    const context = canvas.getContext("2d");
    const [order, highlight, find] = ["order", "highlight", "find"].map((name) => figure.querySelector("." + name));
    const output = figure.querySelector("output.cell");
    const state = { places: [], at: new Map(), rows: 1, size: 1, chosen: -1, lit: [] };

    const arrange = () => {
      const place = order.value === "rows" ? (at) => [at % side, Math.floor(at / side)] : (at) => hilbert(side, at);
      state.places = data.cells.map((_, at) => place(at));
      state.at = new Map(state.places.map(([x, y], at) => [y * side + x, at]));
      state.rows = state.places.reduce((most, [, y]) => Math.max(most, y), 0) + 1;
    };
    const select = () => {
      const wanted = find.value.toLowerCase();
      const names = data.names.map((name) => name.toLowerCase().includes(wanted));
      const isLit = ([drawn, file]) =>
        (highlight.value === "" || drawn === Number(highlight.value)) && (wanted === "" || (file >= 0 && names[file]));
      state.lit = data.cells.map(isLit);
      const lit = state.lit.filter((one) => one).length;
      figure.querySelector(".found").textContent = highlight.value === "" && wanted === "" ? "" : `${lit} of ${count} cells`;
    };
    // All cells are painted once, and copied when another one is chosen.
    const painted = document.createElement("canvas");
    const show = () => {
      context.clearRect(0, 0, canvas.width, canvas.height);
      context.drawImage(painted, 0, 0);
      if (state.chosen < 0) return;
      const [x, y] = state.places[state.chosen];
      context.strokeStyle = palette().text;
      context.lineWidth = Math.max(2, state.size / 4);
      context.strokeRect(x * state.size - 1, y * state.size - 1, state.size + 1, state.size + 1);
    };
    const draw = () => {
      const width = Math.max(1, canvas.clientWidth) * (devicePixelRatio || 1);
      state.size = Math.max(2, Math.floor(width / side));
      for (const one of [canvas, painted]) {
        one.width = state.size * side;
        one.height = state.size * state.rows;
      }
      const colours = palette();
      const target = painted.getContext("2d");
      data.cells.forEach(([drawn], at) => {
        const [x, y] = state.places[at];
        target.globalAlpha = state.lit[at] ? 1 : 0.15;
        paint(target, colours, drawn, x * state.size, y * state.size, state.size);
      });
      show();
    };
    const describe = (at) => {
      const [drawn, file, ...bytes] = data.cells[at].flat();
      const sum = bytes.reduce((a, b) => a + b, 0) || 1;
      const shares = bytes
        .map((of, number) => [of / sum, data.states[number]])
        .filter(([part]) => part > 0)
        .map(([part, name]) => `${Math.max(1, Math.round(part * 100))} % ${name}`);
      const name = file < 0 ? "no file that was scanned" : `\u2068${data.names[file]}\u2069`;
      return `Cell ${at + 1} of ${count}, from byte ${at * data.cell_bytes}, drawn as ${data.states[drawn]}: ${shares.join(", ")}. Most of it: ${name}`;
    };
    const choose = (at) => {
      if (at === undefined || at < 0 || at >= count) return;
      state.chosen = at;
      output.textContent = describe(at);
      show();
    };
    const under = (event) => {
      const box = canvas.getBoundingClientRect();
      const x = Math.floor(((event.clientX - box.left) / box.width) * side);
      const y = Math.floor(((event.clientY - box.top) / box.height) * state.rows);
      return state.at.get(y * side + x);
    };
    canvas.addEventListener("pointermove", (event) => {
      const at = under(event);
      if (at !== state.chosen) choose(at);
    });
    canvas.addEventListener("pointerdown", (event) => choose(under(event)));
    const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const turn = (step) => {
      for (let n = 1; n <= count; n++) {
        const at = (Math.max(state.chosen, 0) + (step + count) * n) % count;
        if (state.lit[at]) return at;
      }
      return undefined;
    };
    canvas.addEventListener("keydown", (event) => {
      const [x, y] = state.places[Math.max(state.chosen, 0)] || [0, 0];
      const step = STEPS[event.key];
      let at;
      if (step) at = state.chosen < 0 ? 0 : state.at.get((y + step[1]) * side + x + step[0]);
      else if (event.key === "Home") at = 0;
      else if (event.key === "End") at = count - 1;
      else if (event.key === "PageDown") at = turn(1);
      else if (event.key === "PageUp") at = turn(-1);
      else return;
      event.preventDefault();
      const [nextX, nextY] = step ? [x + step[0], y + step[1]] : [0, 0];
      if (nextX >= 0 && nextX < side && nextY >= 0) choose(at);
    });
    order.addEventListener("change", () => { arrange(); draw(); });
    highlight.addEventListener("change", () => { select(); draw(); });
    find.addEventListener("input", () => { select(); draw(); });
    new ResizeObserver(draw).observe(canvas.parentElement);
    arrange();
    select();
    redraws.push(draw);
  };
  all("figure.map").forEach(blockMap);
  redraw();
  root.dataset.ready = "yes";
})();
