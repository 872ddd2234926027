"""Cutting, resizing and flipping of pictures on a CUDA device, all rows of a batch in one launch. The kernel is
compiled when it is first needed, by the compiler library (NVRTC) that comes with PyTorch; where that does not work
torch's own operators do the same (see _device.resize)."""

import ctypes
import glob
import importlib.util
import os
from typing import Any

import torch

# A thread makes one pixel: a triangle or a cubic around its middle in the source, as wide as the reduction but never
# narrower than the distance of two pixels (cubic: four), in both directions. `pictures` has address, height and width
# of each source (three planes), `plans` the native loader's plans.
SOURCE = r"""
static __device__ int reach(float middle, float support, int limit, int *last)
{
    int first = (int)(middle - support + 0.5f);
    *last = (int)(middle + support + 0.5f);
    if (*last > limit)
        *last = limit;
    return first < 0 || middle - support + 0.5f < 0 ? 0 : first;
}

static __device__ float weight(int pixel, float middle, float scale, int cubic)
{
    const float x = fabsf((pixel + 0.5f - middle) / scale);
    if (!cubic)
        return x < 1 ? 1 - x : 0;
    if (x < 1)
        return (1.5f * x - 2.5f) * x * x + 1;
    return x < 2 ? ((x - 5) * x + 8) * x * -0.5f + 2 : 0;
}

extern "C" __global__ void mr_resize(unsigned char *out, const long long *pictures, const int *plans, const int *rows,
                                     int height, int width, int planar)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, n = blockIdx.z;
    if (x >= width || y >= height)
        return;
    const int *p = plans + 18 * n;
    const long long *picture = pictures + 3 * n, plane = picture[1] * picture[2];
    const int i = y - p[13], k = (p[12] ? width - 1 - x : x) - p[14];
    float sum[3] = {0, 0, 0}, all = 0;
    if (i >= 0 && i < p[15] && k >= 0 && k < p[16]) {
        const float down = (float)p[6] / p[8], across = (float)p[7] / p[9];
        const float tall = down > 1 ? down : 1, wide = across > 1 ? across : 1;
        const int cubic = p[17] == 1;
        const float middle_y = (p[10] + i + 0.5f) * down, middle_x = (p[11] + k + 0.5f) * across;
        int last_y, first_y = reach(middle_y, tall * (cubic + 1), p[6], &last_y);
        int last_x, first_x = reach(middle_x, wide * (cubic + 1), p[7], &last_x);
        for (int v = first_y; v < last_y; v++) {
            const unsigned char *row = (const unsigned char *)picture[0] + (p[4] + v) * picture[2] + p[5];
            const float wy = weight(v, middle_y, tall, cubic);
            for (int u = first_x; u < last_x; u++) {
                const float w = wy * weight(u, middle_x, wide, cubic);
                all += w;
                for (int c = 0; c < 3; c++)
                    sum[c] += w * row[c * plane + u];
            }
        }
    }
    const long long pixels = (long long)height * width, at = (long long)y * width + x;
    unsigned char *to = out + 3 * pixels * rows[n];
    for (int c = 0; c < 3; c++) {
        const float v = all > 0 ? sum[c] / all + 0.5f : 0;
        to[planar ? c * pixels + at : 3 * at + c] = (unsigned char)(v > 255 ? 255 : v < 0 ? 0 : v);
    }
}
"""
_BLOCK = (32, 8)


def _library() -> Any:
    """NVRTC as PyTorch carries it."""
    places: list[str] = []
    spec = importlib.util.find_spec("nvidia")
    for root in list(spec.submodule_search_locations or []) if spec is not None else []:
        places += sorted(glob.glob(os.path.join(root, "*", "lib", "libnvrtc.so.*")))
    places += sorted(glob.glob(os.path.join(os.path.dirname(torch.__file__), "lib", "libnvrtc*.so*")))
    major = (torch.version.cuda or "").split(".")[0]
    places = [p for p in places if "builtins" not in p and ".alt." not in p] + [f"libnvrtc.so.{major}", "libnvrtc.so"]
    for place in places:
        try:
            return ctypes.CDLL(place)
        except OSError:
            continue
    raise OSError("there is no libnvrtc")


def _compile(capability: Any) -> bytes:
    nvrtc, program, size = _library(), ctypes.c_void_p(), ctypes.c_size_t()
    code = nvrtc.nvrtcCreateProgram(ctypes.byref(program), SOURCE.encode(), b"millrace.cu", 0, None, None)
    option = f"--gpu-architecture=sm_{capability[0]}{capability[1]}".encode()
    code = code or nvrtc.nvrtcCompileProgram(program, 1, (ctypes.c_char_p * 1)(option))
    if code:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value + 1)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise OSError(f"NVRTC failed with {code}: {log.value.decode(errors='replace')[:500]}")
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    binary = ctypes.create_string_buffer(size.value)
    if nvrtc.nvrtcGetCUBIN(program, binary):
        raise OSError("NVRTC made no code")
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return binary.raw


class Resizer:
    """The kernel on one device."""

    def __init__(self, device: torch.device) -> None:
        with torch.cuda.device(device):
            torch.zeros(1, device=device)  # makes the context
            binary = _compile(torch.cuda.get_device_capability(device))
            self._driver, module = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
            self._function = ctypes.c_void_p()
            code = self._driver.cuModuleLoadData(ctypes.byref(module), binary)
            code = code or self._driver.cuModuleGetFunction(ctypes.byref(self._function), module, b"mr_resize")
            if code:
                raise OSError(f"the driver refused the kernel with {code}")

    def __call__(
        self,
        out: torch.Tensor,
        pictures: torch.Tensor,
        plans: torch.Tensor,
        rows: torch.Tensor,
        size: Any,
        planar: bool,
    ) -> None:
        """On the current stream; all tensors are on the device."""
        values: list[Any] = [ctypes.c_void_p(t.data_ptr()) for t in (out, pictures, plans, rows)]
        values += [ctypes.c_int(n) for n in (*size, int(planar))]
        places = (ctypes.c_void_p * len(values))(*(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values))
        grid = (-(-size[1] // _BLOCK[0]), -(-size[0] // _BLOCK[1]), len(rows))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        code = self._driver.cuLaunchKernel(self._function, *grid, *_BLOCK, 1, 0, stream, places, None)
        if code:
            raise OSError(f"the driver refused to start the kernel with {code}")


def resizer(device: torch.device) -> "tuple[Resizer | None, str]":
    """The kernel, or None and why there is none."""
    try:
        return Resizer(device), ""
    except Exception as why:
        return None, str(why)
