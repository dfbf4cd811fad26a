"""Array shapes in signatures, checked while the tests run: `Float[np.ndarray, "n d"]`, `Float[Tensor, "*batch r"]`.

The hook decorates the functions, methods and dataclasses of a package as it is imported. Where a signature names no
shape the decorator hands back what it was given, so that only what says a shape pays for it: jaxtyping's own hook
checks all other annotations as well, and made the tests of geogp a third slower before there was a shape in them.
Whether a call keeps its shapes depends on the kinds of what goes in and out alone, so the same kinds are checked once:
checked at every call, they took a sixth of the time of those tests.
"""

import ast
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import is_dataclass
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any, TypeVar, get_args

from beartype import beartype
from jaxtyping import AbstractArray, jaxtyped

T = TypeVar("T", type, Callable[..., Any])
#: What the decorator is called inside a module that is being imported.
DECORATOR = "_shapes_checked"


def names_shape(hint: Any) -> bool:
    return (isinstance(hint, type) and issubclass(hint, AbstractArray)) or any(
        map(names_shape, get_args(hint))
    )


def checked(what: T) -> T:
    """`what` with the shapes of its signature, or of its fields, checked at each call."""
    if isinstance(what, type) and not is_dataclass(what):
        return what
    if not any(names_shape(hint) for hint in getattr(what, "__annotations__", {}).values()):
        return what
    if isinstance(what, type):
        what.__init__ = once(what.__init__)  # type: ignore[misc]
        return what
    return once(what)


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, checked whenever kinds of arguments or of a result come that have not passed yet."""
    careful = jaxtyped(typechecker=shapes_alone)(function)
    passed: dict[Hashable, set[Hashable]] = {}

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        given = kind((arguments, named))
        results = passed.get(given)
        if results is None:
            result = careful(*arguments, **named)
        else:
            result = function(*arguments, **named)
            if kind(result) in results:
                return result
            jaxtyped(typechecker=shapes_alone)(wraps(function)(lambda *_, **__: result))(*arguments, **named)
        passed.setdefault(given, set()).add(kind(result))
        return result

    return call


def kind(value: Any) -> Hashable:
    """What a check of shapes can see of a value: its type, an array's dtype and shape, and what a container holds."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):  # of any library: torch is not loaded here
        return type(value), value.dtype, tuple(value.shape)
    if isinstance(value, tuple | list):
        return type(value), tuple(map(kind, value))
    if isinstance(value, dict):
        return type(value), tuple((name, kind(held)) for name, held in value.items())
    return type(value)


def shapes_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """Beartype's check of the annotations that name a shape: a float may still be an int."""
    function.__annotations__ = {name: h for name, h in function.__annotations__.items() if names_shape(h)}
    return beartype(function)


class Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        """Compiled afresh: the bytecode on disk is that of the file as it stands."""
        path = self.get_filename(fullname)
        tree = ast.parse(self.get_data(path), path)
        decorate(tree.body)
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[DECORATOR] = checked
        super().exec_module(module)


def decorate(body: list[ast.stmt]) -> None:
    """Functions nearest to their definition, so that what decorates them keeps their annotations; classes last."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            node.decorator_list.append(ast.copy_location(ast.Name(DECORATOR, ast.Load()), node))
        elif isinstance(node, ast.ClassDef):
            node.decorator_list.insert(0, ast.copy_location(ast.Name(DECORATOR, ast.Load()), node))
            decorate(node.body)


class Finder(MetaPathFinder):
    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = frozenset(packages)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.split(".")[0] not in self.packages:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = Loader(spec.loader.name, spec.loader.path)
        return spec


def install(*packages: str) -> None:
    """Check the shapes of what is imported of `packages` from here on."""
    sys.meta_path.insert(0, Finder(packages))
