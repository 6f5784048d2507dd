"""What a plan costs in money, by prices that are data: `prices.toml` beside this file, or the file that MIDMASK_PRICES
names."""

import os
import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from midmask.errors import UserError
from midmask.estimate.plan import Estimate
from midmask.identity import Config, as_user_error
from midmask.training.rehearsal import GIB

VARIABLE = "MIDMASK_PRICES"
SHIPPED = Path(__file__).with_name("prices.toml")

Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class StorePrices(Config):
    """Dollars for 1,000 requests that write or list, for 1,000 that read, and for a GiB that stays a month."""

    writes: Dollars
    reads: Dollars
    gib_month: Dollars


class PriceList(Config):
    """device_hour: dollars for an hour of one device, by its name in `--on`. source: where the prices are from, and of
    when."""

    source: str
    device_hour: dict[str, Dollars]
    store: StorePrices


def read_prices() -> PriceList:
    """The prices that are in force.

    Raises:
        UserError: if the file that MIDMASK_PRICES names is not there or is no list of prices.
    """
    path = Path(os.environ.get(VARIABLE) or SHIPPED)
    where, advice = f"{VARIABLE}={path}", f"Copy {SHIPPED} and change what it says."
    try:
        return PriceList.model_validate(tomllib.loads(path.read_text()))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{where}: {error}. {advice}") from None
    except ValidationError as error:
        raise UserError(f"{where}: {as_user_error(error, '')}. {advice}") from None


def priced(plan: Estimate) -> str:
    """A line with the sum of a plan on named devices; empty for this machine, and for CPUs without a price."""
    if plan.shape.label:
        return ""
    prices, device = read_prices(), plan.shape.device.name
    each = {name.lower(): price for name, price in prices.device_hour.items()}.get(device.lower())
    if each is None:
        if plan.shape.device.kind == "cpu":
            return ""
        return f"price: none is known for {device}; write one into a copy of {SHIPPED} and name it in {VARIABLE}"
    hours = plan.total_hours * plan.shape.count
    parts = [f"{hours * each:,.2f} USD for {hours:,.1f} hours of one {device} at {each:g}"]
    if plan.traffic is not None:
        asked = (prices.store.writes * plan.traffic.writes + prices.store.reads * plan.traffic.reads) / 1000
        month = prices.store.gib_month * plan.total_bytes / GIB
        parts += [f"{asked:,.2f} for requests", f"{month:,.2f} for each month in the store"]
    return f"price: {', '.join(parts)} ({prices.source})"
