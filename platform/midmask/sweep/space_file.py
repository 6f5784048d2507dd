"""Search spaces and lists of indexes as YAML files: what is read, and what is refused in one line."""

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from midmask.errors import UserError, reason
from midmask.identity import Config, as_user_error

C = TypeVar("C", bound=Config)

LARGEST_FILE = 64 << 10
"""Bytes of a YAML file that are read; those in `search_spaces/` have some 2,000."""


def load_fields(path: Path, form: type[C], wanted: str) -> C:
    """The fields in a YAML file.

    Args:
        wanted: the message for a file that holds no mapping.

    Raises:
        UserError: if the file is missing, is no YAML mapping, has an alias or a wrong field; the line names the field.
    """
    data = _read_yaml(path)
    if not isinstance(data, dict):
        raise UserError(wanted)
    try:
        return form.model_validate(data)
    except ValidationError as error:
        raise as_user_error(error, path.name) from None


class _Loader(yaml.SafeLoader):
    """YAML without aliases: ten short lines of them stand for billions of values."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            alias: yaml.AliasEvent = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.YAMLError(f"the alias *{alias.anchor} is not read; write the values out")
        return super().compose_node(parent, index)


def _read_yaml(path: Path) -> Any:
    """The plain data of a YAML file.

    Raises:
        UserError: if the file is missing, too large, no YAML, or has an alias.
    """
    try:
        with open(path, "rb") as stream:
            data = stream.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise UserError(f"search space {path}: larger than {LARGEST_FILE >> 10} KiB, so it is none")
        return yaml.load(data.decode(), _Loader)
    except FileNotFoundError:
        names = ", ".join(sorted(found.name for found in path.parent.glob("*.yaml"))) or "none"
        raise UserError(f"search space {path}: no such file; in {path.parent}: {names}") from None
    except OSError as error:
        raise UserError(f"search space {path}: it cannot be read ({reason(error)})") from None
    except yaml.YAMLError as error:
        raise UserError(f"search space {path}: not YAML ({' '.join(str(error).split())})") from None
    except (ValueError, RecursionError) as error:  # no UTF-8; `!!int abc`, the date 2024-13-99; deep nesting
        raise UserError(f"search space {path}: not YAML ({reason(error)})") from None
