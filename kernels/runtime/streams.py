"""The share of a card that a stream launches to, queried from the driver once a stream.

A stream of a green context launches to a slice of the card, which has fewer multiprocessors and takes smaller clusters.
Torch's own streams live as long as the process, so their handles tell them apart. Other streams come and go, and a
handle may be used again: the driver's id of the stream tells them apart. The driver does not tell it during a capture:
each call asks for the share anew then. Stream 0 is that of the context that is current, which costs a driver call to
see: it is taken for that of the whole card until a launch is refused.
"""

import contextlib
from typing import Any

from ..limits import Share, limits_of
from ..version import Kernel, Launch, SharedLayout, Unsupported
from . import gpu, kept

MOST_STREAMS = 4096  # that are remembered of others than torch
NO_SUCH_CLUSTER = "CUDA_ERROR_INVALID_CLUSTER_SIZE"
CLUSTERS = (16, 8, 4, 2)
PROBE = ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry probe() { ret; }\n"

_lasting: dict[tuple[int, int], Share] = kept({})  # of torch's own streams, by device and handle
_others: dict[int, Share] = kept({})  # by id


def share_of(device: int) -> Share:
    """The share of torch's current stream; `device` is the current one. Raises: GpuError."""
    stream = gpu.DRIVER.current_stream(device)
    found = _lasting.get((device, stream))
    if found is None and not gpu.DRIVER.capturing():
        found = _others.get(gpu.stream_id(stream))
    return found or _ask(device, stream)


def plans(kept: dict[Any, dict[int, Any]], device: int) -> dict[int, Any]:
    """The plans that are kept for the share of torch's current stream, by the share and by handles that last."""
    stream, found = gpu.DRIVER.current_stream(device), kept.setdefault(share_of(device), {})
    if (device, stream) in _lasting:
        kept[stream] = found
    return found


def green_share(device: int) -> Share:
    """The share of the current stream, in a slice that refused a cluster. Raises: GpuError."""
    share = _ask(device, gpu.DRIVER.current_stream(device))
    return share._replace(cluster=min(share.cluster, gpu.PORTABLE_CLUSTER))


def _ask(device: int, stream: int) -> Share:
    sms = gpu.green_sms(stream)
    share = Share(sms, _largest_cluster()) if sms else _whole(device)
    if stream and stream == gpu.DRIVER.torch_stream(device).stream_id:  # it is not torch's own
        if gpu.DRIVER.capturing():
            return share
        if len(_others) >= MOST_STREAMS:
            _others.clear()
        _others[gpu.stream_id(stream)] = share
    elif stream or not sms:
        _lasting[device, stream] = share
    return share


@kept
def _whole(device: int) -> Share:
    return Share(gpu.multiprocessors(device), _largest_cluster())


def _largest_cluster() -> int:
    """Blocks of the largest cluster, each with an SM to itself, that the current stream takes."""
    limits = limits_of(gpu.device_target())
    if limits.cluster == 1:
        return 1
    function, kernel = gpu.load_ptx(PROBE), Kernel(probe, ())
    whole_sm = SharedLayout(all=limits.block_shared_bytes // 4)
    for cluster in CLUSTERS:
        with contextlib.suppress(Unsupported):
            gpu.configure(function, Launch(kernel, (cluster,), (32,), (), whole_sm, cluster=cluster))
            return cluster
    return 1


def probe() -> None:
    """The kernel of PROBE, which does nothing."""
