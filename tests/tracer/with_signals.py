"""with_signals.py SigIgn|SigBlk NAME PROGRAM...: becomes PROGRAM with the signal ignored or blocked, all others as usual."""
import os, signal, sys

number = getattr(signal, "SIG" + sys.argv[2])
for s in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
    signal.signal(s, signal.SIG_DFL)
if sys.argv[1] == "SigIgn":
    signal.signal(number, signal.SIG_IGN)
else:
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})
os.execvp(sys.argv[3], sys.argv[3:])
