"""A device of a machine that has none: numbers of the CPU that say they lie on "cuda:0", and refuse what a GPU refuses.

Products of tensors here and there are an error, as are numpy's views of what lies there; what goes there and back is counted.
So the tests of devices mean the same on a machine without a GPU; on one that has it they use that.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from geogp.basis import recorded
from geogp.engines import asked

THERE = torch.device("cuda", 0)
#: What may look at tensors of both: moves, and choices of rows there by numbers here.
BOTH = {
    Tensor.copy_,
    Tensor.__getitem__,
    Tensor.__setitem__,
    Tensor.set_,
    Tensor.is_set_to,
    torch.is_same_size,
    torch._has_compatible_shallow_copy_type,
}
#: What waits for the device.
WAITS = {
    Tensor.item, Tensor.tolist, Tensor.__bool__, Tensor.__float__, Tensor.__int__, Tensor.__index__, Tensor.cpu,
    Tensor.nonzero, torch.nonzero, Tensor.unique, torch.unique, torch.equal, Tensor.equal, torch.allclose,
}  # fmt: skip
#: What takes a shape from its second tensor and lies with its first.
SHAPED = {Tensor.expand_as, Tensor.view_as, Tensor.reshape_as}
#: What was counted: "waits" for what comes back, "brought" of tensors that go there.
COUNTED: Counter[str] = Counter()


class There(Tensor):
    """A tensor of the CPU that says it lies elsewhere."""

    device = property(lambda self: THERE)  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not all(issubclass(cls, kind) for kind in types):
            return NotImplemented
        if _is_property(func):
            with torch._C.DisableTorchFunctionSubclass():
                return each(there, func(*args, **kwargs))
        if func in (Tensor.numpy, Tensor.__array__):
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")
        if func in WAITS:
            COUNTED["waits"] += 1
        if func is Tensor.new_tensor or (
            func in (Tensor.__getitem__, Tensor.__setitem__) and _numbers_here(args[1])
        ):
            COUNTED["brought"] += 1
        if func is Tensor.cpu:
            return here(args[0])
        if func in SHAPED and not isinstance(args[0], There):
            return func(args[0], here(args[1]))
        in_backward = torch._C._current_graph_task_id() != -1  # there all tensors are plain
        if func not in BOTH and not in_backward and any(map(_lies_here, tensors((args, kwargs)))):
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! ({func})"
            )
        with torch._C.DisableTorchFunctionSubclass():
            return each(there, func(*args, **kwargs))  # slopes come as plain tensors

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("what lies elsewhere is not pickled")

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copy = there(here(self.detach()).clone())
        if isinstance(self, torch.nn.Parameter):
            copy = torch.nn.Parameter(copy, requires_grad=self.requires_grad)
        memo[id(self)] = copy
        return copy


def _numbers_here(index: Any) -> bool:
    """Whether rows are chosen by a list or a tensor of the CPU, which goes there first."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(p, list) or (isinstance(p, Tensor) and not isinstance(p, There)) for p in parts)


def _lies_here(value: Tensor) -> bool:
    """Whether it is a tensor of the CPU, and more than a number."""
    return type(value) in (Tensor, torch.nn.Parameter) and bool(value.dim())


def tensors(held: Any) -> Iterator[Tensor]:
    """Those in what a function is given: torch's own walk of trees took half of the time."""
    if isinstance(held, Tensor):
        yield held
    elif isinstance(held, tuple | list):
        for part in held:
            yield from tensors(part)
    elif isinstance(held, dict):
        yield from tensors(list(held.values()))


def each(change: Callable[[Tensor], Tensor], held: Any) -> Any:
    """The same with its tensors changed."""
    if isinstance(held, Tensor):
        return change(held)
    if isinstance(held, tuple | list) and any(True for _ in tensors(held)):
        return type(held)([each(change, part) for part in held])
    return held


def _is_property(func: Any) -> bool:
    return getattr(func, "__name__", "") in ("__get__", "__set__", "__delete__")


def there(value: Tensor) -> Tensor:
    """The tensor, said to lie elsewhere."""
    return value if isinstance(value, There) else value.as_subclass(There)


def here(value: Tensor) -> Tensor:
    """The tensor, said to lie on the CPU."""
    with torch._C.DisableTorchFunctionSubclass():
        return value.as_subclass(Tensor)


class Moves(TorchFunctionMode):
    """What makes tensors there, or brings them there or back."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is Tensor.to:
            return self._moved(args, dict(kwargs or {}))
        if not kwargs:
            return func(*args)
        if kwargs.get("device") is None:
            return func(*args, **kwargs)
        to_there = torch.device(kwargs["device"]).type == "cuda"
        first = next(tensors(args), None)
        args = tuple(each(lambda t: here(t) if isinstance(t, There) else t, part) for part in args)
        if not to_there:
            return func(*args, **kwargs)
        made = func(*args, **{**kwargs, "device": torch.device("cpu")})
        if not isinstance(first, There) and func in (torch.tensor, torch.as_tensor):
            COUNTED["brought"] += 1
        return there(made)

    def _moved(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        value, *rest = args
        asked_for = kwargs.pop("device", None)
        for k, r in enumerate(rest):
            if isinstance(r, Tensor):
                asked_for, rest[k] = r.device, r.dtype
            elif isinstance(r, torch.device | str):
                asked_for = torch.device(r)
                del rest[k]
                break
        if isinstance(kwargs.get("other"), Tensor):
            other = kwargs.pop("other")
            asked_for, rest = other.device, [other.dtype]
        to_there = (
            value.device.type == "cuda" if asked_for is None else torch.device(asked_for).type == "cuda"
        )
        was_there = isinstance(value, There)
        out = here(value) if was_there else value
        rest = [r for r in rest if isinstance(r, torch.dtype)]  # the others say how to copy
        if rest or kwargs:
            out = out.to(*rest, **kwargs)
        if was_there and not to_there and value.dim():  # torch moves numbers to where it takes a tensor for
            COUNTED["waits"] += 1
        if to_there and not was_there:
            COUNTED["brought"] += 1
            out = out.clone() if out is value else out  # another place has numbers of its own
        return there(out) if to_there else out


_honest_submit = ThreadPoolExecutor.submit


def _submit(self: ThreadPoolExecutor, work: Any, /, *args: Any, **kwargs: Any) -> Any:
    def within() -> Any:
        with Moves():
            return work(*args, **kwargs)

    return _honest_submit(self, within)


def _kept(work: Callable[[], Tensor]) -> tuple[recorded.Tape, Tensor]:
    """A recording that does the work again."""
    loss = there(torch.zeros(()))
    return SimpleNamespace(replay=lambda: loss.copy_(work())), loss


@contextmanager
def pretended() -> Iterator[str]:
    """The name of a device that this process takes for one meanwhile."""
    honest = asked.device_named
    overwrite = torch.__future__.get_overwrite_module_params_on_conversion()
    patch = pytest.MonkeyPatch()
    patch.setattr(asked, "device_named", lambda name: "cuda" if name == "cuda" else honest(name))
    patch.setattr(ThreadPoolExecutor, "submit", _submit)  # a mode is one of its thread
    patch.setattr(recorded, "_on_cuda", _kept)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with Moves():
            yield "cuda"
    finally:
        patch.undo()
        torch.__future__.set_overwrite_module_params_on_conversion(overwrite)


@contextmanager
def device() -> Iterator[str]:
    """The GPU of this machine, or one that is pretended."""
    if torch.cuda.is_available():
        yield "cuda"
        return
    with pretended() as name:
        yield name
