#!/usr/bin/env bash
# Pages in a real browser: no error on the console, no request, the script on and off, at the width of a screen and of a
# telephone, light and dark; zoom, sorting and tips work. Takes half a minute: with MR_TEST_FULL.
# test-label: full
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/expect.sh"
[ -n "${MR_TEST_FULL:-}" ] || { echo "skipped: opens a browser; set MR_TEST_FULL=1"; exit 77; }
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || { echo "skipped: no chromium"; exit 77; }
maker=${MR_BINARY_DIR:-$here/../../build}/tests/test_report_page
[ -x "$maker" ] || { echo "skipped: '$maker' is not built"; exit 77; }

browse() { # page, options of browse_page.py: quiet, asks for nothing, no wider than asked
    local width=1280 before=
    for word in "$@"; do
        [ "$before" = --width ] && width=$word
        before=$word
    done
    expect 0 python3 "$here/browse_page.py" "$@"
    python3 - "$width" "$*" <<'P' || fail "$*: $(cat out)"
import json, sys
o = json.load(open("out"))
sys.exit(bool(o["errors"] or o["requests"]) or o["width"] > int(sys.argv[1]))
P
}
value() { python3 -c 'import json; print(json.load(open("out"))["eval"])'; }

for kind in typical tiny wide long hostile worst; do
    "$maker" --write $kind $kind.html
    browse $kind.html
    browse $kind.html --no-js --width 390
done
browse typical.html --dark
browse typical.html --width 390

# hostile names made no element of their own
browse hostile.html --eval "document.querySelectorAll('img, iframe, form').length + document.querySelectorAll('script').length"
[ "$(value)" = 1 ] || fail "hostile names: $(value) elements"

# a script that is not ours does not run
sed 's|</main>|<script>document.title = "taken"</script></main>|' tiny.html >injected.html
expect 0 python3 "$here/browse_page.py" injected.html --eval document.title
[ "$(value)" != taken ] || fail "the content policy lets a foreign script run"

# dragging over the step strip zooms it and what shows time; a double click shows all again
browse typical.html --eval "(() => {
    const s = document.querySelector('svg[data-link=step]'), t = document.querySelector('svg[data-link=time]'), r = s.getBoundingClientRect();
    const at = (kind, share) => s.dispatchEvent(new PointerEvent(kind, { clientX: r.left + share * r.width, clientY: r.top + 50, bubbles: true, pointerId: 1, isPrimary: true }));
    s.setPointerCapture = () => {};
    const whole = s.querySelector('svg.p').getAttribute('viewBox'), time = t.querySelector('svg.p').getAttribute('viewBox');
    at('pointerdown', 0.25); at('pointermove', 0.5); at('pointerup', 0.5);
    const zoomed = s.querySelector('svg.p').getAttribute('viewBox') !== whole && t.querySelector('svg.p').getAttribute('viewBox') !== time && !document.getElementById('zoom').hidden;
    s.dispatchEvent(new MouseEvent('dblclick'));
    return zoomed && s.querySelector('svg.p').getAttribute('viewBox').startsWith('0 0 2000');
})()"
[ "$(value)" = True ] || fail "zoom: $(value)"

# a click on a column's head sorts by exact values, unknown last
browse typical.html --eval "(() => {
    const th = [...document.querySelectorAll('#files th')].filter(t => t.textContent === 'distinct').pop(), table = th.closest('table'), i = th.cellIndex;
    th.click();
    const v = [...table.tBodies[0].rows].map(r => r.cells[i].dataset.v);
    const known = v.filter(x => x !== undefined).map(Number);
    return v.indexOf(undefined) === known.length && known.every((x, k) => !k || known[k - 1] >= x);
})()"
[ "$(value)" = True ] || fail "sorting: $(value)"

# pointing at a column tells its step
browse typical.html --eval "(() => {
    const hit = document.querySelectorAll('#steps .hit')[3];
    hit.dispatchEvent(new PointerEvent('pointermove', { clientX: 300, clientY: 300, bubbles: true }));
    return document.getElementById('tip').textContent;
})()"
case $(value) in "step 3, epoch 0:"*compute*) ;; *) fail "tip: $(value)" ;; esac
echo "pages open without an error or a request"
