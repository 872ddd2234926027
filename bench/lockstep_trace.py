"""Added time per event of a whole program, told from a machine's moods: a bare program, the same under the floor, traced, and bare again run side
by side on one CPU (the collector of the traced one where it likes) and take turns, twenty files (20,000 events) at a time; a million events each and
set, and several sets, because where a process has its memory matters as well. Prints the medians and the means (without the
tenth at either end) of the differences to the bare part beside it, in ns per event: floor, traced, bare again.

    lockstep_trace.py BENCH_TRACE FLOOR MILLRACE FOLDER [SETS]
"""
import statistics
import subprocess
import sys

bench, floor, millrace, folder = sys.argv[1:5]
sets = int(sys.argv[5]) if len(sys.argv) > 5 else 10
program = ["taskset", "-c", "0", bench, "lockstep", folder + "/data", "1000"]
ways = {
    "bare": program,
    "floor": ["env", "LD_PRELOAD=" + floor] + program,
    "traced": [millrace, "trace", "--quiet", "-o", folder + "/lockstep.mrt", "--"] + program,
    "again": program,
}
names, found = list(ways), {way: [] for way in ways}
for _ in range(sets):
    running = {way: subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for way, command in ways.items()}
    for part in range(50):
        times = {}
        for way in names[part % 4 :] + names[: part % 4]:
            running[way].stdin.write("go\n")
            running[way].stdin.flush()
            times[way] = float(running[way].stdout.readline())
        for way in names:
            found[way].append(times[way] - times["bare"])
    for p in running.values():
        p.communicate()
        assert p.returncode == 0
for way in names[1:]:
    values = sorted(found[way])
    inner = values[len(values) // 10 : len(values) - len(values) // 10]
    print("%.1f %.1f" % (statistics.median(values), statistics.fmean(inner)), end=" ")
print()
