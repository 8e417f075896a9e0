"""The ops in a slice of the card, on a driver that is made up: it answers, and refuses launches, by stream."""

from typing import Any

import pytest
import torch
from made_up_driver import Driver, Stream, card_of

from kernels import rope_attention, warm_up
from kernels.limits import Share
from kernels.op import arguments
from kernels.runtime import streams


class Card(Driver):
    def __init__(self) -> None:
        super().__init__()
        self.asked_on: list[int] = []  # the device that was current, at each question for a green context

    def cuStreamGetGreenCtx(self, stream: int) -> Any:
        self.asked_on.append(self.device)
        return super().cuStreamGetGreenCtx(stream)

    def largest(self, *arguments: Any) -> int:
        """The largest cluster of the launches of `call(*arguments)`, which all go to the current stream."""
        self.launched.clear()
        call(*arguments)
        assert self.launched and {stream for _, _, stream in self.launched} == {self.stream}
        return max(cluster for cluster, _, _ in self.launched)


card = card_of(Card)


def call(hdim: int = 4096, dtype: torch.dtype = torch.float32, seq_q: int = 64, seq_k: int = 64) -> None:
    q, k = (torch.zeros(1, 4, seq, hdim, dtype=dtype) for seq in (seq_q, seq_k))
    rope_attention(q, k, k, fallback=False)


@pytest.mark.parametrize("sms", [8, 24, 48, 128])
def test_slice_is_launched_clusters_that_it_takes(card: Card, sms: int) -> None:
    card.stream, card.streams = 96, {96: Stream(7, sms, 8)}
    for hdim in (64, 128, 256, 512, 1024, 2048, 4096, 8192, 12_288):
        for seq in (16, 64, 300):
            assert card.largest(hdim, torch.float32, seq, seq) <= 8
    for hdim in (64, 128, 256):
        for seq_q in (1, 64, 500):
            assert card.largest(hdim, torch.float16, seq_q, 500) == 1


def test_slice_of_large_clusters_and_whole_card_are_launched_16(card: Card) -> None:
    assert card.largest() == 16
    card.stream, card.streams = 96, {96: Stream(7, 64, 16)}
    assert card.largest() == 16


def test_decode_splits_keys_over_the_multiprocessors_of_the_slice(card: Card) -> None:
    def blocks() -> int:
        card.launched.clear()
        call(128, torch.float32, 1, 100_000)
        return card.launched[0][1]

    whole = blocks()
    card.stream, card.streams = 96, {96: Stream(7, 24, 8)}
    assert (whole, blocks()) == (256, 32)


def test_stream_handle_used_again_is_asked_again(card: Card) -> None:
    card.stream = 96
    for stream, largest in ((Stream(7, 48, 8), 8), (Stream(8), 16), (Stream(9, 64, 4), 4), (Stream(10, 48, 8), 8)):
        card.streams = {96: stream}
        assert card.largest() == largest == card.largest()


def test_torchs_own_streams_are_asked_once(card: Card) -> None:
    made_in_green = Stream(4, 48, 8, torchs=True)
    card.streams = {64: Stream(3, torchs=True), 65: made_in_green}
    for card.stream in (0, 64, 65):
        call()
    asked = card.asked
    for card.stream, largest in ((0, 16), (64, 16), (65, 8)):
        assert card.largest() == largest
    assert card.asked == asked > 0


@pytest.mark.parametrize("seen_whole", [True, False])
def test_green_context_that_is_current_on_stream_0_is_found_where_it_refuses(card: Card, seen_whole: bool) -> None:
    if seen_whole:
        assert card.largest() == 16
    card.current = Stream(1, 48, 8)
    card.launched.clear()
    call()
    assert card.launched[-1][0] == 8
    card.current = Stream(0)
    assert card.largest() == 16


def test_green_context_is_asked_for_on_the_device_of_the_tensors(card: Card) -> None:
    card.tensor_device, card.current, card.asked_on = 1, Stream(1, 48, 8), []
    card.largest()
    assert card.asked_on and {*card.asked_on} == {1}


def test_driver_before_green_contexts_is_not_asked_for_them(card: Card) -> None:
    card.version, card.stream, card.streams = 12_020, 96, {96: Stream(7)}
    assert card.largest() == 16


def test_warm_up_loads_what_calls_in_the_current_slice_launch(card: Card) -> None:
    card.stream, card.streams = 96, {96: Stream(7, 48, 8)}
    count = warm_up(4, 4, 2048, dtype=torch.float32, seq_q=(16, 64), device="cpu")
    loaded = list(card.names)
    assert len(loaded) == count + 1 and streams.PROBE in loaded
    for seq in (16, 64):
        assert card.largest(2048, torch.float32, seq, seq) <= 8
    assert card.names == loaded


def test_capture_in_a_slice_replays_what_a_call_there_has_loaded(card: Card) -> None:
    assert card.largest() == 16
    card.stream, card.streams = 96, {96: Stream(7, 48, 8), 97: Stream(8, 48, 8)}
    card.captures = True
    with pytest.raises(RuntimeError, match="on tensors and a slice of the card alike, before the capture"):
        call()
    card.captures = False
    call()
    loaded = list(card.names)
    card.captures = True
    for card.stream in (96, 97):
        assert card.largest() == 8
    assert card.names == loaded


def test_mig_instance_that_takes_small_clusters_is_planned_for(card: Card) -> None:
    card.current = Stream(0, cluster=4)  # the whole card, as the process sees it
    assert card.largest() == 4
    assert streams.share_of(0) == Share(132, 4)


def test_settled_calls_of_two_slices_keep_plans_apart(card: Card) -> None:
    card.streams = {96: Stream(7, 48, 8), 97: Stream(8, 40, 2)}
    for _ in range(2):
        for card.stream, largest in ((96, 8), (97, 2), (0, 16)):
            assert card.largest() == largest
    (settled,) = arguments._settled.values()
    assert {*settled.launches} == {Share(48, 8), Share(40, 2), Share(132, 16), 0}
