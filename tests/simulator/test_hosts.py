"""The rows of hosts, and what picks and bills them."""

from decimal import Decimal

from kimi_helpers.simulator.hosts import HOSTS, Host, allowed_hosts, cost


def test_hosts_have_slugs_and_names_of_their_own_and_say_what_they_follow() -> None:
    assert [host.slug for host in HOSTS] == [
        "faithful", "blanks", "reasoning-content", "think-in-content", "end-not-counted", "stripped",
        "compact-arguments", "spaced-arguments", "call-ids", "bare-ids", "hex-ids", "leaky-tools", "short-forced",
        "avian-like", "sglang-old", "trimmed-arguments", "returns-ids", "returns-bytes", "returns-content-bytes",
    ]  # fmt: skip
    assert len({host.name for host in HOSTS}) == len(HOSTS)
    assert all(host.follows.endswith(".") for host in HOSTS)


def test_two_hosts_add_a_system_prompt() -> None:
    assert [host.slug for host in HOSTS if host.system_prompt] == ["call-ids", "hex-ids"]


def test_provider_only_takes_slugs_and_tags_in_its_order() -> None:
    assert [host.slug for host in allowed_hosts(["blanks/int4", "Faithful"])] == ["blanks", "faithful"]
    assert allowed_hosts(["blanks/fp8", "elsewhere"]) == []


def test_cost_is_price_times_count() -> None:
    host = Host("h", "H", prompt_price="0.00000044", completion_price="0.000002")
    assert cost(host, 69, 66) == (Decimal("0.00003036"), Decimal("0.000132"))
