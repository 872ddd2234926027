"""Annotations, DFTracer's names and automatic instrumentation, checked on the exported trace. Standard library only; NumPy and h5py
are used where they are installed; PyTorch's loader is stood in for by a package of the same shape."""
import csv
import json
import os
import subprocess
import sys
import tempfile
import textwrap

MILLRACE = os.environ["MILLRACE"]
BUILD = os.environ["MR_BINARY_DIR"]
PYTHON = os.path.join(BUILD, "python")

if not os.path.exists(os.path.join(PYTHON, "millrace", "trace", "_trace.abi3.so")) or sys.version_info < (3, 10):
    print("SKIP: the extension is not built for this Python")
    sys.exit(77)


def traced(script, folder, *options, path=(PYTHON,)):
    """Runs a script under the tracer; returns the rows of the CSV export and the Chrome export."""
    name = os.path.join(folder, "script.py")
    with open(name, "w") as f:
        f.write(textwrap.dedent(script))
    trace = os.path.join(folder, "t.mrt")
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(path), PYTHONDONTWRITEBYTECODE="1")
    subprocess.run([MILLRACE, "trace", "--quiet", "-o", trace, *options, "--", sys.executable, name, folder], check=True, env=env)
    for kind in ("csv", "chrome"):
        subprocess.run([MILLRACE, "export", "-f", kind, "-o", trace + "." + kind, trace], check=True)
    with open(trace + ".csv", newline="", errors="surrogateescape") as f:
        rows = list(csv.DictReader(f))
    with open(trace + ".chrome") as f:
        events = json.load(f)["traceEvents"]
    return rows, events


def count(rows, category, name):
    return sum(1 for r in rows if r["category"] == category and r["name"] == name)


def annotations(folder):
    rows, events = traced(
        """
        import os, sys
        from multiprocessing import Process
        from millrace import trace
        assert trace.active()

        @trace.fn
        def plain(x, *, y=1):
            "doc"
            return x + y

        @trace.fn(category="reader", name="get", kind=3)
        def named():
            raise ValueError

        class C:
            @trace.fn(category="cls")
            def method(self, a):
                return (self, a)

        assert plain(1) == 2 and plain(1, y=5) == 6 and plain.__doc__ == "doc" and plain.__name__ == "plain"
        for _ in range(3):
            try:
                named()
            except ValueError:
                pass
        c = C()
        assert c.method(4) == (c, 4)
        with trace.region("step", category="train", epoch=1, step=7, note="a\\nb\\"") as r:
            r.update(lr=0.5)
            with open(os.path.join(sys.argv[1], "x"), "w") as f:
                f.write("hello")
        assert list(trace.iterate(range(5), "loop")) == [0, 1, 2, 3, 4]
        trace.metadata(model="m")
        trace.counter("queue", 3)
        trace.instant("mark", level=2, layer="mine")
        with trace.timed("snippet", epoch=2):
            pass
        trace.stop()
        plain(1)
        trace.start()

        def child():
            with trace.region("in child"):
                pass

        p = Process(target=child)
        p.start()
        p.join()
        """,
        folder,
    )
    assert count(rows, "__main__", "plain") == 2, rows
    assert count(rows, "reader", "get") == 3
    assert count(rows, "cls", "C.method") == 1
    assert count(rows, "app", "loop.iter") == 5 and count(rows, "app", "loop.yield") == 5
    assert count(rows, "app", "in child") == 1
    assert count(rows, "time", "snippet") == 1
    step = next(e for e in events if e["name"] == "step")
    assert step["args"]["epoch"] == 1 and step["args"]["step"] == 7 and step["args"]["lr"] == 0.5 and step["args"]["note"] == 'a\nb"', step
    write = next(e for e in events if e["name"] in ("write", "openat", "open") and e["args"].get("fname", "").endswith("/x"))
    assert step["ts"] <= write["ts"] and write["ts"] + write["dur"] <= step["ts"] + step["dur"]
    assert any(e["ph"] == "C" and e["name"] == "queue" and e["args"]["value"] == 3 for e in events)
    assert any(e["ph"] == "i" and e["name"] == "mark" and e["args"] == {"layer": "app", "level": 2, "layer_": "mine"} for e in events)


def dftracer_names(folder):
    rows, events = traced(
        """
        from dftracer.logger import dftracer, dft_fn
        from dftracer.python import ai
        log = dftracer.initialize_log("x", "all", -1)
        d = dft_fn("cat")

        class R:
            @d.log_init
            def __init__(self):
                pass
            @d.log
            def get(self):
                return 5

        assert R().get() == 5
        with dft_fn("io", "block", epoch=3) as b:
            b.update(step=4)
        assert list(d.iter(range(3), name="it")) == [0, 1, 2]

        @ai.compute.forward
        def forward(x):
            return x * 2

        assert forward(4) == 8
        ai.update(epoch=9)
        with ai.data.io.read:
            pass
        assert sum(1 for _ in ai.dataloader.fetch.iter(range(4))) == 4
        ai.comm.disable()
        with ai.comm.barrier:
            pass
        from dftracer.python import DFTRACER_ENABLE, compute, pipeline
        assert compute is ai.compute and DFTRACER_ENABLE

        @d.log
        def train(x, step=0, epoch=None):
            return x

        assert train(3, 4, epoch=2) == 3
        def unnamed():
            whole = dft_fn("whole")
            whole.update(args={"k": 1})
            whole.flush()
        unnamed()
        pipeline.epoch.start()
        pipeline.epoch.stop()
        pipeline.test.start(metadata=True)
        log.log_event("logged", "c", 1, 2, int_args={"n": (0, 7)})
        log.log_metadata_event("k", "v")
        log.finalize()
        """,
        folder,
        path=(PYTHON, os.path.join(PYTHON, "dropin")),
    )
    assert count(rows, "cat", "R.get") == 1 and count(rows, "cat", "R.__init__") == 1
    block = next(e for e in events if e["name"] == "block")
    assert block["args"]["epoch"] == 3 and block["args"]["step"] == 4
    assert count(rows, "cat", "it.iter") == 3
    assert count(rows, "compute", "forward") == 1
    assert count(rows, "dataloader", "fetch.iter") == 4 and count(rows, "dataloader", "fetch.block") == 4
    assert next(e for e in events if e["name"] == "data.io.read" and e["cat"] == "data")["args"]["epoch"] == 9
    assert count(rows, "comm", "barrier") == 0
    train = next(e for e in events if e["name"].endswith("train") and e["cat"] == "cat")
    assert train["args"]["step"] == 4 and train["args"]["epoch"] == 2, train
    assert count(rows, "whole", "unnamed") == 1, "without a name it is the function's"
    assert count(rows, "pipeline", "epoch") == 1 and count(rows, "pipeline", "test.start") == 1
    assert next(e for e in events if e["name"] == "logged")["args"]["n"] == 7


def kinds_of_functions(folder):
    """Whatever is decorated stays what it was, and its time is the time it takes."""
    rows, events = traced(
        """
        import asyncio, inspect, pickle
        from millrace import trace

        @trace.fn(category="f")
        async def later(x):
            await asyncio.sleep(0.05)
            return x

        @trace.fn(category="f")
        def items(n):
            got = []
            try:
                for i in range(n):
                    got.append((yield i))
            except KeyError:
                yield "caught"
            return got

        @trace.fn(category="f")
        async def later_items(n):
            for i in range(n):
                yield i

        class C:
            @trace.fn(category="f")
            @classmethod
            def of_class(cls):
                return cls

            @trace.fn(category="f")
            @staticmethod
            def static(a):
                return a

            @trace.fn(category="f")
            @property
            def value(self):
                "of value"
                return 3

        class Own(property):
            pass

        class Owns:
            @trace.fn(category="own")
            @Own
            def value(self):
                "of value"
                return self._value
            @value.setter
            @trace.fn(category="own", name="set")
            def value(self, value):
                self._value = value

        owns = Owns()
        owns.value = 3
        assert owns.value == 3 and type(Owns.value) is Own and Owns.value.__doc__ == "of value"
        plain = trace.fn(property(lambda self: 1, doc="given"))
        assert plain.__doc__ == "given" and type(plain) is property and trace.fn(property()).fget is None

        @trace.fn(category="f")
        class D:
            def __init__(self, a):
                self.a = a

        class F:
            @trace.fn(category="f")
            def who(self):
                return self

        f = F()

        class G:
            kept = f.who  # a bound method stays with its object

        assert G().kept() is f and f.who() is f and F.who(f) is f and f.who == f.who and f.who.__self__ is f and f.who.__name__ == "who"

        import enum, functools, types

        class Text(str, enum.Enum):
            B = "bee"

        @trace.fn(category="aw", text=Text.B)
        @types.coroutine
        def awaited():
            yield
            return 7

        partial = trace.fn(functools.partial(later.__wrapped__, 5), category="aw", name="partial")

        async def main():
            assert await awaited() == 7 and await partial() == 5 and inspect.iscoroutinefunction(partial)
            assert await asyncio.gather(later(1), later(2)) == [1, 2]
            assert [x async for x in later_items(2)] == [0, 1]

        assert inspect.iscoroutinefunction(later) and inspect.isgeneratorfunction(items) and pickle.loads(pickle.dumps(items)) is items
        asyncio.run(main())
        steps = items(3)
        assert next(steps) == 0 and steps.send("a") == 1 and steps.throw(KeyError()) == "caught"
        try:
            next(steps)
            raise SystemExit("no end")
        except StopIteration as end:
            assert end.value == ["a"]
        steps = items(3)
        next(steps)
        steps.close()
        assert C().of_class() is C and C.static(4) == 4 and C().value == 3 and C.value.__doc__ == "of value"
        assert isinstance(D(1), D) and D(2).a == 2
        for i in trace.iterate(range(9), "left"):
            if i == 2:
                break
        import threading
        def carried():  # as cloudpickle: a function of the script goes by value, even one that calls itself
            import copy, io, types
            class Pickler(pickle.Pickler):
                def reducer_override(self, o):
                    if isinstance(o, types.FunctionType) and o.__name__ == "counted":
                        return counted_again, ()
                    return NotImplemented
            scope = {"Pickler": Pickler, "__name__": "some.cloudpickle"}
            exec("def dump(o, f):\\n    Pickler(f).dump(o)", scope)
            out = io.BytesIO()
            scope["dump"](counted, out)
            there = pickle.loads(out.getvalue())
            assert there is not counted and type(there) is type(counted) and there(3) == 6 and there.mine == 8 and there.__name__ == "counted"
            assert pickle.loads(pickle.dumps(counted)) is counted and copy.copy(there)(1) == 1 and copy.deepcopy(there)(2) == 3

        @trace.fn(category="f")
        def counted(n):
            return n and n + counted(n - 1)

        def counted_again():
            return lambda n: n and n + counted(n - 1)

        counted.mine = 8
        carried()
        shared, both = trace.region("shared"), threading.Barrier(2)
        def short():
            both.wait()
            with shared:
                both.wait()
                both.wait()
        other = threading.Thread(target=short)
        other.start()
        with shared:
            both.wait()
            both.wait()  # entered by both
        both.wait()
        other.join()
        class bool_:  # as NumPy's: a warning where it is taken for an index
            __index__ = __float__ = lambda self: 1 / 0
            __bool__ = lambda self: True
        twice = trace.region("twice", truth=bool_())
        with twice, twice:
            pass
        with twice:
            pass
        import functools, pathlib
        class Cached:
            @trace.fn(category="f")
            @functools.cached_property
            def kept(self):
                return 5

        class Base:
            made = []
            @trace.fn(category="f")
            def __init_subclass__(cls):
                Base.made.append(cls)
            @trace.fn(category="f")
            @classmethod
            def __class_getitem__(cls, item):
                return cls, item

        class Derived(Base):
            pass

        assert Base.made == [Derived] and Derived[3] == (Derived, 3)

        @functools.wraps(items)
        @trace.fn(category="f")
        def wrapped(x):
            return x

        def again(x):
            return x

        wrapped.mine = 7
        functools.update_wrapper(again, wrapped)
        assert Cached().kept == 5 and wrapped(3) == 3 and wrapped.__wrapped__ is items and wrapped.__name__ == "items" and again.mine == 7
        for name in (pathlib.Path("/a/b"), 5, None, b"by\\xe9"):  # anything may be a name: without the tracer nobody looks
            with trace.region(name, category="any", given=b"by\\xe9"):
                trace.instant(name, category=name)

        class Loader:
            def __iter__(self):
                return Sized()

        class Sized:
            left = 3
            def __iter__(self):
                return self
            def __len__(self):
                return 3
            def __next__(self):
                self.left -= 1
                if self.left < 0:
                    raise StopIteration
                return self.left

        steps = trace.iterate(Loader(), "sized")
        assert len(steps) == 3 and steps.left == 3 and list(steps) == [2, 1, 0] and steps.left < 0 and trace.iterate([1]) and not hasattr(trace.iterate([1]), "left")
        try:
            trace.metadata({"k": 1})
            raise SystemExit("facts without a name")
        except TypeError:
            pass
        import sys

        @trace.fn(category="f")
        def forward(x):
            return x

        assert inspect.isfunction(forward) and forward(3) == 3
        for library in ("pydantic", "ray", "tensorflow"):  # which take functions only
            sys.modules[library] = types.ModuleType(library)
            wanted = trace.fn(lambda x: x, category="f", name="wanted")
            assert inspect.isfunction(wanted) and wanted(3) == 3
            assert trace.fn(len, category="f")([1]) == 1
            del sys.modules[library]
        assert not inspect.isfunction(trace.fn(lambda: 0))
        with trace.region("n\\udce9", i=2**64 - 1, huge=2**70, file="f\\udce9", wrong=type("W", (), {"__str__": lambda s: 1 / 0})()):
            pass
        """,
        folder,
    )
    for name, wanted in {"later": 2, "items": 5, "later_items": 3, "C.of_class": 1, "C.static": 1, "C.value": 1, "D": 2, "F.who": 3}.items():
        assert count(rows, "f", name) == wanted, (name, count(rows, "f", name))
    assert [r["args"] for r in rows if r["name"] == "awaited"] == ['{"text":"bee"}'] * 2 and count(rows, "aw", "partial") == 1
    assert int(next(r["dur_ns"] for r in rows if r["name"] == "partial")) >= 50e6
    assert count(rows, "f", "forward") == 1 and count(rows, "f", "wanted") == count(rows, "f", "len") == 3
    assert count(rows, "own", "Owns.value") == 1 and count(rows, "own", "set") == 1
    assert all(int(r["dur_ns"]) >= 50e6 for r in rows if r["name"] == "later"), "an async function takes until its result"
    assert count(rows, "app", "left.iter") == count(rows, "app", "left.yield") == 3
    twice = [r for r in rows if r["name"] == "twice"]
    assert len(twice) == 3 and all(r["args"] == '{"truth":1}' for r in twice), twice
    assert int(twice[0]["start_unix_ns"]) >= int(twice[1]["start_unix_ns"]), "the inner one ends first"
    assert count(rows, "f", "Cached.kept") == 1 and count(rows, "f", "wrapped") == 1 and count(rows, "app", "sized.iter") == 3
    named = [(r["name"], r["args"]) for r in rows if r["category"] == "any"]
    assert named == [(name, '{"given":"by\\\\xe9"}') for name in ("/a/b", "5", "None", "by\udce9")], named
    assert count(rows, "None", "None") == 1 and count(rows, "/a/b", "/a/b") == 1
    assert count(rows, "f", "counted") == 4 + 2 + 3, count(rows, "f", "counted")
    shared = {r["tid"] == r["pid"]: int(r["start_unix_ns"]) for r in rows if r["name"] == "shared"}
    assert len(shared) == 2 and shared[True] < shared[False], "each thread has its own span of a shared region"
    odd = next(r for r in rows if r["name"] == "n\udce9")
    assert json.loads(odd["args"]) == {"i": 2**64 - 1, "huge": str(2**70), "file": "f\\xe9"}, odd


def without_the_tracer(folder):
    """Nothing recorded, nothing changed, nothing kept."""
    script = """
        import asyncio
        from millrace import trace
        def f(): pass
        async def g(): return 3
        assert not trace.active() and trace.fn(f) is f and trace.fn(category="c", name="n", k=1)(f) is f
        assert asyncio.run(trace.fn(g)()) == 3
        with trace.region("a", k=1) as r:
            r.update(x=[1])
            with trace.region("b", category="c"), trace.timed("t", 2):
                pass
        assert list(trace.iterate(range(3), "n", step=9)) == [0, 1, 2]
        trace.counter("c", 1); trace.instant("i", a=2); trace.metadata(m=3); trace.start(); trace.stop()
        from dftracer.logger import dft_fn, ai
        assert dft_fn("c").log(f) is f and ai.compute.forward(f) is f and list(ai.pipeline.epoch.iter(range(2))) == [0, 1]
        with ai.compute, dft_fn("c", "n") as d:
            d.update(step=1)
    """
    env = dict(os.environ, PYTHONPATH=os.pathsep.join((PYTHON, os.path.join(PYTHON, "dropin"))))
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, env=env, cwd=folder)
    assert not os.listdir(folder)


def dftracer_forms(folder):
    """The forms that DFTracer's own documentation and tests use."""
    rows, events = traced(
        """
        import threading, time
        from dftracer.python.ai import ai, ComputeEvent, get_iter_block_name
        from dftracer.logger.logger import dft_fn, dftracer
        from dftracer.python import EntityRelation, EntityStore, TagDType, TagType, TagValue
        from dftracer.python.common import dft_fn as same
        assert same is dft_fn and TagValue("5", TagDType.INT).value() == (0, 5) and TagValue(5, TagDType.STRING, TagType.IGNORE).value() == (2, "5")
        with dft_fn("typed", "entities") as event:
            event.update(args={"n": TagValue("5", TagDType.INT)}).relate(EntityRelation.USED, event.uses("file", "x", EntityStore.LOCAL_DISK))
            assert event.generates("file", "y", uri="u") == dftracer.get_instance().declare_entity("file", "y") == 0x8bbc26ce1072024d  # as DFTracer's own library
        dft_fn("typed").log(func=lambda: 0, name="keyword")()
        assert ComputeEvent.FORWARD == "forward" == str(ComputeEvent.FORWARD) and get_iter_block_name("x") == "x.block"

        @ai.compute
        def step():
            with ai.comm.all_reduce(enable=False):
                pass
            with ai.comm.all_reduce:
                pass

        @ai.data.preprocess.derive(name="collate")
        def collate():
            pass

        @ai.compute.forward(args={"a": TagValue(5)})
        def forward():
            pass

        class Set:
            @ai.data.item.init
            def __init__(self):
                self.epoch, self.step = 3, self.go

            @dft_fn("method").log
            def go(self):
                pass

        with ai.other.log:
            pass
        step()
        collate()
        forward()
        Set().go()
        assert list(ai.dataloader.fetch.iter(range(2), include_iter=False, block_name="mine")) == [0, 1]
        assert list(dft_fn("loop").iter(range(2), include_yield=False)) == [0, 1]

        def wait(seconds):
            with ai.device.transfer:
                time.sleep(seconds)

        threads = [threading.Thread(target=wait, args=(s,)) for s in (0.3, 0.0)]
        for t in threads:
            t.start()
            time.sleep(0.1)
        for t in threads:
            t.join()
        import asyncio
        async def task(first, turn, following):
            await turn.wait()
            with ai.comm.send(args={"first": first}):
                pass
            with ai.comm.receive:
                following.set()
                await asyncio.sleep(0.1 if first else 0.3)
        async def main():
            turns = [asyncio.Event() for _ in range(3)]
            turns[0].set()
            await asyncio.gather(task(1, turns[0], turns[1]), task(0, turns[1], turns[2]))
        asyncio.run(main())
        log = dftracer.initialize_log("x", "all", -1)
        begin, first = log.get_time(), time.time_ns()
        time.sleep(0.02)
        took, last = log.get_time() - begin, time.time_ns()
        time.sleep(0.1)
        with dft_fn("c", "told", args={"first": first, "last": last}):
            log.log_event("logged", "c", begin, took, string_args={"k": "v"})  # some time later
        log.log_event("past", "c", 5, 6)
        """,
        folder,
        path=(PYTHON, os.path.join(PYTHON, "dropin")),
    )
    for category, name, wanted in (
        ("compute", "compute", 1), ("comm", "all_reduce", 1), ("data", "preprocess.collate", 1), ("compute", "forward", 1), ("data", "item.init", 1),
        ("method", "Set.go", 1), ("dataloader", "mine", 2), ("dataloader", "fetch.iter", 0), ("loop", "loop.iter", 2), ("loop", "loop.yield", 0),
        ("device", "transfer", 2), ("other", "other.log", 1),
    ):
        assert count(rows, category, name) == wanted, (category, name, count(rows, category, name))
    found = {e["name"]: e for e in events if e["ph"] != "M"}
    assert found["entities"]["args"]["n"] == 5 and count(rows, "typed", "keyword") == 1
    assert found["forward"]["args"]["a"] == 5 and found["Set.go"]["args"]["epoch"] == 3 and "step" not in found["Set.go"]["args"]
    both = {r["tid"]: int(r["dur_ns"]) for r in rows if r["name"] == "transfer"}
    assert len(both) == 2 and max(both.values()) >= 300e6, "each thread has its own span"
    starts = sorted(int(r["start_unix_ns"]) for r in rows if r["name"] == "receive")
    ends = sorted(int(r["start_unix_ns"]) + int(r["dur_ns"]) for r in rows if r["name"] == "receive")
    first = min((r for r in rows if r["name"] == "receive"), key=lambda r: int(r["start_unix_ns"]))
    assert len(starts) == 2 and int(first["start_unix_ns"]) + int(first["dur_ns"]) == ends[0], "each task has its own span"
    logged, told = found["logged"], found["told"]["args"]
    assert logged["ph"] == "X" and logged["args"]["k"] == "v" and logged["dur"] >= 19990, logged
    start = next(int(r["start_unix_ns"]) for r in rows if r["name"] == "logged")
    assert told["first"] - 1e6 <= start and start + logged["dur"] * 1000 <= told["last"] + 1e6, (told, logged, start)
    assert found["past"]["args"]["logged_start_us"] == 5 and found["past"]["args"]["logged_dur_us"] == 6


def dftracer_state(folder):
    """What update(), enable() and disable() say reaches the spans that DFTracer gives it to."""
    rows, _ = traced(
        """
        import asyncio, threading, time
        from dftracer.python import DFTracerAI, DFTRACER_INIT_PRELOAD, DFTRACER_LOG_LEVEL, Dynamo, ai, create_backend, dft_fn, dftracer, dynamo
        from dftracer.python.dynamo import create_backend as same
        from dftracer.python.torch import trace_handler
        from dftracer.python.env import DFTRACER_ENABLE
        from dftracer.dynamo import create_backend as older
        from dlio_profiler.logger import dlio_logger, fn_interceptor
        assert older is create_backend and fn_interceptor is dft_fn and dlio_logger is dftracer
        from dftracer.python.dbg.logger import dft_fn as also
        assert same is create_backend and also is dft_fn and DFTRACER_ENABLE and isinstance(ai.compute, DFTracerAI) and isinstance(dynamo, Dynamo)
        dftracer().log_metadata_event("made", "yes")
        assert isinstance(dftracer.get_instance(), dftracer) and dftracer.initialize_log("x") is dftracer.get_instance()

        io = dft_fn("io")

        class Reader:
            step = 0
            @io.log_init
            def __init__(self, epoch=7):
                self.epoch, self.step = 8, 1
            @io.log
            def get(self, name):
                self.step += 1
                io.update(image_size=name)
        @io.log
        def plain(n):
            io.update(args={"n": n})
        @io.log
        async def later():
            io.update(step=9)
        @io.log
        def items():
            yield 1
        @io.log
        async def known(step, more=1):
            await asyncio.sleep(0)
        asyncio.run(known(6))
        class Places:
            epoch = __import__("fractions").Fraction(1, 2)  # a number that is neither int nor float, as NumPy's
            @io.log
            def at(self, first, step, /, *more, epoch=None, **rest):
                pass
        try:
            Places().at(1)
        except TypeError:
            pass
        Places().at(1, 2, 3)
        Places().at(1, 2, epoch=4, image_idx=5)
        reader = Reader()
        reader.get(100)
        reader.get(200)
        plain(5)
        asyncio.run(later())
        assert list(items()) == [1]

        ai.disable()
        ai.compute.enable()
        with ai.compute.forward, ai.comm.send:
            pass
        ai.compute.forward.disable()
        with ai.compute.forward(enable=True), ai.compute.forward:
            pass
        ai.enable()
        ai.compute.step.update(step=3)
        ai.update(step=4, args={"more": 1})
        with ai.compute.step, ai.pipeline.epoch.derive("own"), ai.compute.step(step=5):
            pass
        ai.update(step=6)
        with ai.pipeline.epoch.derive("own"):
            pass
        with DFTracerAI(cat="custom", name="mine", epoch=1):
            pass

        import copy, pickle
        for carried in (pickle.loads(pickle.dumps(ai)).other.log, copy.deepcopy(ai.other.log), pickle.loads(pickle.dumps(dft_fn("other", "carried")))):
            with carried, carried:
                pass

        for step in ai.dataloader.fetch.iter(range(2)):  # what is said in a body goes for its wait
            ai.update(step=step)
            time.sleep(0.01)
        for n in dft_fn("early", "early").iter(range(1)):
            pass

        both, shared = threading.Barrier(2), dft_fn("shared", "block")
        def enter():
            with shared:
                both.wait()
                with shared:
                    both.wait()
        threads = [threading.Thread(target=enter) for _ in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        with shared:
            shared.flush()
            shared.reset()
        with shared:
            shared.flush()
        """,
        folder,
        path=(PYTHON, os.path.join(PYTHON, "dropin")),
    )
    spans = [(r["category"], r["name"], json.loads(r["args"] or "{}")) for r in rows if r["category"] in ("io", "compute", "comm", "pipeline", "custom")]
    sizes, n = {"image_size": 200}, {"image_size": 200, "n": 5}
    assert spans == [
        ("io", "known", {"step": 6}), ("io", "Places.at", {"epoch": 0.5}), ("io", "Places.at", {"epoch": 0.5, "step": 2}),
        ("io", "Places.at", {"epoch": 4, "step": 2}), ("io", "Reader.__init__", {"epoch": 7}), ("io", "Reader.get", {"epoch": 8, "step": 1, "image_size": 100}),
        ("io", "Reader.get", {"epoch": 8, "step": 2, **sizes}), ("io", "plain", n), ("io", "later", {**n, "step": 9}), ("io", "items", {**n, "step": 9}),
        ("compute", "forward", {}), ("compute", "forward", {}),
        ("compute", "step", {"step": 5, "more": 1}), ("pipeline", "epoch.own", {"step": 4, "more": 1}), ("compute", "step", {"step": 4, "more": 1}),
        ("pipeline", "epoch.own", {"step": 6, "more": 1}), ("custom", "mine", {"epoch": 1}),
    ], spans
    assert count(rows, "shared", "block") == 4 + 2 + 1 and count(rows, "other", "other.log") == 4 and count(rows, "other", "carried") == 2
    loop = [(r["name"], json.loads(r["args"])["step"]) for r in rows if r["category"] == "dataloader"]
    assert loop == [("fetch.iter", 0), ("fetch.block", 0), ("fetch.iter", 1), ("fetch.block", 1)], loop
    assert all(int(r["dur_ns"]) >= 10e6 for r in rows if r["name"] == "fetch.block") and count(rows, "early", "loop.iter") == 1


FAKE_TORCH = {
    "torch/__init__.py": "",
    "torch/utils/__init__.py": "",
    "torch/utils/data/__init__.py": "from .dataloader import DataLoader\n",
    "torch/utils/data/_utils/__init__.py": "from . import fetch\n",
    "torch/utils/data/_utils/fetch.py": """
class _MapDatasetFetcher:
    def __init__(self, dataset, collate_fn):
        self.dataset, self.collate_fn = dataset, collate_fn
    def fetch(self, index):
        return self.collate_fn([self.dataset[i] for i in index])
""",
    "torch/utils/data/dataloader.py": """
from . import _utils
class _BaseDataLoaderIter:
    def __init__(self, loader):
        self._fetcher = _utils.fetch._MapDatasetFetcher(loader.dataset, list)
        self._batches = iter(loader.batches)
    def __next__(self):
        return self._next_data()
    def __iter__(self):
        return self
class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    def _next_data(self):
        return self._fetcher.fetch(next(self._batches))
class DataLoader:
    def __init__(self, dataset, batches):
        self.dataset, self.batches = dataset, batches
    def __iter__(self):
        return _SingleProcessDataLoaderIter(self)
""",
}


def automatic(folder):
    fake = os.path.join(folder, "fake")
    for name, text in FAKE_TORCH.items():
        os.makedirs(os.path.dirname(os.path.join(fake, name)), exist_ok=True)
        with open(os.path.join(fake, name), "w") as f:
            f.write(text)
    rows, _ = traced(
        """
        from torch.utils.data import DataLoader
        class Set:
            def __getitem__(self, i):
                return i * 10
            def __len__(self):
                return 6
        assert list(DataLoader(Set(), [[0, 1, 2], [3, 4, 5]])) == [[0, 10, 20], [30, 40, 50]]
        """,
        folder,
        "--python",
        path=(fake,),
    )
    assert count(rows, "data_loader", "Set.__getitem__") == 6
    assert count(rows, "data_loader", "collate") == 2
    assert count(rows, "data_loader", "DataLoader.next") == 2 and count(rows, "data_loader", "DataLoader.end") == 1
    traced(
        """
        import os, subprocess, sys
        ours = [os.path.normpath(p) for p in os.environ["PYTHONPATH"].split(":")[:1]]
        assert ours[0].endswith("/autoload") and ours[0] not in sys.path  # it has done its work, and the program's own modules come first
        last = subprocess.run([sys.executable, "-c", "import sys; print(sys.path[-1])"], env={}, capture_output=True, text=True).stdout.strip()
        assert os.path.normpath(ours[0] + "/../../..") == os.path.normpath(last), last
        ask = [sys.executable, "-c", "import os, sys; print('millrace.trace.instrument' in sys.modules, "
               "':'.join(map(os.path.normpath, os.environ.get('PYTHONPATH', '').split(':'))))"]
        def told(given, command=ask):
            return subprocess.run(command, env=given, capture_output=True, text=True, check=True).stdout.split()
        assert subprocess.run(["sh", "-c", "echo $PYTHONPATH"], env={}, capture_output=True, text=True).stdout == "\\n"  # a program that is no Python
        assert told({"MILLRACE_TRACE_PYTHON": "0"})[0] == told({"MILLRACE_TRACE_PYTHON": "False"})[0] == "False" and told({"MILLRACE_TRACE_PYTHON": "on"})[0] == "True"
        assert told({}) == told({"PYTHONPATH": ""}) == ["True", ":".join(ours)], told({})
        assert told({"PYTHONPATH": "/a:/b"}) == ["True", ":".join(ours + ["/a", "/b"])]
        assert told({"PYTHONPATH": "/a:" + ":".join(ours)}) == ["True", ":".join(["/a"] + ours)]
        assert told(dict(os.environ, PYTHONPATH="/a"), ["sh", "-c", 'PYTHONPATH=/c exec "$0" "$@"'] + ask) == ["True", ":".join(ours + ["/c"])]
        """,
        folder,
        "--python",
    )
    traced(
        """
        import os, subprocess
        import sys
        assert "millrace.trace.instrument" not in sys.modules
        for given in ({}, {"PYTHONPATH": "/a"}):  # with --no-python nothing is added
            assert subprocess.run(["sh", "-c", "echo $PYTHONPATH"], env=given, capture_output=True, text=True).stdout.strip() == given.get("PYTHONPATH", "")
        """,
        folder,
        "--no-python",
    )
    rows, _ = traced(
        """
        from torch.utils.data import DataLoader, _utils, dataloader
        from millrace.trace import instrument
        class Set:
            def __getitem__(self, i):
                if i < 0 or i == 1 << 70:
                    raise IndexError(i)
                return i
        def loop(*batches):
            return list(DataLoader(Set(), batches))
        names = [(DataLoader, "__iter__"), (dataloader._BaseDataLoaderIter, "__next__"), (_utils.fetch._MapDatasetFetcher, "fetch")]
        traced = [owner.__dict__[name] for owner, name in names]
        class Inherits(DataLoader):
            pass
        instrument._put(Inherits, "__iter__", traced[0])  # a name that the class did not have
        instrument._torch("fetch")(_utils.fetch)  # changed a second time
        twice = _utils.fetch._MapDatasetFetcher.fetch
        instrument._wrap(int, "from_bytes", "x")  # cannot be changed: neither now nor later
        for _ in range(2):
            instrument.switch(False)
            plain = [owner.__dict__[name] for owner, name in names]
            assert all(f.__code__.co_filename.startswith(dataloader.__file__.split("/utils/")[0]) for f in plain), plain
            assert "__iter__" not in Inherits.__dict__ and loop([7]) == [[7]]
            instrument.switch(True)
            assert [owner.__dict__[name] for owner, name in names] == [*traced[:2], twice] and "__iter__" in Inherits.__dict__
        assert loop([8], [1 << 62], [1 << 66], [True]) == [[8], [1 << 62], [1 << 66], [True]]
        for wrong in (-1, 1 << 70):
            try:
                loop([wrong])
                assert False
            except IndexError as error:
                assert error.args == (wrong,)
        """,
        folder,
        "--python",
        path=(fake,),
    )
    items = [r["args"] for r in rows if r["name"] == "Set.__getitem__"]
    assert items == ["{\"sample\":%s}" % n if n else "" for n in (8, 1 << 62, None, 1, -1, None)], items
    try:
        import numpy  # noqa: F401
    except ImportError:
        return
    rows, _ = traced(
        """
        import sys, os, numpy as np
        p = os.path.join(sys.argv[1], "a.npy")
        np.save(p, np.arange(10))
        assert np.load(p).sum() == 45
        """,
        folder,
        "--python",
        path=[p for p in sys.path if p],
    )
    assert count(rows, "reader", "numpy.load") == 1 and count(rows, "reader", "numpy.save") == 1


def library_alone(folder):
    """LD_PRELOAD=... python, which is instrumented unless MILLRACE_TRACE_PYTHON says no: also in a child with an empty environment; what PYTHONPATH had is still there, and no folder twice."""
    name = os.path.join(folder, "script.py")
    with open(name, "w") as f:
        f.write(textwrap.dedent(
            """
            import os, subprocess, sys
            path = os.environ.get("PYTHONPATH", "").split(":")
            print("millrace.trace.instrument" in sys.modules, path[1:] if path[0].endswith("/autoload") else path, len(path) == len(set(path)), flush=True)
            if len(sys.argv) == 1:
                subprocess.run([sys.executable, __file__, "again"], check=True)
                subprocess.run([sys.executable, __file__, "empty"], check=True, env={})
            """))
    env = dict(os.environ, LD_PRELOAD=os.path.join(BUILD, "lib", "libmillrace_trace.so"), MILLRACE_TRACE_OUT=os.path.join(folder, "traces"), PYTHONPATH="/nowhere")
    for switch, wanted in (("1", ["True ['/nowhere'] True"] * 2 + ["True [] True"]), (None, ["True ['/nowhere'] True"] * 2 + ["True [] True"]), ("off", ["False ['/nowhere'] True"] * 2 + ["False [''] True"])):
        out = subprocess.run([sys.executable, name], env=dict(env, **{"MILLRACE_TRACE_PYTHON": switch} if switch else {}), check=True, capture_output=True, text=True)
        assert out.stdout.splitlines() == wanted and not out.stderr, (switch, out)


for test in (annotations, kinds_of_functions, without_the_tracer, dftracer_names, dftracer_forms, dftracer_state, automatic, library_alone):
    with tempfile.TemporaryDirectory() as folder:
        test(folder)
        print("ok", test.__name__)
