"""run.toml: the only place that reads TOML, and the words when it is wrong.

    target = "download"
    method = "dbk-rbf"
    split = "block"

    [model]
    rank = 256
    steps = 3000

What the command line says wins over the file, the file over the defaults.
"""

import ast
import tomllib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from app.choices import CountedBy, TargetName
from app.errors import InvalidInput
from geogp.errors import SEEDS, check_settings
from geogp.methods import DEFAULT
from geogp.methods import method as check_method
from geogp.registry import check_names

#: Parameters of the estimator that a run sets by itself.
_OWN = ("spatial", "time", "device", "random_state")


class FitConfig(BaseModel):
    """Everything a fit can be told. Unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: TargetName | None = None
    method: str = DEFAULT
    split: str = "none"
    refit: Literal["train+val"] | None = None
    counts: CountedBy = "tests"
    predictor: str | None = None
    covariates: str | None = None
    seed: int = Field(0, ge=0, lt=SEEDS)
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    deterministic: bool = False
    model: dict[str, Any] = Field(default_factory=dict)


def read_toml(path: str | Path) -> dict[str, Any]:
    """The document of a TOML file.

    Raises
    ------
    InvalidInput
        no such file, or not TOML; the message has the line.
    """
    path = Path(path)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # as some editors of Windows write it
    except OSError as error:
        raise InvalidInput(f"The configuration {path} cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:  # TOMLDecodeError is one; so is a number of 5,000 digits
        raise InvalidInput(f"The configuration {path} is not TOML: {error}.") from None


def fit_config(file: str | Path | None, given: Mapping[str, Any], model: Mapping[str, Any]) -> FitConfig:
    """The settings of a fit from a file (or None) and the command line.

    Parameters
    ----------
    file : run.toml
    given : settings of the command line; None means not said
    model : the same for the `[model]` table

    Raises
    ------
    InvalidInput
        naming the field and what was got.
    ImpossibleCombination
        a method, or a piece of one, that there is not.

    Examples
    --------
    >>> fit_config(None, {"method": "dbk-silu", "seed": None}, {"rank": 64}).model
    {'rank': 64}
    """
    document = {} if file is None else read_toml(file)
    options = document.pop("model", {})
    where = "the command line" if file is None else str(file)
    if not isinstance(options, dict):
        raise InvalidInput(f"In {where}: model must be a table, [model]; got {options!r}.")
    document |= {k: v for k, v in given.items() if v is not None}
    options = {**options, **{k: v for k, v in model.items() if v is not None}}
    try:
        checked = model_options()(**options).model_dump(exclude_unset=True) if options else {}
        chosen = FitConfig(**document, model=checked)
    except ValidationError as error:
        raise InvalidInput(f"In {where}: {_words(error, options)}.") from None
    check_settings(checked)
    check_method(chosen.method)
    check_names(checked)
    return chosen


def model_options() -> type[BaseModel]:
    """The `[model]` table: the estimator's parameters but those a run sets by itself.

    They are read from the estimator's source, for importing it takes seconds, and what is refused is refused at once.
    """
    spec = find_spec("geogp.estimator")
    assert spec is not None and spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    inits = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    taken = next(inits).args
    fields: dict[str, Any] = {
        asked.arg: (eval(ast.unparse(asked.annotation), {"Sequence": Sequence}), ast.literal_eval(default))
        for asked, default in zip(taken.kwonlyargs, taken.kw_defaults)
        if asked.arg not in _OWN and asked.annotation is not None and default is not None
    }
    config = ConfigDict(extra="forbid", protected_namespaces=())
    return create_model("model", __config__=config, **fields)


def setting(text: str) -> tuple[str, Any]:
    """`name=value` of `--set`, the value read as TOML where it is one, else as text.

    Examples
    --------
    >>> setting("rank=64"), setting("noise=constant"), setting("fourier_scales=[1.0, 3.0]")
    (('rank', 64), ('noise', 'constant'), ('fourier_scales', [1.0, 3.0]))
    """
    name, equals, value = text.partition("=")
    if not (name.strip() and equals):
        raise InvalidInput(f"--set is written NAME=VALUE; got {text!r}.")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return name.strip(), value.strip()


def _words(error: ValidationError, options: Mapping[str, Any]) -> str:
    """The first complaint: field, what was got, what it should be."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"] if part not in ("none", "constrained-str"))
    if error.title == "model":
        field = f"model.{field}"
    if first["type"] == "extra_forbidden":
        known = ", ".join(model_options().model_fields if error.title == "model" else FitConfig.model_fields)
        return f"there is no setting {field!r}; the settings are {known}"
    return f"{field} is {first['input']!r}: {first['msg'][0].lower()}{first['msg'][1:]}"
