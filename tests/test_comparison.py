"""Intervals, comparison, tool-call checks, recommendation, listing table and calibration prompts, by hand."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from kimi_helpers.calibration import CalibrationError, estimate, prompt_id_of, prompts_that_tell, read_calibration
from kimi_helpers.comparison import Compared, compare_hosts, comparison_table
from kimi_helpers.formats import FORMATS
from kimi_helpers.intervals import bootstrap, wilson
from kimi_helpers.listing_table import listing_table, select_endpoints
from kimi_helpers.listings import Endpoint, Pricing
from kimi_helpers.prompt_check import PromptGrade
from kimi_helpers.recommendation import recommend
from kimi_helpers.reconstruction import Grade
from kimi_helpers.replies import Reply, parse_reply
from kimi_helpers.tool_call_checks import calls_are_valid, f1
from kimi_helpers.vocabulary import load_vocabulary
from tests.reply_samples import completion

ROW = Compared("A", "a/int4", "q", Grade.exact_unique, PromptGrade.equal, None, None, False, 2.0, 0.5, 100, 0.001)


@pytest.mark.parametrize(("successes", "n"), [(0, 1), (1, 1), (3, 3), (7, 40), (40, 40)])
def test_wilson_is_scipy_s(successes: int, n: int) -> None:
    ours, theirs = wilson(successes, n), binomtest(successes, n).proportion_ci(method="wilson")
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high))


def test_intervals_at_their_borders() -> None:
    assert wilson(0, 0).text() == "- (n = 0)"
    with pytest.raises(ValueError, match="5 successes of 3"):
        wilson(5, 3)
    same = bootstrap([(2.0,)] * 5, lambda samples: samples[..., 0].mean(axis=1))
    assert (same.value, same.low, same.high, same.n) == (2.0, 2.0, 2.0, 5)
    none = bootstrap([(1.0,)] * 3, lambda samples: np.full(len(samples), np.inf))
    assert none.value is None


def test_the_figures_of_a_host() -> None:
    lost = replace(ROW, grade=Grade.failed, tokens=0, dollars=0.001, seconds=None)
    vague = replace(ROW, grade=Grade.exact_ambiguous, asked="r", cut=True, seconds=4.0)
    (host,) = compare_hosts([ROW, lost, vague])
    assert (host.requests, host.success.value, host.exact.value) == (3, 2 / 3, 1 / 3)
    assert host.cut.value == 0.5
    assert host.dollars_a_million_exact.value == pytest.approx(0.003 / 100 * 1e6)
    assert host.dollars_a_million.value == pytest.approx(0.003 / 200 * 1e6)
    assert host.latency_p50.value == 3.0
    assert host.tokens_a_second.value == pytest.approx(200 / 6)
    assert host.trigger_f1.value is None
    assert list(comparison_table([host]).index) == ["A"]


def test_a_failure_that_names_no_host_belongs_to_its_endpoint() -> None:
    lost = replace(ROW, host="(unnamed host of no model)", grade=Grade.failed)
    assert [host.requests for host in compare_hosts([lost, ROW])] == [2]


def test_trigger_agreement_is_the_verifier_s() -> None:
    theirs = [replace(ROW, host="R", slug="r", asked=str(n), triggered=n < 6) for n in range(10)]
    ours = [replace(ROW, asked=str(n), triggered=n in (0, 1, 2, 9)) for n in range(10)]
    first = compare_hosts([*ours, *theirs], "R")[0]
    assert first.trigger_f1.value == pytest.approx(2 * 3 / (4 + 6))
    assert f1(0, 0, 0) is None


@pytest.mark.parametrize(
    ("arguments", "valid"),
    [('{"city": "Oslo"}', True), ('{"city": 1}', False), ("{}", False), ("{", False), ("[" * 10**5, False)],
)  # fmt: skip
def test_calls_are_held_against_their_schema(arguments: str, valid: bool) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    request: dict[str, Any] = {"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]}
    call = {"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": arguments}}
    told = parse_reply(completion({"tool_calls": [call]}, "tool_calls"))
    assert isinstance(told, Reply)
    assert calls_are_valid(told, request) is valid
    assert calls_are_valid(told, None) is None
    request["tools"][0]["function"]["name"] = "g"
    assert calls_are_valid(told, request) is False


def test_a_recommendation_needs_a_difference_that_resampling_keeps() -> None:
    dear = [replace(ROW, host="B", slug="b", asked=str(n), dollars=0.002) for n in range(30)]
    cheap = [replace(ROW, asked=str(n)) for n in range(30)]
    same = [replace(row, host="C", slug="c") for row in cheap]
    rows = [*dear, *cheap]
    told = recommend(compare_hosts(rows), rows)
    assert (told.host, told.slug, told.contenders) == ("A", "a/int4", ("A",))
    rows += same
    refused = recommend(compare_hosts(rows), rows)
    assert (refused.host, set(refused.contenders)) == (None, {"A", "C"})
    few = recommend(compare_hosts(cheap[:19]), cheap[:19])
    assert few.host is None
    assert few.contenders == ()


def test_the_listing_is_filtered_and_sorted() -> None:
    price = Pricing(prompt=Decimal("0.0000005"), completion=Decimal("0.000002"))
    first = Endpoint("a/fp8", "A", price, quantization="fp8", supported_parameters=frozenset({"logprobs"}))
    second = Endpoint("b/int4", "B", replace(price, completion=Decimal("0.000001")), quantization="int4")
    unpriced = Endpoint("c", "C", Pricing())
    table = listing_table([first, second, unpriced])
    assert list(select_endpoints(table, "completion $/M")["endpoint"]) == ["b/int4", "a/fp8", "c"]
    assert list(select_endpoints(table, "-completion $/M")["endpoint"]) == ["a/fp8", "b/int4", "c"]
    assert list(select_endpoints(table, "endpoint", parameters=["logprobs"])["endpoint"]) == ["a/fp8"]
    assert list(select_endpoints(table, "endpoint", quantizations=["int4"])["endpoint"]) == ["b/int4"]
    assert list(select_endpoints(table, "endpoint", most_completion_price=1.5)["endpoint"]) == ["b/int4"]
    assert table["completion $/M"].iloc[0] == pytest.approx(2.0)
    with pytest.raises(ValueError, match="no column 'colour'"):
        select_endpoints(table, "colour")


def test_a_calibration_is_estimated_before_it_is_paid() -> None:
    format = FORMATS["kimi-k2.5"]
    prompts = read_calibration()
    vocabulary = load_vocabulary(format=format.name)
    told = estimate(prompts[:1], vocabulary, format, Decimal(1), Decimal(2), samples=3)
    length = len(format.prompt_ids(vocabulary, list(prompts[0].prompt.messages)))
    assert (told.requests, told.prompt_tokens, told.completion_tokens) == (6, 6 * length, 6 * prompts[0].tokens)
    assert told.dollars == 6 * (length + 2 * prompts[0].tokens)
    assert told.most_dollars == 6 * (length + 2 * prompts[0].max_tokens)
    assert estimate(prompts, vocabulary, format, None, Decimal(1)).dollars is None


def test_calibration_prompts_are_found_again() -> None:
    prompts = read_calibration()
    request = {"messages": [dict(message) for message in prompts[3].prompt.messages]}
    assert prompt_id_of(json.loads(json.dumps(request)), prompts) == prompts[3].prompt.id
    assert prompt_id_of({"messages": []}, prompts) is None
    assert "call-forced-7" in prompts_that_tell("forced call", prompts)


@pytest.mark.parametrize("text", ["", "[]", '{"id": "a"}', '{"id": "a", "messages": [], "tokens": 0}'])
def test_a_file_that_holds_no_calibration_prompts_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text(text)
    with pytest.raises(CalibrationError, match=r"c\.jsonl"):
        read_calibration(tmp_path / "c.jsonl")
