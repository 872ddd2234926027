/* Adds to a page that is complete without it: tips, values under the pointer, zoom to a window of steps, sorted tables,
   copying of commands. Reads nothing but the page itself. */
(() => {
'use strict';
const all = (sel, root) => Array.from((root || document).querySelectorAll(sel));
const make = (tag, cls, text) => { const e = document.createElement(tag); if (cls) e.className = cls; if (text !== undefined) e.textContent = text; return e; };
const SVG = 'http://www.w3.org/2000/svg';
const num = (e, key) => parseFloat(e.dataset[key]);

/* ---- figures: the units of html_text.h ---- */
const digits = v => { const a = Math.abs(v); return v === 0 || a >= 99.95 ? v.toFixed(0) : a >= 9.995 ? v.toFixed(1) : v.toFixed(2); };
const scaled = (v, base, names) => { let u = 0; while (u + 1 < names.length && Math.abs(v) >= base) { v /= base; u++; } return (u ? digits(v) : String(+v.toPrecision(3))) + ' ' + names[u]; };
function figure(unit, v) {
  if (!isFinite(v)) return 'unknown';
  switch (+unit) {
  case 1: return Math.round(v).toLocaleString('en');
  case 2: {
    const a = Math.abs(v);
    if (a >= 3600) return Math.floor(a / 3600) + ' h ' + String(Math.floor(a / 60) % 60).padStart(2, '0') + ' min';
    return a >= 1 || a === 0 ? digits(v) + ' s' : a >= 1e-3 ? digits(v * 1e3) + ' ms' : digits(v * 1e6) + ' µs';
  }
  case 3: return scaled(v, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']);
  case 4: return scaled(v, 1024, ['B/s', 'KiB/s', 'MiB/s', 'GiB/s', 'TiB/s', 'PiB/s']);
  case 5: return (100 * v).toFixed(1) + ' %';
  }
  return String(+v.toPrecision(3));
}

/* ---- the tip ---- */
const tip = make('div'); tip.id = 'tip'; tip.hidden = true; tip.setAttribute('role', 'status');
document.body.appendChild(tip);
function show(text, ev) {
  tip.textContent = text; tip.hidden = false;
  const w = tip.offsetWidth, h = tip.offsetHeight;
  let x = ev.clientX + 14, y = ev.clientY + 16;
  if (x + w > innerWidth - 6) x = Math.max(6, ev.clientX - w - 12);
  if (y + h > innerHeight - 6) y = Math.max(6, ev.clientY - h - 12);
  tip.style.left = x + 'px'; tip.style.top = y + 'px';
}
const hide = () => { tip.hidden = true; };

/* Browsers would show titles a second time: they become labels. */
all('svg title').forEach(t => { const e = t.parentNode; if (e.getAttribute('role') === 'img') { e.setAttribute('aria-label', t.textContent); e.removeAttribute('aria-labelledby'); } else { e._tip = t.textContent; } t.remove(); });

/* ---- charts ---- */
const charts = all('.chart > svg').filter(s => s.dataset.x0 !== undefined).map(svg => ({
  svg, box: svg.parentNode, plot: svg.querySelector('svg.p'), x0: num(svg, 'x0'), x1: num(svg, 'x1'), a: num(svg, 'x0'), b: num(svg, 'x1'),
  link: svg.dataset.link, ticks: svg.querySelector('g.xt')
}));
charts.forEach(c => { c.first = c.ticks ? c.ticks.innerHTML : ''; });
const times = (() => { const s = document.querySelector('svg[data-t]'); return s ? { at: s.dataset.t.split(' ').map(Number), x0: num(s, 'x0'), x1: num(s, 'x1') } : null; })();

/* Steps and seconds of one window; columns of the strip know both. */
function toTime(step) {
  const k = (step - times.x0) / (times.x1 - times.x0) * (times.at.length - 1), i = Math.max(0, Math.min(times.at.length - 2, Math.floor(k)));
  return times.at[i] + (times.at[i + 1] - times.at[i]) * Math.max(0, Math.min(1, k - i));
}
function toStep(t) {
  let i = 0; while (i + 2 < times.at.length && times.at[i + 1] <= t) i++;
  const d = times.at[i + 1] - times.at[i], k = i + Math.max(0, Math.min(1, d > 0 ? (t - times.at[i]) / d : 0));
  return times.x0 + k * (times.x1 - times.x0) / (times.at.length - 1);
}
const valueAt = (c, ev) => { const r = c.svg.getBoundingClientRect(); return c.a + Math.max(0, Math.min(1, (ev.clientX - r.left) / r.width)) * (c.b - c.a); };

function drawTicks(c) {
  if (!c.ticks) return;
  if (c.a === c.x0 && c.b === c.x1) { c.ticks.innerHTML = c.first; return; }
  c.ticks.textContent = '';
  const raw = (c.b - c.a) / 7, p = Math.pow(10, Math.floor(Math.log10(raw))), unit = c.svg.dataset.xu;
  let step = raw <= p ? p : raw <= 2 * p ? 2 * p : raw <= 5 * p ? 5 * p : 10 * p;
  if (+unit === 1) step = Math.max(1, Math.round(step));
  const h = num(c.svg, 'h');
  for (let k = Math.ceil(c.a / step), i = 0; k * step <= c.b; k++, i++) {
    const at = 100 * (k * step - c.a) / (c.b - c.a), t = document.createElementNS(SVG, 'text');
    t.setAttribute('class', 'x' + (i % 2 ? ' odd' : '') + (at < 2 ? ' s' : at > 97 ? ' e' : ''));
    t.setAttribute('x', at + '%'); t.setAttribute('y', h + 17);
    t.textContent = +unit === 2 ? +(k * step).toPrecision(6) + ' s' : figure(unit, k * step);
    c.ticks.appendChild(t);
  }
}
function view(c, a, b) {
  c.a = a; c.b = b;
  const w = 2000 / (c.x1 - c.x0);
  c.plot.setAttribute('viewBox', (a - c.x0) * w + ' 0 ' + Math.max(1e-3, (b - a) * w) + ' 1000');
  all('text.note', c.svg).forEach(n => { n.style.display = a === c.x0 && b === c.x1 ? '' : 'none'; });
  drawTicks(c);
}

/* ---- zoom ---- */
const bar = make('div'); bar.id = 'zoom'; bar.hidden = true;
const barText = make('span'), back = make('button', '', 'Show the whole run');
back.type = 'button'; back.onclick = () => zoom(null); bar.append(barText, back);
const main = document.querySelector('main'); if (main) main.prepend(bar);
function zoom(link, a, b) {
  bar.hidden = !link;
  const window_ = link && { [link]: [a, b] };
  if (link === 'step' && times) window_.time = [toTime(a), toTime(b)];
  if (link === 'time' && times) window_.step = [toStep(a), toStep(b)];
  charts.forEach(c => {
    const w = window_ && c.link && window_[c.link];
    if (!c.link || (window_ && !w)) return;
    view(c, w ? Math.max(c.x0, w[0]) : c.x0, w ? Math.min(c.x1, w[1]) : c.x1);
  });
  if (!link) return;
  barText.textContent = [window_.step && 'steps ' + Math.ceil(window_.step[0]) + ' to ' + Math.floor(window_.step[1]),
    window_.time && figure(2, window_.time[0]) + ' to ' + figure(2, window_.time[1])].filter(Boolean).join(' · ');
}

/* ---- values under the pointer ---- */
function series(path) {
  if (path._at) return path;
  path._at = []; path._y = [];
  let y = NaN, x = 0;
  for (const m of path.getAttribute('d').matchAll(/([MVHL])(-?[\d.]+)(?: (-?[\d.]+))?/g)) {
    if (m[1] === 'V') y = +m[2];
    else if (m[1] === 'M') { if (+m[2] > x) { path._at.push(+m[2]); path._y.push(NaN); } x = +m[2]; y = +m[3]; }
    else if (m[1] === 'H') { x = +m[2]; path._at.push(x); path._y.push(y); }
  }
  return path;
}
function reading(c, x) {
  const at = 2000 * (x - c.x0) / (c.x1 - c.x0), y0 = num(c.svg, 'y0'), y1 = num(c.svg, 'y1');
  return all('path[data-n]', c.plot).map(p => {
    series(p);
    let lo = 0, hi = p._at.length;
    while (lo < hi) { const mid = (lo + hi) >> 1; if (p._at[mid] >= at) hi = mid; else lo = mid + 1; }
    const y = p._y[lo];
    return p.dataset.n + ' ' + (y === undefined || isNaN(y) ? 'unknown' : figure(c.svg.dataset.yu, y0 + (1 - y / 1000) * (y1 - y0)));
  });
}
function heatTip(c, img, ev) {
  const r = img.getBoundingClientRect(), cols = num(img, 'columns'), rows = num(img, 'rows');
  const i = Math.min(cols - 1, Math.max(0, Math.floor((ev.clientX - r.left) / r.width * cols)));
  const k = Math.min(rows - 1, Math.max(0, Math.floor((ev.clientY - r.top) / r.height * rows)));
  if (!img._data) {
    img._data = 'wait';
    const im = new Image();
    im.onload = () => { const cv = make('canvas'); cv.width = cols; cv.height = rows; const g = cv.getContext('2d'); g.drawImage(im, 0, 0); img._data = g.getImageData(0, 0, cols, rows).data; };
    im.src = img.getAttribute('href');
  }
  const per = +img.dataset.per || 1, first = k * per, last = Math.min(+img.dataset.ranks || rows, first + per) - 1;
  const d = img._data === 'wait' ? null : img._data, o = 4 * (k * cols + i);
  const value = d ? (d[o] === 128 && d[o + 1] === 128 ? 'unknown' : 'about ' + figure(img.dataset.u, d[o + 3] / 255 * num(img, 'most'))) : '';
  return (per > 1 ? 'ranks ' + first + ' to ' + last : 'rank ' + first) + ', ' + figure(2, valueAt(c, ev)) + '\n' + value;
}
charts.forEach(c => {
  const cross = make('div', 'cross'), brush = make('div', 'brush');
  let from = null;
  cross.hidden = brush.hidden = true;
  cross.style.height = brush.style.height = num(c.svg, 'h') + 'px';
  c.box.append(cross, brush);
  const place = (e, ev) => { const r = c.box.getBoundingClientRect(), s = c.svg.getBoundingClientRect(); return Math.max(s.left, Math.min(s.right, ev.clientX)) - r.left; };
  c.svg.addEventListener('pointermove', ev => {
    const lines = [], img = ev.target.closest('image.heat');
    if (ev.target._tip) lines.push(ev.target._tip);
    if (img) lines.push(heatTip(c, img, ev));
    if (c.plot.querySelector('path[data-n]')) { const x = valueAt(c, ev); lines.unshift(figure(c.svg.dataset.xu, x), ...reading(c, x)); cross.hidden = false; cross.style.left = place(cross, ev) + 'px'; }
    if (from !== null) { const a = Math.min(from, place(brush, ev)), b = Math.max(from, place(brush, ev)); brush.hidden = b - a < 4; brush.style.left = a + 'px'; brush.style.width = b - a + 'px'; }
    if (lines.length) show(lines.join('\n'), ev); else hide();
  });
  c.svg.addEventListener('pointerleave', () => { hide(); cross.hidden = true; });
  if (!c.link) return;
  let start = 0;
  c.svg.style.touchAction = 'pan-y';
  c.svg.addEventListener('pointerdown', ev => { if (ev.button) return; from = place(brush, ev); start = valueAt(c, ev); c.svg.setPointerCapture(ev.pointerId); });
  const end = ev => {
    if (from === null) return;
    let a = Math.min(start, valueAt(c, ev)), b = Math.max(start, valueAt(c, ev));
    const far = Math.abs(place(brush, ev) - from) >= 6;
    from = null; brush.hidden = true;
    if (c.link === 'step') { a = Math.round(a) - 0.5; b = Math.round(b) + 0.5; }
    if (far && b > a) zoom(c.link, a, b);
  };
  c.svg.addEventListener('pointerup', end);
  c.svg.addEventListener('pointercancel', () => { from = null; brush.hidden = true; });
  c.svg.addEventListener('dblclick', () => zoom(null));
});
all('.zoomhint').forEach(e => { e.hidden = false; });

/* ---- tables ---- */
const key = td => { if (!td) return NaN; return td.dataset.v !== undefined ? +td.dataset.v : td.classList.contains('n') ? NaN : td.textContent; };
all('table.sort').forEach(table => {
  const body = table.tBodies[0];
  if (!body || body.rows.length < 2) return;
  all('th', table.tHead).forEach((th, i) => {
    const sort = () => {
      const up = th.getAttribute('aria-sort') === 'descending' || (!th.hasAttribute('aria-sort') && !th.classList.contains('n'));
      all('th', table.tHead).forEach(o => o.removeAttribute('aria-sort'));
      th.setAttribute('aria-sort', up ? 'ascending' : 'descending');
      Array.from(body.rows).map(r => [key(r.cells[i]), r]).sort((x, y) => {
        const a = x[0], b = y[0];
        if (typeof a === 'string' || typeof b === 'string') return (up ? 1 : -1) * String(a).localeCompare(String(b), 'en', { numeric: true });
        if (isNaN(a) || isNaN(b)) return isNaN(a) - isNaN(b); /* unknown is last, either way */
        return up ? a - b : b - a;
      }).forEach(r => body.appendChild(r[1]));
    };
    th.classList.add('s'); th.tabIndex = 0; th.title = 'sort';
    th.onclick = sort;
    th.onkeydown = ev => { if (ev.key === 'Enter' || ev.key === ' ') { ev.preventDefault(); sort(); } };
  });
});

/* ---- commands, sections ---- */
if (navigator.clipboard) all('pre.copyable').forEach(pre => {
  const b = make('button', 'copy', 'Copy'), text = pre.textContent; b.type = 'button';
  b.onclick = () => navigator.clipboard.writeText(text).then(() => { b.textContent = 'Copied'; setTimeout(() => { b.textContent = 'Copy'; }, 1500); }, () => {});
  pre.prepend(b);
});
const sections = all('details.sec'), nav = document.querySelector('nav');
if (nav && sections.length) {
  const b = make('button', '', 'Fold all'); b.type = 'button';
  b.onclick = () => { const open = b.textContent !== 'Fold all'; sections.forEach(s => { s.open = open; }); b.textContent = open ? 'Fold all' : 'Unfold all'; };
  nav.append(b);
}
const unfold = () => { const s = location.hash.length > 1 && document.getElementById(location.hash.slice(1)); if (s && s.tagName === 'DETAILS') s.open = true; };
addEventListener('hashchange', unfold); unfold();
addEventListener('beforeprint', () => all('details').forEach(d => { d.open = true; }));
})();
