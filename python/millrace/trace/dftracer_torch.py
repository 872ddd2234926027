"""DFTracer's names for PyTorch: operations of compiled models (Dynamo, create_backend), and events of PyTorch's
profiler."""

from . import _trace, span
from .dftracer import DFTracerAI, dftracer

__all__ = ["Dynamo", "create_backend", "dynamo", "get_time_scale", "trace_handler"]


def get_time_scale():
    """Units of dftracer.get_time() in a second."""
    return 1e6


def _operation(node, graph):
    """The name of a step of a graph: of a module by its class, of a function or method by its own."""
    target = str(node.target).replace(".", "_")
    if node.op == "call_module":
        return "%s.%s_%s" % (node.target, type(graph.get_submodule(node.target)).__name__, target)
    if node.op == "call_function":
        return "function." + getattr(node.target, "__name__", str(node.target))
    return ("method." if node.op == "call_method" else node.op + ".") + target


class Dynamo(DFTracerAI):
    """torch.compile whose operations are spans."""

    def __init__(self, name=None, epoch=None, step=None, image_idx=None, image_size=None, enable=True):
        super().__init__(
            cat="dynamo", name=name, epoch=epoch, step=step, image_idx=image_idx, image_size=image_size, enable=enable
        )

    def compile(self, f_py=None, autograd=True):
        """Decorator: torch.compile with a span for each operation."""
        if f_py is None:
            return lambda f: self.compile(f, autograd)
        if not _trace.present or not self._on():
            return f_py
        import torch

        return torch.compile(f_py, backend=self._backend(autograd))

    def _backend(self, autograd):
        def compiled(graph, examples, **more):
            run = self._stepwise(graph)
            return make_boxed_func(run) if autograd else run

        if not autograd:
            return compiled
        from functorch.compile import make_boxed_func
        from torch._dynamo.backends.common import aot_autograd

        return aot_autograd(fw_compiler=compiled)

    def _stepwise(self, graph):
        """The graph as a function that goes through its operations one by one."""
        from torch.fx import Interpreter

        class Steps(Interpreter):
            def run_node(steps, node):
                begin = self._begin() if node.op.startswith("call_") else 0
                try:
                    return super().run_node(node)
                finally:
                    if begin:
                        span(self._cat, _operation(node, graph), begin, self._all_args())

        return (lambda *args: Steps(graph).run(*args)) if _trace.present else graph.forward

    def count_parameters(self, module):
        """Number of parameters of a module; None: it is none."""
        return sum(p.numel() for p in module.parameters()) if hasattr(module, "parameters") else None


dynamo = Dynamo()


def create_backend(name=None, epoch=None, step=None, image_idx=None, image_size=None, enable=True, autograd=True):
    """A backend for torch.compile."""
    return Dynamo(name, epoch, step, image_idx, image_size, enable)._backend(autograd)


def _trace_start_us(result):
    """When the profiler began, of which its events' times count."""
    known = getattr(getattr(result, "profiler", None), "kineto_results", None)
    for name, units in (("trace_start_ns", 1000), ("trace_start_us", 1)):
        if hasattr(known, name):
            return getattr(known, name)() / units
    return dftracer.get_instance().start_time


def trace_handler(profiler_result):
    """For torch.profiler.profile(on_trace_ready=...): its events with their times."""
    log, start = dftracer.get_instance(), _trace_start_us(profiler_result)
    for event in profiler_result.events():
        counted = {
            name: getattr(event, name, None) for name in ("cpu_memory_usage", "device_memory_usage", "is_remote")
        }
        log.log_event(event.key, "PP", start + event.time_range.start, event.time_range.elapsed_us(), int_args=counted)
