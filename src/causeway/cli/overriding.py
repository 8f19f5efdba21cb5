"""Options that override keys of a scenario: ``--set KEY=VALUE``, and short forms of frequent ones."""

from __future__ import annotations

from collections.abc import Sequence

from causeway.model.document import quoted
from causeway.model.errors import InvalidInput


def overrides_of(
    settings: Sequence[str],
    *,
    protocol: str | None = None,
    master: str | None = None,
    executor: str | None = None,
    traffic: str | None = None,
    partitions: int | None = None,
    ticks: int | None = None,
    spark: Sequence[str] = (),
) -> dict[str, str]:
    """Return what options say of keys of a scenario. Raises ``InvalidInput``."""
    overrides = dict(setting(text) for text in settings)
    for key, value in (
        ("network.protocol", protocol),
        ("network.master", master),
        ("network.executor", executor),
        ("traffic.path", traffic),
    ):
        if value is not None:
            overrides[key] = quoted(value)
    for key, number in (("network.partitions", partitions), ("network.ticks", ticks)):
        if number is not None:
            overrides[key] = str(number)
    for text in spark:
        name, chosen = _spark_setting(text)
        overrides[f'network.spark."{name}"'] = quoted(chosen)
    return overrides


def setting(text: str, option: str = "--set") -> tuple[str, str]:
    """Return key and value of ``--set KEY=VALUE``, or of another ``option`` of this form."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        example = "spark.executor.memory=4g" if option == "--conf" else "network.seed=3"
        raise InvalidInput(f"{option} {text}: write KEY=VALUE, for example {example}")
    return key.strip(), value.strip()


def _spark_setting(text: str) -> tuple[str, str]:
    """Return key and value of ``--conf KEY=VALUE``."""
    from causeway.network.settings import refuse_spark_key

    name, value = setting(text, "--conf")
    try:
        refuse_spark_key(name)
    except ValueError as error:
        raise InvalidInput(f"--conf {name}: {error}") from None
    return name, value
