"""The copy to a device, with the CPU as the device and with a double of torch.cuda."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import headrace
from headrace import device as device_module
from headrace import transforms as T


def loader_on(path: Path, device: str) -> headrace.Loader:
    return headrace.open(path).loader(
        batch_size=16, device=device, transforms={"cls": T.label()}, fields=["cls"]
    )


def test_batches_are_the_same_and_the_state_counts_delivered_ones(texts: Path) -> None:
    plain = headrace.open(texts).loader(batch_size=16, transforms={"cls": T.label()})
    loader = loader_on(texts, "cpu")
    expected = [b["cls"].tolist() for b in plain]
    seen = []
    for n, batch in enumerate(loader, 1):
        seen.append(batch["cls"].tolist())
        state = loader.state_dict()
        if n < len(loader):
            assert (state["epoch"], state["next_position"]) == (0, 16 * n)
        else:
            assert (state["epoch"], state["next_position"]) == (1, 0)
    assert seen == expected
    again = loader_on(texts, "cpu")
    again.load_state_dict({**state, "epoch": 0, "next_position": 160})
    assert [b["cls"].tolist() for b in again] == expected[10:]


def test_an_error_comes_in_its_turn_and_the_loop_may_go_on(texts: Path) -> None:
    def odd(data: bytes) -> int:
        if data == bad:
            raise ValueError("odd")
        return int(data)

    plain = headrace.open(texts).loader(batch_size=16, transforms={"cls": T.label()})
    expected = [b["cls"].tolist() for b in plain]
    bad = str(expected[7][3]).encode()
    loader = headrace.open(texts).loader(batch_size=16, device="cpu", transforms={"cls": odd})
    iterator = iter(loader)
    for n in range(7):
        assert next(iterator)["cls"].tolist() == expected[n]
        assert loader.state_dict()["next_position"] == 16 * (n + 1)
    with pytest.raises(headrace.DataLossError, match="odd"):
        next(iterator)
    assert loader.state_dict()["next_position"] == 16 * 8
    assert [b["cls"].tolist() for b in iterator] == expected[8:]


def test_a_new_iterator_begins_at_once_and_ends_the_old_one(texts: Path) -> None:
    loader = loader_on(texts, "cpu")
    old = iter(loader)
    next(old)
    loader.load_state_dict({**loader.state_dict(), "next_position": 160})
    new = iter(loader)
    assert loader.state_dict()["next_position"] == 160
    with pytest.raises(headrace.StateError, match="newer"):
        next(old)
    assert loader.state_dict()["next_position"] == 160
    next(new)
    assert loader.state_dict()["next_position"] == 176


class FakeStream:
    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    def wait_event(self, event: Any) -> None:
        self.log.append(f"{self.name} waits for {event}")


class FakeCuda:
    """Stands for torch.cuda: notes what is asked of it, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._current = FakeStream(self.log, "compute stream")

    def is_available(self) -> bool:
        return True

    def Stream(self, device: Any) -> FakeStream:
        return FakeStream(self.log, "copy stream")

    def stream(self, stream: FakeStream) -> Any:
        log = self.log

        class Within:
            def __enter__(self) -> None:
                log.append(f"begin on {stream.name}")

            def __exit__(self, *_: object) -> None:
                log.append(f"end on {stream.name}")

        return Within()

    def Event(self) -> Any:
        log = self.log

        class Event:
            def record(self, stream: FakeStream) -> None:
                log.append(f"event recorded on {stream.name}")

            def __str__(self) -> str:
                return "event"

        return Event()

    def current_stream(self, device: Any) -> FakeStream:
        return self._current


def test_without_cuda_the_setting_is_refused_in_plain_words(
    texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(headrace.StateError, match=r"device='cuda'.*no CUDA device"):
        loader_on(texts, "cuda")


def test_the_next_batch_is_under_way_before_the_first_is_given(
    texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = FakeCuda()
    monkeypatch.setattr(torch, "cuda", cuda)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda t: (cuda.log.append("pin"), t)[1])
    move = torch.Tensor.to

    def to(tensor: torch.Tensor, device: Any, non_blocking: bool = False) -> torch.Tensor:
        cuda.log.append("asynchronous copy" if non_blocking else "blocking copy")
        return move(tensor, "cpu")

    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda t, s: cuda.log.append("record"))
    loader = loader_on(texts, "cuda")
    assert isinstance(loader._copier, device_module.DeviceCopier)
    iterator = iter(loader)
    next(iterator)
    one = [
        "begin on copy stream",
        "pin",
        "asynchronous copy",
        "event recorded on copy stream",
        "end on copy stream",
    ]
    assert cuda.log == [*one, *one, "compute stream waits for event", "record"]
    loader.close()
