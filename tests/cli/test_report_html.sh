#!/usr/bin/env bash
# `report --html` and `run --html`: every figure of the page is the JSON's, nothing is loaded, --anonymous hides names, a failure
# leaves the page that was there.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/expect.sh"
command -v python3 >/dev/null || { echo "skipped: no python3 to parse pages with"; exit 77; }
check() { expect 0 python3 "$here/check_page.py" "$@"; }

expect 0 millrace -q gen secretdata --format npz --files 24 --size 64KiB
training="unet3d_h100 --data secretdata dataset.num_files_train=24 dataset.record_length_bytes=65536 dataset.record_length_bytes_stdev=0
    dataset.record_length_bytes_resize=0 reader.batch_size=2 train.epochs=2 train.computation_time=0.004 checkpoint.model_size=1000000"
# shellcheck disable=SC2086
expect 0 millrace -q run $training --ranks 2 --store 'throttle(stream_bandwidth=10MB,bandwidth=40MB):posix' reader.read_threads=1 \
    reader.prefetch_size=1 --out secretrun --html run.html
check run.html
grep -q 'class="s-storage"' run.html || fail "no storage stall on the page of a starved run"
grep -q 'id="steps"' run.html && grep -q 'id="ranks"' run.html && grep -q 'id="access"' run.html || fail "sections are missing"

grep -q 'Inside a slow step' run.html || fail "the threads of a slow step are missing"

# snippets of TimeLogger: distribution, threads, names as text
cat >snippets.csv <<'C'
node,epoch,start,end,duration,pid,thread,name
n1,0,0.0,1.0,1.0,10,1,load <b>
n1,0,1.0,1.5,0.5,10,1,augment
n1,0,1.5,2.6,1.1,10,1,load <b>
n2,0,0.2,1.0,0.8,11,7,load <b>
C
expect 0 millrace report snippets.csv --html snippets.html
check snippets.html
python3 - <<'P' || fail "the page of snippets"
import re
page = open("snippets.html").read()
part = page[page.index('id="snippets"'):]
rows = re.findall(r"<tr><td[^>]*><bdi>time</bdi></td><td[^>]*><bdi>([^<]*)</bdi></td><td[^>]*data-v=\"(\d+)\"[^>]*>.*?data-v=\"([^\"]*)\"", part)
assert [(n, int(c)) for n, c, _ in rows] == [("load &lt;b&gt;", 3), ("augment", 1)] and abs(float(rows[0][2]) - 2.9) < 1e-6, rows
assert "Timeline per thread" in part and part.count('class="y"') >= 4, "two boxes and two threads"
P

# the same figures as in the JSON, and as in the text
expect 0 millrace report secretrun --json
mv out report.json
expect 0 millrace report secretrun --html report.html
grep -q "^VERDICT" out || fail "the text is not printed beside the page"
check report.html report.json
python3 - <<'P' || fail "the verdict of text, JSON and page"
import html, json, re
line = json.load(open("report.json"))["verdict"]["lines"][0]
page = html.unescape(re.search(r'class="head">(.*?)</p>', open("report.html").read()).group(1))
assert page.replace("\xa0", " ").replace("→", "->") == line, (page, line)
assert not re.search(r"\d (%|s|ms|us)\b", page), page # no line ends between a number and its unit
P
sed 's/value="[^"]*" data-key="time.compute_s"/value="1" data-key="time.compute_s"/' report.html >wrong.html
expect 1 python3 "$here/check_page.py" wrong.html report.json

# standard output, part of a run
expect 0 millrace report secretrun --html -
mv out stdout.html
check stdout.html
expect 0 millrace report secretrun --steps 2:6 --html part.html
check part.html

# nothing that names somebody
expect 0 millrace report secretrun --html anonymous.html --anonymous
check anonymous.html
! grep -q secret anonymous.html out || fail "an anonymous report tells a name: $(grep -o '.\{30\}secret.\{20\}' anonymous.html out | head -3)"
! grep -qw "$(uname -n)" anonymous.html || fail "an anonymous page tells the host"
grep -q '\.npz' anonymous.html || fail "endings of files are gone"

# simulations: all policies, one with its simulated run explained, a sweep
expect 0 millrace sim thesis-1 --html sim.html
check sim.html
grep -q 'id="policies"' sim.html || fail "no policies on the page of a simulation"
expect 0 millrace sim thesis-1 -p staging epochs=2 --html one.html
check one.html
grep -q 'id="policies"' one.html && grep -q 'id="steps"' one.html || fail "a simulated run is not explained"
expect 0 millrace sim thesis-1 -p staging,nopfs epochs=2 --sweep nodes=2,4 --html sweep.html
check sweep.html
grep -q 'id="sweep"' sweep.html || fail "no sweep on its page"
expect 2 millrace sim thesis-1 --plan --html x.html

# refusals, and a full disk
expect 2 millrace report secretrun --anonymous --json
expect 2 millrace report secretrun --html x.html --path '*.npz'
expect 2 millrace report secretrun --html - --json
expect 2 millrace run --dry-run unet3d_h100 --html x.html
expect 2 millrace run unet3d_h100 --anonymous
cp report.html kept.html
expect 5 millrace report secretrun --html /nonexistent/report.html
grep -q "cannot write '/nonexistent/report.html'" err || fail "$(cat err)"
expect 5 millrace report secretrun --html /dev/full
cmp -s report.html kept.html || fail "the page changed"
[ -z "$(ls ./*.new-* 2>/dev/null)" ] || fail "a half page is left"
echo "pages: $(wc -c <report.html) bytes, all figures as in the JSON"
