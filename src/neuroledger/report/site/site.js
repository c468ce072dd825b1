// Sortable and filterable tables, and the front page: suites, foldable groups, a choice of columns, and models
// side by side. The address stores the current view, so that a link reproduces it.
"use strict";
(() => {
  const words = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);
  const holds = (text, wanted) => wanted.every((word) => text.includes(word));
  const escaped = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
  const broken = (text) => escaped(text).replace(/[._-]/g, "$&<wbr>"); // long names may wrap at their joints
  const list = (text) => (text ? text.split(",").filter(Boolean) : []);
  const params = () => new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
  const address = (entries) => {
    const parts = entries.filter(([, value]) => value).map(([name, value]) =>
      `${name}=${encodeURIComponent(value).replaceAll("%2C", ",").replaceAll("%3A", ":")}`);
    return `#${parts.join("&")}`;
  };
  // In one file for all pages, a link leads to a part of the file, or nowhere if the part is not in it.
  const alone = document.body.dataset.alone === "yes";
  const to = (path) => {
    if (!alone) return ` href="${path}"`;
    return document.getElementById(path) ? ` href="#${path}"` : "";
  };
  const compare = (x, y, sign) => {
    const none = (v) => v === null || v === undefined || v === "";
    if (none(x) || none(y)) return none(x) - none(y); // missing values stay last
    return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
  };

  // The address fragment is the state of the page, so the skip link must not change it: it only moves the focus.
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  });
  // A folded reference opens when a link points to it.
  const unfold = () => {
    const target = location.hash.length > 1 && !location.hash.includes("=")
      ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    if (target && target.tagName === "DETAILS") { target.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", unfold);
  unfold();

  // Wide tables shrink onto a printed page.
  addEventListener("beforeprint", () => document.querySelectorAll(".scroll > table").forEach((table) => {
    const wide = table.scrollWidth / 1040;
    if (wide > 1) table.style.zoom = 1 / wide;
  }));
  addEventListener("afterprint", () => document.querySelectorAll(".scroll > table").forEach((table) => {
    table.style.zoom = "";
  }));

  // A list of specs: its sorting and filter are stored in the address.
  const table = document.querySelector("table[data-sortable]");
  if (table) {
    const body = table.tBodies[0], rows = Array.from(body.rows);
    const headings = Array.from(table.querySelectorAll("th[data-column]"));
    const input = document.querySelector("input[data-filter]");
    const count = document.getElementById("count");
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const value = (row, column) => {
      const text = row.cells[column].dataset.value ?? row.cells[column].textContent;
      return text !== "" && !Number.isNaN(Number(text)) ? Number(text) : text;
    };
    const show = () => {
      const entries = params(), [column, way] = list(entries.get("sort"));
      if (document.activeElement !== input) input.value = entries.get("q") ?? "";
      const wanted = words(entries.get("q") ?? "");
      headings.forEach((heading) => heading.removeAttribute("aria-sort"));
      let order = rows;
      if (column !== undefined && headings[Number(column)]) {
        const sign = way === "down" ? -1 : 1;
        headings[Number(column)].setAttribute("aria-sort", sign < 0 ? "descending" : "ascending");
        order = rows.slice().sort((a, b) => compare(value(a, column), value(b, column), sign));
      }
      body.append(...order);
      let shown = 0;
      rows.forEach((row, i) => { row.hidden = !holds(texts[i], wanted); shown += !row.hidden; });
      count.textContent = `${shown} of ${rows.length}`;
    };
    const go = (changes) => {
      const entries = params();
      const all = { q: entries.get("q"), sort: entries.get("sort"), ...changes };
      history.replaceState(null, "", address(Object.entries(all)));
      show();
    };
    headings.forEach((heading) => heading.querySelector("button").addEventListener("click", () =>
      go({ sort: `${heading.dataset.column},${heading.getAttribute("aria-sort") === "ascending" ? "down" : "up"}` })));
    input.addEventListener("input", () => go({ q: input.value.trim() }));
    addEventListener("hashchange", show);
    show();
  }

  // The front page.
  const place = document.getElementById("board");
  if (!place) return;
  const FEW = 14; // boards with more columns start folded
  const MOST_PAIRS = 6; // differences beside each other
  const FIRST = 60; // rows that are drawn before the first paint
  const boards = new Map();
  const order = JSON.parse(document.getElementById("suites").textContent);
  const board = (suite) => {
    if (!boards.has(suite)) {
      boards.set(suite, prepared(JSON.parse(document.getElementById(`board-${suite}`).textContent)));
    }
    return boards.get(suite);
  };
  const STATES = { f: "failed", p: "partial", s: "stale", e: "edited", m: "missing", u: "unavailable" };
  const STATUS_TEXTS = { failed: "failed", missing: "–", unavailable: "n/a", partial: "partial", stale: "stale", edited: "edited" };
  const number = (value, counts = true) => {
    if (value === null || value === undefined) return "–";
    if (Math.abs(value) >= 1e4) return Math.round(value).toLocaleString("en");
    const text = counts ? value.toFixed(3) : String(Number(value.toPrecision(4)));
    return Number(text) === 0 ? text.replace("-", "") : text;
  };

  // Benchmarks are children of their group in the hierarchy of the suite, or else of their data set.
  function prepared(plain) {
    const nodes = new Map(), top = [];
    plain.groups.forEach((group, mean) => nodes.set(group.name, { key: group.name, label: group.name, mean, kids: [] }));
    plain.groups.forEach((group) => {
      const above = nodes.get(group.part);
      (above ? above.kids : top).push(nodes.get(group.name));
    });
    plain.columns.forEach((column, i) => {
      column.text = [column.id, column.title, column.dataset, column.parent, column.describe].join(" ").toLowerCase();
      let node = column.counts ? nodes.get(column.parent) : undefined;
      if (!node) {
        const key = `data:${column.dataset}`;
        node = nodes.get(key);
        if (!node) {
          node = { key, label: column.dataset, mean: null, kids: [], dataset: column.dataset };
          nodes.set(key, node);
          top.push(node);
        }
      }
      node.kids.push({ column: i });
    });
    plain.top = top;
    plain.nodes = nodes;
    plain.rows.forEach((row) => { row.text = [row.model, row.title, row.role].join(" ").toLowerCase(); });
    plain.folds = plain.columns.length > FEW;
    return plain;
  }

  const state = () => {
    const entries = params();
    const suite = order.includes(entries.get("suite")) ? entries.get("suite") : order[0];
    const b = board(suite);
    const open = entries.has("open") ? new Set(list(entries.get("open")))
      : new Set(b.folds ? [] : Array.from(b.nodes.keys()));
    return {
      suite, open, sort: list(entries.get("sort")), q: entries.get("q") ?? "", b: entries.get("b") ?? "",
      hide: new Set(list(entries.get("hide"))), compare: list(entries.get("compare")), controls: entries.get("controls") !== "no",
    };
  };
  const link = (s) => {
    const b = board(s.suite), all = Array.from(b.nodes.keys());
    const usual = b.folds ? s.open.size === 0 : s.open.size === all.length;
    return address([
      ["suite", s.suite], ["q", s.q], ["b", s.b], ["sort", s.sort.join(",")],
      ["open", usual ? "" : Array.from(s.open).join(",") || "none"],
      ["hide", Array.from(s.hide).join(",")], ["compare", s.compare.join(",")], ["controls", s.controls ? "" : "no"],
    ]);
  };
  const go = (changes, focus) => {
    history.replaceState(null, "", link({ ...state(), ...changes }));
    draw(focus);
  };

  // The visible columns: the mean of each group and its unfolded children that match the filter and the selection.
  function leaves(b, s) {
    const wanted = words(s.b), found = [];
    const shown = (i) => !s.hide.has(b.columns[i].id) && holds(b.columns[i].text, wanted);
    const below = (node) => node.kids.flatMap((kid) => (kid.kids ? below(kid) : shown(kid.column) ? [kid.column] : []));
    const walk = (kids, path) => kids.forEach((kid) => {
      if (!kid.kids) {
        if (shown(kid.column)) found.push({ key: `b:${b.columns[kid.column].id}`, column: kid.column, path });
        return;
      }
      const inside = below(kid), open = s.open.has(kid.key) || wanted.length > 0;
      if (!inside.length) return;
      const here = [...path, kid];
      if (kid.mean !== null && !wanted.length) found.push({ key: `g:${kid.key}`, mean: kid.mean, node: kid, path: here });
      if (open || (kid.mean === null && inside.length === 1)) walk(kid.kids, here);
      else if (kid.mean === null) found.push({ key: `n:${kid.key}`, within: inside, node: kid, path: here });
    });
    walk(b.top, []);
    return found;
  }
  const value = (row, leaf) => {
    if (leaf.column !== undefined) return Array.isArray(row.cells[leaf.column]) ? row.cells[leaf.column][0] : null;
    if (leaf.mean !== undefined) return row.groups[leaf.mean] ? row.groups[leaf.mean][0] : null;
    return leaf.within.filter((i) => Array.isArray(row.cells[i])).length;
  };
  const sorted = (b, s, found) => {
    const [key, way] = s.sort, sign = way === "down" ? -1 : 1;
    const leaf = found.find((each) => each.key === key);
    const of = key === "model" ? (row) => row.model : key === "score" ? (row) => row.score && row.score[0]
      : leaf ? (row) => value(row, leaf) : null;
    return of ? b.rows.slice().sort((x, y) => compare(of(x), of(y), sign)) : b.rows;
  };

  function interval(part, counts) {
    return part[1] === null || part[1] === undefined ? "" : `<small>${number(part[1], counts)} to ${number(part[2], counts)}</small>`;
  }
  function cell(b, row, leaf) {
    if (leaf.within) {
      const done = value(row, leaf);
      return `<td class="cell soft">${done} of ${leaf.within.length}</td>`;
    }
    if (leaf.mean !== undefined) {
      const part = row.groups[leaf.mean];
      return part ? `<td class="cell group">${number(part[0])}${interval(part)}</td>` : '<td class="cell group soft">–</td>';
    }
    const column = b.columns[leaf.column], packed = row.cells[leaf.column];
    if (!Array.isArray(packed)) {
      const status = STATES[packed[0]], reason = b.texts[Number(packed.slice(1))] ?? "";
      const text = status === "failed"
        ? `<a${to(`records/${escaped(column.id)}/${escaped(row.model)}.html`)}>failed</a>` : STATUS_TEXTS[status];
      return `<td class="state ${status}" title="${escaped(reason)}">${text}</td>`;
    }
    const [mean, low, high, top, signer] = packed;
    const share = column.counts && row.role === "model" ? ` style="--v:${Math.min(1, Math.max(0, mean)).toFixed(3)}"` : "";
    const marks = `cell${top ? " top" : ""}${signer ? " signed" : ""}`;
    return `<td class="${marks}"${share}${signer ? ` title="recomputed and signed by ${escaped(signer)}"` : ""}><a${to(`records/${escaped(column.id)}/${escaped(row.model)}.html`)}>${number(mean, column.counts)}</a>${interval([mean, low, high], column.counts)}</td>`;
  }
  function line(b, s, found, row) {
    const name = escaped(row.model), chosen = s.compare.includes(row.model);
    const score = row.role !== "model" && !row.score ? '<td class="cell score"></td>'
      : row.score ? `<td class="cell score${row.top ? " top" : ""}"><b>${number(row.score[0])}</b>${interval(row.score)}</td>`
        : `<td class="cell score soft" title="${escaped(row.why)}">not ranked</td>`;
    return `<tr><td class="rank">${escaped(row.place)}</td>`
      + `<th scope="row" class="model"><input type="checkbox" data-compare="${name}" aria-label="compare ${name}"${chosen ? " checked" : ""}> `
      + `<a${to(`models/${name}.html`)}>${broken(row.model)}</a>${row.role === "model" ? "" : ` <span class="badge">${escaped(row.role)} control</span>`}`
      + `<small title="${escaped(row.title)}">${escaped(row.title)}</small></th>${score}${found.map((leaf) => cell(b, row, leaf)).join("")}</tr>`;
  }
  function sortHead(s, key, label, title, first, about = "") {
    const now = s.sort[0] === key ? s.sort[1] : "";
    const sort = now ? ` aria-sort="${now === "down" ? "descending" : "ascending"}"` : "";
    const next = now ? (now === "down" ? "up" : "down") : first;
    return `<th scope="col" class="number"${sort} title="${escaped(title)}"><button type="button" data-sort="${escaped(key)},${next}">${broken(label)}</button>${about}</th>`;
  }
  function head(b, s, found) {
    const depth = Math.max(0, ...found.map((leaf) => leaf.path.length));
    const rows = [];
    for (let d = 0; d < depth; d += 1) {
      let cells = '<td></td><td class="model"></td><td></td>';
      for (let i = 0; i < found.length;) {
        const node = found[i].path[d];
        let n = 1;
        while (i + n < found.length && found[i + n].path[d] === node) n += 1;
        if (!node) cells += `<td colspan="${n}"></td>`;
        else {
          const open = s.open.has(node.key), many = node.kids.length > 1 || node.mean !== null;
          const label = node.dataset ? `<a${to(`datasets/${escaped(node.dataset)}.html`)}>${broken(node.label)}</a>` : broken(node.label);
          const fold = many && !s.b ? `<button type="button" class="fold" data-fold="${escaped(node.key)}" aria-expanded="${open}" aria-label="${open ? "fold" : "unfold"} ${escaped(node.label)}">${open ? "−" : "+"}</button> ` : "";
          cells += `<th scope="colgroup" class="group" colspan="${n}" title="${escaped(node.dataset ? "data set " : "group ")}${escaped(node.label)}"><span>${fold}${label}</span></th>`;
        }
        i += n;
      }
      rows.push(`<tr>${cells}</tr>`);
    }
    const last = found.map((leaf) => {
      if (leaf.mean !== undefined) {
        return sortHead(s, leaf.key, `${leaf.node.label} mean`, `${leaf.node.label}: mean over ${b.groups[leaf.mean].size} benchmarks`, "down");
      }
      if (leaf.within) return sortHead(s, leaf.key, "scored", `${leaf.within.length} benchmarks of ${leaf.node.label}: unfold to see them`, "down");
      const column = b.columns[leaf.column];
      const about = ` <a class="about"${to(`benchmarks/${escaped(column.id)}.html`)} aria-label="about ${escaped(column.id)}">about</a>`;
      return sortHead(s, leaf.key, column.short, `${column.id}: ${column.title} (${column.describe})`, column.direction === "higher" ? "down" : "up", about);
    });
    const model = sortHead(s, "model", "Model", "by name", "up").replace('class="number"', 'class="model"');
    return `${rows.join("")}<tr><th scope="col" class="rank">#</th>${model}${sortHead(s, "score", "Score", "mean over the suite", "down")}${last.join("")}</tr>`;
  }
  function limits(b, found) {
    const one = (name, field) => `<tr><td></td><th scope="row" class="model">${name}</th><td></td>${found.map((leaf) => {
      const column = leaf.column === undefined ? null : b.columns[leaf.column];
      return `<td class="number">${column && column[field] !== null ? number(column[field], field === "ceiling" || column.counts) : ""}</td>`;
    }).join("")}</tr>`;
    return one("floor: best negative control", "floor") + one("ceiling, as measured", "ceiling");
  }

  // Selected models side by side: a line for each benchmark, a mark for each model on one axis.
  function sideBySide(b, s, found) {
    const rows = s.compare.map((name) => b.rows.find((row) => row.model === name)).filter(Boolean);
    const shown = found.filter((leaf) => leaf.column !== undefined || leaf.mean !== undefined);
    if (!rows.length) return "";
    const lines = shown.map((leaf) => {
      const column = leaf.column === undefined ? null : b.columns[leaf.column];
      const parts = rows.map((row) => (column ? (Array.isArray(row.cells[leaf.column]) ? row.cells[leaf.column] : null) : row.groups[leaf.mean]));
      const ends = parts.flatMap((part) => (part ? [part[0], part[1] ?? part[0], part[2] ?? part[0]] : []));
      const counts = !column || column.counts;
      const low = Math.min(0, ...ends), high = Math.max(counts ? 1 : 0, ...ends) || 1;
      const at = (v) => `${(100 * (v - low) / (high - low)).toFixed(2)}%`;
      const marks = parts.map((part, i) => (part
        ? `${part[1] === null ? "" : `<i class="span m${i % 6}" style="left:${at(part[1])};width:calc(${at(part[2])} - ${at(part[1])})"></i>`}<i class="dot m${i % 6}" style="left:${at(part[0])}"></i>` : "")).join("");
      const floor = column && column.floor !== null ? `<i class="mark floor" style="left:${at(Math.max(low, Math.min(high, column.floor)))}"></i>` : "";
      const ceiling = column && column.normalise !== "none" && high >= 1 ? `<i class="mark" style="left:${at(1)}"></i>` : "";
      const name = column ? `<a${to(`benchmarks/${escaped(column.id)}.html`)}>${escaped(column.id)}</a>` : `<b>${escaped(leaf.node.label)}</b> mean`;
      return `<tr><th scope="row">${name}</th>${parts.map((part) => `<td class="number">${part ? number(part[0], counts) + interval(part, counts) : "–"}</td>`).join("")}<td class="wide" aria-hidden="true"><div class="track">${floor}${ceiling}${marks}</div></td></tr>`;
    });
    const total = rows.some((row) => row.score)
      ? `<tr><th scope="row"><b>Score</b></th>${rows.map((row) => `<td class="number">${row.score ? number(row.score[0]) + interval(row.score) : "–"}</td>`).join("")}<td class="wide"></td></tr>` : "";
    return `<h2 id="compared">Side by side</h2><div class="scroll" tabindex="0" role="region" aria-label="models side by side"><table class="side"><caption class="hidden">Selected models on the visible benchmarks</caption>`
      + `<thead><tr><th scope="col">benchmark</th>${rows.map((row, i) => `<th scope="col" class="number"><i class="dot m${i % 6}"></i> ${escaped(row.model)}</th>`).join("")}<th scope="col">on one axis</th></tr></thead><tbody>${total}${lines.join("")}</tbody></table></div>${differences(b, rows.map((row) => row.model))}`;
  }

  // Paired differences of the selected models, computed when the pages were built.
  const compared = new Map();
  function pairs(suite) {
    if (!compared.has(suite)) {
      const held = document.getElementById(`pairs-${suite}`);
      compared.set(suite, held ? JSON.parse(held.textContent) : { models: [], pairs: [], texts: [], left_out: 0 });
    }
    return compared.get(suite);
  }
  const bare = (value, counts = true) => number(Math.abs(value), counts).replace(/^0\./, ".").replace(/^/, value < 0 && Number(number(value, counts)) !== 0 ? "−" : "");
  const chance = (p) => (p === null ? "" : `, p = ${p >= 0.001 ? bare(p) : p.toExponential(0).replace("e-0", "e-")}`);
  function differenceOf(held, a, b) {
    const i = held.models.indexOf(a), j = held.models.indexOf(b);
    if (i < 0 || j < 0) return null;
    const [first, second] = i < j ? [i, j] : [j, i];
    const found = held.pairs[first * held.models.length - first * (first + 1) / 2 + second - first - 1];
    const turn = (part) => (part && i > j ? [-part[0], part[2] === null ? null : -part[2], part[1] === null ? null : -part[1], part[3], part[4]] : part);
    return { each: found.each.map(turn), mean: turn(found.mean) };
  }
  function differences(b, models) {
    if (models.length < 2) return "";
    const held = pairs(b.suite), chosen = [];
    models.forEach((a, i) => models.slice(i + 1).forEach((other) => chosen.push([a, other, differenceOf(held, a, other)])));
    const shown = chosen.filter(([, , found]) => found).slice(0, MOST_PAIRS);
    const limit = held.left_out ? ` Computed for the first ${held.models.length} models of this board with a score, not for ${held.left_out} more.` : "";
    const command = `<code>neuroledger compare ${escaped(models[0])} ${escaped(models[1])} --suite ${escaped(b.suite)}</code>`;
    if (!shown.length) return `<p class="note">The differences of these models are not on this page.${limit} ${command} computes them.</p>`;
    const told = (part, counts) => {
      if (!part) return "–";
      const span = part[1] === null ? `, ${escaped(held.texts[part[4]] || "no interval")}` : ` [${bare(part[1], counts)}, ${bare(part[2], counts)}]`;
      return `${bare(part[0], counts)}${span}${chance(part[3])}`;
    };
    const name = ([a, other]) => `${escaped(a)} − ${escaped(other)}`;
    const sums = shown.filter(([, , found]) => found.mean)
      .map((pair) => `<p class="difference"><b>${name(pair)} = ${told(pair[2].mean)}</b> <small>mean over the benchmarks on which both are scored</small></p>`);
    const lines = b.columns.flatMap((column, i) => (shown.some(([, , found]) => found.each[i])
      ? [`<tr><th scope="row"><a${to(`benchmarks/${escaped(column.id)}.html`)}>${broken(column.id)}</a></th>${shown.map(([, , found]) => `<td class="number">${told(found.each[i], column.counts)}</td>`).join("")}</tr>`] : []));
    const more = chosen.length > MOST_PAIRS ? ` The first ${MOST_PAIRS} of ${chosen.length} pairs are shown.` : "";
    return `<h2>Differences</h2>${sums.join("")}<div class="scroll" tabindex="0" role="region" aria-label="differences of the selected models"><table class="pairs"><caption class="hidden">Differences of the selected models</caption>`
      + `<thead><tr><th scope="col">benchmark</th>${shown.map((pair) => `<th scope="col" class="number">${name(pair)}</th>`).join("")}</tr></thead><tbody>${lines.join("")}</tbody></table></div>`
      + `<p class="note">Paired over the items that both share, with 95 % intervals; p is two-sided, and corrected by Holm for the benchmarks of a pair.${limit}${more} ${command} prints the same numbers.</p>`;
  }

  function chooser(b, s) {
    const one = (kid) => {
      if (kid.kids) return `<li><span>${escaped(kid.label)}</span><ul>${kid.kids.map(one).join("")}</ul></li>`;
      const column = b.columns[kid.column];
      return `<li><label><input type="checkbox" data-column="${escaped(column.id)}"${s.hide.has(column.id) ? "" : " checked"}> ${escaped(column.short)}</label></li>`;
    };
    return `<p><button type="button" data-all="yes">all</button> <button type="button" data-all="no">none</button></p><ul>${b.top.map(one).join("")}</ul>`;
  }

  let timer = 0;
  function draw(focus) {
    const s = state(), b = board(s.suite), found = leaves(b, s);
    const wanted = words(s.q);
    const rows = sorted(b, s, found).filter((row) => holds(row.text, wanted));
    const models = rows.filter((row) => row.role === "model"), controls = rows.filter((row) => row.role !== "model");
    document.querySelectorAll("nav.suites a").forEach((a) => {
      if (a.dataset.suite === s.suite) a.setAttribute("aria-current", "true");
      else a.removeAttribute("aria-current");
    });
    document.querySelectorAll("[data-front]").forEach((part) => { part.hidden = part.dataset.front !== s.suite; });
    document.getElementById("title").innerHTML = `<span class="id">suite ${escaped(b.suite)}, version ${b.version}</span>${escaped(b.title)}`;
    document.getElementById("numbers").innerHTML = b.numbers.map(([label, count]) => `<div><b>${escaped(count)}</b><span>${escaped(label)}</span></div>`).join("");
    document.getElementById("files").innerHTML = (alone ? [] : ["csv", "json", "md", "tex"]).map((kind) =>
      `<a href="${escaped(b.suite)}.${kind}" download>${{ csv: "CSV", json: "JSON", md: "Markdown", tex: "LaTeX" }[kind]}</a>`).join(" ");
    const filters = [["models", s.q], ["benchmarks", s.b]];
    filters.forEach(([name, text]) => {
      const input = document.getElementById(`filter-${name}`);
      if (document.activeElement !== input) input.value = text;
    });
    document.getElementById("show-controls").checked = s.controls;
    document.getElementById("choose").innerHTML = chooser(b, s);
    const hidden = b.columns.length - found.reduce((sum, leaf) => sum + (leaf.column !== undefined ? 1 : leaf.within ? leaf.within.length : 0), 0);
    document.getElementById("count").textContent =
      `${models.length} of ${b.rows.filter((row) => row.role === "model").length} models, ${b.columns.length} benchmarks${hidden ? ` (${hidden} folded or hidden)` : ""}`;
    const width = found.length + 3;
    place.innerHTML = `<caption class="hidden">${escaped(b.title)}: models by benchmarks</caption><thead>${head(b, s, found)}</thead>`
      + `<tbody>${models.slice(0, FIRST).map((row) => line(b, s, found, row)).join("")}</tbody>`
      + (s.controls && controls.length ? `<tbody class="controls"><tr class="heading"><th colspan="${width}" scope="rowgroup">Controls: must reach the ceiling (positive) or stay at the floor (negative); never ranked</th></tr>${controls.map((row) => line(b, s, found, row)).join("")}</tbody>` : "")
      + `<tfoot>${limits(b, found)}</tfoot>`;
    clearTimeout(timer);
    if (models.length > FIRST) {
      timer = setTimeout(() => {
        place.tBodies[0].insertAdjacentHTML("beforeend", models.slice(FIRST).map((row) => line(b, s, found, row)).join(""));
        place.dataset.complete = "yes";
      }, 0);
      place.dataset.complete = "no";
    } else place.dataset.complete = "yes";
    document.getElementById("compare").innerHTML = sideBySide(b, s, found);
    const scored = b.rows.flatMap((row) => row.cells.filter(Array.isArray)), signed = scored.filter((packed) => packed[4]);
    document.getElementById("trust").textContent = `${signed.length} of ${scored.length} scores are recomputed and signed`
      + `${signed.length ? ", marked ✓" : ""}; the others are self-reported.`;
    if (focus) document.querySelector(focus)?.focus();
  }

  place.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const s = state();
    if (button.dataset.sort) {
      go({ sort: button.dataset.sort.split(",") }, `[data-sort^="${CSS.escape(button.dataset.sort.split(",")[0])},"]`);
    } else if (button.dataset.fold) {
      if (s.open.has("none")) s.open.delete("none");
      if (!s.open.delete(button.dataset.fold)) s.open.add(button.dataset.fold);
      go({ open: s.open }, `[data-fold="${CSS.escape(button.dataset.fold)}"]`);
    }
  });
  place.addEventListener("change", (event) => {
    const model = event.target.dataset.compare;
    if (!model) return;
    const chosen = state().compare.filter((name) => name !== model);
    go({ compare: event.target.checked ? [...chosen, model] : chosen }, `[data-compare="${CSS.escape(model)}"]`);
  });
  document.getElementById("choose").addEventListener("click", (event) => {
    const all = event.target.dataset.all;
    if (all) go({ hide: new Set(all === "yes" ? [] : board(state().suite).columns.map((column) => column.id)) }, `[data-all="${all}"]`);
  });
  document.getElementById("choose").addEventListener("change", (event) => {
    const id = event.target.dataset.column, { hide } = state();
    if (event.target.checked) hide.delete(id); else hide.add(id);
    go({ hide }, `[data-column="${CSS.escape(id)}"]`);
  });
  document.getElementById("filter-models").addEventListener("input", (event) => go({ q: event.target.value.trim() }));
  document.getElementById("filter-benchmarks").addEventListener("input", (event) => go({ b: event.target.value.trim() }));
  document.getElementById("show-controls").addEventListener("change", (event) => go({ controls: event.target.checked }));
  addEventListener("hashchange", () => draw());
  draw();
})();
